"""Bytes pass unchanged, in bounded memory, however they are framed; and whichever side goes away is named."""

from __future__ import annotations

import io
import socket
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import obstore
import pytest

from failpoints.gate import Exchange, Gate, GateTimeout, Port, Rule
from failpoints.gate.tests.scripted import (
    OK,
    WAIT_SECONDS,
    always,
    answer_from,
    connected,
    length_of,
    read_head,
    scripted_store,
)
from fixtures.stores.moto import MotoStore

LARGE_BYTES: Final = 100 * 2**20
BLOCK: Final = bytes(range(256)) * 4096
MEMORY_BYTES_MAX: Final = 16 * 2**20
# How long one side does not read while the other sends: enough for a gate without bounds to swallow everything.
STALL_SECONDS: Final = 0.3


def one(gate: Gate) -> Exchange:
    gate.settle()
    (exchange,) = gate.exchanges()
    return exchange


def test_a_request_arrives_byte_for_byte() -> None:
    seen: list[bytes] = []
    raw = b"PUT /b/a%20b%2Fc?x=1 HTTP/1.1\r\nhOsT:  odd.example:1 \r\nX-Amz-Date:now\r\nContent-Length: 3\r\n\r\nabc"

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        seen.append(stream.read(len(raw)))
        connection.sendall(b"HTTP/1.1 200 Very Fine\r\neTaG:  x \r\nContent-Length: 2\r\n\r\nhi")

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(raw)
        assert answer_from(stream) == (b"HTTP/1.1 200 Very Fine\r\neTaG:  x \r\nContent-Length: 2\r\n\r\n", b"hi")
        exchange = one(gate)
    assert seen == [raw]
    assert (exchange.bucket, exchange.key, exchange.bytes_in, exchange.bytes_out) == ("b", "a b/c", 3, 2)


def test_one_connection_serves_many_requests_and_so_does_the_one_behind_it() -> None:
    connections: list[int] = []

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        connections.append(1)
        always(OK)(connection, stream)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        for number in range(20):
            to.sendall(b"PUT /b/%d HTTP/1.1\r\nContent-Length: 1\r\n\r\nx" % number)
            assert answer_from(stream) == (OK, b"")
        assert [each.key for each in gate.exchanges()] == [str(number) for number in range(20)]
    assert connections == [1]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
def test_answers_without_a_body_end_with_their_head(method: str, answer: bytes) -> None:
    with (
        scripted_store(always(answer)) as endpoint,
        Gate(endpoint) as gate,
        connected(gate.port("a").endpoint) as (to, stream),
    ):
        for _ in range(2):
            to.sendall(f"{method} /b/k HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            assert read_head(stream) == answer
        assert {each.outcome for each in gate.exchanges()} == {"answered"}


@pytest.mark.parametrize("answer", [b"HTTP/1.0 200 OK\r\n\r\nall of it", b"HTTP/1.1 200 OK\r\n\r\nall of it"])
def test_an_answer_without_a_length_ends_with_the_connection(answer: bytes) -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(answer)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"GET /b/k HTTP/1.1\r\n\r\n")
        assert stream.read() == answer
        assert (one(gate).outcome, one(gate).bytes_out) == ("answered", 9)


def test_chunked_bodies_pass_both_ways_unchanged() -> None:
    chunks = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: t\r\n\r\n"
    listing = b"a\r\n<Key>1</Ke\r\n9\r\ny><Key>2<\r\n10\r\n<CommonPrefixes>\r\n0\r\n\r\n"
    seen: list[bytes] = []

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        seen.append(stream.read(len(chunks)))
        connection.sendall(OK)
        read_head(stream)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + listing)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        assert answer_from(stream) == (OK, b"")
        to.sendall(b"GET /b?list-type=2 HTTP/1.1\r\n\r\n")
        assert read_head(stream).endswith(b"chunked\r\n\r\n") and stream.read(len(listing)) == listing
        put, listed = gate.exchanges()
    assert seen == [chunks]
    assert (put.bytes_in, listed.bytes_out, listed.listed) == (11, 35, 3)


