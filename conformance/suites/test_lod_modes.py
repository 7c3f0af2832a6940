"""LOD: what each mode of a load makes of the rows that are there, and of the branch that it goes to.

A merge replaces whole rows, an overwrite whole tables, and either is validated as the state that it would make: rows
that an overwrite drops are deleted, with all that follows from it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from conformance.judge import JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import PEOPLE, SOCIAL, edge, insert_edge, lines, node, person
from conformance.suites.refusals import refused

MODES: Final = ("append", "merge", "overwrite")
FLEET: Final = """
node Car { name: String @key }
node Wheel { name: String @key }
edge Has: Car -> Wheel @card(1..2)
"""
CARS: Final = (*(node("Car", name=name) for name in "ab"), *(node("Wheel", name=name) for name in "xyz"))


def versions(graph: JudgedGraph) -> dict[str, int]:
    return {each["table_key"]: each["table_version"] for each in graph.handle.snapshot()["tables"]}


@pytest.mark.requirement("LOD-08")
def test_a_merge_replaces_rows_entirely_and_adds_the_others(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("LOD-08"):
        graph.load([person("ann"), person("dan", age=4), edge("Knows", "cat", "dan", id="k1")], "merge")
        assert graph.handle.row("node:Person", "ann") == {"id": "ann", "name": "ann", "age": None, "email": None}
        assert graph.handle.row("edge:Knows", "k1") == {"id": "k1", "src": "cat", "dst": "dan", "since": None}
        assert len(graph.handle.read("node:Person")) == 4
        graph.load([person("ann", age=7)], "merge")
        graph.load([edge("Knows", "ann", "bob"), edge("Knows", "ann", "bob")], "merge")
        assert len(graph.handle.read("edge:Knows")) == 4, "edges without an id are new, each of them"


@pytest.mark.requirement("LOD-09")
def test_an_overwrite_replaces_the_tables_that_it_names_and_no_other(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    before = versions(graph)

    with proving("LOD-09"):
        graph.load([edge("Knows", "cat", "ann", id="only")], "overwrite")
        after = versions(graph)
        assert {key for key in before if after[key] != before[key]} == {"edge:Knows"}
        assert [row["id"] for row in graph.handle.read("edge:Knows")] == ["only"]
        graph.load([person("ann"), person("cat", age=1), person("new")], "overwrite")
        assert [row["id"] for row in graph.handle.read("node:Person")] == ["ann", "cat", "new"]
        assert len(graph.handle.read("edge:WorksAt")) == 1
        everything = [person("z"), node("Company", name="z"), edge("Knows", "z", "z"), edge("WorksAt", "z", "z")]
        graph.load(everything, "overwrite")
        assert {each["row_count"] for each in graph.handle.snapshot()["tables"]} == {1}


@pytest.mark.requirement("LOD-10")
def test_an_overwrite_cannot_drop_a_node_that_a_kept_edge_needs(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    people = [person("ann", email="ann@x"), person("bob")]

    with proving("LOD-10"):
        refused("bad_request", partial(graph.load, people, "overwrite"), "the target of a kept edge is dropped")
        refused("bad_request", partial(graph.load, [person("bob"), person("cat")], "overwrite"), "and the source")
        refused("bad_request", partial(graph.load, [node("Company", name="b")], "overwrite"), "of another type")
        refused("bad_request", partial(graph.load, [edge("Knows", "ann", "nobody")], "overwrite"), "a new loose end")
        dropped = [*people, edge("Knows", "ann", "cat")]
        refused("bad_request", partial(graph.load, dropped, "overwrite"), "an end that the load itself drops")
        graph.load([*people, edge("Knows", "bob", "ann", id="k9")], "overwrite")  # Both tables, and they fit.


@pytest.mark.requirement("LOD-10")
def test_an_overwrite_is_held_to_the_cardinalities_of_the_state_that_it_makes(judged: Judged) -> None:
    graph = judged(FLEET, [*CARS, *(edge("Has", name, "x", id=name) for name in "ab")])

    with proving("LOD-10"):
        emptied = [edge("Has", "a", "x", id="a")]
        refused("bad_request", partial(graph.load, emptied, "overwrite"), "a source that had edges has none")
        crowded = [edge("Has", "a", name) for name in "xyz"] + [edge("Has", "b", "x")]
        refused("bad_request", partial(graph.load, crowded, "overwrite"), "three of two")
        full = [edge("Has", "a", name, id=f"a{name}") for name in "yz"] + [edge("Has", "b", name) for name in "yz"]
        graph.load(full, "overwrite")  # Old and new edges are not added up.
        graph.load([node("Car", name="a"), edge("Has", "a", "x", id="a1")], "overwrite")  # The other car goes as well.


RULES_BROKEN: Final[dict[str, list[dict[str, Any]]]] = {
    "a loose end": [person("ann"), person("bob"), person("cat"), edge("Knows", "ann", "nobody")],
    "a value twice": [person("ann", email="e"), person("bob", email="e"), person("cat")],
    "a key twice": [person("ann"), person("bob"), person("cat"), person("ann")],
    "too many edges": [
        person("ann"),
        person("bob"),
        person("cat"),
        node("Company", name="acme"),
        *(edge("WorksAt", "ann", "acme") for _ in range(3)),
    ],
    "no key": [person("ann"), person("bob"), person("cat"), node("Person", age=1)],
    "an unknown type": [person("ann"), person("bob"), person("cat"), node("Robot", name="r")],
}


@pytest.mark.requirement("LOD-11", "LOD-14")
@pytest.mark.parametrize("mode", MODES)
def test_what_breaks_a_rule_is_refused_before_any_table_moves(judged: Judged, forge: ForgeOf, mode: str) -> None:
    graph = judged(SOCIAL, PEOPLE if mode != "append" else None)
    disk = forge(graph.uri)
    heads = {key: disk.head(key) for key in versions(graph)}

    with proving("LOD-11"):
        for what, records in RULES_BROKEN.items():
            refused("bad_request", partial(graph.handle.load, lines(*records), mode), f"{what} ({mode})")
        assert {key: disk.head(key) for key in heads} == heads, "no table has moved"
        assert disk.sidecars() == {}
        graph.compare("only refused loads", "LOD-11")
    with proving("LOD-14"):
        unfit = lines(person("ann"), person("bob"), person("cat", age="old"))
        refused("bad_request", partial(graph.handle.load, unfit, mode), f"a value that does not fit ({mode})")
    with proving("LOD-11"):
        assert {key: disk.head(key) for key in heads} == heads, "no table has moved"
        graph.load([person("ann"), person("bob"), person("cat")], mode)


# -- branches --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("LOD-12")
def test_a_load_makes_its_branch_if_it_is_told_from_where(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("LOD-12"):
        refused("not_found", partial(graph.load, [person("dan")], branch="feat"), "a load into a branch that is not")
        assert graph.handle.branch_list() == ["main"]
        answer = graph.load([person("dan")], "append", branch="feat/a", base="main")
        assert (answer["branch"], answer["base_branch"], answer["branch_created"]) == ("feat/a", "main", True)
        again = graph.load([person("eve")], "append", branch="feat/a", base="main")
        assert again["branch_created"] is False, "it was there already"
        third = graph.load([person("fay")], branch="b", base="feat/a")
        assert third["branch_created"] is True
        assert {row["id"] for row in graph.handle.read("node:Person", "b")} == {
            "ann",
            "bob",
            "cat",
            "dan",
            "eve",
            "fay",
        }
        plain = graph.load([person("gus")])
        assert (plain["branch"], plain["branch_created"]) == ("main", False)


@pytest.mark.requirement("LOD-12")
def test_a_branch_that_was_made_for_a_refused_load_stays(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("LOD-12"):
        bad = [person("dan"), edge("Knows", "dan", "nobody")]
        refused("bad_request", partial(graph.load, bad, branch="feat", base="main"), "a bad load into a new branch")
        assert set(graph.handle.branch_list()) == {"main", "feat"}
        refused("not_found", partial(graph.load, [person("x")], branch="other", base="nowhere"), "from no branch")
        graph.load([person("dan", age=1)], branch="feat")
        graph.mutate(insert_edge("Knows", "dan", "ann"), branch="feat")
