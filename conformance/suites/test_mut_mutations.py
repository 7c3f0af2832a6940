"""MUT: a mutation is one change, made of statements that see each other, and it is all there or not at all.

Statements run in memory on one state; each sees what those before it did. Only what is valid as a whole is written, as
one commit of each table and one of the graph; whatever is wrong with it leaves nothing.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from conformance.adapters import EngineError
from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    EVERYTHING,
    PEOPLE,
    SOCIAL,
    data_commits,
    delete,
    delete_edge,
    edge,
    insert,
    insert_edge,
    lines,
    node,
    person,
    update,
    where,
)
from conformance.suites.refusals import refused

KEYLESS: Final = "node Note { text: String? }\nedge Cites: Note -> Note { page: I32? }"
MOMENTS: Final = "node Thing {\n  name: String @key\n  moment: DateTime?\n  text: String?\n}\n"


def versions(graph: JudgedGraph) -> dict[str, int]:
    return {each["table_key"]: each["table_version"] for each in graph.handle.snapshot()["tables"]}


# -- one change ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MUT-01")
def test_a_mutation_is_one_commit_of_each_table_and_one_of_the_graph(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann"))
    disk = forge(graph.uri)
    keys = ("node:Person", "edge:Knows")
    before = {key: disk.pin(key) for key in keys}
    rest = {key: version for key, version in versions(graph).items() if key not in keys}
    commits = len(graph.handle.commits())

    graph.mutate(
        insert("Person", name="eve", age=1),
        insert_edge("Knows", "eve", "ann"),
        update("Person", where("age", 1, "ge"), age=5),
        insert("Person", name="ann", age=6),
        insert("Person", name="fay"),
        insert_edge("Knows", "fay", "eve"),
    )

    with proving("MUT-01"):
        for key in keys:
            assert data_commits(disk, key, before[key]) == 1, f"the changes of {key} must be one commit of it"
        assert len(graph.handle.commits()) == commits + 1
        assert {key: versions(graph)[key] for key in rest} == rest, "tables that no statement names stay"


@pytest.mark.requirement("MUT-03")
def test_deletes_beside_inserts_or_updates_are_a_bad_request_before_anything_is_read(
    judged: Judged, forge: ForgeOf
) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = forge(graph.uri).listing()
    gone = delete("Person", where("name", "bob"))

    with proving("MUT-03"):
        for mixed in (
            (insert("Person", name="dan"), gone),
            (gone, insert("Person", name="dan")),
            (update("Person", where("name", "ann"), age=1), gone),
            (insert_edge("Knows", "ann", "bob"), delete_edge("Knows", where("from", "ann"))),
            (insert("Company", name="b"), delete("Person", where("name", "nobody"))),
        ):
            refused("bad_request", partial(graph.mutate, *mixed), "a mixed mutation")
        # It is known from the statements alone: not even the branch has been looked up.
        elsewhere = partial(graph.handle.mutate, insert("Person", name="dan"), gone, branch="nowhere")
        refused("bad_request", elsewhere, "a mixed mutation of a branch that there is not")
        assert forge(graph.uri).listing() == before


@pytest.mark.requirement("MUT-04")
def test_each_statement_sees_what_those_before_it_wrote(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("MUT-04"):
        graph.mutate(  # As an endpoint, in a predicate, and again after it was changed.
            insert("Person", name="dan", age=1),
            insert_edge("Knows", "dan", "ann"),
            update("Person", where("age", 1), age=2),
            update("Person", where("age", 2), age=3, email="dan@x"),
            update("Person", where("age", 1), age=100),
            insert_edge("Knows", "ann", "dan"),
        )
        assert graph.handle.row("node:Person", "dan") == {
            "id": "dan",
            "name": "dan",
            "age": 3,
            "email": "dan@x",
        }
        graph.mutate(  # A committed row that no longer matches is not found by its old value.
            update("Person", where("name", "bob"), age=77), update("Person", where("age", 31), email="old@x")
        )
        answer = graph.mutate(update("Person", where("age", 77), age=None), update("Person", where("age", 77), age=1))
        assert answer["affected_nodes"] == 1


@pytest.mark.requirement("MUT-05")
def test_a_failing_statement_leaves_everything_as_it_was(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)
    disk = forge(graph.uri)
    before = {key: disk.head(key) for key in versions(graph)}
    good = insert("Person", name="dan"), insert_edge("Knows", "dan", "ann")

    with proving("MUT-05"):
        for bad in (
            insert("Person", name="eve", age="old"),
            insert("Person", age=1),
            insert("Robot", name="r2"),
            insert_edge("Knows", "dan", "nobody"),
            insert_edge("Hates", "dan", "ann"),
            insert("Person", name="eve", email="ann@x"),
            update("Person", where("size", 1), age=1),
            update("Person", where("name", "ann"), size=1),
        ):
            refused("bad_request", partial(graph.mutate, *good, bad), f"{bad}")
        assert {key: disk.head(key) for key in before} == before, "no table has moved"
        assert disk.sidecars() == {}
        graph.mutate(*good)


@pytest.mark.requirement("MUT-07")
def test_several_writes_to_one_id_are_one_row_the_last(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("MUT-07"):
        graph.mutate(
            insert("Person", name="dan", age=1),
            insert("Person", name="eve", age=1),
            update("Person", where("name", "dan"), age=2, email="d@x"),
            update("Person", where("email", "d@x"), age=3, email=None),
            insert("Person", name="ann"),
            update("Person", where("name", "ann"), age=4),
        )
        found = {row["id"]: (row["age"], row["email"]) for row in graph.handle.read("node:Person")}
        assert found == {"ann": (4, None), "bob": (31, None), "cat": (None, None), "dan": (3, None), "eve": (1, None)}


@pytest.mark.requirement("MUT-07")
def test_a_row_may_be_updated_again_and_again(judged: Judged) -> None:
    """Found by its key each time, and what it was in between is no second row."""
    graph = judged(SOCIAL, PEOPLE)

    with proving("MUT-07"):
        graph.mutate(*(update("Person", where("name", "ann"), age=n) for n in range(4)))
        graph.mutate(insert("Person", name="dan"), *(update("Person", {"all": True}, age=n) for n in range(3)))


@pytest.mark.requirement("MUT-08")
def test_a_key_is_replaced_and_everything_else_is_new(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    notes = judged(KEYLESS)

    with proving("MUT-08"):
        graph.mutate(insert("Person", name="ann", age=1))
        assert graph.handle.row("node:Person", "ann") == {"id": "ann", "name": "ann", "age": 1, "email": None}
        graph.mutate(insert_edge("Knows", "ann", "bob", since=2020), insert_edge("Knows", "ann", "bob", since=2020))
        assert len(graph.handle.read("edge:Knows")) == 4, "an edge is never replaced by another of the same ends"
        notes.mutate(insert("Note", text="a"), insert("Note", text="a"), insert("Note", id="mine"))
        ids = [row["id"] for row in notes.handle.read("node:Note")]
        assert len(set(ids)) == 3
        fresh = [each for each in ids if each != "mine"]
        assert all(is_ulid(each) for each in fresh), f"fresh ids are ULIDs, and these are {fresh}"
        notes.mutate(insert_edge("Cites", fresh[0], "mine", id="c"), insert_edge("Cites", fresh[0], "mine"))
        made = [row["id"] for row in notes.handle.read("edge:Cites") if row["id"] != "c"]
        assert all(is_ulid(each) for each in made)


def is_ulid(text: str) -> bool:
    return len(text) == 26 and set(text) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


@pytest.mark.requirement("MUT-09")
def test_a_key_cannot_be_updated_not_even_to_itself_in_part(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    spots = judged("node Spot { a: String\n b: I32\n c: I32?\n @key(a, b) }").handle
    spots.load(lines(node("Spot", a="x", b=1)))  # What id this makes is asked elsewhere.
    before = spots.export()

    with proving("MUT-09"):
        rename = update("Person", where("name", "ann"), name="anna")
        refused("bad_request", partial(graph.mutate, rename), "an update of a key")
        both = update("Person", where("name", "ann"), age=1, name="anna")
        refused("bad_request", partial(graph.mutate, both), "an update of a key beside another property")
        for change in ({"a": "y"}, {"b": 2}, {"b": 2, "c": 3}):
            refused("bad_request", partial(spots.mutate, update("Spot", {"all": True}, **change)), f"{change}")
        assert spots.export() == before
        refused("bad_request", partial(graph.mutate, update("Person", where("name", "ann"), id="anna")), "of an id")
        refused("bad_request", partial(graph.mutate, update("Knows", where("id", "k1"), since=1)), "of an edge")


@pytest.mark.requirement("MUT-10")
def test_the_answer_counts_what_was_affected(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, PEOPLE)

    def affected(*statements: dict[str, Any]) -> tuple[int, int, bool]:
        answer = graph.mutate(*statements)
        return answer["affected_nodes"], answer["affected_edges"], answer["commit"] is not None

    with proving("MUT-10"):
        assert affected(insert("Person", name="dan"), insert_edge("Knows", "dan", "ann")) == (1, 1, True)
        assert affected(update("Person", {"all": True}, age=1)) == (4, 0, True)
        before = forge(graph.uri).listing()
        assert affected(update("Person", where("name", "nobody"), age=1)) == (0, 0, False)
        assert affected(update("Person", where("email", None), age=1)) == (0, 0, False)
        assert affected(delete("Company", where("name", "nobody"))) == (0, 0, False)
        assert forge(graph.uri).listing() == before, "what affects nothing writes nothing"
        assert affected(delete_edge("Knows", where("from", "ann"))) == (0, 1, True)


@pytest.mark.requirement("MUT-11")
def test_overlapping_deletes_count_each_row_once_and_leave_rows_with_nulls(judged: Judged) -> None:
    rows = [person(f"p{n}", age=n) for n in range(5)] + [person("null"), person("null too", email="n@x")]
    graph = judged(SOCIAL, [*rows, edge("Knows", "p0", "null"), edge("Knows", "null", "p4")])

    with proving("MUT-11"):
        answer = graph.mutate(
            delete("Person", where("age", 2, "le")),
            delete("Person", where("age", 1, "ge")),
            delete("Person", where("name", "p2")),
            delete("Person", where("email", "nobody", "ne")),
        )
        assert (answer["affected_nodes"], answer["affected_edges"]) == (6, 2)
        assert [row["id"] for row in graph.handle.read("node:Person")] == ["null"]


@pytest.mark.requirement("MUT-11")
@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        (where("age", 1, "ne"), ["null", "one"]),
        ({"not": where("age", 1)}, ["null", "one"]),
        ({"not": {"property": "age", "op": "is_null"}}, ["null"]),
        ({"or": [where("age", 1), where("email", "x", "ne")]}, ["null", "two"]),
        ({"and": [where("age", 0, "gt"), {"not": where("email", "x")}]}, ["null", "one", "two"]),
        ({"not": {"and": [where("age", 5, "gt"), where("name", "nobody")]}}, []),
        (where("age", [1, None], "in"), ["null", "two"]),
        ({"not": where("age", [1, None], "in")}, ["null", "one", "two"]),
        (where("age", None, "ne"), ["null", "one", "two"]),
    ],
    ids=["ne", "not eq", "not null", "or", "and not", "not both", "in with null", "not in with null", "ne null"],
)
def test_an_unknown_truth_is_not_true(judged: Judged, predicate: dict[str, Any], left: list[str]) -> None:
    graph = judged(SOCIAL, [person("null"), person("one", age=1), person("two", age=2)])

    with proving("MUT-11"):
        graph.mutate(delete("Person", predicate))
        assert [row["id"] for row in graph.handle.read("node:Person")] == left


@pytest.mark.requirement("MUT-12")
def test_predicates_know_the_ends_of_edges_and_the_case_of_names(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    schema = "node User { name: String @key\n userName: I32?\n username: I32?\n uSERname: I32? }"
    users = judged(
        schema, [node("User", name="a", userName=1, username=2, uSERname=3), node("User", name="b", username=1)]
    )

    with proving("MUT-12"):
        assert graph.mutate(delete_edge("Knows", where("from", "ann")))["affected_edges"] == 1
        assert graph.mutate(delete_edge("Knows", where("to", "cat")))["affected_edges"] == 1
        assert users.mutate(update("User", where("userName", 1), uSERname=4))["affected_nodes"] == 1
        assert users.mutate(update("User", where("username", 1), userName=5))["affected_nodes"] == 1
        assert users.mutate(delete("User", where("uSERname", 4)))["affected_nodes"] == 1
        refused("bad_request", partial(users.mutate, delete("User", where("USERNAME", 1))), "a name in another case")


@pytest.mark.requirement("MUT-13")
def test_updates_beside_inserts_lose_no_blob(judged: Judged) -> None:
    """Refusing to do both at once is allowed, and losing a blob is not."""
    rows = [node("Thing", name=f"old {n}", photo="base64:AAEC", text="old") for n in range(3)]
    handle = judged(
        EVERYTHING, [*rows, node("Thing", name="empty", photo="base64:"), node("Thing", name="none")]
    ).handle
    before = handle.export()
    meant = {"empty": "base64:", "none": None, "new": "base64:BAUG", "old 0": "base64:Bwg=", "old 1": None}

    with proving("MUT-13"):
        try:
            handle.mutate(
                insert("Thing", name="new", photo="base64:BAUG"),
                insert("Thing", name="old 0", photo="base64:Bwg="),
                update("Thing", {"all": True}, text="all"),
                update("Thing", where("name", "old 1"), photo=None),
            )
        except EngineError as error:
            assert error.kind == "bad_request", f"a refusal of it must be a bad request, and was {error}"
            assert handle.export() == before
        else:
            found = [json.loads(each)["data"] for each in handle.export().splitlines()]
            assert {each["name"]: each["photo"] for each in found} == {**meant, "old 2": "base64:AAEC"}
            assert {each["text"] for each in found} == {"all"}
        handle.mutate(update("Thing", where("name", "old 2"), text="alone"))
        again = [json.loads(each)["data"] for each in handle.export().splitlines()]
        assert {"name": "old 2", "photo": "base64:AAEC"}.items() <= next(
            e for e in again if e["text"] == "alone"
        ).items()


@pytest.mark.requirement("MUT-14", "VAL-16")
def test_now_is_one_moment_for_a_whole_mutation(judged: Judged) -> None:
    handle = judged(MOMENTS, [node("Thing", name="old", moment="2000-01-01T00:00:00Z")]).handle
    now = {"now": True}

    with proving("MUT-14"):
        handle.mutate(
            *(insert("Thing", name=f"new {n}", moment=now) for n in range(40)),
            update("Thing", where("name", "old"), moment=now),
        )
        found = [json.loads(each)["data"] for each in handle.export().splitlines()]
        assert len({each["moment"] for each in found}) == 1, "all rows have one moment"
        moment = datetime.fromisoformat(found[0]["moment"]).replace(tzinfo=UTC)
        assert abs(datetime.now(UTC) - moment) < timedelta(days=1), "it is the time of the mutation"
    with proving("VAL-16"):
        handle.mutate(
            *(insert("Thing", name=f"later {n}", moment=now) for n in range(40)),
            update("Thing", where("moment", now), text="same moment"),
        )
    with proving("MUT-14"):
        later = [row for row in handle.read("node:Thing") if row["name"].startswith("later")]
        assert {each["text"] for each in later} == {"same moment"}, "and a predicate means it too"
