"""The server answers its own page only, within bounds, whatever is sent to it."""

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lanewise.errors import LanewiseError
from lanewise.explore import server as serving
from lanewise.explore.answers import question
from lanewise.explore.server import ExploreServer

JSON = {"Content-Type": "application/json"}
ABOUT = json.dumps({"text": "m16n8k16 bf16"}).encode()


def ask(
    server: ExploreServer,
    path: str,
    body: bytes | None = None,
    method: str = "",
    token: str | None = None,
    **headers: str,
) -> tuple[int, Any]:
    """Send a request below the token, or below another one; return its status and its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    start = f"/{server.token if token is None else token}/" if token != "-" else ""
    try:
        connection.putrequest(
            method or ("GET" if body is None else "POST"),
            start + path,
            skip_host="Host" in named,
            skip_accept_encoding=True,
        )
        if body is not None:
            named = {**JSON, "Content-Length": str(len(body)), **named}
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json and content else content


def test_the_page_and_a_question(server: ExploreServer) -> None:
    status, page = ask(server, "")
    assert status == 200 and b"<title>lanewise explore</title>" in page
    assert ask(server, "shell.js")[0] == 200
    status, found = ask(server, "api/instructions/about", ABOUT)
    assert status == 200 and found["text"] == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"


def test_headers_keep_other_sites_out(server: ExploreServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", f"/{server.token}/")
    headers = connection.getresponse().headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("token", ["", "wrong", "-", "x" * 5000])
@pytest.mark.parametrize("body", [None, ABOUT])
def test_without_the_token_nothing_is_told(server: ExploreServer, token: str, body: bytes | None) -> None:
    path = "/api/instructions/about" if token == "-" else "api/instructions/about"
    status, found = ask(server, path, body, token=token)
    assert status == 403 and set(found) == {"error"}


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""])
def test_another_host_is_refused(server: ExploreServer, host: str) -> None:
    assert ask(server, "", Host=host)[0] == 403
    assert ask(server, "api/instructions/about", ABOUT, Host=host)[0] == 403


def test_the_names_of_the_loopback_address_are_taken(server: ExploreServer) -> None:
    assert ask(server, "", Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("origin", ["http://example.com", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_another_origin_is_refused(server: ExploreServer, origin: str) -> None:
    assert ask(server, "api/instructions/about", ABOUT, Origin=origin)[0] == 403
    assert ask(server, "", Origin=origin)[0] == 403


def test_the_page_s_own_origin_is_taken_and_cross_site_questions_are_not(server: ExploreServer) -> None:
    own = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "api/instructions/about", ABOUT, Origin=own)[0] == 200
    assert ask(server, "api/instructions/about", ABOUT, Sec_Fetch_Site="same-origin")[0] == 200
    for site in ("cross-site", "same-site"):
        assert ask(server, "api/instructions/about", ABOUT, Sec_Fetch_Site=site)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "../answers.py", "..%2fanswers.py", "%2e%2e/server.py", "rooms/../../server.py", "/etc/passwd",
        "//etc/passwd",
        "..\\server.py", "shell.js/", "rooms", "rooms/", "shell.js%00", "page/shell.js", ".", "index.html/..",
    ],
)  # fmt: skip
def test_no_path_leads_outside(server: ExploreServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_only_files_of_the_page_are_known(server: ExploreServer) -> None:
    assert {name.rpartition(".")[2] for name in server.files} <= {"html", "css", "js", "svg"}
    assert not any(".." in name or name.startswith("/") for name in server.files)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"nonsense", b"\xff\xfe", b'{"text": NaN}', b"[" * 100_000, b'{"a":' * 5000,
        b'{"text": 3}', b"{}", b'{"text": null}', b'{"text": "x", "more": 1}', b'{"text": ""}',
        b'{"text": true}', b'{"text": "' + b"x" * 300_000 + b'"}', b'{"text": ' + b"9" * 10_000 + b"}",
    ],
    ids=range(16),
)  # fmt: skip
def test_garbage_becomes_a_sentence(server: ExploreServer, body: bytes) -> None:
    found = ask(server, "api/instructions/about", body)
    assert found[0] == 400 and found[1]["error"] and "Traceback" not in found[1]["error"]


def test_questions_that_there_are_not(server: ExploreServer) -> None:
    for path in (
        "api/attic/look",
        "api/instructions/nothing",
        "api",
        "api/instructions",
        "api/a/b/c",
        "other",
    ):
        assert ask(server, path, b"{}")[0] == 404
    assert ask(server, "api/instructions/about")[0] == 404  # by GET
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert ask(server, "api/instructions/about", b"{}", method=method)[0] == 501


def test_sizes_are_bounded(server: ExploreServer) -> None:
    path = "api/instructions/about"
    assert ask(server, path, b"{}", Content_Length=str(serving.MOST_BODY + 1))[0] == 413
    assert ask(server, path, b"{}", Content_Length="9" * 300)[0] == 413
    for length in ("", "-1", "two", "1e3"):
        assert ask(server, path, b"{}", Content_Length=length)[0] == 411
    assert ask(server, path, b"{}", Transfer_Encoding="chunked")[0] == 411
    assert ask(server, path, b"{}", Content_Type="text/plain")[0] == 415
    assert ask(server, "x" * 70_000)[0] == 414


def test_an_error_of_lanewise_s_own_is_told_as_such(server: ExploreServer) -> None:
    @question("instructions", "broken")
    def broken() -> None:
        raise ZeroDivisionError("no")

    @question("instructions", "endless")
    def endless() -> float:
        return float("inf")

    assert ask(server, "api/instructions/broken", b"{}")[0] == 500
    assert "mistake in lanewise" in ask(server, "api/instructions/endless", b"{}")[1]["error"]


def test_a_slow_or_silent_client_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.2)
    with ExploreServer() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        for sent in (b"", b"GET / HT", b"POST /x/ HTTP/1.1\r\nHost: a\r\nContent-Le"):
            with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
                connection.sendall(sent)
                assert connection.recv(100) == b""
        host = f"Host: 127.0.0.1:{server.server_port}\r\nContent-Type: application/json\r\n"
        start = f"POST /{server.token}/api/instructions/about HTTP/1.1\r\n{host}Content-Length: 99\r\n\r\n{{"
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            connection.sendall(start.encode())
            assert connection.recv(100) == b""
        monkeypatch.undo()  # the next client may be slow
        assert ask(server, "")[0] == 200
        server.shutdown()


def test_connections_beyond_the_bound_are_closed_and_the_server_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 3)
    with ExploreServer() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        held = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(3)]
        extra = socket.create_connection(("127.0.0.1", server.server_port))
        assert extra.recv(10) == b""
        for connection in (*held, extra):
            connection.close()
        while True:  # until the threads of the closed connections have ended
            try:
                assert ask(server, "")[0] == 200
                break
            except (http.client.HTTPException, OSError):
                time.sleep(0.01)
        server.shutdown()


def test_questions_that_take_long_make_others_wait_and_then_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    release, begun = threading.Event(), threading.Event()

    @question("instructions", "slow")
    def slow() -> int:
        begun.set()
        release.wait()
        return 1

    monkeypatch.setattr(serving, "MOST_AT_WORK", 1)
    monkeypatch.setattr(serving, "TURN_SECONDS", 0.1)
    with ExploreServer() as server, ThreadPoolExecutor(1) as pool:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        first = pool.submit(ask, server, "api/instructions/slow", b"{}")
        begun.wait()
        try:
            assert ask(server, "api/instructions/about", ABOUT)[0] == 503
            assert ask(server, "")[0] == 200  # files do not wait
        finally:
            release.set()
        assert first.result()[0] == 200
        server.shutdown()


def test_twenty_quick_clicks_from_two_tabs(server: ExploreServer) -> None:
    texts = ["m16n8k16 bf16", "ldmatrix x4"] * 20
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda body: ask(server, "api/instructions/about", body), bodies))
    assert {status for status, _ in found} == {200}
    assert len({json.dumps(each) for _, each in found}) == 2


def test_a_browser_that_closes_in_the_middle_does_no_harm(server: ExploreServer) -> None:
    host = f"Host: 127.0.0.1:{server.server_port}\r\n"
    head = f"POST /{server.token}/api/instructions/catalogue HTTP/1.1\r\n{host}"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            connection.sendall(
                f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode()
            )
    assert ask(server, "api/instructions/about", ABOUT)[0] == 200


def test_it_listens_on_the_loopback_address_alone_and_says_when_a_port_is_taken(
    server: ExploreServer,
) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(LanewiseError, match=f"port {server.server_port} cannot be used"):
        ExploreServer(port=server.server_port)
    with ExploreServer() as another:
        assert another.token != server.token and len(another.token) >= 20
