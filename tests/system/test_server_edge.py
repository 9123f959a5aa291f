"""Connections that ask nothing, slowly or in great number, are hung up on; everyone else is served (R10)."""

import contextlib
import json
import os
import select
import socket
import time
from urllib.parse import urlsplit

import pytest

from dodona.server import app as edge
from dodona.server.app import make_app
from dodona.server.settings import Settings
from tests.support.servers import Process, add_key, listening
from tests.support.timed import write_twins

LONG = 10 if "DODONA_PLANTED" in os.environ else 60  # a planted bug is not waited for that long
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(port, address="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0))


def answer(line):
    """Status and body of one response."""
    with line.makefile("rb") as read:
        status = int(read.readline().split()[1])
        length = 0
        while (header := read.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return status, read.read(length)


def ended(line, seconds):
    """Whether the server hangs up within ``seconds``; what it says before is read."""
    line.settimeout(seconds)
    try:
        while line.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edge")
    surveys = write_twins(folder, 50)
    add_key(folder, "boss")
    running = Process(folder, surveys[:1], patience=600)  # so that nobody is let in because a limit was reached
    yield running
    running.stop()


@pytest.mark.parametrize("addresses", [1, 6])
def test_1200_half_sent_requests_do_not_lock_others_out(server, addresses):
    with contextlib.ExitStack() as stack:
        for number in range(1200):
            line = stack.enter_context(connect(server.port, f"127.0.1.{number % addresses + 1}"))
            with contextlib.suppress(ConnectionError):
                line.sendall(HALF)
        for _ in range(5):
            with connect(server.port, "127.0.0.2") as other:
                other.sendall(WHOLE)
                assert answer(other)[0] == 200


def test_one_address_holds_so_many_connections_and_no_more(server):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(connect(server.port, "127.0.2.1")) for _ in range(260)]
        served = 0
        for line in lines:
            with contextlib.suppress(ConnectionError, IndexError):
                line.sendall(WHOLE)
                served += answer(line)[0] == 200
        assert served == Settings.connections


@pytest.fixture
def port(tmp_path, monkeypatch):
    """Of a server in this process whose limits are short: 0.8 s for headers, for a body, and for reading."""
    surveys = write_twins(tmp_path, 50)
    for name in ("HEADERS", "BODY", "READING"):
        monkeypatch.setattr(edge, name, 0.8)
    monkeypatch.setattr(edge, "_most_of_one_address", lambda: 250)
    app = make_app(Settings((str(surveys[0]),), str(tmp_path), audit=str(tmp_path / "log")))
    with listening(app, http=edge.Edge, timeout_keep_alive=60) as url:
        yield urlsplit(url).port


def dribble(line, start, each, begun):
    """A byte now and then, until the server hangs up; how many seconds that is after ``begun``."""
    line.sendall(start)
    line.settimeout(0.1)
    while time.monotonic() - begun < LONG:
        try:
            line.sendall(each)
            if line.recv(1 << 16) == b"":
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("start", "each"),
    [
        (b"", b""),
        (HALF, b"a"),
        (b"GET /healthz HTTP/1.1\r\n", b"X: a\r\n"),
        (WHOLE + HALF, b"a"),  # after a whole one on the same connection
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", b"a"),
        (b"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    ],
    ids=["nothing", "a header", "headers", "the next request", "a body nobody reads", "chunks"],
)
def test_what_arrives_too_slowly_ends_by_the_limit(port, start, each):
    begun = time.monotonic()  # before the server can have begun to count
    with connect(port) as line:
        assert 0.7 < dribble(line, start, each, begun) < LONG - 1  # the bytes would last for ever


def test_the_limit_on_headers_does_not_shorten_the_time_between_requests(port):
    with connect(port) as line:
        for _ in range(3):
            line.sendall(WHOLE)
            assert answer(line)[0] == 200
            time.sleep(1.2)


def test_a_peer_that_does_not_read_is_hung_up_on(port):
    """It reads nothing meanwhile: that the line is dead it is told when it says something more."""
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # as little as the system allows: soon full
        line.connect(("127.0.0.1", port))
        line.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)  # 25 MB of answers
        dead = select.poll()
        dead.register(line, 0)  # hanging up and errors are told unasked
        end = time.monotonic() + LONG
        while not dead.poll(100) and time.monotonic() < end:
            with contextlib.suppress(ConnectionError):
                line.send(b"G")
        assert dead.poll(0), "the server keeps a line whose peer takes nothing"


def test_many_headers_are_refused(port):
    many = b"".join(b"X-%d: a\r\n" % number for number in range(200))
    with connect(port) as line:
        line.sendall(WHOLE[:-2] + many + b"\r\n")
        status, body = answer(line)
        assert (status, json.loads(body)["code"]) == (431, "too-large")
        assert ended(line, 60)


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_two_statements_of_the_length_are_refused(port, lengths):
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(port) as line:
        line.sendall(b"POST /v1/keys HTTP/1.1\r\nHost: localhost\r\n" + lengths + b"\r\n" + smuggled)
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := line.recv(1 << 16):
                received += part
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1 ") == 1  # and what came behind it is not a request
