"""Ports open and close, a gate settles, forgets and ends, and nothing is left behind."""

from __future__ import annotations

import io
import signal
import socket
import subprocess
import sys
import threading
from typing import Final

import obstore
import pytest

from failpoints.gate import Gate, GateBusy, GateError, GateTimeout, Rule
from failpoints.gate.tests.scripted import OK, WAIT_SECONDS, always, answer_from, connected, read_head, scripted_store
from fixtures.stores.moto import MotoStore

PUT: Final = b"PUT /b/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"


def test_a_port_listens_on_loopback_only() -> None:
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        port = gate.port("a")
        assert port.endpoint.startswith("http://127.0.0.1:")
        (listening,) = gate._listeners["a"].server.sockets
        assert listening.getsockname() == ("127.0.0.1", int(port.endpoint.rpartition(":")[2]))


def test_an_environment_leads_to_the_port() -> None:
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        port = gate.port("a")
        given = {"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "r"}
        assert port.environment(given) == {
            "AWS_ENDPOINT_URL_S3": port.endpoint,
            "AWS_ENDPOINT_URL": port.endpoint,
            "AWS_REGION": "r",
        }
        assert port.environment({"AWS_ENDPOINT": endpoint}) == {
            "AWS_ENDPOINT": port.endpoint,
            "AWS_ENDPOINT_URL_S3": port.endpoint,
        }
        assert given["AWS_ENDPOINT_URL"] == endpoint


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("https://127.0.0.1:1", "https"),
        ("127.0.0.1:1", "http://<host>:<port>"),
        ("http://me:hunter2@127.0.0.1:1", "no user"),
        ("http://127.0.0.1:1/path", "path"),
        ("", "http://<host>:<port>"),
        ("http://h:hunter2", "http://<host>:<port>"),
        ("http://h:99999", "http://<host>:<port>"),
        ("http://[::1", "http://<host>:<port>"),
    ],
)
def test_an_endpoint_that_cannot_be_served_is_refused_in_words(endpoint: str, words: str) -> None:
    with pytest.raises(GateError, match=words) as refused:
        Gate(endpoint)
    assert "hunter2" not in str(refused.value)


def test_an_owner_has_one_port_at_a_time() -> None:
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        first = gate.port("a")
        with pytest.raises(GateError, match="'a' has a port already"):
            gate.port("a")
        first.close()
        second = gate.port("a")
        first.close()
        with connected(second.endpoint) as (to, stream):
            to.sendall(PUT)
            assert answer_from(stream) == (OK, b"")
        with pytest.raises(ConnectionRefusedError), connected(first.endpoint):
            pass


