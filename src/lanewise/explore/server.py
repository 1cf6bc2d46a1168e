"""The server of the page: on the loopback address, behind a token in the link, with bounds on everything.

The link is `http://127.0.0.1:PORT/TOKEN/`; every file and every question lies below the token, so that
relative addresses in the page carry it and other programs on the machine, which do not know it, get
nothing. A request must name this server in its Host and, where a browser sends them, in its Origin and Sec-
Fetch-Site, which keeps other sites out of it. Files are looked up by name in a table made at the start: no
path is ever opened that was sent.
"""

import ipaddress
import json
import secrets
import socket
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.explore.answers import Session, answer
from lanewise.explore.time_limits import seconds

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
#: Bytes of a question, connections at once, questions that are worked on at once.
MOST_BODY, MOST_CONNECTIONS, MOST_AT_WORK = 4 << 20, 64, 4
#: Seconds that a connection may be idle or slow, and that a question waits for its turn.
IDLE_SECONDS, TURN_SECONDS = seconds(30.0), seconds(20.0)

#: Headers that a proxy adds to a request that it passes on: the page is served to others through it.
_OF_PROXIES = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
}
#: Nothing is fetched from elsewhere, no script runs but the page's own files, nobody may frame the page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page_files() -> dict[str, bytes]:
    """Return the page's own files by their names below `page/`."""
    return {
        path.relative_to(PAGE).as_posix(): path.read_bytes()
        for path in sorted(PAGE.rglob("*"))
        if path.is_file() and path.suffix in TYPES
    }


class ExploreServer(ThreadingHTTPServer):
    """A server on a free port of the loopback address, or on the one asked for.

    >>> with ExploreServer() as server:
    ...     server.link.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True
    allow_reuse_address = True
    #: Connections that may wait to be taken: a page opens several at once.
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, files: Sequence[Path] = (), port: int = 0) -> None:
        """Listen; `serve_forever` then answers until `shutdown` is called."""
        self.session = Session(files, runs_python=ipaddress.ip_address(ADDRESS).is_loopback)
        self.token = secrets.token_urlsafe(16)
        self.files = page_files()
        self.at_work = threading.BoundedSemaphore(MOST_AT_WORK)
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            reason = error.strerror or error
            raise LanewiseError(
                f"port {port} cannot be used: {reason}; leave --port out, and a free one is taken"
            ) from None
        names = (f"{host}:{self.server_port}" for host in (ADDRESS, "localhost"))
        self.hosts = frozenset(names)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)

    @property
    def link(self) -> str:
        """The address of the page, with its token."""
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread of its own, unless too many have one."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and count it as ended whatever happens."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent about a connection that a browser dropped."""

    def server_bind(self) -> None:
        """Bind without a look-up of the machine's name, which may take seconds."""
        socket_address = self.server_address
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(socket_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: ExploreServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lanewise", ""
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Hand out a file of the page."""
        path = self._path()
        if path is None:
            return
        name = path or "index.html"
        content = self.server.files.get(name)
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND, "the page has no such file")
        else:
            self._send(HTTPStatus.OK, content, TYPES[Path(name).suffix])

    def do_HEAD(self) -> None:
        """Say what a file of the page is, without its content."""
        self.do_GET()

    def do_POST(self) -> None:
        """Answer a question."""
        path = self._path()
        if path is None:
            return
        parts = path.split("/")
        if len(parts) != 3 or parts[0] != "api":
            self._refuse(HTTPStatus.NOT_FOUND, "questions are asked at api/<room>/<question>")
            return
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question is application/json")
            return
        body = self._body()
        if body is None:
            return
        if not self.server.at_work.acquire(timeout=TURN_SECONDS):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the questions before this one still take time")
            return
        try:
            session = self.server.session if self._is_local() else self.server.session.for_others()
            reply = answer(session, parts[1], parts[2], body)
        finally:
            self.server.at_work.release()
        self._send(reply.status, reply.content, reply.type)

    def _path(self) -> str | None:
        """Return what is asked for below the token, or refuse the request."""
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        if host not in self.server.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
            return None
        # A link on another site may open the page; questions come from the page alone.
        is_question = self.command == "POST"
        if (origin is not None and origin not in self.server.origins) or (
            is_question and site not in ("same-origin", "none")
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers its own page only")
            return None
        token, slash, rest = self.path.split("?", 1)[0].removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "open the link that `lanewise explore` printed")
            return None
        if not slash:
            self._refuse(HTTPStatus.NOT_FOUND, "the link ends with a slash")
            return None
        return rest

    def _is_local(self) -> bool:
        """Whether whoever asks is on this machine, as far as the request tells: no proxy passed it on."""
        is_passed_on = any(self.headers.get(name) is not None for name in _OF_PROXIES)
        return ipaddress.ip_address(self.client_address[0]).is_loopback and not is_passed_on

    def _body(self) -> bytes | None:
        """Return what was sent, or refuse what is too large or has no length."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not length.isascii() or not length.isdigit():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a question says its length")
            return None
        if len(length) > 12 or int(length) > MOST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has at most {MOST_BODY >> 20} MiB")
            return None
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True  # a body that was not read would be taken for the next request
        self._send(status, json.dumps({"error": sentence}).encode(), "application/json")

    def _send(self, status: int, content: bytes, type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing: the terminal is for the link."""
