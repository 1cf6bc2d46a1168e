"""The command tree: every command under its name, `--help` and `--version`."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer

#: The function behind each command; a group of commands, `draw`, is a function that makes it.
COMMANDS = {
    "list": "lanewise.cli.commands.listing:list_forms",
    "explain": "lanewise.cli.commands.explain:explain",
    "draw": "lanewise.cli.commands.draw:draw_app",
    "compute": "lanewise.cli.commands.compute:compute",
    "atoms": "lanewise.cli.commands.atoms:atom_names",
    "run": "lanewise.cli.commands.run:run",
    "check": "lanewise.cli.commands.check:check",
    "debug": "lanewise.cli.commands.debug:debug",
    "explore": "lanewise.cli.commands.explore:explore",
    "ptx": "lanewise.cli.commands.ptx:ptx",
    "sass": "lanewise.cli.commands.sass:sass",
    "plan": "lanewise.cli.commands.plan:plan",
    "doctor": "lanewise.cli.commands.doctor:doctor",
    "cache": "lanewise.cli.commands.cache:cache",
}


#: What the list of commands says, where the first line of a command's own help is too long for it.
SHORT = {
    "list": "List the matrix instructions that fit all conditions.",
    "explain": "Explain an instruction, a descriptor or a tensor map.",
    "draw": "Draw layouts, atoms, instructions, swizzles, banks.",
    "explore": "Explore instructions, layouts, bits and kernels in a browser.",
    "run": "Run a kernel on the CPU.",
    "check": "Check a kernel while it runs on the CPU.",
    "debug": "Debug a kernel on the CPU, forwards and backwards.",
    "ptx": "Compile CUDA C++ to PTX.",
    "sass": "Show the machine code (SASS) of a kernel.",
    "plan": "Say how lw.matmul would compute a product, and why.",
    "doctor": "Say what is installed here, and what works.",
    "cache": "Show what was compiled and is kept on disk.",
}


def _version(asked: bool) -> None:
    if asked:
        from lanewise import __version__

        print(f"lanewise {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ask about NVIDIA's matrix instructions: which there are, which lane holds what, what they compute. Run
    and check kernels without a GPU.

    \b
    lanewise list --arch sm_86 --a bf16
    lanewise explain mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 --element A 3 9
    lanewise draw layout "((4,8),(2,2)):((32,1),(16,8))"
    lanewise compute mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 a.npy b.npy --arch sm_80 --versus sm_90
    lanewise run examples/hgemm.py
    lanewise run kernel.cu --grid 8,8 --block 128 --arg a.npy --arg zeros:f32:64x64 --arg 64
    lanewise check kernel.ptx --grid 8 --block 128 --arg random:f32:1024
    lanewise debug script.py --check
    lanewise explore
    lanewise plan 4096 4096 4096 --dtype bf16
    lanewise doctor

    Each command's --help has more examples. Tables become plain text in a pipe.
    """


def command(wanted: str = "") -> Any:
    """The argument parser of every command, or of the one wanted; rich sets its help on a terminal."""
    app = typer.Typer(
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_root)
    for name in (wanted,) if wanted in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        loaded = getattr(import_module(module), function)
        if name == "draw":
            app.add_typer(loaded(), name=name, short_help=SHORT[name])
        else:
            app.command(name, short_help=SHORT.get(name))(loaded)
    return typer.main.get_command(app)
