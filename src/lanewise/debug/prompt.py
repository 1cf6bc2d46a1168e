"""The prompt: reads commands, completes names, keeps a history, and survives every mistake."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from lanewise.debug import commands, information
from lanewise.debug.commands import Commands, Leave
from lanewise.debug.debugger import Debugger
from lanewise.debug.information import where
from lanewise.debug.launches import DebuggedLaunch
from lanewise.debug.stops import Breakpoint, Watchpoint
from lanewise.errors import InternalError, LanewiseError

PROMPT = "(lanewise) "
#: Lines of commands that are kept from one use to the next.
MOST_HISTORY = 1000


class Quit(Exception):
    """The user ends the debugger."""


class Prompt:
    """Debugs one launch after another at a prompt; breakpoints stay from launch to launch."""

    def __init__(self, checks: bool = False, given: list[str] | None = None) -> None:
        self.checks = checks
        #: Commands that are done before the user is asked.
        self.given = list(given or ())
        self.stops: dict[int, Breakpoint | Watchpoint] = {}
        self._last = ""

    def debug(self, launch: DebuggedLaunch) -> None:
        """Record a launch and do commands until the user leaves it; `Quit` is raised if they quit."""
        debugger = Debugger(launch, self.stops)
        debugger.catches = self.checks
        print(information.recorded(debugger))
        if self.checks:
            stop = debugger.to_first_finding()
            print(f"Finding: {stop.reason}" if stop else "The checker found nothing.")
        print(where(debugger))
        commands = Commands(debugger)
        ask = _asker(debugger)
        while True:
            try:
                line = self._line(ask)
            except KeyboardInterrupt:
                print("\nquit ends the debugger")
                continue
            if line is None:
                raise Quit
            try:
                answer = answered(commands, line)
            except Leave as leave:
                if leave.quits:
                    raise Quit from None
                return
            if answer:
                print(answer)

    def _line(self, ask: Callable[[], str]) -> str | None:
        """Return the next command; None at the end of the input. An empty line repeats the last move."""
        if self.given:
            line = self.given.pop(0)
            print(f"{PROMPT}{line}")
        else:
            try:
                line = ask()
            except EOFError:
                print()
                return None
            if not sys.stdin.isatty():
                print(line)  # so that what was read from a file stands in the transcript
        if not line.strip() and self._last.split(" ")[0] in _REPEATED:
            return self._last
        self._last = line.strip()
        return line


#: Commands that an empty line repeats.
_REPEATED = {
    name
    for command in ("step", "next", "back", "stepi", "reverse-stepi", "reverse-next", "list", "continue")
    for name in commands.find(command).names
}


def answered(commands: Commands, line: str) -> str:
    """Return the answer to a command: an error is an answer too, and so is Ctrl-C."""
    try:
        return commands.do(line)
    except LanewiseError as error:
        return f"error: {error}"
    except KeyboardInterrupt:
        return "interrupted"
    except OSError as error:
        return f"error: {error}"
    except MemoryError:
        return "error: there is not enough memory for this"
    except RecursionError:
        return "error: this is nested too deeply"
    except Leave:
        raise
    except Exception as error:
        return f"error: {InternalError(f'{line.strip()!r} failed', error)}"


def _asker(debugger: Debugger) -> Callable[[], str]:
    """Return what asks the user for a line, with completion and a history where there is readline."""
    if not sys.stdin.isatty():
        return lambda: input(PROMPT)
    try:
        import readline
    except ImportError:
        return lambda: input(PROMPT)
    history = _history_file()
    if history is not None and not readline.get_current_history_length():
        with contextlib.suppress(OSError):
            readline.read_history_file(history)
    readline.set_history_length(MOST_HISTORY)
    readline.set_completer_delims(" \t,()[]+-*/<>=&|~")
    readline.set_completer(
        lambda text, state: _nth(completions(debugger, readline.get_line_buffer(), text), state)
    )
    readline.parse_and_bind(
        "bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete"
    )

    def ask() -> str:
        line = input(PROMPT)
        if history is not None:
            with contextlib.suppress(OSError):
                readline.write_history_file(history)
        return line

    return ask


def _nth(words: list[str], number: int) -> str | None:
    return words[number] if number < len(words) else None


def _history_file() -> Path | None:
    """Return the file of the history, in the folder of the cache; None if there is no such folder."""
    from lanewise.disk_cache import cache_directory

    folder = cache_directory()
    return folder / "debug_history" if folder is not None else None


def completions(debugger: Debugger, line: str, text: str) -> list[str]:
    """Return what a word may become: a command at the start of a line, a topic of info, a name after it."""
    before = line[: len(line) - len(text)].split()
    if not before:
        known = commands.names()
    elif commands.names() and before[0] in commands.find("info").names:
        known = list(information.TOPICS)
    elif before[0] in commands.find("help").names:
        known = commands.names()
    else:
        recording = debugger.recorded.recording
        known = [
            *(argument.name for argument in recording.arguments),
            *debugger.moment.shared_names,
            *debugger.moment.tensor_names,
            *recording.names.variables,
            *recording.names.by_name,
        ]
    return sorted({word for word in known if word.startswith(text)})
