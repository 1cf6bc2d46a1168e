"""The commands of the prompt: each has its names, how it is written, what it does, and an example."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lanewise.debug import information
from lanewise.debug.debugger import Debugger
from lanewise.debug.information import listing, printed, shown_lanes, where
from lanewise.debug.lines import PTX, Frame
from lanewise.debug.stops import Stop, lanes_of_text, lanes_text
from lanewise.errors import LanewiseError
from lanewise.hints import nearest


class Leave(Exception):
    """The user leaves the launch; `quits` says whether the program ends too."""

    def __init__(self, quits: bool) -> None:
        super().__init__()
        self.quits = quits


@dataclass(frozen=True)
class Command:
    """A command: its name and short names, how it is written, what it does, an example."""

    names: tuple[str, ...]
    usage: str
    about: str
    example: str
    run: Callable[[Commands, str], str]


_TABLE: list[Command] = []
#: Commands of gdb and cuda-gdb, and what serves in their stead.
_ELSEWHERE = {
    **dict.fromkeys(("set", "jump", "call"), "a launch is recorded, and cannot be changed: edit the kernel"),
    **dict.fromkeys(
        ("display", "undisplay"), "`print EXPR` shows a value, `watch ELEMENT` stops where it changes"
    ),
    "x": "`print x[0:4]` shows elements of an array",
    **dict.fromkeys(("whatis", "ptype", "explore"), "`info variables` says what there is"),
    **dict.fromkeys(("thread", "cuda", "focus"), "`warp N`, `lanes N` and `block X,Y` choose what is shown"),
    **dict.fromkeys(("origin", "writer"), "`why C[3, 5]` says what made a value"),
    **dict.fromkeys(("frame", "f"), "`where` says where the warp is; `up` and `down` choose the call"),
    "disassemble": "`list ptx` shows the PTX",
    **dict.fromkeys(("start", "file", "attach"), "the launch is recorded already: `run` goes to its start"),
}


def _command(
    written: str, about: str, example: str = ""
) -> Callable[[Callable[[Commands, str], str]], Callable[[Commands, str], str]]:
    """Enter a function into the table of commands, under its names and with what may follow them."""
    first, _, usage = written.partition(" ")
    names = tuple(first.split(","))

    def enter(function: Callable[[Commands, str], str]) -> Callable[[Commands, str], str]:
        _TABLE.append(Command(names, usage, about, example or f"{names[0]} {usage}".strip(), function))
        return function

    return enter


class Commands:
    """Does what the user types, and returns the answer as text."""

    def __init__(self, debugger: Debugger) -> None:
        self.debugger = debugger
        self._listed: Frame | None = None

    def do(self, line: str) -> str:
        """Do a command and return its answer; errors are LanewiseErrors that say what is wrong."""
        line = line.strip()
        if not line or line.startswith("#"):
            return ""
        name, _, rest = line.partition(" ")
        command = find(name)
        if rest.strip() and not command.usage:
            raise LanewiseError(f"{command.names[0]} takes nothing after it, and {rest.strip()!r} was given")
        if command.run is not Commands._list:
            self._listed = None
        return command.run(self, rest.strip())

    # moves -------------------------------------------------------------------------------------------------

    def _moved(self, stop: Stop) -> str:
        head = f"{stop.reason[:1].upper()}{stop.reason[1:]}." if stop.why not in ("step", "goto") else ""
        head = stop.reason if stop.why == "finding" else head
        return "\n".join(filter(None, (head, where(self.debugger))))

    def _repeat(self, rest: str, move: Callable[[], Stop]) -> str:
        count = _number(rest, "how many times") if rest else 1
        stop = move()
        for _ in range(count - 1):
            if stop.why != "step":
                break
            stop = move()
        return self._moved(stop)

    @_command("run,r", "Go to the start and on to the first breakpoint. The recording stays the same.")
    def _run(self, rest: str) -> str:
        return self._moved(self.debugger.run())

    @_command("continue,c,cont", "Go on to the next breakpoint of any warp of the block.")
    def _continue(self, rest: str) -> str:
        return self._moved(self.debugger.go_on())

    @_command("reverse-continue,rc", "Go back to the breakpoint before, of any warp of the block.")
    def _reverse_continue(self, rest: str) -> str:
        return self._moved(self.debugger.go_on(backwards=True))

    @_command("step,s [N]", "Go to the next line of the warp, into inlined functions too.")
    def _step(self, rest: str) -> str:
        return self._repeat(rest, self.debugger.step_in)

    @_command("next,n [N]", "Go to the next line of the warp, over inlined functions.")
    def _next(self, rest: str) -> str:
        return self._repeat(rest, self.debugger.step_over)

    @_command("back,b-,reverse-step,rs [N]", "Go back to the line before.")
    def _back(self, rest: str) -> str:
        return self._repeat(rest, self.debugger.step_back)

    @_command("reverse-next,rn [N]", "Go back to the line before, over inlined functions.")
    def _reverse_next(self, rest: str) -> str:
        return self._repeat(rest, lambda: self.debugger.step_back(over=True))

    @_command("stepi,si [N]", "Go over one instruction of the PTX, or N.")
    def _stepi(self, rest: str) -> str:
        return self._instructions(self.debugger.step_instruction(_number(rest, "how many") if rest else 1))

    @_command("reverse-stepi,rsi [N]", "Go back over one instruction of the PTX, or N.")
    def _reverse_stepi(self, rest: str) -> str:
        return self._instructions(self.debugger.step_instruction(-(_number(rest, "how many") if rest else 1)))

    def _instructions(self, stop: Stop) -> str:
        step = self.debugger.moment.step
        heading = f"{step.line}\t{step.text}" if step is not None and self.debugger.lines.has_source else ""
        return "\n".join(filter(None, (self._moved(stop), heading)))

    @_command(
        "until,u [LINE]",
        "Go on in the warp to a line after this one (out of a loop), or to LINE.",
        "until 31",
    )
    def _until(self, rest: str) -> str:
        return self._moved(self.debugger.until(rest))

    @_command("finish", "Go on until the warp leaves the inlined function that it is in.")
    def _finish(self, rest: str) -> str:
        return self._moved(self.debugger.step_out())

    @_command("goto STEP", "Go to a step by its number.", "goto 66")
    def _goto(self, rest: str) -> str:
        return self._moved(self.debugger.go_to(_number(rest, "the number of a step")))

    # breakpoints -------------------------------------------------------------------------------------------

    @_command(
        "break,b [LINE|FILE:LINE|ptx:LINE] [if EXPR]",
        "Stop where a warp comes to a line, if EXPR holds in a lane that is there.",
        "break 28 if acc[2] > 1 and lane == 7",
    )
    def _break(self, rest: str) -> str:
        return self._broken(rest, temporary=False)

    @_command("tbreak,tb LINE [if EXPR]", "The same, once.", "tbreak 28")
    def _tbreak(self, rest: str) -> str:
        return self._broken(rest, temporary=True)

    def _broken(self, rest: str, temporary: bool) -> str:
        parts = re.fullmatch(r"(.*?)(?:(?:^|\s)if\b(.*))?", rest, re.S)
        assert parts is not None, "the pattern fits every text"
        place, given, condition = parts.group(1, 0, 2)
        if condition is not None and not condition.strip():
            raise LanewiseError(f"break {given}: a condition is missing after if, such as lane == 7")
        made = self.debugger.add_breakpoint(place, condition or "", temporary)
        return f"Breakpoint {made.number}: {made}"

    @_command(
        "watch,w ELEMENT",
        "Stop where a register of the warp, an element of shared memory or of an array changes.",
        "watch As[3, 5]",
    )
    def _watch(self, rest: str) -> str:
        if not rest:
            raise LanewiseError("name what to watch: acc[1], %r7, As[3, 5] or C[3, 5]")
        made = self.debugger.add_watchpoint(rest)
        count = len(made.changes(self.debugger.recorded))
        return f"Watchpoint {made.number}: {made}, which changes {count} time{'s' if count != 1 else ''}"

    @_command("delete,d [N]", "Delete a breakpoint or watchpoint, or all of them.")
    def _delete(self, rest: str) -> str:
        if not rest:
            self.debugger.stops.clear()
            return "All breakpoints are deleted."
        self.debugger.delete(_number(rest, "the number of a breakpoint"))
        return ""

    @_command("catch on|off", "Whether findings of the checker stop the launch.")
    def _catch(self, rest: str) -> str:
        if rest not in ("", "on", "off"):
            raise LanewiseError(f"catch is on or off, not {rest!r}")
        self.debugger.catches = rest != "off"
        return f"Findings {'stop' if self.debugger.catches else 'do not stop'} the launch."

    # looking -----------------------------------------------------------------------------------------------

    @_command("where,bt,backtrace", "Say where the warp is, and through which calls.")
    def _where(self, rest: str) -> str:
        return information.backtrace(self.debugger)

    @_command("up", "Look at the line that called the inlined function.")
    def _up(self, rest: str) -> str:
        if self.debugger.up + 1 >= len(self.debugger.frames):
            raise LanewiseError("this is the kernel itself: nothing called it")
        self.debugger.up += 1
        return where(self.debugger)

    @_command("down", "Look at the inlined function again.")
    def _down(self, rest: str) -> str:
        if not self.debugger.up:
            raise LanewiseError("this is the innermost line")
        self.debugger.up -= 1
        return where(self.debugger)

    @_command("list,l [LINE|ptx]", "Show the source around a line; again: what follows.")
    def _list(self, rest: str) -> str:
        debugger, step = self.debugger, self.debugger.step
        instruction = debugger.lines.ptx_line(step) if step is not None else None
        if rest == PTX:
            self._listed = Frame(PTX, instruction or 1)
        elif rest:
            number = rest.rpartition(":")
            self._listed = (
                debugger.lines.find(rest)
                if number[1]
                else Frame(debugger.frame.file if debugger.frame else PTX, _number(rest, "a line"))
            )
        elif self._listed is not None:
            self._listed = self._listed._replace(line=self._listed.line + 9)
        else:
            self._listed = debugger.frame
        if self._listed is None:
            raise LanewiseError("there is no line to show")
        return listing(debugger, self._listed, instruction)

    @_command(
        "print,p EXPR",
        "Show a value: lanes as a table, a fragment as its matrix, an array.",
        "print As[0:4, 0:8]",
    )
    def _print(self, rest: str) -> str:
        return printed(self.debugger, rest)

    @_command(
        "lanes,lane [LANES|MASK|all]",
        "Show these lanes from now on; all: those that are active.",
        "lanes 0-3,7",
    )
    def _lanes(self, rest: str) -> str:
        if rest:
            self.debugger.lanes = None if rest.strip() == "all" else lanes_of_text(rest)
        active = lanes_text(self.debugger.moment.active)
        return f"Shown are {lanes_text(shown_lanes(self.debugger))}; at the instruction are {active}."

    @_command("warp [N]", "Look at another warp, at the same moment.", "warp 1")
    def _warp(self, rest: str) -> str:
        if rest:
            self.debugger.focus(_number(rest, "the number of a warp"))
        return where(self.debugger)

    @_command("block [X,Y,Z]", "Look at another block: the launch runs again.", "block 1,0")
    def _block(self, rest: str) -> str:
        if not rest:
            return f"This is block {self.debugger.block} of a grid of {self.debugger.launch.grid}."
        if not re.fullmatch(r"\s*\d{1,10}\s*(,\s*\d{1,10}\s*){0,2}", rest):
            raise LanewiseError(f"a block is named by its coordinates, as in block 1,0; not as {rest!r}")
        x, y, z = (*(int(word) for word in rest.split(",")), 0, 0)[:3]
        self.debugger.show_block((x, y, z))
        variables = self.debugger.recorded.recording.program.globals.values()
        note = (
            "The arrays were put back before; variables of the module keep what the run before left.\n"
            if any(variable.space == "global" for variable in variables)
            else ""
        )
        return f"{information.recorded(self.debugger)}\n{note}{where(self.debugger)}"

    @_command(
        "type NAME TYPE[SHAPE]",
        "Say what a variable in shared memory holds, where the PTX does not.",
        "type As f16[64,64]",
    )
    def _type(self, rest: str) -> str:
        match = re.fullmatch(r"(\S+)\s+(\w+)\s*\[([\d\s,]+)\]", rest)
        if match is None:
            raise LanewiseError("write it as type As f16[64,64]")
        shape = tuple(int(word) for word in match[3].split(",") if word.strip())
        arrays = self.debugger.recorded.recording.shared_arrays
        arrays.declared[match[1]] = arrays.find(match[1], match[2], shape)
        return f"{match[1]} holds {match[2]}, {' × '.join(map(str, shape))}."

    @_command(f"info,i {'|'.join(information.TOPICS)}", "Say what there is at this moment.", "info barriers")
    def _info(self, rest: str) -> str:
        return information.info(self.debugger, rest)

    @_command("why ELEMENT", "Say what made a value: the instructions and inputs before it.", "why C[3, 5]")
    def _why(self, rest: str) -> str:
        return information.why(self.debugger, rest)

    # files -------------------------------------------------------------------------------------------------

    @_command(
        "draw NAME FILE",
        "Draw who holds a fragment, or how an array lies in shared memory.",
        "draw acc acc.svg",
    )
    def _draw(self, rest: str) -> str:
        name, _, path = rest.partition(" ")
        if not name or not path.strip():
            raise LanewiseError("write it as draw acc acc.svg")
        return f"{name} is drawn in {information.draw(self.debugger, name, path.strip())}"

    @_command("save FILE", "Save the recording: a page (.html), or for Perfetto (.json).", "save run.html")
    def _save(self, rest: str) -> str:
        suffix, trace = Path(rest).suffix, self.debugger.recorded.trace
        if suffix not in (".html", ".json"):
            raise LanewiseError("a recording is saved as .html (a page) or .json (for Perfetto)")
        return f"saved as {trace.save(rest) if suffix == '.html' else trace.to_perfetto(rest)}"

    # the end -----------------------------------------------------------------------------------------------

    @_command("leave", "Leave this launch; a script goes on to its next one.")
    def _leave(self, rest: str) -> str:
        raise Leave(quits=False)

    @_command("quit,q,exit", "End the debugger.")
    def _quit(self, rest: str) -> str:
        raise Leave(quits=True)

    @_command("help,h,? [COMMAND]", "Say what commands there are, or what one does.")
    def _help(self, rest: str) -> str:
        if rest:
            command = find(rest)
            short = f" (short: {', '.join(command.names[1:])})" if command.names[1:] else ""
            return (
                f"{command.names[0]} {command.usage}".rstrip()
                + f"{short}\n{command.about}\nexample: {command.example}"
            )
        width = max(len(command.example) for command in _TABLE)
        return "\n".join(f"{command.example:{width}}  {command.about}" for command in _TABLE)


def find(name: str) -> Command:
    """Return a command by its name, a short name, or the beginning of its name if that is enough."""
    for command in _TABLE:
        if name in command.names:
            return command
    begun = [command for command in _TABLE if command.names[0].startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise LanewiseError(f"{name} may be {', '.join(command.names[0] for command in begun)}")
    own = _ELSEWHERE.get(name.partition("/")[0])
    close = nearest(name, names())
    hint = f"; {own}" if own else f"; did you mean {close}?" if close else ""
    raise LanewiseError(f"there is no command {name!r}{hint or '; `help` says which there are'}")


def names() -> list[str]:
    """Return the names of all commands."""
    return [command.names[0] for command in _TABLE]


def _number(text: str, what: str) -> int:
    if not text.strip().isdecimal() or len(text.strip()) > 12:
        raise LanewiseError(f"{what} is wanted, a number; not {text.strip()!r}")
    return int(text)
