"""What a few requests add up to."""

from __future__ import annotations

from typing import Any

import pytest

from cost_budgets.counters import MEASURES, Tally, hops_of
from failpoints.gate import Exchange, role_of


def exchange(verb: str, role: str, table: str = "", **more: Any) -> Exchange:
    body: dict[str, Any] = {
        "number": 1, "owner": "engine", "method": verb, "verb": verb, "bucket": "b", "key": "k", "prefix": "",
        "role": role, "table": table, "branch": "", "version": None, "conditions": (), "keys": (), "bytes_in": 0,
        "bytes_out": 0, "status": 200, "answered": 200, "outcome": "answered", "started": 0.0, "ended": 1.0,
        "listed": 0,
    }  # fmt: skip
    return Exchange(**{**body, **more})


INSERT = (
    exchange("LIST", "listing", "__manifest", key="", prefix="g/__manifest/_versions/", listed=7, bytes_out=900),
    exchange("LIST", "listing", key="", prefix="g/__recovery/"),
    exchange("HEAD", "schema file", key="_schema.ir.json"),
    exchange("HEAD", "schema file", status=404, answered=404),
    exchange("GET", "table data", "nodes/aa", bytes_out=50),
    exchange("PUT", "table version", "nodes/aa", status=412, answered=412, bytes_in=30),
    exchange("PUT", "table version", "edges/bb", bytes_in=31),
    exchange("PUT", "sidecar", outcome="cut", answered=None),
    exchange("PUT_PART", "upload", status=500, answered=500),
)


@pytest.mark.parametrize(
    ("measure", "number"),
    [
        ("requests", 9),
        ("reads", 5),
        ("writes", 4),
        ("manifest", 1),
        ("beside manifest", 8),
        ("schema", 2),
        ("schema looks", 1),
        ("recovery lists", 1),
        ("sidecars", 1),
        ("tables", 2),
        ("listed keys", 7),
        ("bytes read", 950),
        ("bytes fetched", 50),
        ("bytes written", 61),
        ("PUT", 3),
        ("PUT_PART", 1),
        ("DELETE", 0),
    ],
)
def test_each_measure_counts_its_own(measure: str, number: int) -> None:
    assert Tally.of(INSERT).measure(measure) == number


def test_to_look_at_a_schema_file_twice_is_two_looks_and_to_head_and_get_it_is_one() -> None:
    look, get = exchange("HEAD", "schema file"), exchange("GET", "schema file")
    assert Tally.of([look, get]).measure("schema looks") == 1
    assert Tally.of([look, get, look]).measure("schema looks") == 2


def test_a_table_is_opened_as_often_as_its_versions_are_asked_for_in_the_same_way() -> None:
    listed = exchange("LIST", "listing", "nodes/aa", key="", prefix="g/nodes/aa/_versions/")
    other = exchange("LIST", "listing", "nodes/bb", key="", prefix="g/nodes/bb/_versions/")
    manifest = exchange("LIST", "listing", "__manifest", key="", prefix="g/__manifest/_versions/")
    read = exchange("GET", "table version", "nodes/aa", key="g/nodes/aa/_versions/1.manifest")
    written = exchange("PUT", "table version", "nodes/aa", key="g/nodes/aa/_versions/1.manifest")
    assert Tally.of([listed, other, read, written, written, manifest, manifest]).measure("table opens") == 1
    assert Tally.of([listed, read, other, listed]).measure("table opens") == 2
    assert Tally.of([listed, read, read, read]).measure("table opens") == 3


@pytest.mark.parametrize(
    ("measure", "role", "table"),
    [
        ("manifest scans", "manifest data", "__manifest"),
        ("table opens", "table version", "nodes/aa"),
        ("schema looks", "schema file", ""),
    ],
)
def test_who_reads_a_file_block_by_block_has_read_it_once(measure: str, role: str, table: str) -> None:
    blocks = [exchange("GET", role, table, portion=f"bytes={start}-{start + 99}") for start in (0, 100, 200)]
    assert Tally.of(blocks).measure(measure) == 1
    assert Tally.of([*blocks, *blocks]).measure(measure) == 2


