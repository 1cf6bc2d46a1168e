"""Where a debug adapter meets its editor: on stdin and stdout, or on a port of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from lanewise.debug.adapter.adapter import Adapter, Program
from lanewise.debug.adapter.messages import Connection
from lanewise.errors import LanewiseError


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
