"""The command line: `lanewise list`, `explain`, `draw`, `compute`, `run`, `check`, `debug`, `explore`,
`ptx`, `sass`, `doctor`, `cache`.

`main` runs it and turns every complaint into one line; each command has a module of its own.
"""

import errno
import os
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path

INTERRUPTED = 130
#: What a shell reports for a program that a closed pipe ended; `| head` is no error and gets no message.
PIPE_CLOSED = 141
REFUSED = 2
#: A mistake in lanewise itself.
BROKEN = 1
#: Set by a shell that wants words completed.
_COMPLETING = "_LANEWISE_COMPLETE"
#: Options and commands as other tools call them; the first that there is counts.
_ELSEWHERE = {
    "--kernel": "--entry", "--function": "--entry", "--device": "--gpu", "--target": "--arch",
    "--sm": "--arch", "--threads": "--block", "--blocks": "--grid", "--dtype": "--a", "version": "--version",
    "--a": "--dtype", "--save": "-o", "--output": "-o", "--out": "-o",
}  # fmt: skip
#: What the argument parser proposes in place of an option that there is not.
_PARSERS_GUESS = re.compile(r"\.?\s*(\(Possible options?: [^)]*\)|\(?Did you mean [^?]*\?\)?)\s*$")
#: What it says about a word that is none of a list, and about words too many.
_NONE_OF = re.compile(r"'([^']*)' is not one of (.*)")
_TOO_MANY = "unexpected extra argument"
#: Commands of other tools, and what serves instead.
_COMMANDS_ELSEWHERE = {
    "trace": "`lanewise debug FILE` steps through a kernel; in Python, lw.trace(kernel[grid, block], …).",
    "profile": "`lanewise check FILE --counters` prints counters and what costs time.",
    "bench": "In Python, lw.benchmark(f) measures.",
    "benchmark": "In Python, lw.benchmark(f) measures.",
    "python": "`lanewise run script.py` runs a script.",
    "compile": "`lanewise ptx FILE` and `lanewise sass FILE` compile.",
    "build": "`lanewise ptx FILE` and `lanewise sass FILE` compile.",
    "info": "`lanewise doctor` says what is installed and what works.",
    "gpu": "`lanewise run --gpu H100 FILE` runs a program on a virtual GPU.",
    "tune": "In Python, lw.tune(a, b) measures plans of lw.matmul.",
}
#: Options that take the name of a GPU.
_GPU_OPTIONS = ("--arch", "--versus", "--gpu")
#: Endings of files that commands take, and the commands that take an instruction instead.
_FILES = (".py", ".cu", ".ptx")
_OF_INSTRUCTIONS = ("explain", "draw", "compute", "list", "atoms")
#: Commands whose complaints have several lines: places in PTX, what a compiler said.
_LAID_OUT = ("run", "check", "debug", "sass", "ptx")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a complaint about the input, 130 for Ctrl-C.

    >>> main(["--version"])
    lanewise ...
    0
    """
    written = list(sys.argv[1:] if arguments is None else arguments)
    if written[:1] == ["help"]:  # as git has it
        written = [*written[1:2], "--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × is no reason to stop
    try:
        code = _run(written)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError as error:
        if error.errno == errno.EPIPE:
            return _pipe_closed()
        if error.errno == errno.ENOENT and error.filename is not None:
            from lanewise.hints import missing_file

            return _say(str(missing_file(Path(os.fsdecode(error.filename)))), REFUSED)
        where = f"{error.filename}: " if error.filename is not None else ""
        return _say(f"{where}{error.strerror or error}", REFUSED)
    except MemoryError:
        return _say("not enough memory for this; ask for something smaller", REFUSED)
    except Exception as error:
        return _complain(error, written)
    return code


def _run(written: list[str]) -> int:
    from lanewise.cli.app import command

    try:
        # A command returns a function that says its answer, and what to exit with if that is not 0.
        result = command(next(iter(written), "")).main(
            args=written or ["--help"], prog_name="lanewise", standalone_mode=False
        )
    except SystemExit as error:
        if _COMPLETING in os.environ:  # a shell asked how a word goes on, and has its answer
            return int(error.code or 0)
        raise BrokenPipeError from error  # how the argument parser answers a pipe that closed under its help
    if result == INTERRUPTED:  # how newer versions of it hand on Ctrl-C
        raise KeyboardInterrupt
    if callable(result):
        result = result()
    return result if isinstance(result, int) else 0


def _complain(error: Exception, written: list[str]) -> int:
    import typer

    from lanewise.errors import IllegalInstruction, LanewiseError

    if isinstance(error, LanewiseError):
        candidates = isinstance(error, IllegalInstruction) and "\n" in str(error)
        hint = _unquoted(written) or _file_of_kernels(written)
        if written[0] in _LAID_OUT or candidates:
            print(f"lanewise: {error}" + (f"\n{hint}" if hint else ""), file=sys.stderr)
            return REFUSED
        return _say(f"{error}. {hint}" if hint else str(error), REFUSED)
    if isinstance(error, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    usage = getattr(error, "format_message", None)  # what every complaint of the argument parser has
    if usage is not None:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else " ".join(["lanewise", *written[:1]])
        said = [_sentence(usage()), f"See `{path} --help`."]
        if context is not None and context.parent is None and written[0] in _COMMANDS_ELSEWHERE:
            said = [f"No such command '{written[0]}'.", _COMMANDS_ELSEWHERE[written[0]], said[-1]]
        else:
            hint = _unquoted(written) or _misplaced(written) or _how_written(error, path, written)
            said.insert(1, hint)
            if hint.startswith("Did you mean"):  # and not what the argument parser finds near
                said[0] = _sentence(_PARSERS_GUESS.sub("", usage()))
        return _say(" ".join(filter(None, said)), REFUSED)
    if os.environ.get("LANEWISE_TRACEBACK"):
        raise error
    return _say(
        f"this is a defect of lanewise, not of your input: {type(error).__name__}: {error}. "
        f"To see where, run it again with LANEWISE_TRACEBACK=1: lanewise {' '.join(written)}",
        BROKEN,
    )


def _how_written(error: Exception, path: str, written: list[str]) -> str:
    """Return how a command or an option is written that was written wrongly, or its name in other tools."""
    from lanewise.cli.app import command
    from lanewise.hints import nearest

    context, option = getattr(error, "ctx", None), getattr(error, "option_name", written[0])
    name = next(iter(written), "")
    known = context.command if context is not None else command(name).commands[name]
    options = {option: parameter for parameter in known.params for option in parameter.opts}
    own = _ELSEWHERE.get(option)
    if own in options:
        return f"Did you mean {own}?"
    if len(option) == 2 and (long := [name for name in sorted(options) if name.startswith(f"-{option}")]):
        return f"Did you mean {' or '.join(long)}?"
    if option in options and options[option].metavar:
        return f"Write `{option} {options[option].metavar}`."
    message, parameter = str(error), getattr(error, "param", None)
    chosen = _NONE_OF.search(message)
    if chosen and (close := nearest(chosen[1], re.findall(r"'([^']+)'", chosen[2]))):
        return f"Did you mean {close}?"
    if hasattr(known, "commands") and "Missing command" in message:
        return f"The commands are {', '.join(known.commands)}."
    is_argument = getattr(parameter, "param_type_name", "") == "argument"
    if context is None or not (is_argument or _TOO_MANY in message):
        return ""
    pieces = known.collect_usage_pieces(context)
    arguments = [
        piece.replace("...}", "}").replace("{", "").replace("}", "").upper()
        for piece in pieces
        if piece != "[OPTIONS]"
    ]
    for sizes in (re.split("[x,×]", word) for word in written):
        if is_argument and len(sizes) == len(arguments) > 1 and all(size.isdecimal() for size in sizes):
            arguments = sizes
    return f"Write `{' '.join([path, *arguments])}`."


def _misplaced(written: list[str]) -> str:
    """Return a hint for a file where a command or the name of a GPU belongs, and for an option before it."""
    from lanewise.cli.app import COMMANDS

    first = written[0]
    if first.endswith(_FILES):
        return f"A command stands before a file: `lanewise run {first}`, `lanewise check {first}`."
    command = next((word for word in written if word in COMMANDS), None)
    if first.startswith("-") and command is not None:
        return f"Options stand after the command: `lanewise {command} {first} …`."
    for option, value in pairwise(written):
        if option in _GPU_OPTIONS and value.endswith(_FILES):
            return f"{option} takes the name of a GPU: `{option} H100 {value}`."
    return ""


def _file_of_kernels(written: list[str]) -> str:
    """Return a hint for a file with kernels where an instruction or a layout belongs."""
    file = next((word for word in written[1:] if word.endswith(_FILES)), "")
    if written[0] not in _OF_INSTRUCTIONS or not file:
        return ""
    return f"A file with kernels is run, checked or debugged: `lanewise check {file}`."


def _unquoted(written: list[str]) -> str:
    """Return a hint for the name of a GPU that was written without quotes: `--arch RTX 4090`."""
    from lanewise.isa.gpu_models import arch_of_gpu

    for option, *words in (written[at : at + 4] for at in range(len(written))):
        if option in _GPU_OPTIONS:
            for many in (3, 2):
                name = " ".join(words[:many])
                if len(words) >= many and arch_of_gpu(name) is not None:
                    return f'A name of several words is written in quotes: {option} "{name}".'
    return ""


def _sentence(text: str) -> str:
    # "a valid int." and "Value error," are what some versions of the parser write.
    line = " ".join(text.split()).replace("a valid int.", "a valid integer.").replace(": Value error, ", ": ")
    return line if line.endswith((".", "?", "!")) else f"{line}."


def _say(message: str, code: int) -> int:
    print(f"lanewise: {' '.join(message.split())}", file=sys.stderr)
    return code


def _pipe_closed() -> int:
    # What is still buffered has nowhere to go: without this the interpreter complains at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
