"""The audit on Spark says what the auditor says: of sound graphs, and of every defect of rows that can be forged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from conformance.audit.tests.forge import Action, Forgery, copy_of, write_graph
from conformance.audit.tests.test_forged_rows import append, person, update
from reference.errors import BadRequest, NotFound
from reference.graph import Graph
from reference.pipeline import audit as audit_module
from reference.pipeline.audit import audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERSON = "node:Person"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Forgery:
    return write_graph(tmp_path_factory.mktemp("pipeline-audit") / "graph")


def edges(*rows: tuple[str, str, str]) -> Action:
    return append(*(dict(zip(("id", "src", "dst"), row, strict=True)) for row in rows))


# Each set of defects is put into one graph: a job costs seconds, and the codes tell the defects apart.
DEFECTS: dict[str, list[tuple[str, Action]]] = {
    "values": [
        (PERSON, append(person("dan", mood="angry"), person("eve", moods=["calm", "angry"], age=151))),
        (PERSON, append(person("fay", score=float("nan"), age=-1), person("gus", face=[1.0, float("inf")]))),
        (PERSON, append(person("hal", face=[1.0, None]), {"id": "Dan1", "handle": "Dan1"})),
        (PERSON, update("id = 'cat'", id="'dog'")),
        ("node:City", append({"id": "nl", "country": "nl", "zip": 3000})),
    ],
    "several rows": [
        (PERSON, append(person("ann"), person("dan", email="a@x"))),
        ("edge:Knows", edges(("k1", "bea", "ann"), ("k2", "ann", "nobody"), ("k3", "ann", "cat"))),
        ("edge:Visits", lambda table: table.delete("id = 'v1'")),
    ],
    "a node under its edge": [
        (PERSON, lambda table: table.delete("id = 'bea'")),
        ("edge:Knows", edges(("k2", "nobody", "ann"))),
    ],
}


@pytest.mark.parametrize("defects", DEFECTS.values(), ids=DEFECTS)
def test_forged_rows_are_found_as_the_auditor_finds_them(
    spark: SparkSession, sound: Forgery, tmp_path: Path, defects: list[tuple[str, Action]], monkeypatch: Any
) -> None:
    forgery = copy_of(sound, tmp_path / "graph")
    for table_key, action in defects:
        forgery.amend(table_key, action)
    # One fragment a task: whatever several rows break, they break it across tasks.
    monkeypatch.setattr(audit_module, "TASK_ROWS", 1)

    report, expected = audit(spark, str(forgery.path)), forgery.audit()

    assert expected.findings, "the forged graph must have findings, or nothing is compared"
    assert told(report) == told(expected)
    assert report.checked == expected.checked


def told(report: Any) -> list[tuple[Any, ...]]:
    """Findings as they are shown, but for their order, and for which of several values is named first."""
    return sorted(
        (each.code, each.requirement, each.severity, each.where, each.message, sorted(map(str, each.details.items())))
        for each in report.findings
    )


def test_a_sound_graph_with_branches_is_sound(spark: SparkSession, tmp_path: Path) -> None:
    """An edge to Dan is sound on `child`, where he lives, and every branch is looked at."""
    forgery = write_graph(tmp_path / "graph")
    graph = forgery.graph()
    graph.branch_create("feature", "main")
    graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": "dan"}}], branch="feature")
    graph.branch_create("child", "feature")
    graph.mutate([{"op": "insert", "edge": "Knows", "from": "dan", "to": "ann"}], branch="child")

    report = audit(spark, str(forgery.path))

    assert report.ok and report.findings == ()
    assert report.checked == forgery.audit().checked

    fork = forgery.table("edge:Knows", "child")
    lost = pa.Table.from_pylist([{"id": "k9", "src": "x", "dst": "ann"}], schema=fork.schema)
    lance.write_dataset(lost, fork, mode="append")
    head = forgery.table("edge:Knows", "child").version
    forgery.manifest("child").update(
        {"table_version": str(head), "object_id": f"'edge:Knows${head:020d}'", "row_count": "row_count + 1"},
        where=f"object_type = 'table_version' AND table_key = 'edge:Knows' AND table_version = {head - 1}",
    )
    assert told(audit(spark, str(forgery.path))) == told(forgery.audit())


def test_very_many_rows_of_one_value_are_counted_to_the_last(nobody: Any, tmp_path: Path) -> None:
    """150,000 edges of one source in one piece, of which 120,000 are allowed; and an address that as many share."""
    graph = Graph.init(
        str(tmp_path / "graph"),
        "node Person { name: String @key  email: String? @unique }\nedge Knows: Person -> Person @card(0..120000)\n",
    )
    graph.load('{"type":"Person","data":{"name":"ann"}}\n{"type":"Person","data":{"name":"bob"}}', mode="append")
    numbers, people = np.arange(150_000).astype(str), pa.array(["ann"])
    forgery = Forgery(tmp_path / "graph")
    ends = people.take(pa.array(np.zeros(len(numbers), dtype=np.int64)))
    forgery.amend("edge:Knows", appended(pa.table({"id": numbers, "src": ends, "dst": ends})))
    emails = pa.array([*["a@x"] * 150_000, *["b@x"] * 2])
    names = [f"p{number}" for number in range(len(emails))]
    forgery.amend("node:Person", appended(pa.table({"id": names, "name": names, "email": emails})))

    report, expected = audit(nobody, str(forgery.path)), forgery.audit()

    assert {each.code for each in expected.findings} == {"cardinality", "unique"}
    assert told(report) == told(expected)


def appended(rows: pa.Table) -> Action:
    return lambda table: lance.write_dataset(rows.select(table.schema.names).cast(table.schema), table, mode="append")


def test_a_table_that_cannot_be_read_is_a_finding_and_no_crash(
    spark: SparkSession, sound: Forgery, tmp_path: Path
) -> None:
    forgery = copy_of(sound, tmp_path / "graph")
    for file in (forgery.table_dir(PERSON) / "data").iterdir():
        file.write_bytes(b"x" * file.stat().st_size)

    report = audit(spark, str(forgery.path))

    assert ("table-unreadable", f"main/{PERSON}") in {(each.code, each.where) for each in report.findings}
    assert not report.ok


def test_what_is_no_graph_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        audit(spark, str(tmp_path))
    with pytest.raises(BadRequest):
        audit(spark, "gopher://graph")
    shutil.rmtree(tmp_path)
