"""SNP: what a reader sees: one state, whole, and the one that was asked for.

Without a version or a commit that is the latest of a branch, from every handle, however long it has been open; with
one, it is the state of that moment, as long as its files are kept. Reading changes nothing.
"""

from __future__ import annotations

import json
from functools import partial
from threading import Thread
from typing import Any

import pytest

from conformance.adapters import EngineError
from conformance.judge import JudgedGraph, proving
from conformance.judge.engine import Handle
from conformance.runner.plugin import Judged, Peers
from conformance.suites.graphs import (
    EVERYTHING,
    EVOLVED,
    PEOPLE,
    SOCIAL,
    delete,
    insert,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import ANY_KIND, refused


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


def people(handle: Handle, branch: str | None = None) -> list[str]:
    return ids(handle.read("node:Person", branch))


def check_history(graph: JudgedGraph, branch: str = "main", tables: tuple[str, ...] = ("node:Person",)) -> None:
    """Every commit of a branch reads as it was, by its version and by its id."""
    for commit in graph.model.commits(branch):
        for key in (key for key in tables if key in commit.state):
            meant = graph.model.read(key, commit=commit.commit_id)
            assert graph.handle.read(key, commit=commit.commit_id) == meant, f"{key} at commit {commit.commit_id}"
            if commit.branch == branch:
                at_version = graph.handle.read(key, branch, version=commit.manifest_version)
                assert at_version == meant, f"{key} of {branch} at version {commit.manifest_version}"


# -- now ---------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SNP-01")
def test_a_read_sees_commits_whole_while_others_write(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL)
    graph.audited = False  # Sixteen commits of which the model knows nothing; other tests have this read.
    # Who opens to write, and recovers what it meets, takes part in the race and may lose it: this one only reads.
    writer, reader = peers().open(graph.uri), peers().open(graph.uri, read_only=True)
    failures: list[EngineError] = []

    def write() -> None:
        for number in range(8):
            try:
                writer.load(lines(person(f"n{number}"), node("Company", name=f"n{number}")))
            except EngineError as error:
                failures.append(error)

    thread = Thread(target=write)
    seen: list[str] = []

    with proving("SNP-01"):
        thread.start()
        try:
            while thread.is_alive() or not seen:
                seen.append(reader.export())
        finally:
            thread.join()
        assert failures == []
        sizes = []
        for export in [*seen, reader.export()]:
            records = [json.loads(line) for line in export.splitlines()]
            names = {kind: {r["data"]["name"] for r in records if r["type"] == kind} for kind in ("Person", "Company")}
            assert names["Person"] == names["Company"], "a read saw one half of a commit"
            sizes.append(len(names["Person"]))
        assert sizes == sorted(sizes), "a later read saw an earlier state"
        assert sizes[-1] == 8


@pytest.mark.requirement("SNP-02")
@pytest.mark.parametrize("read_only", [False, True])
def test_an_open_handle_sees_what_others_have_committed(judged: Judged, peers: Peers, read_only: bool) -> None:
    graph = judged(SOCIAL, PEOPLE)
    old = graph.engine.look(graph.uri) if read_only else graph.engine.open(graph.uri)
    other = peers().open(graph.uri)

    def sees_the_latest() -> None:
        with proving("SNP-02"):
            head = other.commits()[-1]
            assert old.export() == graph.model.export()
            assert people(old) == people(other)
            assert old.commits()[-1] == head
            assert old.snapshot() == other.snapshot()
            assert old.snapshot()["manifest_version"] >= head["manifest_version"]

    sees_the_latest()
    graph.load([person("dan")], through=other)
    sees_the_latest()
    graph.mutate(update("Person", where("name", "ann"), age=99), through=other)
    sees_the_latest()
    graph.mutate(delete("Person", where("name", "bob")), through=other)
    sees_the_latest()
    graph.load([person("ann"), person("cat")], mode="overwrite", through=other)
    sees_the_latest()
    if graph.engine.supports("optimize"):
        graph.optimize(through=other)
        sees_the_latest()
    if graph.engine.supports("schema_apply"):
        graph.schema_apply(EVOLVED, through=other)
        graph.load([node("Place", code="b"), person("ann", city="Bern")], through=other)
        sees_the_latest()
        with proving("SNP-02"):
            assert ids(old.read("node:Place")) == ["b"]


@pytest.mark.requirement("SNP-02", "SNP-11")
def test_an_open_handle_sees_branches_that_came_later(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    old, other = graph.engine.open(graph.uri), peers().open(graph.uri)
    graph.branch_create("draft", through=other)
    graph.mutate(insert("Person", name="dan"), branch="draft", through=other)
    with proving("SNP-02"):
        assert people(old, "draft") == ["ann", "bob", "cat", "dan"]
    graph.mutate(insert("Person", name="eve"), branch="draft", through=other)
    with proving("SNP-02"):
        assert people(old, "draft") == ["ann", "bob", "cat", "dan", "eve"]
        assert people(old) == ["ann", "bob", "cat"]

    old.sync_branch("draft")
    graph.mutate(insert("Person", name="fay"), branch="draft", through=other)
    with proving("SNP-11"):
        assert people(old) == ["ann", "bob", "cat", "dan", "eve", "fay"]


@pytest.mark.requirement("SNP-08")
def test_a_branch_that_was_made_again_is_read_as_the_new_one(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    other = peers().open(graph.uri)
    old = graph.engine.open(graph.uri)
    for name in ("first", "second"):  # Twice the same steps, and so twice the same version numbers.
        graph.branch_create("draft", through=other)
        graph.load([person(name, age=len(name))], branch="draft", through=other)
        bound = graph.engine.open(graph.uri, branch="draft")
        for handle in (old, bound, graph.handle):
            with proving("SNP-08"):
                assert people(handle, "draft") == ["ann", "bob", "cat", name]
                for one in (handle.row, *([handle.entity_at] if handle.engine.supports("entity_at") else [])):
                    found = one("node:Person", name, "draft")
                    assert found is not None
                    assert found["age"] == len(name)
                assert handle.commits("draft") == other.commits("draft")
                assert handle.export("draft") == graph.model.export("draft")
        if name == "first":
            graph.branch_delete("draft", through=other)
            with proving("SNP-08"):
                refused("not_found", lambda: old.read("node:Person", "draft"), "a read of a deleted branch")
    with proving("SNP-08"):
        assert old.row("node:Person", "first", "draft") is None


@pytest.mark.requirement("SNP-08")
def test_a_bound_handle_follows_a_branch_that_was_made_again(judged: Judged, peers: Peers) -> None:
    graph = judged(SOCIAL, PEOPLE)
    other = peers().open(graph.uri)
    graph.branch_create("draft", through=other)
    graph.load([person("first")], branch="draft", through=other)
    bound = graph.engine.look(graph.uri, branch="draft")
    assert people(bound) == ["ann", "bob", "cat", "first"]
    graph.branch_delete("draft", through=other)
    graph.branch_create("draft", through=other)
    with proving("SNP-08"):
        assert people(bound) == ["ann", "bob", "cat"]
    graph.load([person("second")], branch="draft", through=other)
    with proving("SNP-08"):
        assert people(bound) == ["ann", "bob", "cat", "second"]
        assert bound.snapshot()["tables"] == other.snapshot("draft")["tables"]


@pytest.mark.requirement("SNP-11")
def test_a_handle_is_bound_anew(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("feat/one")
    graph.mutate(insert("Person", name="dan"), branch="feat/one")
    graph.mutate(insert("Company", name="initech"))
    handle = graph.engine.open(graph.uri)

    handle.sync_branch("feat/one")
    with proving("SNP-11"):
        assert handle.snapshot()["branch"] == "feat/one"
        assert people(handle) == ["ann", "bob", "cat", "dan"]
        assert handle.export() == graph.model.export("feat/one")
        assert handle.commits() == graph.handle.commits("feat/one")
        refused("not_found", lambda: handle.sync_branch("nowhere"), "a branch that is not there")
        assert handle.snapshot()["branch"] == "feat/one", "a refused sync changes nothing"
        made = handle.mutate(insert("Person", name="eve"))["commit"]
        assert made["manifest_branch"] == "feat/one", "what names no branch goes to the bound one"
        assert people(handle, "main") == ["ann", "bob", "cat"]

    handle.sync_branch("main")
    with proving("SNP-11"):
        assert handle.snapshot()["branch"] == "main"
        assert ids(handle.read("node:Company")) == ["acme", "initech"]


# -- then --------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SNP-03")
def test_a_version_is_one_of_the_bound_branch(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    branches = ["main"]
    if graph.engine.supports("branch_create"):
        graph.branch_create("draft")
        graph.mutate(insert("Person", name="on draft"), branch="draft")
        branches.append("draft")
    graph.mutate(insert("Person", name="on main"))

    with proving("SNP-03"):
        for branch in branches:
            bound = graph.engine.look(graph.uri, branch=branch)
            commit = bound.commits()[-1]
            version = commit["manifest_version"]
            snapshot = bound.snapshot(version=version)
            assert (snapshot["branch"], snapshot["manifest_version"]) == (branch, version)
            assert snapshot["tables"] == bound.snapshot()["tables"]
            assert f"on {branch}" in ids(bound.read("node:Person", version=version))
            assert bound.read("node:Person", version=version) == graph.model.read("node:Person", branch)
            latest = bound.snapshot()["manifest_version"]
            for missing in (0, latest + 1, 10**9):
                refused(ANY_KIND, partial(bound.snapshot, version=missing), f"version {missing} of {latest}")
                refused(ANY_KIND, partial(bound.read, "node:Person", version=missing), f"a read at version {missing}")


@pytest.mark.requirement("SNP-04")
def test_a_commit_is_a_state_of_its_own_branch(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    can = graph.engine.supports
    if can("branch_create"):
        graph.branch_create("draft")
        graph.mutate(update("Person", where("name", "ann"), age=99), branch="draft")
        graph.branch_create("later", "draft")
    graph.mutate(insert("Person", name="dan"))
    if can("branch_create", "merge"):
        graph.merge("draft")
        graph.mutate(insert("Person", name="eve"), branch="later")

    with proving("SNP-04"):
        for branch in graph.model.branch_list():
            check_history(graph, branch)
            bound = graph.engine.look(graph.uri, branch=branch)
            for commit in graph.handle.commits(branch):
                snapshot = bound.snapshot(commit=commit["graph_commit_id"])
                place = (commit["manifest_branch"] or "main", commit["manifest_version"])
                assert (snapshot["branch"], snapshot["manifest_version"]) == place
        tables = graph.handle.snapshot()["tables"]
        no_commits = ["7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "main", "4", "manifest:main:v4", tables[0]["table_path"]]
        for text in no_commits:
            refused("not_found", partial(graph.handle.snapshot, commit=text), f"a snapshot of {text!r}")
            refused("not_found", partial(graph.handle.read, "node:Person", commit=text), f"a read of {text!r}")


@pytest.mark.requirement("SNP-06")
def test_an_entity_is_found_by_its_id_whatever_characters_that_has(judged: Judged) -> None:
    names = [
        "O'Hara",
        "''",
        "' OR '1'='1",
        'say "hi"',
        "back\\slash",
        "100%",
        "a_b",
        "aXb",
        " space ",
        "tab\tline\nend",
        "Ann",
        "ann",
        "null",
        "日本",
        "é",
        "e\u0301",
        "😀",
        "--",
        "`id`",
        "$1",
    ]
    graph = judged(EVERYTHING, [node("Thing", name=name, large=number) for number, name in enumerate(names)])

    with proving("SNP-06"):
        for number, name in enumerate(names):
            found = graph.handle.entity_at("node:Thing", name)
            assert found is not None, f"{name!r} is not found"
            assert (found["id"], found["name"], found["large"]) == (name, name, number)
        for absent in ("", "'", "O''Hara", "O\\'Hara", "%", "a%b", "ANN", "nobody", "space", "1"):
            assert graph.handle.entity_at("node:Thing", absent) is None, f"{absent!r} is not there"


@pytest.mark.requirement("SNP-06")
def test_an_entity_has_all_its_columns_and_is_null_where_it_is_not(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    old = graph.handle.commits()[-1]
    graph.mutate(update("Person", where("name", "ann"), age=99))
    graph.mutate(delete("Person", where("name", "bob")))
    at = graph.handle.entity_at

    with proving("SNP-06"):
        assert at("node:Person", "ann") == {"id": "ann", "age": 99, "email": "ann@x", "name": "ann"}
        assert at("edge:WorksAt", "w1") == {"id": "w1", "src": "ann", "dst": "acme"}
        assert at("node:Person", "bob") is None
        for point in ({"version": old["manifest_version"]}, {"commit": old["graph_commit_id"]}):
            assert at("node:Person", "ann", **point) == {"id": "ann", "age": 30, "email": "ann@x", "name": "ann"}
            assert at("node:Person", "bob", **point) == {"id": "bob", "age": 31, "email": None, "name": "bob"}
            assert at("edge:Knows", "k2", **point) == {"id": "k2", "src": "bob", "dst": "cat", "since": None}
        assert at("node:Person", "ann", version=1) is None
    if graph.engine.supports("schema_apply"):
        graph.schema_apply(EVOLVED)
        graph.load([node("Place", code="b")])
        with proving("SNP-06"):
            assert at("node:Place", "b") == {"id": "b", "code": "b"}
            assert at("node:Place", "b", version=old["manifest_version"]) is None, "there was no such table then"


@pytest.mark.requirement("SNP-07")
def test_old_versions_stay_readable_through_everything_that_keeps_them(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    can = graph.engine.supports
    graph.mutate(update("Person", where("name", "bob"), age=32, email="bob@x"))
    graph.load([person("ann"), person("bob"), person("cat")], mode="overwrite")
    graph.mutate(delete("Person", where("name", "cat")))
    if can("optimize"):
        graph.optimize()
        graph.mutate(insert("Person", name="dan"))
    if can("schema_apply"):
        smaller = SOCIAL.replace("  age: I32?\n", "").replace("edge WorksAt: Person -> Company @card(0..2)\n", "")
        graph.schema_apply(smaller)
        graph.mutate(insert("Person", name="eve"))

    with proving("SNP-07"):
        check_history(graph, tables=("node:Person", "edge:WorksAt"))
        first = graph.handle.commits()[1]["manifest_version"]
        ages = {row["id"]: row["age"] for row in graph.handle.read("node:Person", version=first)}
        assert ages["ann"] == 30, "a soft drop takes nothing from the past"


@pytest.mark.requirement("SNP-07")
def test_old_versions_of_a_branch_stay_readable_when_it_has_caught_up_with_main(judged: Judged) -> None:
    """Its tables are main's again, and its next write forks them anew: its own old files are not in the way."""
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("draft")
    graph.load([person("dan")], branch="draft")
    graph.load([person("bob", age=7)], branch="draft")
    graph.merge("draft")
    graph.merge("main", "draft")
    graph.mutate(insert("Company", name="new"), branch="draft")
    graph.mutate(delete("Person", where("name", "dan")), branch="draft")

    with proving("SNP-07"):
        check_history(graph, "draft")
        check_history(graph)


@pytest.mark.requirement("SNP-07", "CLN-06")
def test_old_versions_end_with_a_cleanup(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    old = graph.handle.commits()[-1]["manifest_version"]
    for age in range(4):
        graph.mutate(update("Person", where("name", "ann"), age=age))

    graph.cleanup(keep_versions=1)

    with proving("SNP-07", "CLN-06"):
        refused(ANY_KIND, lambda: graph.handle.read("node:Person", version=old), "a read of what was cleaned up")
        assert graph.handle.read("node:Person") == graph.model.read("node:Person")
        graph.mutate(insert("Person", name="dan"))
