"""What a rule does to a request, on moto, by clients as engines use them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any, Final

import lance
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import BaseError

from failpoints.gate import Gate, GateTimeout, Port, Rule
from fixtures.stores.moto import MotoStore

pytestmark = pytest.mark.s3

WAIT_SECONDS: Final = 60.0
ROWS: Final = pa.table({"id": ["a", "b"], "value": [1, 2]})


def table_of(store: MotoStore) -> str:
    """A table with one version, made behind the gate's back."""
    uri = f"{store.fresh_root()}/table.lance"
    lance.write_dataset(ROWS, uri, storage_options=store.storage_options)
    return uri


def append(uri: str, store: MotoStore, port: Port) -> int:
    options = store.storage_options_at(port.endpoint)
    return int(lance.write_dataset(ROWS, uri, mode="append", storage_options=options).version)


def opened(uri: str, store: MotoStore) -> Any:
    return lance.dataset(uri, storage_options=store.storage_options)


def in_background(work: Callable[[], Any]) -> Future[Any]:
    """A client that may have to wait, in a thread of its own."""
    with_one = ThreadPoolExecutor(1)
    future = with_one.submit(work)
    with_one.shutdown(wait=False)
    return future


def test_a_request_that_is_held_before_is_not_at_the_store(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    uri = table_of(moto_store)
    held = gate.arm(Rule("hold", verbs=("PUT",), roles=("table version",)))
    writing = in_background(lambda: append(uri, moto_store, port))
    exchange = held.wait(WAIT_SECONDS)
    assert (exchange.outcome, exchange.version, exchange.status, exchange.ended) == ("held", 2, None, None)
    assert exchange.conditions == (("if-none-match", "*"),)
    assert opened(uri, moto_store).version == 1 and not writing.done()
    gate.settle()
    assert gate.in_flight() == gate.in_flight("engine") == 1

    held.release()

    assert writing.result(WAIT_SECONDS) == 2
    assert opened(uri, moto_store).version == 2
    assert gate.exchanges()[exchange.number - 1].outcome == "answered"


def test_a_request_that_is_held_after_is_at_the_store_and_its_client_waits(
    gate: Gate, port: Port, moto_store: MotoStore
) -> None:
    uri = table_of(moto_store)
    held = gate.arm(Rule("hold", when="after", verbs=("PUT",), roles=("table version",)))
    writing = in_background(lambda: append(uri, moto_store, port))
    exchange = held.wait(WAIT_SECONDS)
    assert (exchange.outcome, exchange.status, exchange.answered) == ("held", 200, None)
    assert exchange.applied and opened(uri, moto_store).version == 2 and not writing.done()

    held.release()

    assert writing.result(WAIT_SECONDS) == 2


def test_what_is_dropped_before_never_reaches_the_store(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    key = moto_store.fresh_prefix()
    held = gate.arm(Rule("hold", verbs=("PUT",), times=None))
    client = moto_store.objects(endpoint=port.endpoint, retries=0)
    putting = in_background(lambda: obstore.put(client, key, b"x"))
    held.wait(WAIT_SECONDS)

    held.drop()

    assert isinstance(putting.exception(WAIT_SECONDS), BaseError)
    (exchange,) = gate.exchanges()
    assert (exchange.outcome, exchange.status, exchange.answered) == ("refused", None, None)
    with pytest.raises(FileNotFoundError):
        obstore.head(moto_store.objects(), key)
    with pytest.raises(BaseError):
        obstore.put(client, key, b"later ones are dropped too")
    held.disarm()
    obstore.put(client, key, b"x")


def test_what_is_dropped_after_is_at_the_store(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    key = moto_store.fresh_prefix()
    held = gate.arm(Rule("hold", when="after", verbs=("PUT",)))
    client = moto_store.objects(endpoint=port.endpoint, retries=0)
    putting = in_background(lambda: obstore.put(client, key, b"x"))
    held.wait(WAIT_SECONDS)

    held.drop()

    assert isinstance(putting.exception(WAIT_SECONDS), BaseError)
    (exchange,) = gate.exchanges()
    assert (exchange.outcome, exchange.status, exchange.answered) == ("cut", 200, None)
    assert obstore.head(moto_store.objects(), key)["size"] == 1


def test_a_lost_acknowledgement_of_a_version_leaves_one_version(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    uri = table_of(moto_store)
    cut = gate.arm(Rule("cut", verbs=("PUT",), roles=("table version",)))

    assert append(uri, moto_store, port) == 2

    lost = cut.wait(WAIT_SECONDS)
    assert (lost.status, lost.answered, lost.outcome, lost.applied) == (200, None, "cut", True)
    retried = [each for each in gate.exchanges(since=lost.number) if each.role == "table version" and each.durable]
    assert [each.status for each in retried] == [412]
    assert opened(uri, moto_store).version == 2 and opened(uri, moto_store).count_rows() == 4


def test_a_request_that_is_refused_is_sent_again_by_the_client(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    uri = table_of(moto_store)
    refused = gate.arm(Rule("refuse", durable=True, roles=("table data",)))

    assert append(uri, moto_store, port) == 2

    first = refused.wait(WAIT_SECONDS)
    assert (first.status, first.answered, first.outcome, first.applied) == (None, None, "refused", False)
    again = [each for each in gate.exchanges(since=first.number) if each.key == first.key]
    assert [each.outcome for each in again] == ["answered"]


@pytest.mark.parametrize("status", [503, 500])
def test_a_store_that_fails_twice_is_asked_a_third_time(
    gate: Gate, port: Port, moto_store: MotoStore, status: int
) -> None:
    uri = table_of(moto_store)
    injected = gate.arm(Rule("answer", status=status, durable=True, times=2))

    assert append(uri, moto_store, port) == 2

    assert injected.hits == 2
    told = [each for each in gate.exchanges() if each.outcome == "injected"]
    assert [(each.status, each.answered) for each in told] == [(None, status)] * 2
    assert opened(uri, moto_store).count_rows() == 4


def test_a_false_conflict_is_rebased_and_committed_once(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    uri = table_of(moto_store)
    injected = gate.arm(Rule("answer", status=412, verbs=("PUT",), roles=("table version",)))
    append(uri, moto_store, port)
    assert injected.hits == 1
    assert opened(uri, moto_store).count_rows() == 4


def test_a_connection_is_used_again_after_an_answer_of_the_gate(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    gate.arm(Rule("answer", status=404, times=2))
    connection = HTTPConnection(port.endpoint.removeprefix("http://"), timeout=WAIT_SECONDS)
    codes = []
    for method in ("HEAD", "GET", "GET"):
        connection.request(method, f"/{moto_store.bucket}?list-type=2&prefix=none")
        answer = connection.getresponse()
        answer.read()
        codes.append(answer.status)
        assert not answer.will_close
    connection.close()
    assert codes[:2] == [404, 404] and codes[2] != 404


def test_a_delayed_request_arrives_after_that_time(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    gate.arm(Rule("delay", seconds=0.25))
    obstore.put(moto_store.objects(endpoint=port.endpoint), moto_store.fresh_prefix(), b"x", use_multipart=False)
    (exchange,) = gate.exchanges()
    assert exchange.ended is not None and exchange.ended - exchange.started >= 0.25
    assert (exchange.outcome, exchange.status) == ("answered", 200)


def test_a_throttle_slows_both_bodies_down(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    client, key = moto_store.objects(endpoint=port.endpoint), moto_store.fresh_prefix()
    content = bytes(range(250)) * 4
    gate.arm(Rule("throttle", bytes_per_second=5_000, times=None))
    obstore.put(client, key, content, use_multipart=False)
    assert bytes(obstore.get(client, key).bytes()) == content
    for exchange, size in zip(gate.exchanges(), ("bytes_in", "bytes_out"), strict=True):
        assert getattr(exchange, size) == 1_000
        assert exchange.ended is not None and exchange.ended - exchange.started >= 0.19


def test_ignored_conditions_make_two_winners(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    client, key = moto_store.objects(endpoint=port.endpoint), moto_store.fresh_prefix()
    gate.arm(Rule("ignore_conditions", verbs=("PUT",), times=None))
    for content in (b"first", b"second"):
        obstore.put(client, key, content, mode="create")
    assert bytes(obstore.get(moto_store.objects(), key).bytes()) == b"second"
    assert [each.conditions for each in gate.exchanges()] == [(("if-none-match", "*"),)] * 2


def test_a_rule_that_nothing_meets_is_said_in_words(gate: Gate) -> None:
    armed = gate.arm(Rule("cut", roles=("sidecar",)))
    with pytest.raises(GateTimeout, match="no request met the rule .*sidecar.* within 0 seconds"):
        armed.wait(0)
    assert armed.hits == 0


def test_a_released_hold_lets_later_matches_pass(gate: Gate, port: Port, moto_store: MotoStore) -> None:
    held = gate.arm(Rule("hold", times=None))
    held.release()
    obstore.put(moto_store.objects(endpoint=port.endpoint), moto_store.fresh_prefix(), b"x")
    assert held.hits == 1 and gate.in_flight() == 0


def test_a_request_whose_client_dies_while_it_is_held_still_goes_on(
    gate: Gate, port: Port, moto_store: MotoStore
) -> None:
    """As on a network: what was sent can arrive after its sender is gone."""
    key = moto_store.fresh_prefix()
    held = gate.arm(Rule("hold"))
    connection = HTTPConnection(port.endpoint.removeprefix("http://"), timeout=WAIT_SECONDS)
    connection.request("PUT", f"/{moto_store.bucket}/{key}", body=b"x")
    held.wait(WAIT_SECONDS)
    connection.close()

    held.release()
    gate.settle()

    (exchange,) = gate.exchanges()
    assert (exchange.outcome, exchange.status, exchange.answered) == ("client_gone", 200, None)
    assert obstore.head(moto_store.objects(), key)["size"] == 1