def test_a_client_that_waits_to_be_told_to_go_on_is_told_once() -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        head = read_head(stream)
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        stream.read(length_of(head))
        connection.sendall(OK)

    for size in (4, 2**20 + 1):
        with (
            scripted_store(script) as endpoint,
            Gate(endpoint) as gate,
            connected(gate.port("a").endpoint) as (to, stream),
        ):
            to.sendall(b"PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
            assert read_head(stream) == b"HTTP/1.1 100 Continue\r\n\r\n"
            to.sendall(b"x" * size)
            assert read_head(stream) == OK
            assert one(gate).bytes_in == size


def test_a_large_body_is_streamed_to_the_store_in_bounded_memory() -> None:
    received: list[int] = []
    all_sent = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        left = length_of(read_head(stream))
        assert not all_sent.wait(STALL_SECONDS), "somebody has taken all of it, and it was not the store"
        while left:
            piece = stream.read(min(left, len(BLOCK)))
            assert piece == BLOCK
            left -= len(piece)
            received.append(len(piece))
        connection.sendall(OK)

    def talk(to: socket.socket, stream: io.BufferedReader) -> None:
        to.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES)
        for _ in range(LARGE_BYTES // len(BLOCK)):
            to.sendall(BLOCK)
        all_sent.set()
        assert answer_from(stream) == (OK, b"")

    exchange, peak = measured(script, talk)
    assert exchange.bytes_in == sum(received) == LARGE_BYTES
    assert peak < MEMORY_BYTES_MAX


def test_a_large_answer_is_streamed_to_the_client_in_bounded_memory() -> None:
    all_sent = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES)
        for _ in range(LARGE_BYTES // len(BLOCK)):
            connection.sendall(BLOCK)
        all_sent.set()

    def talk(to: socket.socket, stream: io.BufferedReader) -> None:
        to.sendall(b"GET /b/k HTTP/1.1\r\n\r\n")
        assert length_of(read_head(stream)) == LARGE_BYTES
        assert not all_sent.wait(STALL_SECONDS), "somebody has taken all of it, and it was not the client"
        for _ in range(LARGE_BYTES // len(BLOCK)):
            assert stream.read(len(BLOCK)) == BLOCK

    exchange, peak = measured(script, talk)
    assert exchange.bytes_out == LARGE_BYTES
    assert peak < MEMORY_BYTES_MAX


def measured(
    script: Callable[[socket.socket, io.BufferedReader], None],
    talk: Callable[[socket.socket, io.BufferedReader], None],
) -> tuple[Exchange, int]:
    """One exchange of a client and a store, and the most memory that this process had in use beyond the start."""
    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        tracemalloc.start()
        try:
            talk(to, stream)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert one(gate).outcome == "answered"
        return one(gate), peak


@pytest.mark.parametrize("size", [1000, 3 * 2**20], ids=["small", "streamed"])
def test_a_client_that_dies_in_the_middle_of_a_body_leaves_no_object(
    size: int, gate: Gate, port: Port, moto_store: MotoStore
) -> None:
    key = moto_store.fresh_prefix()
    with connected(port.endpoint) as (to, _):
        to.sendall(f"PUT /{moto_store.bucket}/{key} HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode())
        to.sendall(b"x" * (size // 2))
    exchange = one(gate)
    assert (exchange.outcome, exchange.status, exchange.answered) == ("client_gone", None, None)
    moto_store.take_requests()
    with pytest.raises(FileNotFoundError):
        obstore.head(moto_store.objects(), key)


def test_nothing_of_a_small_request_is_sent_on_before_it_is_whole() -> None:
    begun = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        begun.set()
        always(OK)(connection, stream)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % 2**20)
        to.sendall(b"x" * (2**20 - 1))
        with pytest.raises(GateTimeout):
            gate.settle(timeout_seconds=0.1)
        assert not begun.is_set() and gate.in_flight() == 1
        to.sendall(b"x")
        assert answer_from(stream) == (OK, b"")
        assert begun.is_set()


def test_a_streamed_upload_whose_client_dies_is_hung_up_on_at_the_store() -> None:
    ended = threading.Event()
    sizes: list[int] = []

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        try:
            while piece := stream.read1(1 << 16):
                sizes.append(len(piece))
        finally:
            ended.set()

    with scripted_store(script) as endpoint, Gate(endpoint) as gate:
        with connected(gate.port("a").endpoint) as (to, _):
            to.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (8 * 2**20))
            to.sendall(b"x" * 2**21)
        assert ended.wait(WAIT_SECONDS)
        assert sum(sizes) <= 2**21
        assert one(gate).outcome == "client_gone"


def test_a_store_that_answers_before_it_has_the_body_is_heard() -> None:
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(refusal)
        while stream.read1(1 << 16):
            pass

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (4 * 2**20))
        to.sendall(b"x" * 2**20)
        head, body = answer_from(stream)
        assert head + body == refusal
        assert one(gate).status == 403


def test_a_store_that_cannot_be_reached_is_a_bad_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"PUT /b/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        head, body = answer_from(stream)
        assert head.startswith(b"HTTP/1.1 502 ") and b"the store cannot be reached" in body
        exchange = one(gate)
        assert (exchange.outcome, exchange.status, exchange.answered) == ("store_gone", None, 502)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"what?\r\n\r\n"])
