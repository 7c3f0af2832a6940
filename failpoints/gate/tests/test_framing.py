"""Whoever sends what nobody can read, or ends its side early, harms nobody else; the record says whose fault it was.

A gate that breaks down at a request ends a whole sweep, so every test here also leaves the gate's block in peace.
"""

from __future__ import annotations

import io
import socket
import threading
from typing import Final

import pytest

from failpoints.gate import Gate, Rule
from failpoints.gate.tests.scripted import OK, WAIT_SECONDS, always, answer_from, connected, read_head, scripted_store

PUT: Final = b"PUT /b/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"
CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SMUGGLED: Final = b"DELETE /b/other HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"PUT /b/k HTTP/1.1\r\nContent-Length: " + b"9" * 5000,
        b"PUT /b/k HTTP/1.1\r\nContent-Length : %d" % len(SMUGGLED),
        b"PUT /b/k HTTP/1.1\r\nHost: h\nContent-Length: %d" % len(SMUGGLED),
        b"PUT /b/k HTTP/1.1\r\nHost: h\r\n Content-Length: %d" % len(SMUGGLED),
    ],
    ids=["digits", "blank", "line feed", "folded"],
)
def test_a_head_that_a_store_may_read_otherwise_never_reaches_it(head: bytes) -> None:
    asked = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        asked.set()
        always(OK)(connection, stream)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(head + b"\r\n\r\n" + SMUGGLED)
        assert answer_from(stream)[0].startswith(b"HTTP/1.1 400 ")
        gate.settle()
        assert gate.exchanges() == () and not asked.is_set()


@pytest.mark.parametrize(
    "raw",
    [
        b"PUT /b/t.lance/_versions/" + b"9" * 5000 + b".manifest HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"POST /b?delete HTTP/1.1\r\nContent-Length: 5014\r\n\r\n<Key>&#" + b"9" * 5000 + b";</Key>",
    ],
    ids=["version", "escape"],
)
def test_a_key_with_thousands_of_digits_is_a_key_like_any_other(raw: bytes) -> None:
    with (
        scripted_store(always(OK)) as endpoint,
        Gate(endpoint) as gate,
        connected(gate.port("a").endpoint) as (to, stream),
    ):
        to.sendall(raw)
        assert answer_from(stream) == (OK, b"")
        assert [each.outcome for each in gate.exchanges()] == ["answered"]


@pytest.mark.parametrize("request_", [b"GET /b/k HTTP/1.1\r\n\r\n", PUT], ids=["GET", "PUT"])
def test_a_client_that_has_ended_its_side_hears_the_answer(request_: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    ended = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        assert ended.wait(WAIT_SECONDS)
        connection.sendall(answer)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(request_)
        to.shutdown(socket.SHUT_WR)
        ended.set()
        assert stream.read() == answer
        (exchange,) = gate.exchanges()
        assert (exchange.outcome, exchange.answered) == ("answered", 200)


def test_a_client_that_has_ended_its_side_hears_that_the_store_is_gone() -> None:
    with Gate("http://127.0.0.1:1") as gate, connected(gate.port("a").endpoint) as (to, stream):
        held = gate.arm(Rule("hold"))
        to.sendall(PUT)
        to.shutdown(socket.SHUT_WR)
        held.wait(WAIT_SECONDS)
        held.release()
        assert answer_from(stream)[0].startswith(b"HTTP/1.1 502 ")
        (exchange,) = gate.exchanges()
        assert (exchange.outcome, exchange.answered) == ("store_gone", 502)


@pytest.mark.parametrize("body", [b"zz\r\n", b"5\r\nhello\r\nzz\r\n"], ids=["at once", "later"])
@pytest.mark.parametrize("request_", [b"GET /b/k HTTP/1.1\r\n\r\n", PUT], ids=["GET", "PUT"])
def test_an_answer_that_cannot_be_read_on_breaks_off_and_is_the_stores_fault(request_: bytes, body: bytes) -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        for piece in (CHUNKED, body[:-4], body[-4:]):
            connection.sendall(piece)
        stream.read()

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(request_)
        heard = stream.read()
        assert (CHUNKED + body).startswith(heard) and heard.count(b"HTTP/1.1") == 1
        (exchange,) = gate.exchanges()
        assert (exchange.outcome, exchange.status) == ("store_gone", 200)


def test_the_loss_of_an_answer_that_cannot_be_read_is_a_loss() -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(CHUNKED + b"zz\r\n")
        stream.read()

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        gate.arm(Rule("cut"))
        to.sendall(PUT)
        assert stream.read() == b""
        (exchange,) = gate.exchanges()
        assert (exchange.outcome, exchange.applied) == ("cut", True)
