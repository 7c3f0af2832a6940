"""REC: how sidecars are read: the classification of a table, the decision for a sidecar, and who may act on it.

The tables of this file move by Lance alone, and the sidecars are written by hand, so that every row of the
classification can be reached whatever an engine's own writers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.crashed import ITEM, ITEMS, ONE, OTHER, OTHERS, TWO, Crashed, drift, rows_of
from conformance.suites.graphs import insert, lines, node, update, where
from conformance.suites.refusals import ANY_KIND, refused
from fixtures.forge import Forge

FORWARD, BACK = "RolledForward", "RolledBack"


@dataclass(frozen=True)
class Table:
    """A table of a sidecar, in versions after its pin: the HEAD, and what the sidecar expects and names."""

    head: int
    expected: int = 0
    post: int | None = None
    confirmed: int | None = None

    def pin(self, forge: Forge, table_key: str) -> dict[str, Any]:
        pin = forge.pin(table_key)
        return forge.pin_of(
            table_key,
            expected=pin + self.expected,
            post=None if self.post is None else pin + self.post,
            confirmed=None if self.confirmed is None else pin + self.confirmed,
        )


@dataclass(frozen=True)
class Writer:
    """Whose sidecar it is, and whether its moves may change rows."""

    kind: str
    version: int = 2

    @property
    def writes_rows(self) -> bool:
        return self.kind not in ("Optimize", "EnsureIndices")

    def requirement(self, recovery_kind: str) -> str:
        if self.kind == "BranchMerge":
            return "REC-09" if self.version == 1 else "REC-08"
        return "REC-05" if recovery_kind == FORWARD else "REC-04"


MUTATION, LOAD = Writer("Mutation"), Writer("Load")
MERGE, OLD_MERGE = Writer("BranchMerge"), Writer("BranchMerge", 1)
OPTIMIZE, INDICES, SCHEMA = Writer("Optimize"), Writer("EnsureIndices"), Writer("SchemaApply")

STRICT = [
    ("one-step-as-named", Table(1), FORWARD),
    ("one-step-and-another-was-named", Table(1, post=2), BACK),
    ("one-step-from-an-older-version", Table(1, expected=-1, post=1), BACK),
    ("one-step-from-a-newer-version", Table(1, expected=1), BACK),
    ("two-steps", Table(2), BACK),
    ("two-steps-as-named", Table(2, post=2), BACK),
    ("no-step", Table(0), BACK),
    ("no-step-and-published", Table(0, expected=-1), FORWARD),
]
CONFIRMED = [
    ("one-step-confirmed", Table(1, confirmed=1), FORWARD),
    ("three-steps-confirmed", Table(3, confirmed=3), FORWARD),
    ("one-step-unconfirmed", Table(1), BACK),
    ("two-steps-unconfirmed", Table(2, post=2), BACK),
    ("past-what-was-confirmed", Table(2, confirmed=1), BACK),
    ("short-of-what-was-confirmed", Table(1, confirmed=2), BACK),
    ("confirmed-from-an-older-version", Table(1, expected=-1, confirmed=1), BACK),
    ("no-step-unconfirmed", Table(0), BACK),
    ("no-step-and-published", Table(0, expected=-1, confirmed=0), FORWARD),
]
LOOSE = [
    ("one-step", Table(1), FORWARD),
    ("three-steps", Table(3), FORWARD),
    ("one-step-from-an-older-version", Table(1, expected=-1), BACK),
    ("two-steps-from-an-older-version", Table(2, expected=-1), BACK),
    ("no-step", Table(0), BACK),
    ("no-step-and-published", Table(0, expected=-1), FORWARD),
]
# A schema apply goes forward only with its staged files, which these crashes do not have [SCH-12].
UNSTAGED = [("one-step", Table(1), BACK), ("no-step", Table(0), BACK)]
ROWS = [
    pytest.param(writer, table, kind, id=f"{writer.kind}-v{writer.version}-{name}")
    for writers, rows in (
        ((MUTATION, LOAD), STRICT),
        ((MERGE,), CONFIRMED),
        ((OPTIMIZE, INDICES, OLD_MERGE), LOOSE),
        ((SCHEMA,), UNSTAGED),
    )
    for writer in writers
    for name, table, kind in rows
]


@pytest.mark.requirement("REC-04", "REC-05", "REC-08", "REC-09")
@pytest.mark.parametrize(("writer", "table", "kind"), ROWS)
def test_a_sidecar_is_decided_by_where_its_table_stands(
    judged: Judged, forge: ForgeOf, writer: Writer, table: Table, kind: str
) -> None:
    graph = judged(ONE, ITEMS)
    anvil = forge(graph.uri)
    # What is pinned then carries no mark of whoever wrote it, which an engine could hold against the sidecar.
    anvil.amend(ITEM, lambda dataset: dataset.delete("false"))
    pin, pinned = table.pin(anvil, ITEM), anvil.pin(ITEM)
    drift(anvil, ITEM, table.head, rows=writer.writes_rows)
    body = anvil.sidecar(writer_kind=writer.kind, tables=[pin], schema_version=writer.version, actor="mona")
    crash = Crashed.with_sidecar(graph, anvil, body)

    handle = crash.reopened()

    with proving(writer.requirement(kind)):
        audit = crash.check_audit(handle, kind)
        assert (audit["recovery_for_actor"], audit["sidecar_writer_kind"]) == ("mona", writer.kind)
        crash.check_commit(handle, audit)
        added = table.head if writer.writes_rows and kind == FORWARD else 0
        assert len(handle.read(ITEM)) == 2 + added
        assert anvil.sidecars() == {} and anvil.head(ITEM) == anvil.pin(ITEM)
        if kind == FORWARD:
            assert anvil.pin(ITEM) == pinned + table.head, "the table is published at the HEAD that was found"
        crash.check_outcomes(audit, kind)
        crash.check_second_open(handle)


@pytest.mark.requirement("REC-04", "REC-08")
@pytest.mark.parametrize(
    ("writer", "tables"),
    [
        (MUTATION, (Table(1), Table(0))),
        (LOAD, (Table(1), Table(2))),
        (MERGE, (Table(1, confirmed=1), Table(1))),
        (MERGE, (Table(2, confirmed=2), Table(0, confirmed=1))),
        (OPTIMIZE, (Table(1), Table(0))),
    ],
    ids=["one-moved", "one-too-far", "one-unconfirmed", "one-not-reached", "one-not-compacted"],
)
def test_one_table_that_is_not_as_intended_takes_all_of_them_back(
    judged: Judged, forge: ForgeOf, writer: Writer, tables: tuple[Table, Table]
) -> None:
    graph = judged(TWO, OTHERS)
    anvil = forge(graph.uri)
    pins = [table.pin(anvil, key) for table, key in zip(tables, (ITEM, OTHER), strict=True)]
    for table, key in zip(tables, (ITEM, OTHER), strict=True):
        drift(anvil, key, table.head, rows=writer.writes_rows)
    crash = Crashed.with_sidecar(graph, anvil, anvil.sidecar(writer_kind=writer.kind, tables=pins))

    handle = crash.reopened()

    with proving(writer.requirement(BACK)):
        crash.check_settled(handle, BACK)
        handle.load(lines(node("Item", name="new0"), node("Other", name="new0")), "append")


def behind_its_pin(graph: JudgedGraph, forge: Forge) -> Crashed:
    """A table whose newest version was lost, and the sidecar of a writer that had moved another."""
    photo = forge.photograph("nodes")
    graph.handle.mutate(update("Item", where("name", "a"), size=2))
    forge.restore(photo)
    drift(forge, OTHER, 1, rows=True)
    pins = [forge.pin_of(ITEM), forge.pin_of(OTHER)]
    forge.write_sidecar(body := forge.sidecar(writer_kind="Mutation", tables=pins))
    graph.audited = False
    return Crashed(graph, forge, body["operation_id"], {}, {}, {}, {}, 0)


@pytest.mark.requirement("REC-18")
def test_a_head_behind_its_pin_stops_the_open_and_nothing_is_touched(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, OTHERS)
    crash = behind_its_pin(graph, forge(graph.uri))
    listing = crash.forge.listing()

    with proving("REC-18"):
        refused("internal", crash.reopened, "the open of a graph whose HEAD is behind its pin")
        assert crash.forge.listing() == listing, "something was changed before the refusal"
        refused("internal", crash.reopened, "a second open of it")


@pytest.mark.requirement("REC-07")
def test_a_live_handle_goes_on_beside_a_head_behind_its_pin(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, OTHERS)
    crash = behind_its_pin(graph, forge(graph.uri))
    handle = crash.live_handle()
    listing = crash.forge.listing()

    with proving("REC-07"):
        handle.refresh()
        assert crash.forge.listing() == listing, "a refresh has touched what only a person can mend"
        assert [row["id"] for row in handle.read(OTHER)] == ["o"]


# -- sidecars that cannot be acted upon --------------------------------------------------------------------------------


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda body: body.pop(name)


UNREADABLE: list[tuple[str, str, Any]] = [
    ("REC-10", "version-3", lambda body: body.update(schema_version=3)),
    (
        "REC-10",
        "version-3-with-other-fields",
        lambda body: (body.update(schema_version=3, tables={}), body.pop("branch")),
    ),
    ("REC-11", "empty", b""),
    ("REC-11", "cut", b'{"schema_version": 2, "operation_id": "01ARZ3'),
    ("REC-11", "not-an-object", b"[]"),
    ("REC-11", "without-tables", _without("tables")),
    ("REC-11", "without-its-kind", _without("writer_kind")),
    ("REC-11", "of-an-unknown-kind", lambda body: body.update(writer_kind="Teleport")),
]


@pytest.mark.requirement("REC-10", "REC-11")
@pytest.mark.parametrize(
    ("requirement", "change"), [each[::2] for each in UNREADABLE], ids=[each[1] for each in UNREADABLE]
)
def test_a_sidecar_that_cannot_be_understood_stops_every_writer_and_no_reader(
    judged: Judged, forge: ForgeOf, engine: Engine, requirement: str, change: Any
) -> None:
    graph = judged(TWO, OTHERS)
    graph.audited = False
    anvil = forge(graph.uri)
    before = rows_of(graph.handle)
    name = anvil.write_sidecar(anvil.sidecar(tables=[anvil.pin_of(ITEM)]))
    if isinstance(change, bytes):
        anvil.write(name, change)
    else:
        anvil.edit_json(name, change)
    listing = anvil.listing()
    kind = "internal" if requirement == "REC-10" else ANY_KIND

    with proving(requirement):
        refused(kind, lambda: engine.open(graph.uri), "a read-write open")
        for write in (
            lambda: graph.handle.mutate(insert("Other", name="p")),
            lambda: graph.handle.load(lines(node("Item", name="c"))),
            lambda: graph.handle.schema_apply(TWO + "node Third {\n  name: String @key\n}\n"),
        ):
            refused(kind, write, "a write")
        assert anvil.listing() == listing, "a refused writer has written, or has removed the sidecar"
        assert rows_of(engine.open(graph.uri, read_only=True)) == before


# -- several sidecars, and several who recover -------------------------------------------------------------------------


@pytest.mark.requirement("REC-15")
def test_sidecars_are_resolved_by_name_each_against_what_the_one_before_it_left(judged: Judged, forge: ForgeOf) -> None:
    """The second writer began on what the first one left, and moved nothing: it must not take the first one back."""
    graph = judged(ONE, ITEMS)
    anvil = forge(graph.uri)
    pin = anvil.pin(ITEM)
    drift(anvil, ITEM, 1, rows=True)
    first, second = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ"
    for operation_id, expected in ((second, pin + 1), (first, pin)):
        body = anvil.sidecar(tables=[anvil.pin_of(ITEM, expected=expected)], operation_id=operation_id)
        anvil.write_sidecar(body)

    handle = graph.engine.open(graph.uri)

    with proving("REC-15"):
        assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "new0"], "the first writer was taken back"
        kinds = {row["operation_id"]: row["recovery_kind"] for row in handle.recoveries()}
        assert kinds == {first: FORWARD, second: BACK}
        assert len(handle.recoveries()) == 2 and anvil.sidecars() == {}
        assert anvil.head(ITEM) == anvil.pin(ITEM)


@pytest.mark.requirement("REC-15")
def test_sidecars_of_several_tables_and_branches_are_all_resolved(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(TWO, OTHERS)
    graph.branch_create("side")
    graph.mutate(insert("Item", name="s"), branch="side")
    anvil = forge(graph.uri)
    bodies = [
        anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(ITEM)], actor="one"),
        anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(OTHER)], actor="two"),
        anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(ITEM, "side")], branch="side", actor="three"),
        anvil.sidecar(writer_kind="Load", tables=[anvil.pin_of(ITEM)], branch="gone", actor="four"),
    ]
    drift(anvil, ITEM, 1, rows=True)
    drift(anvil, OTHER, 2, rows=True)
    anvil.raw_append(ITEM, [{"id": "t", "name": "t"}], "side")
    for body in bodies:
        anvil.write_sidecar(body)

    handle = graph.engine.open(graph.uri)

    with proving("REC-15"):
        kinds = {row["recovery_for_actor"]: row["recovery_kind"] for row in handle.recoveries()}
        assert kinds == {"one": FORWARD, "two": BACK, "three": FORWARD, "four": "OrphanedBranchDiscarded"}
        assert [row["id"] for row in handle.read(ITEM)] == ["a", "b", "new0"]
        assert [row["id"] for row in handle.read(OTHER)] == ["o"]
        assert [row["id"] for row in handle.read(ITEM, "side")] == ["a", "b", "s", "t"]
        order = [row["graph_commit_id"] for row in handle.recoveries() if row["recovery_for_actor"] in ("one", "two")]
        on_main = [commit["graph_commit_id"] for commit in handle.commits()]
        by_name = sorted(bodies[:2], key=lambda body: str(body["operation_id"]))
        assert [each for each in on_main if each in order] == [
            row["graph_commit_id"]
            for body in by_name
            for row in handle.recoveries()
            if row["operation_id"] == body["operation_id"]
        ]
