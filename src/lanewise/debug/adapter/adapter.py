"""The debug adapter: answers the requests of an editor by moving and asking a debugger.

A message of the Debug Adapter Protocol is `Content-Length: N`, an empty line, and N bytes of JSON."""

import _thread
import contextlib
import io
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lanewise.debug import commands, information
from lanewise.debug.adapter.variables import MOST_ROWS, References, scopes
from lanewise.debug.debugger import Debugger
from lanewise.debug.expressions import Expression
from lanewise.debug.information import printed
from lanewise.debug.launches import DebuggedLaunch
from lanewise.debug.lines import PTX, Frame
from lanewise.debug.moments import Moment
from lanewise.debug.stops import Breakpoint, Stop, Watchpoint
from lanewise.errors import LanewiseError
from lanewise.machine.tracer.traced_launch import TracedLaunch

#: The most bytes of a message; what editors send is far smaller.
MOST_BYTES = 1 << 24
#: The most bytes of a line of a header.
_LONGEST = 1024

Message = dict[str, Any]


class Connection:
    """Reads messages from one stream and writes them, numbered, to another."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        self._number = 0

    def read(self) -> Message | None:
        """Return the next message; None at the end of the stream. Anything that is no message is an error."""
        length: int | None = None
        while True:
            line = self._reader.readline(_LONGEST)
            if not line:
                return None
            if not line.endswith(b"\n"):
                raise LanewiseError("a header of the Debug Adapter Protocol is too long, or was cut off")
            name, _, value = line.decode("ascii", "replace").partition(":")
            if not line.strip():
                break
            if name.strip().lower() == "content-length":
                if not value.strip().isdecimal() or int(value) > MOST_BYTES:
                    raise LanewiseError(
                        f"Content-Length is no number of bytes up to {MOST_BYTES}: {value.strip()}"
                    )
                length = int(value)
        if length is None:
            raise LanewiseError("a message of the Debug Adapter Protocol has no Content-Length")
        body = self._reader.read(length)
        if len(body) < length:
            return None
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise LanewiseError(f"a message of the Debug Adapter Protocol is no JSON: {error}") from None
        if not isinstance(message, dict):
            raise LanewiseError("a message of the Debug Adapter Protocol is a JSON object")
        return message

    def send(self, message: Message) -> None:
        """Send a message; if nobody listens any more, it is lost."""
        with self._lock:
            self._number += 1
            body = json.dumps({"seq": self._number, **message}, default=str).encode()
            try:
                self._writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                self._writer.flush()
            except (OSError, ValueError):  # closed
                return

    def event(self, name: str, **body: object) -> None:
        """Send an event by its name, with what it tells."""
        self.send({"type": "event", "event": name, "body": body})

    def respond(self, request: Message, body: object = None, error: str = "") -> None:
        """Send the response to a request: what it asked for, or why it failed."""
        response: Message = {
            "type": "response",
            "request_seq": request.get("seq", 0),
            "command": request.get("command", ""),
            "success": not error,
        }
        if error:
            response["message"] = error
            body = {"error": {"id": 1, "format": error.replace("{", "(").replace("}", ")"), "showUser": True}}
        if body is not None:
            response["body"] = body
        self.send(response)


#: Runs the program that a launch request asks for, each launch of it through a function; returns its status.
Program = Callable[[Message, Callable[[DebuggedLaunch], None]], int]
#: Frames that one warp may have, for the numbers of frames.
_MOST_FRAMES = 1000
#: The number of the PTX among sources that are no files.
_PTX_REFERENCE = 1
#: Commands of the prompt that an editor's console may use: those that move nothing.
_CONSOLE = ("print", "why", "info", "where", "type", "draw", "save", "help", "lanes", "list")
CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsStepBack": True,
    "supportsDataBreakpoints": True,
    "supportsSteppingGranularity": True,
    "supportsEvaluateForHovers": True,
    "supportsExceptionInfoRequest": True,
    "supportsTerminateRequest": True,
    "exceptionBreakpointFilters": [
        {
            "filter": "findings",
            "label": "Findings of the checker",
            "description": "Races, accesses out of bounds, misaligned addresses, wrong barriers",
            "default": True,
        }
    ],
}


class Ended(SystemExit):
    """The editor has ended the session; a script that is under way ends as if it had asked for it."""


class Adapter:
    """One session with an editor."""

    def __init__(self, connection: Connection, program: Program) -> None:
        self.connection, self.program = connection, program
        self._requests: queue.Queue[Message | None] = queue.Queue()
        self._launch: Message = {}
        self._catches = True
        #: What the editor asked for, kept from launch to launch.
        self._lines: dict[str, list[Message]] = {}
        self._watched: list[str] = []
        self._debugger: Debugger | None = None
        self._running: TracedLaunch | None = None
        self._references = References()
        self._stop: Stop | None = None
        #: Whether the program itself runs, which an interrupt ends, and not a handler of a request.
        self._in_program = False
        self._ended = self._disconnected = False
        self._left = False

    # messages ----------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Answer requests until the editor ends the session; return the exit status of the program."""
        reader = threading.Thread(target=self._read, name="lanewise-dap", daemon=True)
        reader.start()
        status = 0
        try:
            while not self._disconnected:
                request = self._next()
                if request.get("command") == "configurationDone":
                    self.connection.respond(request)
                    status = self._run()
                else:
                    self._answer(request)
        except (Ended, KeyboardInterrupt):
            pass
        return status

    def _read(self) -> None:
        """Put requests into the queue; what must be done while a kernel runs is done at once."""
        try:
            while (message := self.connection.read()) is not None:
                if message.get("type") != "request":
                    continue
                command = message.get("command")
                if command in ("pause", "disconnect", "terminate"):
                    self._interrupt(ends=command != "pause")
                self._requests.put(message)
                if command == "disconnect":
                    return
        except (LanewiseError, OSError, ValueError) as error:
            self.connection.event("output", category="stderr", output=f"lanewise: {error}\n")
        self._requests.put(None)
        self._interrupt(ends=True)

    def _interrupt(self, ends: bool) -> None:
        """Stop a kernel that runs; a script that the session ends in is interrupted too."""
        self._ended |= ends
        running = self._running
        if running is not None:
            running.stop()
        elif ends and self._in_program:
            _thread.interrupt_main()

    def _next(self) -> Message:
        request = self._requests.get()
        if request is None:
            self._disconnected = True
            raise Ended
        return request

    def _answer(self, request: Message) -> None:
        """Answer one request; a mistake in it is an answer that says what is wrong."""
        name, arguments = str(request.get("command", "")), request.get("arguments") or {}
        handler = getattr(self, f"_on_{name}", None) if name.isalpha() else None
        if handler is None:
            self.connection.respond(request, error=f"lanewise does not know the request {name!r}")
            return
        try:
            if not isinstance(arguments, dict):
                raise LanewiseError(
                    f"{name}: the arguments of a request are an object, not {arguments!r:.40}"
                )
            body = handler(request, arguments)
            if body is not None:  # a handler that returns nothing has responded itself
                self.connection.respond(request, body)
        except LanewiseError as error:
            self.connection.respond(request, error=str(error))
        except KeyError as error:
            self.connection.respond(request, error=f"{name}: the argument {error} is missing")
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            wrong = f"{name}: an argument is not what the Debug Adapter Protocol says ({error})"
            self.connection.respond(request, error=wrong)
        except (OSError, MemoryError) as error:
            self.connection.respond(request, error=f"{name}: {error or 'there is not enough memory'}")

    # the session -------------------------------------------------------------------------------------------

    def _on_initialize(self, request: Message, arguments: Message) -> Message:
        return CAPABILITIES

    def _on_launch(self, request: Message, arguments: Message) -> None:
        self._launch = {**arguments, "launched": True}
        self.connection.respond(request)
        self.connection.event("initialized")

    _on_attach = _on_launch

    def _on_disconnect(self, request: Message, arguments: Message) -> None:
        self.connection.respond(request)
        self._disconnected = True
        raise Ended

    def _on_terminate(self, request: Message, arguments: Message) -> None:
        self.connection.respond(request)
        if self._debugger is not None:
            raise Ended

    def _run(self) -> int:
        """Run the program that was launched, and tell the editor how it ended."""
        status = 0
        self._in_program = True
        try:
            with contextlib.redirect_stdout(_Output(self.connection, "stdout")):
                status = self.program(self._launch, self.debug)
        except LanewiseError as error:
            self.connection.event("output", category="stderr", output=f"{error}\n")
            status = 2
        except KeyboardInterrupt:
            status = 130
        except Ended:
            pass
        self._in_program = False
        self._debugger = None
        self.connection.event("exited", exitCode=status)
        self.connection.event("terminated")
        return status

    def debug(self, launch: DebuggedLaunch) -> None:
        """Record a launch and answer requests until the editor goes on after its end."""
        launch.started = self._started
        try:
            debugger = Debugger(launch)
        finally:
            self._running = None
        if self._ended:
            raise Ended
        self._debugger, self._left, self._in_program = debugger, False, False
        debugger.catches = self._catches
        self.connection.event("output", category="console", output=f"{information.recorded(debugger)}\n")
        for path in self._lines:
            for set_line in self._set_lines(path):
                self.connection.event("breakpoint", reason="changed", breakpoint=set_line)
        self._set_watched()
        stop = debugger.to_first_finding() if self._launch.get("check") else None
        if stop is None:
            stop = debugger.to_start() if self._launch.get("stopOnEntry") else debugger.run()
        self._stopped(stop)
        while not self._left:
            self._answer(self._next())
        self._debugger, self._in_program = None, True

    def _started(self, running: TracedLaunch) -> None:
        self._running = running

    def _require(self) -> Debugger:
        if self._debugger is None:
            raise LanewiseError("no launch is stopped now")
        return self._debugger

    def _stopped(self, stop: Stop) -> None:
        """Tell the editor where a move ended; after the end the launch is left, unless it asked to stay."""
        self._references, self._stop = References(), stop
        if stop.why == "end" and not self._launch.get("stopAtEnd"):
            self._left = True
            return
        reasons = {"watch": "data breakpoint", "finding": "exception", "fault": "exception", "end": "pause"}
        self.connection.event(
            "stopped",
            reason=reasons.get(stop.why, stop.why),
            description=stop.reason,
            text=stop.reason,
            threadId=self._require().warp + 1,
            allThreadsStopped=True,
            hitBreakpointIds=[stop.number] if stop.number else [],
        )

    # breakpoints -------------------------------------------------------------------------------------------

    def _on_setBreakpoints(self, request: Message, arguments: Message) -> Message:
        source = arguments.get("source") or {}
        path = str(source.get("path") or (PTX if source.get("sourceReference") else source.get("name") or ""))
        self._lines[path] = [
            {**breakpoint_, "line": int(breakpoint_["line"])}
            for breakpoint_ in arguments.get("breakpoints") or ()
        ]
        return {"breakpoints": self._set_lines(path)}

    def _set_lines(self, path: str) -> list[Message]:
        """Set the breakpoints of a file, as far as the launch has code of it; return what became of each."""
        wanted, debugger = self._lines[path], self._debugger
        if debugger is None:
            waiting = "it is set when a kernel with code of this file is launched"
            return [
                {"verified": False, "line": breakpoint_.get("line"), "message": waiting}
                for breakpoint_ in wanted
            ]
        for number, old in list(debugger.stops.items()):
            if isinstance(old, Breakpoint) and old.asked_in == path:
                del debugger.stops[number]
        answers: list[Message] = []
        for breakpoint_ in wanted:
            try:
                where = f"{path}:{int(breakpoint_['line'])}"
                made = debugger.add_breakpoint(where, str(breakpoint_.get("condition") or ""))
                made.asked_in = path
                answers.append({"id": made.number, "verified": True, "line": made.frame.line})
            except LanewiseError as error:
                answers.append({"verified": False, "line": breakpoint_.get("line"), "message": str(error)})
        return answers

    def _on_setExceptionBreakpoints(self, request: Message, arguments: Message) -> Message:
        self._catches = "findings" in (arguments.get("filters") or ())
        if self._debugger is not None:
            self._debugger.catches = self._catches
        return {}

    def _on_exceptionInfo(self, request: Message, arguments: Message) -> Message:
        self._require()
        stop = self._stop
        reason = stop.reason if stop is not None else ""
        kind = stop.kind if stop is not None and stop.kind else reason.partition(":")[0]
        return {"exceptionId": kind, "description": reason, "breakMode": "always"}

    def _on_dataBreakpointInfo(self, request: Message, arguments: Message) -> Message:
        debugger, name = self._require(), str(arguments.get("name", ""))
        reference = int(arguments.get("variablesReference") or 0)
        watched, lane = name, None
        if reference:
            line = next((line for line in self._references.lines(reference) if line.name == name), None)
            watched, lane = (line.watched, line.lane) if line is not None else ("", None)
        if not watched:
            return {"dataId": None, "description": f"{name} is no single value that can be watched"}
        identity = f"{watched}@{debugger.warp}@{'' if lane is None else lane}"
        self._watchpoint(0, identity).changes(debugger.recorded)
        lanes = f" in lane {lane}" if lane is not None else ""
        return {
            "dataId": identity,
            "description": f"{watched}{lanes}",
            "accessTypes": ["write"],
            "canPersist": True,
        }

    def _watchpoint(self, number: int, identity: str) -> Watchpoint:
        what, warp, lane = identity.rsplit("@", 2)
        lanes = np.ones(32, np.bool_) if not lane else np.arange(32) == int(lane)
        return Watchpoint(number, what, lanes, int(warp))

    def _on_setDataBreakpoints(self, request: Message, arguments: Message) -> Message:
        self._watched = [str(breakpoint_["dataId"]) for breakpoint_ in arguments.get("breakpoints") or ()]
        return {"breakpoints": self._set_watched()}

    def _set_watched(self) -> list[Message]:
        """Set the data breakpoints that the editor asked for; return what became of each."""
        debugger = self._debugger
        if debugger is None:
            return [{"verified": False} for _ in self._watched]
        for number, stop in list(debugger.stops.items()):
            if isinstance(stop, Watchpoint):
                del debugger.stops[number]
        answers: list[Message] = []
        for identity in self._watched:
            try:
                made = self._watchpoint(max(debugger.stops, default=0) + 1, identity)
                made.changes(debugger.recorded)
                debugger.stops[made.number] = made
                answers.append({"id": made.number, "verified": True})
            except (LanewiseError, ValueError) as error:
                answers.append({"verified": False, "message": str(error)})
        return answers

    # moves -------------------------------------------------------------------------------------------------

    def _move(
        self, request: Message, arguments: Message, move: Callable[[Debugger], Stop], **body: object
    ) -> None:
        debugger = self._require()
        thread = arguments.get("threadId")
        if thread is not None:
            debugger.focus(int(thread) - 1)
        self.connection.respond(request, body or None)
        self._stopped(move(debugger))

    def _on_continue(self, request: Message, arguments: Message) -> None:
        self._move(request, {}, lambda debugger: debugger.go_on(), allThreadsContinued=True)

    def _on_reverseContinue(self, request: Message, arguments: Message) -> None:
        self._move(request, {}, lambda debugger: debugger.go_on(backwards=True))

    def _by(self, request: Message, arguments: Message, line: Callable[[Debugger], Stop], count: int) -> None:
        """Move by a line, or by an instruction if the editor asks for that."""
        if arguments.get("granularity") == "instruction":
            self._move(request, arguments, lambda debugger: debugger.step_instruction(count))
        else:
            self._move(request, arguments, line)

    def _on_next(self, request: Message, arguments: Message) -> None:
        self._by(request, arguments, Debugger.step_over, 1)

    def _on_stepIn(self, request: Message, arguments: Message) -> None:
        self._by(request, arguments, Debugger.step_in, 1)

    def _on_stepOut(self, request: Message, arguments: Message) -> None:
        debugger = self._require()
        self._move(request, arguments, Debugger.step_out if len(debugger.frames) > 1 else Debugger.go_on)

    def _on_stepBack(self, request: Message, arguments: Message) -> None:
        self._by(request, arguments, lambda debugger: debugger.step_back(over=True), -1)

    def _on_pause(self, request: Message, arguments: Message) -> None:
        self.connection.respond(request)

    # looking -----------------------------------------------------------------------------------------------

    def _on_threads(self, request: Message, arguments: Message) -> Message:
        debugger = self._debugger
        warps = list(debugger.lines.of_warp) if debugger is not None else [0]
        return {"threads": [{"id": warp + 1, "name": f"warp {warp}"} for warp in warps]}

    def _on_stackTrace(self, request: Message, arguments: Message) -> Message:
        debugger, warp = self._require(), int(arguments["threadId"]) - 1
        before = debugger.warp
        debugger.warp = warp
        frames, step = debugger.frames, debugger.step
        debugger.warp = before
        instruction = debugger.lines.ptx_line(step) if step is not None else 0
        rows = [
            {
                "id": warp * _MOST_FRAMES + number + 1,
                "name": debugger.launch.name
                if number == len(frames) - 1
                else f"inlined at line {frames[number + 1].line}",
                "source": self._source(frame),
                "line": frame.line,
                "column": 1,
                "instructionPointerReference": f"ptx:{instruction}",
            }
            for number, frame in enumerate(frames)
        ]
        return {"stackFrames": rows, "totalFrames": len(rows)}

    def _source(self, frame: Frame) -> Message:
        """Return the file of a line as the protocol has it; the PTX is one that the editor asks for."""
        if frame.file != PTX:
            return {"name": Path(frame.file).name, "path": str(Path(frame.file).resolve())}
        program = str(self._launch.get("program") or "")
        if program.endswith(".ptx"):
            return {"name": Path(program).name, "path": str(Path(program).resolve())}
        return {"name": "kernel.ptx", "sourceReference": _PTX_REFERENCE}

    def _on_source(self, request: Message, arguments: Message) -> Message:
        text = "\n".join(self._require().lines.lines_of(PTX))
        return {"content": text, "mimeType": "text/plain"}

    def _moment(self, frame: Any) -> Moment:
        """Return the moment of the warp that a frame belongs to."""
        debugger = self._require()
        warp = (int(frame) - 1) // _MOST_FRAMES if frame else debugger.warp
        return Moment(debugger.recorded, debugger.position, warp)

    def _on_scopes(self, request: Message, arguments: Message) -> Message:
        rows = [
            {"name": name, "variablesReference": self._references.add(inner), "expensive": expensive}
            for name, inner, expensive in scopes(self._moment(arguments.get("frameId")))
        ]
        return {"scopes": rows}

    def _on_variables(self, request: Message, arguments: Message) -> Message:
        lines = self._references.lines(int(arguments["variablesReference"]))
        first = int(arguments.get("start") or 0)
        count = int(arguments.get("count") or 0) or MOST_ROWS
        rows = [self._references.protocol(line) for line in lines[first : first + count]]
        return {"variables": rows}

    def _on_evaluate(self, request: Message, arguments: Message) -> Message:
        debugger, text = self._require(), str(arguments.get("expression", ""))
        moment = self._moment(arguments.get("frameId"))
        word = text.split(" ")[0]
        if arguments.get("context") == "repl" and word.isalpha() and " " in text.strip() + " ":
            known = [name for name in _CONSOLE if word in commands.find(name).names]
            if known and (text.strip() != word or known[0] in ("where", "help", "list", "lanes")):
                answer = commands.Commands(debugger).do(text)
                return {"result": answer, "variablesReference": 0}
        before = debugger.warp
        debugger.warp = moment.warp
        try:
            Expression(text).evaluate(moment)
            result = printed(debugger, text)
        finally:
            debugger.warp = before
        head, equals, value = result.partition(" = ")
        short = value if equals and "\n" not in result else result
        return {"result": short if head else result, "variablesReference": 0}


