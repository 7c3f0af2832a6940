"""LIN: the commits of a graph, which stand in the manifest itself.

Every publish is one commit, in one row, in the version that it describes: whoever has the manifest has the lineage, and
no crash comes between the two.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.audit.names import is_ulid
from conformance.judge import Engine, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.crashed import Crashed, rows_of
from conformance.suites.graphs import (
    EVOLVED,
    PEOPLE,
    SOCIAL,
    delete,
    delete_edge,
    head_of,
    id_of,
    insert,
    lines,
    node,
    person,
    place_golden,
    update,
    where,
)
from conformance.suites.refusals import ANY_KIND, refused
from fixtures import golden
from fixtures.forge import Forge

Row = dict[str, Any]
CREATED_AT = "_row_created_at_version"
CLOCK_SLACK_MICROS = 60 * 1_000_000


def lineage_rows(forge: Forge, branch: str | None = None) -> list[Row]:
    """The rows of commits, with the manifest version that created each."""
    handle = forge.manifest(branch)
    table = handle.to_table(columns=[*handle.schema.names, CREATED_AT], filter="object_type = 'graph_commit'")
    found: list[Row] = table.to_pylist()
    return found


# -- a commit ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LIN-01", "LIN-14")
def test_a_commit_is_told_as_its_row_says(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE, actor="ann o'neil <ann@example.org>")
    graph.mutate(insert("Person", name="dan"), actor="ünï")
    graph.mutate(insert("Person", name="eve"))
    rows = {row["object_id"]: row for row in lineage_rows(forge(graph.uri))}
    told = {id_of(commit): commit for commit in graph.handle.commits()}

    with proving("LIN-01"):
        assert told.keys() == rows.keys()
        for commit_id, row in rows.items():
            assert is_ulid(commit_id)
            assert (row["table_key"], row["location"], row["row_count"]) == ("", None, None)
            meant = {
                "graph_commit_id": commit_id,
                "manifest_branch": row["table_branch"],
                "manifest_version": row["table_version"],
                **json.loads(row["metadata"]),
            }
            assert {name: value for name, value in told[commit_id].items() if value is not None} == {
                name: value for name, value in meant.items() if value is not None
            }
            assert None not in json.loads(row["metadata"]).values(), "what is absent is left out, and not null"
    with proving("LIN-14"):
        actors = [json.loads(rows[id_of(each)]["metadata"]).get("actor_id") for each in graph.handle.commits()]
        assert actors == [None, "ann o'neil <ann@example.org>", "ünï", None]


@pytest.mark.requirement("LIN-01", "LIN-10")
def test_nothing_but_the_row_says_what_a_commit_is(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE, actor="ann")
    graph.audited = False
    head = id_of(head_of(graph))
    forge(graph.uri).set_row_metadata(head, actor_id="someone else", created_at=1_700_000_000_000_000)

    with proving("LIN-01", "LIN-10"):
        handle = graph.engine.look(graph.uri)
        found = handle.commit(head)
        assert (found["actor_id"], found["created_at"]) == ("someone else", 1_700_000_000_000_000)
        assert handle.commits()[-1] == found


@pytest.mark.requirement("LIN-08")
def test_a_graph_begins_with_one_empty_commit(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL)
    (genesis,) = graph.handle.commits()
    graph.load(PEOPLE)

    with proving("LIN-08"):
        assert genesis["manifest_version"] == 1
        absent = ("manifest_branch", "parent_commit_id", "merged_parent_commit_id", "actor_id")
        assert [genesis.get(name) for name in absent] == [None] * 4
        assert set(json.loads(forge(graph.uri).row(id_of(genesis))["metadata"])) == {"created_at"}
        first = graph.handle.snapshot(version=1)["tables"]
        assert {(entry["table_version"], entry["row_count"]) for entry in first} == {(1, 0)}
        assert len(first) == 4
        assert graph.handle.read("node:Person", version=1) == []
        assert graph.handle.commits()[0] == genesis


@pytest.mark.requirement("LIN-15")
def test_the_time_of_a_commit_is_now_in_microseconds(judged: Judged) -> None:
    before = time.time_ns() // 1000
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"))
    after = time.time_ns() // 1000

    with proving("LIN-15"):
        times = [commit["created_at"] for commit in graph.handle.commits()]
        assert before - CLOCK_SLACK_MICROS <= min(times)
        assert max(times) <= after + CLOCK_SLACK_MICROS
        assert times == sorted(times)


@pytest.mark.requirement("LIN-14")
def test_commits_of_the_engine_itself_have_no_actor(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE, actor="ann")
    graph.load([person("dan")], actor="ann")
    known = len(graph.handle.commits())
    for op, work in (
        ("schema_apply", lambda: graph.schema_apply(EVOLVED)),
        ("ensure_indices", graph.ensure_indices),
        ("optimize", graph.optimize),
    ):
        if graph.engine.supports(op):
            work()

    with proving("LIN-14"):
        assert {commit["actor_id"] for commit in graph.handle.commits()[1:known]} == {"ann"}
        assert {commit.get("actor_id") for commit in graph.handle.commits()[known:]} <= {None}


# -- which publishes make one ------------------------------------------------------------------------------------------


def check_places(forge: Forge, branch: str | None = None) -> None:
    """One commit for each version that published something, in that very version."""
    rows = lineage_rows(forge, branch)
    for row in rows:
        message = f"commit {row['object_id']} says version {row['table_version']} and came with {row[CREATED_AT]}"
        assert row["table_version"] == row[CREATED_AT], message
    shared = [version for version, count in Counter(row[CREATED_AT] for row in rows).items() if count > 1]
    assert shared == [], f"several commits came with version {shared}"
    tables = "object_type IN ('table', 'table_version', 'table_tombstone')"
    published = set(forge.manifest(branch).to_table(columns=[CREATED_AT], filter=tables)[CREATED_AT].to_pylist())
    without = published - {row[CREATED_AT] for row in rows}
    assert not without, f"versions {sorted(without)} published tables without a commit"


@pytest.mark.requirement("LIN-02")
def test_every_publish_is_one_commit_in_its_own_version(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    can = graph.engine.supports
    steps: list[Callable[[], object]] = [
        lambda: graph.mutate(update("Person", where("name", "bob"), age=1)),
        lambda: graph.mutate(delete("Person", where("name", "cat"))),
        lambda: graph.load([person("ann"), person("bob"), person("eve")], mode="overwrite"),
        lambda: graph.load([person("fay"), node("Company", name="initech")], mode="append"),
    ]
    if can("branch_create", "merge"):
        graph.branch_create("draft")
        graph.mutate(insert("Person", name="dan"), branch="draft")
        steps.append(lambda: graph.merge("draft"))
    for step in steps:
        count = len(graph.handle.commits())
        step()
        with proving("LIN-02"):
            assert len(graph.handle.commits()) == count + 1
    if can("optimize"):
        graph.optimize()
    if can("ensure_indices"):
        graph.ensure_indices()
    with proving("LIN-02"):
        for branch in graph.model.branch_list():
            check_places(forge(graph.uri), branch)


@pytest.mark.requirement("LIN-02", "SCH-08", "REC-05", "RPR-01")
def test_schema_changes_repairs_and_recoveries_are_commits_too(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    there = forge(graph.uri)
    graph.schema_apply(EVOLVED)
    assert len(graph.handle.commits()) == 3
    crash = Crashed.before_publish(graph, there, lambda: graph.handle.load(lines(person("dan"))), writer_kind="Load")
    kind = crash.expected_kind()
    recovered = crash.reopened()

    with proving("LIN-02", "SCH-08", "REC-05"):
        assert rows_of(recovered) == crash.rows_after(kind)
        assert len(recovered.commits()) == 4
        check_places(there)

    for name in ("eve", "fay"):  # Two fragments that no index covers can be compacted, whatever the engine has indexed.
        recovered.load(lines(person(name)))
    there.raw_compact("node:Person")
    repaired = graph.engine.open(graph.uri)
    repaired.repair(confirm=True)
    with proving("LIN-02", "RPR-01"):
        assert len(repaired.commits()) == 7
        check_places(there)


@pytest.mark.requirement("LIN-03")
def test_a_mutation_that_matches_nothing_makes_no_commit_and_no_version(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    branches = ["main"]
    if graph.engine.supports("branch_create"):
        graph.branch_create("draft")
        branches.append("draft")
        graph.mutate(insert("Person", name="dan"), branch="draft")

    def heads() -> dict[str, int]:
        """The newest version of everything that a branch reads. A fork that no branch reads is no version of it."""
        there = forge(graph.uri)
        tables = {f"{key} of {each}": there.head(key, each) for each in branches for key in there.entries(each)}
        return tables | {each: there.manifest_version(each) for each in branches}

    before = heads()
    for branch in branches:
        for statement in (
            update("Person", where("name", "nobody"), age=1),
            delete("Person", where("name", "nobody")),
            delete_edge("Knows", where("since", 1999)),
        ):
            answer = graph.mutate(statement, branch=branch, actor="ann")
            with proving("LIN-03"):
                assert (answer["affected_nodes"], answer["affected_edges"], answer["commit"]) == (0, 0, None)
                assert heads() == before, "there is a new version"


@pytest.mark.requirement("LIN-04")
@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
def test_a_load_without_records_is_a_commit_of_lineage_alone(judged: Judged, forge: ForgeOf, mode: str) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = graph.handle.snapshot()["tables"]
    parent = id_of(head_of(graph))

    made = graph.load(" \n\n", mode=mode, actor="ann")["commit"]

    with proving("LIN-04"):
        assert made["parent_commit_id"] == parent
        assert graph.handle.snapshot()["tables"] == before
        assert graph.handle.commits()[-1] == made
        check_places(forge(graph.uri))


@pytest.mark.requirement("LIN-04", "SCH-09")
def test_a_schema_apply_that_only_adds_an_index_is_a_commit_of_lineage_alone(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = graph.handle.snapshot()["tables"]

    graph.schema_apply(SOCIAL.replace("age: I32?", "age: I32? @index"))

    with proving("LIN-04", "SCH-09"):
        assert len(graph.handle.commits()) == 3
        assert graph.handle.snapshot()["tables"] == before
        check_places(forge(graph.uri))


@pytest.mark.requirement("LIN-11")
def test_a_writer_that_fails_after_its_publish_leaves_its_commit(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    known = [id_of(commit) for commit in graph.handle.commits()]
    failing = peers(failpoints="graph_publish.after_manifest_commit=error").open(graph.uri)
    with suppress(EngineError):  # What it tells its caller is for other tests.
        failing.mutate(insert("Person", name="dan"), actor="ann")

    with proving("LIN-11"):
        handle = graph.engine.look(graph.uri)
        new = [commit for commit in handle.commits() if id_of(commit) not in known]
        assert [commit["actor_id"] for commit in new] == ["ann"]
        assert new[0]["parent_commit_id"] == known[-1]
        assert [row["id"] for row in handle.read("node:Person")] == ["ann", "bob", "cat", "dan"]


@pytest.mark.requirement("LIN-11")
def test_a_publish_that_nobody_was_told_of_is_in_the_lineage(engine: Engine, forge: ForgeOf, root: str) -> None:
    place_golden("unacknowledged-publish", forge(root))
    meant = golden.expect("unacknowledged-publish")
    published = meant["commits"]["main"][:3]

    with proving("LIN-11"):
        assert engine.look(root).commits()[:3] == published
        recovered = engine.open(root)
        assert recovered.export() == meant["export"]["main"]
        assert recovered.commits()[:3] == published


@pytest.mark.requirement("LIN-12")
def test_a_writer_that_fails_before_its_publish_leaves_no_commit(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    failing = peers(failpoints="graph_publish.before_commit_append=error").open(graph.uri)
    with proving("LIN-12"):
        refused(ANY_KIND, lambda: failing.mutate(insert("Person", name="dan"), actor="ann"), "a publish that fails")
        handle = graph.engine.look(graph.uri)
        assert "ann" not in [commit["actor_id"] for commit in handle.commits()]
        assert [row["id"] for row in handle.read("node:Person")] == ["ann", "bob", "cat"]
        check_places(forge(graph.uri))
