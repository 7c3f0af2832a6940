"""Rows that no engine may have written: each rule of a schema, broken in the bytes, is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

from conformance.audit.rules import problems
from conformance.audit.schema import Property, TableType
from conformance.audit.tests.forge import Action, Forgery
from conformance.audit.tests.test_forged_manifest import PERSON, defect, wrong_codes

Damage = Callable[[Forgery], Any]


def append(*rows: dict[str, Any]) -> Action:
    return lambda table: lance.write_dataset(
        pa.Table.from_pylist(list(rows), schema=table.schema), table, mode="append"
    )


def update(where: str, **changes: str) -> Action:
    return lambda table: table.update(changes, where=where)


def person(handle: str, **values: Any) -> dict[str, Any]:
    return {"id": handle, "handle": handle, **values}


def people(*rows: dict[str, Any]) -> Damage:
    return lambda forgery: forgery.amend(PERSON, append(*rows))


def knows(*rows: tuple[str, str, str]) -> Damage:
    edges = [dict(zip(("id", "src", "dst"), row, strict=True)) for row in rows]
    return lambda forgery: forgery.amend("edge:Knows", append(*edges))


ROWS = [
    defect("id-duplicate", people(person("ann"))),
    defect("id-duplicate", knows(("k1", "bea", "ann")), name="edge-id-duplicate"),
    defect("key", lambda f: f.amend(PERSON, update("id = 'cat'", id="'dog'")), name="key-is-not-the-id"),
    defect(
        "key",
        lambda f: f.amend("node:City", append({"id": "nl", "country": "nl", "zip": 3000})),
        name="composite-key-by-its-first-column",
    ),
    defect(
        "key",
        lambda f: f.amend("node:City", append({"id": '["nl", 3000]', "country": "nl", "zip": 3000})),
        name="composite-key-not-compact",
    ),
    defect("unique", people(person("dan", email="a@x"))),
    defect("enum", people(person("dan", mood="angry"))),
    defect("enum", people(person("dan", moods=["calm", "angry"])), name="enum-in-a-list"),
    defect("range", people(person("dan", age=151))),
    defect("range", people(person("dan", age=-1)), name="range-below"),
    defect("check", people({"id": "Dan1", "handle": "Dan1"})),
    defect("check", people({"id": "dan\n", "handle": "dan\n"}), name="check-before-a-last-newline"),
    defect("value-not-finite", people(person("dan", score=float("nan"))), name="nan"),
    defect("value-not-finite", people(person("dan", face=[1.0, float("inf")])), name="infinity-in-a-vector"),
    defect("vector", people(person("dan", face=[1.0, None]))),
    defect("edge-dangling", knows(("k2", "ann", "nobody")), name="dst-dangling"),
    defect("edge-dangling", knows(("k2", "nobody", "ann")), name="src-dangling"),
    defect(
        "edge-dangling",
        lambda f: f.amend(PERSON, lambda table: table.delete("id = 'bea'")),
        name="node-removed-under-its-edge",
    ),
    defect("cardinality", knows(("k2", "ann", "cat"), ("k3", "ann", "ann")), name="too-many-edges"),
    defect(
        "cardinality",
        lambda f: f.amend("edge:Visits", lambda table: table.delete("id = 'v1'")),
        name="too-few-edges",
    ),
]


@pytest.mark.parametrize(("damage", "codes"), ROWS)
def test_a_row_that_breaks_a_rule_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes
    assert forgery.audit(data=False).findings == (), "without data only the rows go unread"


@pytest.mark.requirement("VAL-04", "VAL-05", "VAL-10")
def test_nulls_and_sources_without_edges_are_exempt(forgery: Forgery) -> None:
    people(person("dan"), person("eve", age=0, moods=[None, "calm"]), person("fay", age=150))(forgery)
    assert forgery.audit().findings == ()


@pytest.mark.requirement("LOD-06", "VAL-01", "VAL-15")
def test_what_lance_would_not_store_is_found_all_the_same() -> None:
    """Lance refuses nulls in columns that have none, and the engine patterns that it cannot read. Others may not."""
    name = Property("name", "String", nullable=False)
    owner = TableType("node", "Person", (name,), checks=(("name", "[[:alpha:]]"),))
    rows = pa.table({"id": ["a", None], "name": ["x", None]})
    assert [each.code for each in problems(owner, rows)] == ["id-null", "value-missing", "check-not-evaluated"]


@pytest.mark.requirement("VAL-09")
def test_an_edge_is_checked_against_the_nodes_of_its_own_branch(branched: Forgery) -> None:
    """Dan lives on `feature` and `child`; an edge to him is sound there. Without Dan it dangles, on `child` alone."""
    graph = branched.graph()
    graph.mutate([{"op": "insert", "edge": "Knows", "from": "dan", "to": "ann"}], branch="child")
    graph.mutate([{"op": "insert", "edge": "Knows", "from": "dan", "to": "bea"}], branch="feature")
    assert branched.audit().findings == ()
    fork = branched.table("edge:Knows", "child")
    lost = pa.Table.from_pylist([{"id": "k9", "src": "nobody", "dst": "ann"}], schema=fork.schema)
    lance.write_dataset(lost, fork, mode="append")
    head = branched.table("edge:Knows", "child").version
    branched.manifest("child").update(
        {"table_version": str(head), "object_id": f"'edge:Knows${head:020d}'", "row_count": "row_count + 1"},
        where=f"object_type = 'table_version' AND table_key = 'edge:Knows' AND table_version = {head - 1}",
    )
    found = {(each.code, each.where) for each in branched.audit().of("error")}
    assert found == {("edge-dangling", "child/edge:Knows")}
