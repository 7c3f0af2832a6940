"""STM: the stamp, by which an engine knows the graphs that it can read and refuses all others, untouched.

There is one internal schema, 4, and no migration: what is older is rebuilt from an export, what is newer waits for a
newer engine. A refusal is worth something only if it comes before everything else: nothing read, recovered or written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.adapters import EngineError
from conformance.audit.names import LEGACY_DIRS
from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    EVERYTHING,
    EVOLVED,
    PEOPLE,
    SOCIAL,
    edge,
    insert,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import refused
from fixtures.forge import Forge
from fixtures.old_graphs import OldGraph, write_old_graph

CURRENT = 4
NEWER = ["5", "6", "10", "4294967295"]
OLDER = ["3", "2", "1", "0"]
NO_NUMBER = [None, "", "abc", "v4", "four"]


def refuses_to_open(engine: Engine, uri: str, stamp: str | None) -> None:
    for how, opened in (("writing", engine.open), ("reading", engine.look)):
        refused("bad_request", partial(opened, uri), f"an open for {how} of a graph with the stamp {stamp!r}")


def place_old_graph(version: int, forge: Forge) -> OldGraph:
    """An old graph, on whatever store the forge works."""
    with tempfile.TemporaryDirectory() as scratch:
        graph = write_old_graph(Path(scratch, "graph"), version)
        for path in sorted(graph.path.rglob("*")):
            if path.is_file():
                forge.write(path.relative_to(graph.path).as_posix(), path.read_bytes())
    return graph


# -- open --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STM-01", "STM-10")
def test_the_internal_schema_is_four(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)

    with proving("STM-01"):
        assert there.stamp() == str(CURRENT)
        assert graph.engine.look(graph.uri).export() == graph.model.export()
    with proving("STM-10"):
        assert graph.engine.hello.internal_schema_version == CURRENT
        assert graph.handle.snapshot()["internal_schema_version"] == CURRENT
    graph.audited = False
    for neighbour in (CURRENT - 1, CURRENT + 1):
        there.set_stamp(str(neighbour))
        with proving("STM-01"):
            refuses_to_open(graph.engine, graph.uri, str(neighbour))


@pytest.mark.requirement("STM-02", "STM-09")
def test_a_stamp_that_is_no_number_is_refused(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    for stamp in NO_NUMBER:
        there.set_stamp(stamp)
        before = there.listing()
        with proving("STM-02"):
            refuses_to_open(graph.engine, graph.uri, stamp)
        with proving("STM-09"):
            assert there.stamp() == stamp, "the refused graph got another stamp"
            assert there.listing() == before


@pytest.mark.requirement("STM-03", "STM-04", "STM-09")
def test_a_stamp_of_another_generation_is_refused_when_a_graph_is_opened(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    for requirement, stamps in (("STM-03", NEWER), ("STM-04", OLDER)):
        for stamp in stamps:
            there.set_stamp(stamp)
            before = there.listing()
            with proving(requirement):
                refuses_to_open(graph.engine, graph.uri, stamp)
            with proving("STM-09"):
                assert there.stamp() == stamp
                assert there.listing() == before
    there.set_stamp(str(CURRENT))
    with proving("STM-09"):
        graph.reopen()
        assert there.stamp() == str(CURRENT), "an open changes no stamp"


@pytest.mark.requirement("STM-04", "STM-05", "STM-09")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_graph_of_an_older_release_is_refused_untouched(
    engine: Engine, forge: ForgeOf, root: str, version: int
) -> None:
    there = forge(root)
    place_old_graph(version, there)
    before, stamp = there.listing(), there.stamp()
    assert LEGACY_DIRS & {name.partition("/")[0] for name in before}

    with proving("STM-04"):
        refuses_to_open(engine, root, stamp)
    with proving("STM-05"):
        assert there.listing() == before, "a refused graph was written to"
    with proving("STM-09"):
        assert there.stamp() == stamp


# -- before anything else ----------------------------------------------------------------------------------------------


def remove_tables(forge: Forge) -> None:
    forge.delete_below("nodes")
    forge.delete_below("edges")


def remove_rows_of_the_manifest(forge: Forge) -> None:
    forge.delete_below("__manifest/data")


def remove_schema(forge: Forge) -> None:
    for name in ("_schema.pg", "_schema.ir.json", "__schema_state.json"):
        forge.delete(name)


def spoil_branches(forge: Forge) -> None:
    forge.write("__manifest/_refs/branches/draft.json", b"{ no JSON")


def spoil_sidecars(forge: Forge) -> None:
    forge.write("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{ no JSON")


SPOILED: dict[str, Callable[[Forge], None]] = {
    "tables": remove_tables,
    "rows of the manifest": remove_rows_of_the_manifest,
    "schema files": remove_schema,
    "branches": spoil_branches,
    "sidecars": spoil_sidecars,
}


@pytest.mark.requirement("STM-05")
@pytest.mark.parametrize("stamp", ["5", "3", None])
def test_a_refusal_looks_at_nothing_but_the_stamp(judged: Judged, forge: ForgeOf, stamp: str | None) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    there.set_stamp(stamp)
    for what, spoil in SPOILED.items():
        spoil(there)
        before = there.listing()
        with proving("STM-05"):
            for opened in (graph.engine.look, graph.engine.open):
                try:
                    opened(graph.uri)
                except EngineError as error:
                    assert error.kind == "bad_request", f"the engine looked at the {what} first: {error}"
                else:
                    pytest.fail(f"a graph with the stamp {stamp!r} was opened")
            assert there.listing() == before


@pytest.mark.requirement("STM-05")
def test_a_refused_graph_is_not_recovered(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False
    there = forge(graph.uri)
    if graph.engine.supports("schema_apply"):
        there.crash_between_commit_and_publish(lambda: graph.handle.schema_apply(EVOLVED), writer_kind="SchemaApply")
    else:
        records = lines(person("dan"))
        there.crash_between_commit_and_publish(lambda: graph.handle.load(records), writer_kind="Load")
    there.set_stamp("5")
    before = there.listing()
    assert there.sidecars()

    with proving("STM-05"):
        refuses_to_open(graph.engine, graph.uri, "5")
        assert there.listing() == before, "the engine recovered a graph that it may not open"


# -- publish -----------------------------------------------------------------------------------------------------------


WRITES: dict[str, Callable[[JudgedGraph], object]] = {
    "load": lambda graph: graph.handle.load(lines(person("dan"))),
    "insert": lambda graph: graph.handle.mutate(insert("Person", name="dan")),
    "update": lambda graph: graph.handle.mutate(update("Person", where("name", "ann"), age=99)),
}


@pytest.mark.requirement("STM-03", "STM-04")
@pytest.mark.parametrize("op", WRITES)
def test_nothing_is_published_to_a_graph_that_was_stamped_anew(judged: Judged, forge: ForgeOf, op: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    for requirement, stamp in (("STM-03", "5"), ("STM-04", "3")):
        graph.handle.read("node:Person")  # The handle is warm, and was opened under the right stamp.
        there.set_stamp(stamp)
        version = there.manifest_version()
        with proving(requirement):
            refused("bad_request", lambda: WRITES[op](graph), f"a publish to a graph with the stamp {stamp}")
            assert there.manifest_version() == version, "something was published"
            assert there.stamp() == stamp
        there.set_stamp(str(CURRENT))
        with proving(requirement):
            graph.reopen()  # What was refused has not happened, and does not happen later.
            graph.mutate(insert("Person", name=f"eve{stamp}"))


@pytest.mark.requirement("STM-07", "STM-10", "PUB-23")
@pytest.mark.parametrize(
    ("requirement", "stamp"),
    [
        pytest.param("STM-03", "5", marks=pytest.mark.requirement("STM-03"), id="newer"),
        pytest.param("STM-04", "3", marks=pytest.mark.requirement("STM-04"), id="older"),
    ],
)
def test_nothing_is_published_to_a_branch_with_another_stamp(
    judged: Judged, forge: ForgeOf, requirement: str, stamp: str
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("draft")
    graph.mutate(insert("Person", name="dan"), branch="draft")
    there = forge(graph.uri)
    there.set_stamp(stamp, "draft")
    version = there.manifest_version("draft")
    handle = graph.engine.open(graph.uri)  # The stamp of main is what counts for opening.
    with proving(requirement):
        load = partial(handle.load, lines(person("eve")), branch="draft")
        refused("bad_request", load, f"a publish to a branch with the stamp {stamp}")
        assert there.manifest_version("draft") == version
    with proving("STM-07"):
        assert there.stamp("draft") == stamp, "a publish changed a stamp"
    with proving("STM-10"):
        assert told_stamp(graph, "draft") in (int(stamp), None), "the snapshot does not tell the stamp on disk"
    there.set_stamp(str(CURRENT), "draft")
    with proving("PUB-23"):
        fresh = graph.engine.open(graph.uri)
        assert fresh.row("node:Person", "eve", "draft") is None, "what was refused has happened later"
    with proving("STM-07"):
        graph.reopen()
        graph.mutate(insert("Person", name="fay"), branch="draft")
        assert there.stamp("draft") == str(CURRENT)


def told_stamp(graph: JudgedGraph, branch: str) -> int | None:
    """What a snapshot says; None where the engine does not read such a branch, which is its choice."""
    try:
        return int(graph.engine.look(graph.uri).snapshot(branch)["internal_schema_version"])
    except EngineError:
        return None


@pytest.mark.requirement("STM-07", "STM-10")
def test_branches_carry_the_stamp_of_main_and_writes_leave_it_alone(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("draft")
    graph.branch_create("feat/one", "draft")

    def stamps() -> set[tuple[str | None, int]]:
        found = forge(graph.uri)
        branches = graph.model.branch_list()
        return {(found.stamp(name), graph.handle.snapshot(name)["internal_schema_version"]) for name in branches}

    with proving("STM-07", "STM-10"):
        assert stamps() == {("4", CURRENT)}
    graph.mutate(insert("Person", name="dan"), branch="feat/one")
    graph.load([person("eve")])
    if graph.engine.supports("merge", "branch_delete"):
        graph.merge("feat/one")
        graph.branch_delete("feat/one")
        graph.branch_delete("draft")
    if graph.engine.supports("optimize"):
        graph.optimize()
    if graph.engine.supports("schema_apply") and graph.model.branch_list() == ["main"]:
        graph.schema_apply(EVOLVED)
    with proving("STM-07", "STM-10"):
        assert stamps() == {("4", CURRENT)}


# -- the way out -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STM-08")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_old_graph_is_rebuilt_by_init_and_load(
    engine: Engine, judged: Judged, forge: ForgeOf, root: str, version: int
) -> None:
    old = place_old_graph(version, forge(root))
    refuses_to_open(engine, root, str(version))

    new = judged(old.schema_source)
    new.load(old.records, mode="overwrite")

    with proving("STM-08"):
        assert [(row["id"], row["age"]) for row in new.handle.read("node:Person")] == [("alice", 31), ("bob", None)]
        assert [(row["id"], row["src"], row["dst"]) for row in new.handle.read("edge:Knows")] == [
            ("k1", "alice", "bob")
        ]
        assert len(new.handle.commits()) == 2, "history does not come along"


@pytest.mark.requirement("STM-08", "EXP-03")
def test_all_rows_survive_export_init_and_load(judged: Judged, forge: ForgeOf) -> None:
    things = [
        node("Thing", name="O'Hara ✓", flag=True, small=-(2**31), large=2**63 - 1, huge=2**64 - 1, mood="calm"),
        node("Thing", name="b", single=0.1, double=1e-300, day="1969-12-31", moment="2024-02-29T23:59:59.999Z"),
        node("Thing", name="c", tags=["", "x"], numbers=[], face=[1.5, -0.25, 0.0], photo="base64:AP8="),
        edge("Linked", "b", "c", id="l1"),
    ]
    old = judged(EVERYTHING, things)
    if old.engine.supports("branch_create"):
        old.branch_create("draft")
        old.mutate(insert("Thing", name="d"), branch="draft")
    exported = old.handle.export()
    old.audited = False
    forge(old.uri).set_stamp("3")
    refuses_to_open(old.engine, old.uri, "3")

    new = judged(EVERYTHING)
    new.load(exported, mode="overwrite")

    with proving("STM-08", "EXP-03"):
        assert new.handle.export() == exported
        assert len(new.handle.commits()) == 2
        assert new.model.branch_list() == ["main"]
