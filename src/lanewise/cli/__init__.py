"""The command line: `lanewise list`, `explain`, `draw`, `compute`, `run`, `check`, `debug`, `explore`,
`ptx`, `sass`, `doctor`, `cache`.

`main` runs it and turns every complaint into one line; each command has a module of its own.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

INTERRUPTED = 130
#: What a shell reports for a program that a closed pipe ended; `| head` is no error and gets no message.
PIPE_CLOSED = 141
REFUSED = 2
#: A mistake in lanewise itself.
BROKEN = 1
#: Set by a shell that wants words completed.
_COMPLETING = "_LANEWISE_COMPLETE"
#: Options that take the name of a GPU.
#: Options as other tools call them.
_ELSEWHERE = {
    "--kernel": "--entry", "--function": "--entry", "--device": "--gpu", "--target": "--arch",
    "--sm": "--arch", "--threads": "--block", "--blocks": "--grid",
}  # fmt: skip
_GPU_OPTIONS = ("--arch", "--versus", "--gpu")
#: Commands whose complaints have several lines: places in PTX, what a compiler said.
_LAID_OUT = ("run", "check", "debug", "sass", "ptx")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 2 for a complaint about the input, 130 for Ctrl-C.

    >>> main(["--version"])
    lanewise ...
    0
    """
    written = list(sys.argv[1:] if arguments is None else arguments)
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
        hint = _unquoted(written)
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
        said = [_sentence(usage()), _unquoted(written), _how_written(error, path), f"See `{path} --help`."]
        return _say(" ".join(filter(None, said)), REFUSED)
    if os.environ.get("LANEWISE_TRACEBACK"):
        raise error
    return _say(
        f"this is a defect of lanewise, not of your input: {type(error).__name__}: {error}. "
        f"To see where, run it again with LANEWISE_TRACEBACK=1: lanewise {' '.join(written)}",
        BROKEN,
    )


def _how_written(error: Exception, path: str) -> str:
    """Return how a command is written, for a wrong argument, or its name of an option of other tools."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    options = {option for parameter in context.command.params for option in parameter.opts}
    own = _ELSEWHERE.get(getattr(error, "option_name", ""))
    if own in options:
        return f"Did you mean {own}?"
    if getattr(getattr(error, "param", None), "param_type_name", "") != "argument":
        return ""
    pieces = context.command.collect_usage_pieces(context)
    arguments = [piece.strip("{}").upper() for piece in pieces if piece != "[OPTIONS]"]
    return f"Write `{' '.join([path, *arguments])}`."


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
