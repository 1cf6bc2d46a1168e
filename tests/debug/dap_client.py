"""A small client of the Debug Adapter Protocol, as an editor is one: requests, responses, events."""

import contextlib
import json
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

from lanewise.cli.commands.debug import launched_program
from lanewise.cli.launching import Asked
from lanewise.debug.adapter.adapter import Adapter, Connection

#: Seconds after which an answer does not come any more.
PATIENCE = 3600.0


class Client:
    """Speaks with a debug adapter: here in a thread, or in a process over stdin and stdout or a port."""

    def __init__(self, *arguments: str, process: bool = False, port: bool = False) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._reader: BinaryIO
        self._writer: BinaryIO
        if process or port:
            self._start(arguments, port)
        else:
            mine, theirs = socket.socketpair()
            self._reader, self._writer = mine.makefile("rb"), mine.makefile("wb")
            served = Connection(theirs.makefile("rb"), theirs.makefile("wb"))
            adapter = Adapter(served, launched_program(Asked(), 1 << 26, False))
            self._status: queue.Queue[int] = queue.Queue()
            threading.Thread(target=lambda: self._status.put(adapter.serve()), daemon=True).start()
        self._number = 0
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while header := self._reader.readline():
            length = int(header.split(b":")[1])
            assert self._reader.readline() == b"\r\n"
            self._messages.put(json.loads(self._reader.read(length)))
        self._messages.put(None)

    def _start(self, arguments: tuple[str, ...], port: bool) -> None:
        command = [sys.executable, "-m", "lanewise.cli", "debug", "--dap", *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command + (["--port", "0"] if port else []), stdin=pipe, stdout=pipe, stderr=pipe
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._reader, self._writer = self.process.stdout, self.process.stdin
        if port:
            said = self.process.stderr.readline().decode()
            self._socket = socket.create_connection(("127.0.0.1", int(said.rsplit(":", 1)[1])))
            self._reader, self._writer = self._socket.makefile("rb"), self._socket.makefile("wb")

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)
        self._writer.flush()

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request and return its number."""
        self._number += 1
        message = {"seq": self._number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self._number

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return what its response says; the request must succeed."""
        response = self.response(self.send(command, **arguments))
        assert response["success"], response
        return response.get("body", {})

    def refused(self, command: str, **arguments: Any) -> str:
        """Send a request that must fail, and return the message."""
        response = self.response(self.send(command, **arguments))
        assert not response["success"], response
        return str(response["message"])

    def response(self, number: int) -> dict[str, Any]:
        while True:
            message = self._messages.get(timeout=PATIENCE)
            assert message is not None, "the adapter has ended"
            if message["type"] == "response" and message["request_seq"] == number:
                return message
            self.events.append(message)

    def event(self, name: str) -> dict[str, Any]:
        """Return the next event of a name that was not returned before."""
        while True:
            for each in self.events:
                if each.get("event") == name:
                    self.events.remove(each)
                    return dict(each.get("body", {}))
            message = self._messages.get(timeout=PATIENCE)
            assert message is not None, f"no event {name}"
            self.events.append(message)

    def ask_later(self, command: str, **arguments: Any) -> None:
        """Send a request whose response nobody waits for."""
        self.send(command, **arguments)

    def has_event(self, name: str, seconds: float) -> bool:
        """Return whether an event has come, or comes in some seconds; it is still to be taken."""
        with contextlib.suppress(queue.Empty):
            while not any(each.get("event") == name for each in self.events):
                message = self._messages.get(timeout=seconds)
                assert message is not None
                self.events.append(message)
        return any(each.get("event") == name for each in self.events)

    def hang_up(self) -> None:
        """Go away without a word."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def move(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Send a request that moves, and return the event that says where it stopped."""
        self.ask(command, **arguments)
        return self.event("stopped")

    def begin(
        self, program: Path, lines: dict[Path, list[Any]], filters: tuple[str, ...] = (), **launch: Any
    ) -> None:
        """Do what editors do at first: initialize, launch, breakpoints, configurationDone."""
        capabilities = self.ask("initialize", adapterID="lanewise", linesStartAt1=True)
        assert capabilities["supportsStepBack"]
        self.ask("launch", program=str(program), **launch)
        self.event("initialized")
        for path, wanted in lines.items():
            rows = [each if isinstance(each, dict) else {"line": each} for each in wanted]
            self.ask("setBreakpoints", source={"path": str(path)}, breakpoints=rows)
        self.ask("setExceptionBreakpoints", filters=list(filters))
        self.ask("configurationDone")

    def line(self, thread: int = 1) -> int:
        """Return the line at which a warp is."""
        return int(self.ask("stackTrace", threadId=thread)["stackFrames"][0]["line"])

    def scope(self, name: str, thread: int = 1) -> dict[str, dict[str, Any]]:
        """Return the variables of a scope, by their names."""
        frame = self.ask("stackTrace", threadId=thread)["stackFrames"][0]["id"]
        found = {each["name"]: each for each in self.ask("scopes", frameId=frame)["scopes"]}
        assert name in found, sorted(found)
        return self.below(found[name])

    def below(self, variable: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what is below a variable, by the names."""
        rows = self.ask("variables", variablesReference=variable["variablesReference"])["variables"]
        return {each["name"]: each for each in rows}

    def close(self) -> int:
        """Disconnect, and return the exit status of the adapter."""
        self.ask("disconnect")
        return self.process.wait(PATIENCE) if self.process else self._status.get(timeout=PATIENCE)