def test_who_lists_versions_page_by_page_has_opened_a_table_once() -> None:
    pages = [
        exchange("LIST", "listing", "nodes/aa", key="", prefix="g/nodes/aa/_versions/", portion=token)
        for token in ("", "b", "c")
    ]
    assert Tally.of(pages).measure("table opens") == 1
    assert Tally.of([*pages, pages[0]]).measure("table opens") == 2


def test_sidecars_and_indexes_are_written_when_something_is_put_there() -> None:
    sidecar = [exchange(verb, "sidecar") for verb in ("PUT", "GET", "DELETE", "COMPLETE_UPLOAD")]
    index = [exchange(verb, "table index", "nodes/aa") for verb in ("PUT", "GET", "HEAD", "COPY")]
    tally = Tally.of([*sidecar, *index])
    assert (tally.measure("sidecar writes"), tally.measure("index writes")) == (2, 2)


def test_every_measure_has_a_number() -> None:
    assert all(isinstance(Tally.of(INSERT).measure(name), int) for name in MEASURES)


def test_a_request_counts_whatever_became_of_it() -> None:
    assert Tally.of(INSERT).outcomes == {
        "ok": 5, "not found": 1, "condition failed": 1, "cut": 1, "failed": 1
    }  # fmt: skip


def test_every_request_is_counted_once_under_each_heading() -> None:
    tally = Tally.of(INSERT)
    assert sum(tally.verbs.values()) == sum(tally.roles.values()) == sum(tally.outcomes.values()) == len(INSERT)
    assert tally.tables == {"nodes/aa": 2, "edges/bb": 1}


PERSON = "nodes/40d76f1f51639ec0"


@pytest.mark.parametrize(
    ("verb", "key", "prefix", "keys"),
    [
        ("OTHER", f"g/{PERSON}/data/x.lance", "", ()),
        ("GET", "cache/x", "", ()),
        ("PUT_PART", "cache/x", "", ()),
        ("INITIATE_UPLOAD", "cache/x", "", ()),
        ("LIST", "", "cache/", ()),
        ("LIST", "", "", ()),
        ("HEAD", "", "", ()),
        ("DELETE", "", "", ("cache/a", "cache/b")),
        ("DELETE", "", "", (f"g/{PERSON}/data/x.lance", "cache/b")),
    ],
)
def test_what_is_no_part_of_a_graph_is_listed_whatever_is_done_with_it(
    verb: str, key: str, prefix: str, keys: tuple[str, ...]
) -> None:
    strange = exchange(verb, role_of(verb, key, keys), key=key, prefix=prefix, keys=keys)
    assert Tally.of((strange,)).unclassified == (strange,)


@pytest.mark.parametrize(
    ("verb", "key", "prefix", "keys"),
    [
        ("GET", f"g/{PERSON}/data/x.lance", "", ()),
        ("PUT_PART", f"g/{PERSON}/data/x.lance", "", ()),
        ("LIST", "", f"g/{PERSON}/_versions/", ()),
        ("LIST", "", "g/nodes/", ()),
        ("DELETE", "", "", (f"g/{PERSON}/data/x.lance", "g/__recovery/one.json")),
    ],
)
def test_what_is_part_of_a_graph_is_not_listed(verb: str, key: str, prefix: str, keys: tuple[str, ...]) -> None:
    known = exchange(verb, role_of(verb, key, keys), key=key, prefix=prefix, keys=keys)
    assert Tally.of((known,)).unclassified == ()


@pytest.mark.parametrize(
    ("spans", "hops"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 3), (0, 3), (0, 3)], 1),
        ([(0, 1), (0, 5), (1, 2), (2, 4)], 3),
        ([(0, 10), (1, 2), (3, 4)], 2),
    ],
)
def test_hops_are_those_that_were_waited_for_one_after_another(spans: list[tuple[int, int]], hops: int) -> None:
    assert hops_of(exchange("GET", "table data", started=start, ended=end) for start, end in spans) == hops


def test_a_request_without_an_end_is_no_hop() -> None:
    assert hops_of([exchange("GET", "table data", ended=None)]) == 0


def test_a_tally_is_plain_json() -> None:
    body = Tally.of(INSERT).as_json()
    assert body["requests"] == 9 and body["verbs"]["PUT"] == 3 and "exchanges" not in body