def test_a_store_that_hangs_up_without_an_answer_is_a_bad_gateway(said: bytes) -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(said)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"GET /b/k HTTP/1.1\r\n\r\n")
        assert answer_from(stream)[0].startswith(b"HTTP/1.1 502 ")
        assert (one(gate).outcome, one(gate).status) == ("store_gone", None)


def test_an_answer_that_breaks_off_breaks_off_for_the_client_too() -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"GET /b/k HTTP/1.1\r\n\r\n")
        assert stream.read().endswith(b"half")
        assert (one(gate).outcome, one(gate).status, one(gate).bytes_out) == ("store_gone", 200, 4)


def test_a_store_that_has_hung_up_between_requests_is_called_again() -> None:
    hung_up = threading.Semaphore(0)

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_RDWR)
        hung_up.release()

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        for _ in range(5):
            to.sendall(b"DELETE /b/k HTTP/1.1\r\n\r\n")
            assert answer_from(stream) == (OK, b"")
            assert hung_up.acquire(timeout=WAIT_SECONDS)
            gate.settle()
        assert [each.status for each in gate.exchanges()] == [200] * 5


@pytest.mark.parametrize(("method", "answered"), [("GET", 200), ("DELETE", 502)])
def test_a_store_that_hangs_up_on_a_request_is_asked_again_where_that_does_no_harm(method: str, answered: int) -> None:
    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(OK)
        read_head(stream)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate, connected(gate.port("a").endpoint) as (to, stream):
        to.sendall(b"GET /b/first HTTP/1.1\r\n\r\n")
        assert answer_from(stream) == (OK, b"")
        to.sendall(f"{method} /b/second HTTP/1.1\r\n\r\n".encode())
        assert answer_from(stream)[0].startswith(b"HTTP/1.1 %d " % answered)
        assert [each.answered for each in gate.exchanges()] == [200, answered]


@pytest.mark.parametrize(
    "raw", [b"nonsense\r\n\r\n", b"PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"], ids=["head", "chunk"]
)
def test_what_is_no_request_is_refused_and_shown_to_nobody(raw: bytes) -> None:
    with (
        scripted_store(always(OK)) as endpoint,
        Gate(endpoint) as gate,
        connected(gate.port("a").endpoint) as (to, stream),
    ):
        to.sendall(raw)
        assert answer_from(stream)[0].startswith(b"HTTP/1.1 400 ")
        assert [each.outcome for each in gate.exchanges()] in ([], ["refused"])


def test_two_hundred_connections_at_once_are_all_served() -> None:
    clients = 200
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate, ExitStack() as stack:
        port = gate.port("a")
        held = gate.arm(Rule("hold", times=None))
        opened = [stack.enter_context(connected(port.endpoint)) for _ in range(clients)]
        for number, (to, _) in enumerate(opened):
            to.sendall(b"PUT /b/%d HTTP/1.1\r\nContent-Length: 1\r\n\r\nx" % number)
        while gate.in_flight() < clients:
            held.wait(WAIT_SECONDS)
            gate.settle()
        held.release()
        assert all(answer_from(stream) == (OK, b"") for _, stream in opened)
        assert {each.outcome for each in gate.exchanges()} == {"answered"}
        assert sorted(int(each.key) for each in gate.exchanges()) == list(range(clients))
