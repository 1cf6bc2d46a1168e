"""Messages of the Debug Adapter Protocol: `Content-Length: N`, an empty line, and N bytes of JSON."""

import json
import threading
from typing import Any, BinaryIO

from lanewise.errors import LanewiseError

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
