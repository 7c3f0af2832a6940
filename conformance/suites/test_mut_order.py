"""MUT: where a write may go, and in which order it does what it does.

A write heals what others left, works and validates in memory, puts its files, then its sidecar, and only then moves
tables; it publishes, and removes the sidecar. So it can be cut anywhere: what is refused has written nothing, what is
cut shows nothing, and whoever comes next tidies up.
"""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Final

import pytest

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    delete,
    edge,
    insert,
    insert_edge,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import ANY_KIND, DEFINITE, refused

LOCK: Final = "__schema_apply_lock__"


def versions(graph: JudgedGraph) -> dict[str, int]:
    return {each["table_key"]: each["table_version"] for each in graph.handle.snapshot()["tables"]}


# -- who may be written ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-15")
def test_the_branch_of_the_schema_lock_cannot_be_written(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = forge(graph.uri).listing()

    with proving("MUT-15"):
        for name in (LOCK, f"/{LOCK}"):
            refused("bad_request", partial(graph.mutate, insert("Person", name="dan"), branch=name), "a mutation of it")
            refused("bad_request", partial(graph.load, [person("dan")], branch=name), "a load into it")
            refused(
                "bad_request", partial(graph.load, [person("dan")], branch=name, base="main"), "a load that makes it"
            )
        assert forge(graph.uri).listing() == before
        graph.branch_create("__run__7")
        graph.mutate(insert("Person", name="dan"), branch="__run__7")


@pytest.mark.requirement("MUT-16")
def test_while_the_schema_lock_exists_every_write_is_a_conflict(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.audited = False  # Nobody holds this lock, which the auditor would say.
    disk = forge(graph.uri)
    disk.create_manifest_branch(LOCK)
    handle = graph.reopen()
    heads = {key: disk.head(key) for key in versions(graph)}
    refused_writes = (
        partial(handle.mutate, insert("Person", name="dan")),
        partial(handle.mutate, update("Person", where("name", "ann"), age=1)),
        partial(handle.mutate, delete("Person", where("name", "ann"))),
        partial(handle.load, lines(person("dan")), "append"),
        partial(handle.load, lines(person("dan")), "merge"),
        partial(handle.load, lines(node("Company", name="acme"), node("Company", name="b")), "overwrite"),
    )

    with proving("MUT-16"):
        for write in refused_writes:
            refused("conflict", write, "a write beside the schema lock")
        assert {key: disk.head(key) for key in heads} == heads, "no table has moved"
        assert disk.sidecars() == {}
        graph.compare("refused writes", "MUT-16")


# -- the order of a write ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-02")
def test_what_is_refused_has_written_no_file(judged: Judged, forge: ForgeOf) -> None:
    """The whole change is made and validated in memory; files come after that."""
    graph = judged(SOCIAL, PEOPLE)
    before = forge(graph.uri).listing()

    with proving("MUT-02"):
        good = insert("Person", name="dan")
        refused("bad_request", partial(graph.mutate, good, insert_edge("Knows", "dan", "nobody")), "a mutation")
        refused("bad_request", partial(graph.load, [person("dan"), edge("WorksAt", "dan", "nobody")]), "a load")
        assert forge(graph.uri).listing() == before


@pytest.mark.requirement("MUT-02")
def test_without_its_sidecar_a_write_moves_no_table(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    failing = peers(failpoints="recovery.sidecar_write=error*1")
    heads = {key: disk.head(key) for key in versions(graph)}

    with proving("MUT-02"):
        refused(ANY_KIND, partial(failing.open(graph.uri).mutate, insert("Person", name="dan")), "the write")
        assert {key: disk.head(key) for key in heads} == heads, "no table moves before its sidecar is there"
        failing.close()
        graph.mutate(insert("Person", name="dan"))


@pytest.mark.requirement("MUT-02")
def test_a_sidecar_that_cannot_be_removed_does_not_undo_a_write(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    failing = peers(failpoints="recovery.sidecar_delete=error*1")

    with proving("MUT-02"):
        graph.mutate(insert("Person", name="dan"), through=failing.open(graph.uri))
        failing.close()
        graph.reopen()
        assert forge(graph.uri).sidecars() == {}, "the next open removes it"
        graph.mutate(insert("Person", name="eve"))


@pytest.mark.requirement("MUT-02", "MUT-06")
@pytest.mark.parametrize("point", ["mutation.post_finalize_pre_publisher", "graph_publish.before_commit_append"])
def test_a_write_that_is_cut_shows_nothing_and_the_next_write_heals_it(
    judged: Judged, peers: Peers, forge: ForgeOf, point: str
) -> None:
    """Its tables have moved and its publish has not happened: no reader sees it, and whoever writes next tidies up."""
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    writer = graph.engine.open(graph.uri)
    before = graph.handle.export()
    failing = peers(failpoints=f"{point}=error*1")
    cut = insert("Person", name="dan"), insert_edge("Knows", "dan", "ann", id="k9")

    error = refused(ANY_KIND, partial(failing.open(graph.uri).mutate, *cut), "the write that is cut")
    failing.close()

    with proving("MUT-06"):
        assert graph.engine.look(graph.uri).export() == before
        assert graph.handle.export() == before
    with proving("MUT-02"):
        writer.mutate(insert("Person", name="eve"))
        again = graph.engine.open(graph.uri)
        assert disk.sidecars() == {}, "nothing is pending any more"
        people = {row["id"] for row in again.read("node:Person")}
        known = {row["id"] for row in again.read("edge:Knows")}
        assert people - {"dan"} == {"ann", "bob", "cat", "eve"}
        assert ("dan" in people) == ("k9" in known), "all of it or nothing"
        assert "dan" not in people or error.kind not in DEFINITE, f"it happened after {error}"


@pytest.mark.requirement("MUT-06")
def test_a_cancelled_write_is_there_as_a_whole_or_not_at_all(judged: Judged, peers: Peers) -> None:
    """The driver ends while the write is under way, wherever that is; an engine in this process just finishes."""
    graph = judged(SOCIAL, PEOPLE)
    engine = peers()
    handle = engine.open(graph.uri)
    many = [insert("Person", name=f"new {n}") for n in range(200)]
    chain = [insert_edge("Knows", f"new {n}", f"new {n + 1}") for n in range(199)]

    def write() -> None:
        with contextlib.suppress(EngineError, AdapterFault):
            handle.mutate(*many, *chain)

    thread = threading.Thread(target=write)
    thread.start()
    engine.close()
    thread.join()

    with proving("MUT-06"):
        again = graph.engine.open(graph.uri)
        people, known = len(again.read("node:Person")), len(again.read("edge:Knows"))
        assert (people, known) in ((3, 2), (203, 201)), f"{people} people and {known} edges are half a write"
        again.mutate(insert("Person", name="after"))