class _Output(io.TextIOBase):
    """Sends what a program prints to the editor."""

    def __init__(self, connection: Connection, category: str) -> None:
        self._connection, self._category = connection, category

    def write(self, text: str) -> int:
        if text:
            self._connection.event("output", category=self._category, output=text)
        return len(text)

    def writable(self) -> bool:
        return True


def serve_stdio(program: Program) -> int:
    """Serve one session on stdin and stdout; what anybody else prints goes to stderr."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # A copy, because Python waits for whoever reads its own stdin when it ends.
    given = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    return Adapter(Connection(given, out), program).serve()


def serve_port(program: Program, port: int) -> int:
    """Serve one session on a port of the loopback address; 0 takes a free port. It is said on stderr."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            raise LanewiseError(f"--port {port} cannot be used: {error.strerror}") from None
        listening.listen(1)
        print(
            f"lanewise: waiting for an editor at 127.0.0.1:{listening.getsockname()[1]}",
            file=sys.stderr,
            flush=True,
        )
        connected, _ = listening.accept()
    with connected:
        reader, writer = connected.makefile("rb"), connected.makefile("wb")
        try:
            return Adapter(Connection(reader, writer), program).serve()
        finally:
            with contextlib.suppress(OSError):  # an editor that went away has not read everything
                writer.close()
