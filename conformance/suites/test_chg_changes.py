"""CHG: what differs between two points in the life of a graph, row by row, as a full comparison of both would tell.

Whether a row that was rewritten with the values that it had counts as updated is left to the engine, so the histories
here never write a value twice; where they do, such updates are allowed and nothing else is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.judge.engine import Answer
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    delete,
    delete_edge,
    edge,
    insert,
    insert_edge,
    node,
    person,
    update,
    where,
)

Changes = set[tuple[str, str, str]]
Point = Mapping[str, Any]
TABLES: Final = ("edge:Knows", "edge:WorksAt", "node:Company", "node:Person")


def found(answer: Answer) -> Changes:
    listed = [(each["table_key"], each["id"], each["op"]) for each in answer["changes"]]
    assert len(listed) == len(set(listed)), "a row changes once"
    return set(listed)


def diff(graph: JudgedGraph, older: Point, newer: Point, **filters: Any) -> Changes:
    return found(graph.handle.diff(older, newer, **filters))


def at(graph: JudgedGraph, branch: str = "main") -> dict[str, Any]:
    """The point where a branch is now."""
    return {"branch": branch, "version": graph.handle.snapshot(branch)["manifest_version"]}


def compared(graph: JudgedGraph, older: Point, newer: Point) -> Changes:
    """Every row of both points, read and held against each other."""
    changes: Changes = set()
    for key in TABLES:
        was = {row["id"]: json.dumps(row, sort_keys=True) for row in graph.handle.read(key, **older)}
        now = {row["id"]: json.dumps(row, sort_keys=True) for row in graph.handle.read(key, **newer)}
        changes |= {(key, each, "insert") for each in now.keys() - was.keys()}
        changes |= {(key, each, "delete") for each in was.keys() - now.keys()}
        changes |= {(key, each, "update") for each in was.keys() & now.keys() if was[each] != now[each]}
    return changes


# -- what a diff says --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("CHG-01")
def test_a_diff_lists_and_counts_what_was_inserted_updated_and_deleted(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    older = at(graph)
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann", id="k3"))
    graph.mutate(update("Person", where("name", "ann"), age=99))
    graph.mutate(delete("Person", where("name", "cat")))
    newer = at(graph)

    answer = graph.handle.diff(older, newer)

    with proving("CHG-01"):
        assert (answer["from_version"], answer["to_version"]) == (older["version"], newer["version"])
        assert answer.get("branch") in (None, "main")
        assert found(answer) == {
            ("edge:Knows", "k2", "delete"),
            ("edge:Knows", "k3", "insert"),
            ("node:Person", "ann", "update"),
            ("node:Person", "cat", "delete"),
            ("node:Person", "dan", "insert"),
        }
        for each in answer["changes"]:
            kind, _, name = each["table_key"].partition(":")
            assert (each["kind"], each["type_name"]) == (kind, name)
            assert ("endpoints" in each) == (kind == "edge"), "edges say what they join, nodes have no ends"
        ends = {each["id"]: each["endpoints"] for each in answer["changes"] if each["kind"] == "edge"}
        assert ends == {"k2": {"src": "bob", "dst": "cat"}, "k3": {"src": "dan", "dst": "ann"}}
        stats = answer["stats"]
        assert (stats["inserts"], stats["updates"], stats["deletes"]) == (2, 1, 2)
        assert stats["types_affected"] == ["Knows", "Person"]


@pytest.mark.requirement("CHG-01")
def test_a_diff_can_be_limited_and_its_points_can_be_commits(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    first = graph.handle.commits()[-1]["graph_commit_id"]
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann", id="k3"))
    graph.mutate(delete_edge("Knows", where("id", "k1")))
    last = graph.handle.commits()[-1]["graph_commit_id"]
    points = ({"commit": first}, {"commit": last})

    with proving("CHG-01"):
        everything = {("edge:Knows", "k1", "delete"), ("edge:Knows", "k3", "insert"), ("node:Person", "dan", "insert")}
        assert diff(graph, *points) == everything
        assert diff(graph, *points, types=["Person"]) == {("node:Person", "dan", "insert")}
        assert diff(graph, *points, ops=["delete"]) == {("edge:Knows", "k1", "delete")}
        assert diff(graph, *points, types=["Knows"], ops=["insert"]) == {("edge:Knows", "k3", "insert")}
        filtered = graph.handle.diff(*points, ops=["delete"])
        assert filtered["stats"]["deletes"] == 1 and filtered["stats"]["inserts"] == 0
        assert filtered["stats"]["types_affected"] == ["Knows"]
        assert diff(graph, {"commit": first}, {"branch": "main"}) == everything


@pytest.mark.requirement("CHG-02")
def test_equal_points_have_no_difference_and_the_way_back_is_the_opposite(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    older = at(graph)
    graph.mutate(insert("Person", name="dan"))
    graph.mutate(update("Person", where("name", "bob"), age=1))
    graph.mutate(delete_edge("Knows", where("id", "k1")))
    newer = at(graph)

    with proving("CHG-02"):
        assert diff(graph, newer, newer) == set()
        assert diff(graph, older, {"branch": "b"}) == set(), "a branch that has changed nothing reads the same tables"
        there, back = diff(graph, older, newer), diff(graph, newer, older)
        opposite = {"insert": "delete", "delete": "insert", "update": "update"}
        assert back == {(key, each, opposite[op]) for key, each, op in there}
        assert there == compared(graph, older, newer)


# -- random histories --------------------------------------------------------------------------------------------------


def steps(seed: int, branch: str) -> Iterator[dict[str, Any]]:
    """Writes without end, each of which gives some row a value that no row ever had."""
    chance, value = random.Random(seed), 1000
    names = [f"p{number}" for number in range(6)]
    while True:
        value += 1
        one, other = chance.sample(names, 2)
        yield chance.choice(
            (
                insert("Person", name=one, age=value),
                update("Person", where("name", one), age=value),
                delete("Person", where("name", one)),
                update("Person", where("name", [one, other], "in"), email=None, age=value),
                delete_edge("Knows", where("from", one)),
                insert("Company", name=f"{branch}-{value}"),
            )
        )


@pytest.mark.long
@pytest.mark.requirement("CHG-02")
@pytest.mark.parametrize("seed", range(3))
def test_the_diff_of_any_two_points_of_a_history_is_a_full_comparison(judged: Judged, seed: int) -> None:
    people = [person(f"p{number}", age=number) for number in range(6)]
    graph = judged(SOCIAL, [*people, *(edge("Knows", f"p{n}", f"p{n - 1}", id=f"k{n}", since=n) for n in range(1, 6))])
    graph.branch_create("b")
    points = [at(graph)]
    writers = {branch: steps(seed * 7 + number, branch) for number, branch in enumerate(("main", "b"))}
    for number in range(6):
        branch = ("main", "b")[number % 2]
        for _ in range(2):
            graph.mutate(next(writers[branch]), branch=branch)
        if number == 3 and graph.engine.supports("optimize"):
            graph.optimize()
        points.append(at(graph, branch))

    with proving("CHG-02"):
        for number, older in enumerate(points):
            for newer in points[number + 1 :: 2]:
                assert diff(graph, older, newer) == compared(graph, older, newer), f"from {older} to {newer}"
        assert diff(graph, points[-1], points[1]) == compared(graph, points[-1], points[1])


@pytest.mark.requirement("CHG-02")
def test_a_diff_over_a_merge_shows_what_the_merge_brought(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann", id="k3"), branch="b")
    graph.mutate(delete("Person", where("name", "cat")), branch="b")
    graph.mutate(update("Person", where("name", "bob"), age=77))
    before = at(graph)
    graph.merge("b")

    with proving("CHG-02"):
        assert diff(graph, before, at(graph)) == compared(graph, before, at(graph))
        assert diff(graph, {"branch": "b"}, {"branch": "main"}) == {("node:Person", "bob", "update")}
        assert diff(graph, {"branch": "main"}, {"branch": "b"}) == {("node:Person", "bob", "update")}


@pytest.mark.requirement("CHG-02")
def test_between_branches_rows_are_compared_by_value(judged: Judged) -> None:
    """Both sides wrote all rows; only what they wrote differently is a difference, however similar it is."""
    schema = "node Thing {\n  name: String @key\n  text: String?\n  tags: [String]?\n  photo: Blob?\n  number: F64?\n}"
    graph = judged(schema, [node("Thing", name="seed")])
    graph.branch_create("b")
    one = [
        node("Thing", name="blob", photo="base64:AAAA"),
        node("Thing", name="list", tags=["a", "b"]),
        node("Thing", name="null", text=None),
        node("Thing", name="same", text="x", tags=["y"], photo="base64:AAAA", number=0.5),
        node("Thing", name="sign", number=0.0),
    ]
    other = [
        node("Thing", name="blob", photo="base64:AAAB"),
        node("Thing", name="list", tags=["a, b"]),
        node("Thing", name="null", text=""),
        one[3],
        node("Thing", name="sign", number=-0.0),
    ]
    graph.load(one)
    graph.load(other, branch="b")

    with proving("CHG-02"):
        changed = {("node:Thing", name, "update") for name in ("blob", "list", "null", "sign")}
        assert diff(graph, {"branch": "main"}, {"branch": "b"}) == changed


# -- tables that come and go, and work that changes nothing ------------------------------------------------------------


@pytest.mark.requirement("CHG-03")
def test_a_new_table_is_all_inserts_and_a_dropped_one_all_deletes(judged: Judged) -> None:
    smaller, larger = (
        "node Note {\n  name: String @key\n}",
        "node Extra {\n  name: String @key\n}\nedge Has: Note -> Extra",
    )
    graph = judged(smaller, [node("Note", name="n")])
    before = at(graph)
    graph.schema_apply(f"{smaller}\n{larger}")
    graph.load([node("Extra", name="e1"), node("Extra", name="e2"), edge("Has", "n", "e1", id="h")])
    between = at(graph)
    graph.schema_apply(smaller)

    with proving("CHG-03"):
        added = {("node:Extra", "e1"), ("node:Extra", "e2"), ("edge:Has", "h")}
        assert diff(graph, before, between) == {(*each, "insert") for each in added}
        assert diff(graph, between, at(graph)) == {(*each, "delete") for each in added}
        answer = graph.handle.diff(between, at(graph))
        (ends,) = (each["endpoints"] for each in answer["changes"] if each["kind"] == "edge")
        assert ends == {"src": "n", "dst": "e1"}, "a dropped edge still says what it joined"
        assert diff(graph, before, at(graph)) == set(), "what came and went in between is nothing"


@pytest.mark.requirement("CHG-03")
def test_a_row_that_came_and_went_is_nothing_and_one_made_anew_is_an_update(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = at(graph)
    graph.mutate(insert("Person", name="guest"), insert_edge("Knows", "guest", "ann", id="visit"))
    graph.mutate(delete("Person", where("name", "guest")))
    with proving("CHG-03"):
        assert diff(graph, before, at(graph)) == set()
    graph.mutate(delete_edge("WorksAt", where("id", "w1")))
    graph.mutate(delete("Person", where("name", "bob")))
    graph.mutate(insert("Person", name="bob", age=1))
    with proving("CHG-03"):
        assert diff(graph, before, at(graph)) == {
            ("edge:Knows", "k1", "delete"),
            ("edge:Knows", "k2", "delete"),
            ("edge:WorksAt", "w1", "delete"),
            ("node:Person", "bob", "update"),
        }


@pytest.mark.requirement("CHG-04", "CHG-05")
def test_compaction_and_index_work_are_no_change_and_hide_none(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.load([person("dan", age=1), edge("Knows", "dan", "ann", id="k3")])
    graph.branch_create("b")
    before = at(graph)

    with proving("CHG-04"):
        graph.ensure_indices()
        assert diff(graph, before, at(graph)) == set(), "over index work"
        graph.optimize()
        assert diff(graph, before, at(graph)) == set(), "over compaction"
        assert diff(graph, {"branch": "b"}, {"branch": "main"}) == set(), "against a branch that was not compacted"
        graph.optimize()
        assert diff(graph, before, at(graph)) == set()
    graph.mutate(update("Person", where("name", "bob"), age=99))
    graph.mutate(delete("Person", where("name", "cat")))
    graph.optimize()
    with proving("CHG-04"):
        assert diff(graph, before, at(graph)) == compared(graph, before, at(graph))
    with proving("CHG-05"):
        disk = forge(graph.uri)
        assert all(disk.settings(key).stable_row_ids for key in TABLES)


@pytest.mark.requirement("CHG-05", "CHG-04")
def test_every_table_keeps_stable_row_ids_through_rewrites_and_forks(judged: Judged, forge: ForgeOf) -> None:
    """A rewrite with the values that were there may count as updates of all rows, and as nothing else."""
    graph = judged(SOCIAL, PEOPLE)
    before = at(graph)
    graph.load([record for record in PEOPLE if record.get("type") == "Person"], "overwrite")

    with proving("CHG-04"):
        assert diff(graph, before, at(graph)) <= {("node:Person", name, "update") for name in ("ann", "bob", "cat")}
    graph.schema_apply(SOCIAL.replace("age: I32?", "age: I32?\n  town: String?"))
    graph.branch_create("b")
    graph.mutate(update("Person", where("name", "ann"), town="x"), branch="b")
    with proving("CHG-05"):
        disk = forge(graph.uri)
        assert all(disk.settings(key).stable_row_ids for key in TABLES)
        assert disk.settings("node:Person", "b").stable_row_ids
        assert diff(graph, {"branch": "main"}, {"branch": "b"}) == {("node:Person", "ann", "update")}


@pytest.mark.requirement("CHG-01")
def test_an_edge_that_has_moved_is_shown_where_it_is_now(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    older = {"commit": graph.handle.commits()[-1]["graph_commit_id"]}
    graph.load([edge("Knows", "ann", "cat", id="k1", since=2020)])

    with proving("CHG-01"):
        (change,) = graph.handle.diff(older, {"branch": "main"})["changes"]
        assert (change["op"], change["endpoints"]) == ("update", {"src": "ann", "dst": "cat"})