def test_closing_a_port_ends_everything_of_its_owner_and_nothing_of_others() -> None:
    reached = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        if read_head(stream).startswith(b"DELETE"):
            reached.set()
            # The store takes its time: it answers when its client has hung up on the gate, at the earliest.
            assert closing.wait(WAIT_SECONDS)
        stream.read(1)
        connection.sendall(OK)

    closing = threading.Event()
    with scripted_store(script) as endpoint, Gate(endpoint) as gate:
        dead, alive = gate.port("dead"), gate.port("alive")
        before = gate.arm(Rule("hold", owner="dead", verbs=("PUT",)))
        after = gate.arm(Rule("hold", when="after", owner="dead", verbs=("PUT",), nth=2))
        other = gate.arm(Rule("hold", owner="alive"))
        with (
            connected(dead.endpoint) as (first, first_stream),
            connected(dead.endpoint) as (second, _),
            connected(dead.endpoint) as (third, _),
            connected(alive.endpoint) as (fourth, fourth_stream),
        ):
            first.sendall(PUT)
            before.wait(WAIT_SECONDS)
            second.sendall(PUT)
            after.wait(WAIT_SECONDS)
            third.sendall(b"DELETE /b/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
            assert reached.wait(WAIT_SECONDS)
            fourth.sendall(PUT)
            other.wait(WAIT_SECONDS)
            assert gate.in_flight() == 4

            closer = threading.Thread(target=dead.close)
            closer.start()
            assert first_stream.read() == b""
            assert closer.is_alive(), "it waits for what is at the store"
            closing.set()
            closer.join(WAIT_SECONDS)

            assert gate.in_flight("dead") == 0 and gate.in_flight("alive") == 1
            found = [(each.outcome, each.status) for each in gate.exchanges("dead")]
            assert found == [("refused", None), ("cut", 200), ("client_gone", 200)]
            other.release()
            assert answer_from(fourth_stream) == (OK, b"")


def test_a_delayed_request_of_a_port_that_closes_is_never_sent_on() -> None:
    connections: list[int] = []

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        connections.append(1)
        always(OK)(connection, stream)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate:
        port = gate.port("a")
        delayed = gate.arm(Rule("delay", seconds=3600))
        with connected(port.endpoint) as (to, stream):
            to.sendall(PUT)
            delayed.wait(WAIT_SECONDS)
            port.close()
            assert stream.read() == b""
        assert [(each.outcome, each.status) for each in gate.exchanges()] == [("client_gone", None)]
    assert connections == []


def test_a_reset_is_refused_while_a_request_is_held_and_forgets_everything_afterwards() -> None:
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        held = gate.arm(Rule("hold", times=None))
        with connected(gate.port("a").endpoint) as (to, stream):
            to.sendall(PUT)
            held.wait(WAIT_SECONDS)
            with pytest.raises(GateBusy, match="1 requests are in flight"):
                gate.reset()
            held.release()
            assert gate.exchanges()[0].outcome != "held"
            assert answer_from(stream) == (OK, b"")
            gate.reset()
            assert gate.exchanges() == () and gate.mark() == 0
            to.sendall(PUT)
            assert answer_from(stream) == (OK, b"")
            assert [each.number for each in gate.exchanges()] == [1] and held.hits == 1


def test_exchanges_are_numbered_in_order_of_arrival_over_all_owners() -> None:
    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        with connected(gate.port("a").endpoint) as first, connected(gate.port("b").endpoint) as second:
            for to, stream in (first, second, first):
                to.sendall(PUT)
                answer_from(stream)
        assert [(each.number, each.owner) for each in gate.exchanges()] == [(1, "a"), (2, "b"), (3, "a")]
        assert [each.number for each in gate.exchanges("a", since=1)] == [3]
        assert gate.mark() == 3 and gate.exchanges(since=gate.mark()) == ()


def test_settling_waits_for_the_store_and_says_when_it_does_not_come() -> None:
    answering = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        stream.read(1)
        assert answering.wait(WAIT_SECONDS)
        connection.sendall(OK)

    with scripted_store(script) as endpoint, Gate(endpoint) as gate:
        with connected(gate.port("a").endpoint) as (to, _):
            to.sendall(PUT)
        with pytest.raises(GateTimeout, match="1 requests did not come to their end"):
            gate.settle("a", timeout_seconds=0.1)
        gate.settle("b")
        answering.set()
        gate.settle("a")
        (exchange,) = gate.exchanges()
        assert (exchange.outcome, exchange.status, exchange.answered) == ("client_gone", 200, None)


def test_a_write_is_waited_for_to_the_end_of_its_answer_also_when_its_client_is_gone() -> None:
    """A store may begin to answer before it has finished: the end of an upload is answered so."""
    ending = threading.Event()

    def script(connection: socket.socket, stream: io.BufferedReader) -> None:
        read_head(stream)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n ")
        assert ending.wait(WAIT_SECONDS)
        connection.sendall(b" ")

    with scripted_store(script) as endpoint, Gate(endpoint) as gate:
        with connected(gate.port("a").endpoint) as (to, stream):
            to.sendall(b"POST /b/k?uploadId=1 HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
            read_head(stream)
        with pytest.raises(GateTimeout):
            gate.settle(timeout_seconds=0.1)
        ending.set()
        gate.settle()
        (exchange,) = gate.exchanges()
        assert (exchange.verb, exchange.outcome, exchange.status) == ("COMPLETE_UPLOAD", "client_gone", 200)


KILLED: Final = """
import socket, sys
to = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
to.sendall(b"PUT /{bucket}/{key} HTTP/1.1\\r\\nContent-Length: 1\\r\\n\\r\\nx")
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.s3
def test_what_a_process_sent_before_it_was_killed_is_over_when_the_gate_has_settled(
    gate: Gate, moto_store: MotoStore
) -> None:
    for number in range(3):
        port, key = gate.port(f"process {number}"), moto_store.fresh_prefix()
        program = KILLED.replace("{bucket}", moto_store.bucket).replace("{key}", key)
        with subprocess.Popen(
            [sys.executable, "-c", program, port.endpoint.rpartition(":")[2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"sent\n"
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_SECONDS)
            gate.settle(port.owner)
            (exchange,) = gate.exchanges(port.owner)
            assert exchange.status == 200 and exchange.ended is not None
            assert obstore.head(moto_store.objects(), key)["size"] == 1


def test_a_gate_that_ends_drops_what_is_held_and_wakes_who_waits() -> None:
    woken: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            never.wait(WAIT_SECONDS)
        except GateError as error:
            woken.append(error)

    with scripted_store(always(OK)) as endpoint, Gate(endpoint) as gate:
        never = gate.arm(Rule("cut", owner="nobody"))
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(WAIT_SECONDS)
        held = gate.arm(Rule("hold"))
        with connected(gate.port("a").endpoint) as (to, stream):
            to.sendall(PUT)
            held.wait(WAIT_SECONDS)
            gate.__exit__(None)
            assert stream.read() == b""
        thread.join(WAIT_SECONDS)
        assert [str(error) for error in woken] == ["the gate is closed"]
        assert gate.exchanges()[0].ended is not None
        with pytest.raises(GateError, match="not open"):
            gate.port("b")
        held.release()
