"""VAL: the rules of a schema hold for every row, whichever way it comes in.

A load in each of its modes, an insert, an update and a merge are held to the same rules over their whole change. A
write reports the first thing that is wrong, a merge everything. A refused write leaves nothing, which the judged graph
looks at after each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from conformance.judge import Engine, JudgedGraph, proving
from conformance.judge.compare import conflicts_of
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import (
    PEOPLE,
    SOCIAL,
    as_statement,
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

MODES: Final = ("append", "merge", "overwrite")

PAIRS: Final = """
node Pair { name: String @key
  left: String?
  right: String?
  @unique(left, right) }
"""


def refuse_record(graph: JudgedGraph, record: Mapping[str, Any], *, modes: tuple[str, ...] = MODES) -> None:
    """A record that must be refused by a load in each mode and by a mutation."""
    for mode in modes:
        refused("bad_request", partial(graph.load, [record], mode), f"a load ({mode}) of {record}")
    refused("bad_request", partial(graph.mutate, as_statement(record)), f"an insert of {record}")


# -- uniqueness ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("VAL-05")
def test_a_unique_group_compares_tuples_and_not_joined_text(judged: Judged) -> None:
    rows = [("a", "bc"), ("ab", "c"), ("a, b", "c"), ("a", "b, c"), ("", "x"), ("x", ""), ('a"', "b"), ("a|b", "c")]

    with proving("VAL-05"):
        graph = judged(PAIRS, [node("Pair", name=str(n), left=a, right=b) for n, (a, b) in enumerate(rows)])
        graph.mutate(*(insert("Pair", name=f"null {n}", left="a") for n in range(2)), insert("Pair", name="none"))
        graph.load([node("Pair", name=f"null {n}", right="c") for n in range(2, 4)])
        for left, right in (("a", "bc"), ("", "x")):
            refuse_record(graph, node("Pair", name="again", left=left, right=right), modes=("append", "merge"))
        refused(
            "bad_request",
            partial(graph.mutate, update("Pair", where("name", "null 0"), right="bc")),
            "an update that completes a pair that is taken",
        )


@pytest.mark.requirement("VAL-05")
@pytest.mark.parametrize("type_name", ["[String]", "Vector(2)", "Blob"])
def test_a_unique_property_of_a_type_that_cannot_be_a_key_is_refused(engine: Engine, root: str, type_name: str) -> None:
    """Either the schema is refused, or the first row that would have to be compared is."""
    value = {"[String]": ["a"], "Vector(2)": [1.0, 2.0], "Blob": "base64:AA=="}[type_name]
    schema = f"node Odd {{ name: String @key\n what: {type_name}? @unique }}"
    rows = [node("Odd", name="a", what=value), node("Odd", name="b", what=value)]

    def init_and_load() -> None:
        engine.init(root, schema)
        engine.open(root).load(lines(*rows))

    with proving("VAL-05"):
        refused("bad_request", init_and_load, f"@unique on {type_name}")


@pytest.mark.requirement("VAL-06", "VAL-02")
def test_two_rows_cannot_share_a_unique_value(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann", email="a@x"), person("bob", email="b@x"), person("cat")])
    taken = person("dan", email="a@x")

    with proving("VAL-06", "VAL-02"):
        refuse_record(graph, taken, modes=("append", "merge"))
        twins = [person("eve", email="new@x"), person("fay", email="new@x")]
        for mode in MODES:
            refused("bad_request", partial(graph.load, twins, mode), f"twins ({mode})")
        refused("bad_request", partial(graph.mutate, *map(as_statement, twins)), "twins in one mutation")
        for statement in (
            update("Person", where("name", "cat"), email="a@x"),
            update("Person", where("name", ["bob", "cat"], "in"), email="new@x"),
            update("Person", {"all": True}, email="b@x"),
        ):
            refused("bad_request", partial(graph.mutate, statement), f"{statement}")
        refused(
            "bad_request",
            partial(
                graph.mutate,
                insert("Person", name="gil", email="g@x"),
                update("Person", where("name", "cat"), email="g@x"),
            ),
            "a value that an earlier statement took",
        )


@pytest.mark.requirement("VAL-06")
def test_a_value_that_is_free_by_the_end_of_the_change_may_be_used(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann", email="a@x"), person("bob", email="b@x"), person("cat", email="c@x")])

    with proving("VAL-06"):
        graph.mutate(update("Person", where("name", "ann"), email=None), insert("Person", name="dan", email="a@x"))
        graph.mutate(  # Taken and given back within one mutation.
            insert("Person", name="eve", email="e@x"),
            update("Person", where("name", "eve"), email="e2@x"),
            insert("Person", name="fay", email="e@x"),
        )
        graph.load([person("bob", email="c@x"), person("cat", email="b@x")])  # A swap, both rows replaced.
        graph.mutate(update("Person", where("name", "bob"), email="c@x"))  # Its own value.
        graph.mutate(delete("Person", where("name", "cat")))
        graph.mutate(insert("Person", name="gus", email="b@x"))
        graph.load([person("hal", email="b@x"), person("ida", email="a@x")], "overwrite")


@pytest.mark.requirement("VAL-06")
def test_uniqueness_holds_on_edges_too(judged: Judged) -> None:
    schema = "node Town { name: String @key }\nedge Road: Town -> Town { number: I32? @unique }"
    graph = judged(schema, [node("Town", name="a"), node("Town", name="b"), edge("Road", "a", "b", id="r1", number=1)])

    with proving("VAL-06"):
        refuse_record(graph, edge("Road", "b", "a", id="r2", number=1), modes=("append", "merge"))
        twins = [edge("Road", "a", "a", id="r3", number=3), edge("Road", "b", "b", id="r4", number=3)]
        for mode in MODES:
            refused("bad_request", partial(graph.load, twins, mode), f"twin edges ({mode})")
        graph.load([edge("Road", "b", "a", id="r1", number=1), edge("Road", "a", "a", id="r5")])


@pytest.mark.requirement("VAL-07")
def test_inserting_a_key_again_replaces_its_row(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)

    with proving("VAL-07"):
        graph.mutate(insert("Person", name="ann", email="ann@x"))
        graph.load([person("ann", age=3, email="ann@x")], "merge")
        graph.mutate(insert("Person", name="ann"), insert("Person", name="ann", age=4))
        assert graph.handle.row("node:Person", "ann") == {"id": "ann", "name": "ann", "age": 4, "email": None}


# For each type: a value that is held, the same spelled as it may be, and the nearest other one.
MARKS: Final[dict[str, tuple[str, Any, Any, Any]]] = {
    "text": ("String", 'it\'s "x"\\', 'it\'s "x"\\', "its x"),
    "yes": ("Bool", True, True, False),
    "no": ("Bool", False, False, True),
    "small": ("I32", -2147483648, -2147483648, -2147483647),
    "large": ("I64", 9007199254740993, 9007199254740993, 9007199254740992),
    "natural": ("U32", 4294967295, 4294967295, 4294967294),
    "huge": ("U64", 18446744073709551615, 18446744073709551615, 18446744073709551614),
    "single": ("F32", 0.1, 0.1, 0.2),
    "double": ("F64", 0.1, 0.1, 0.10000000000000002),
    "day": ("Date", "1969-12-31", -1, "1970-01-01"),
    "moment": ("DateTime", "2026-01-02T03:04:05.678Z", "2026-01-02T05:04:05.678+02:00", "2026-01-02T03:04:05.679Z"),
    "mood": ("enum(a, b)", "a", "a", "b"),
}


@pytest.mark.requirement("VAL-08", "VAL-16")
def test_uniqueness_against_committed_rows_is_exact_for_every_type(judged: Judged) -> None:
    columns = "".join(f"\n  {name}: {type_name}? @unique" for name, (type_name, *_) in MARKS.items())
    held = {name: value for name, (_, value, _, _) in MARKS.items()}
    graph = judged(
        f"node Mark {{ name: String @key{columns} }}", [node("Mark", name="first", **held), node("Mark", name="null")]
    )

    with proving("VAL-08"):
        for name, (_, _, same, _) in MARKS.items():
            double = node("Mark", name="second", **{name: same})
            for mode in ("append", "merge"):
                refused("bad_request", partial(graph.handle.load, lines(double), mode), f"a second {name} ({mode})")
            refused("bad_request", partial(graph.handle.mutate, as_statement(double)), f"a second {name} (insert)")
            change = update("Mark", where("name", "null"), **{name: same})
            refused("bad_request", partial(graph.handle.mutate, change), f"a second {name} (update)")
        graph.compare("only refused writes", "VAL-08")
    with proving("VAL-16"):
        graph.mutate(insert("Mark", name="second", **{name: other for name, (_, _, _, other) in MARKS.items()}))
        graph.load([node("Mark", name="first", **{name: same for name, (_, _, same, _) in MARKS.items()})])


# -- edges -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("VAL-09", "VAL-02")
def test_both_ends_of_an_edge_must_be_nodes_of_their_types(judged: Judged) -> None:
    graph = judged(SOCIAL, [*PEOPLE, node("Company", name="bob inc")])

    with proving("VAL-09", "VAL-02"):
        for bad in (
            edge("Knows", "nobody", "ann"),
            edge("Knows", "ann", "nobody"),
            edge("Knows", "ann", "acme"),  # A company's id is no person's.
            edge("WorksAt", "bob inc", "acme"),
            edge("WorksAt", "bob", "ann"),
            edge("Knows", "", "ann"),
            edge("Knows", "Ann", "ann"),
            edge("Knows", "ann ", "ann"),
        ):
            refuse_record(graph, bad)
        refused(
            "bad_request", partial(graph.load, [edge("Knows", "ann", "bob"), edge("Knows", "bob", "zoe")]), "one of two"
        )


@pytest.mark.requirement("VAL-09")
def test_an_edge_may_end_at_a_node_of_the_same_change(judged: Judged) -> None:
    """In a load wherever it stands, in a mutation if it is there by then; a loop is an edge like any other."""
    graph = judged(SOCIAL)

    with proving("VAL-09"):
        graph.load([edge("Knows", "bob", "ann"), person("ann"), edge("Knows", "ann", "ann"), person("bob")], "append")
        graph.mutate(
            insert("Person", name="cat"), insert_edge("Knows", "cat", "cat"), insert_edge("Knows", "cat", "ann")
        )
        graph.load([person("cat"), person("dan"), edge("Knows", "dan", "cat")], "overwrite")


@pytest.mark.requirement("VAL-10")
def test_no_source_gets_more_edges_than_its_maximum(judged: Judged) -> None:
    graph = judged(SOCIAL, [*PEOPLE, *(node("Company", name=name) for name in ("b", "c", "d"))])

    with proving("VAL-10"):
        graph.mutate(insert_edge("WorksAt", "ann", "b", id="w2"))  # Two are allowed.
        refuse_record(graph, edge("WorksAt", "ann", "c"), modes=("append", "merge"))
        three = [edge("WorksAt", "bob", name) for name in ("b", "c", "d")]
        for mode in MODES:
            refused("bad_request", partial(graph.load, three, mode), f"three edges ({mode})")
        refused("bad_request", partial(graph.mutate, *map(as_statement, three)), "three edges in one mutation")
        graph.load([edge("WorksAt", "ann", "c", id="w2")])  # A replaced edge counts once.
        graph.load(
            [edge("WorksAt", "cat", "c", id="w2"), edge("WorksAt", "ann", "d", id="w3")]
        )  # One leaves, one comes.
        graph.mutate(insert_edge("WorksAt", "cat", "acme"))
        refused(
            "bad_request", partial(graph.load, [edge("WorksAt", "cat", "b", id="w3")]), "an edge moved to a full source"
        )


@pytest.mark.requirement("VAL-10", "DEL-04")
def test_a_source_with_edges_keeps_its_minimum(judged: Judged) -> None:
    schema = "node Car { name: String @key }\nnode Wheel { name: String @key }\nedge Has: Car -> Wheel @card(2..3)"
    wheels = [node("Wheel", name=f"w{n}") for n in range(5)]
    fitted = [
        edge("Has", car, f"w{n}", id=f"{car}{n}") for car, numbers in (("a", (0, 1)), ("b", (2, 3))) for n in numbers
    ]
    graph = judged(schema, [node("Car", name="a"), node("Car", name="b"), node("Car", name="none"), *wheels])

    with proving("VAL-10"):
        refuse_record(graph, edge("Has", "a", "w0"))
        graph.load(fitted[:2], "merge")
        graph.load(fitted[2:], "merge")
        moved = edge("Has", "b", "w0", id="a0")
        refused("bad_request", partial(graph.load, [moved]), "a move that leaves its old source with too few")
        graph.load(fitted, "overwrite")
    with proving("DEL-04"):
        refused("bad_request", partial(graph.mutate, delete_edge("Has", where("to", "w0"))), "the delete of one of two")
        refused("bad_request", partial(graph.mutate, delete("Wheel", where("name", "w0"))), "the delete of a wheel")
        refused("bad_request", partial(graph.mutate, delete_edge("Has", where("from", "a"))), "the delete of both")
        graph.mutate(insert_edge("Has", "a", "w4"))
        graph.mutate(delete_edge("Has", where("to", "w0")))
        graph.mutate(delete("Car", where("name", "a")))  # Nothing is asked of a source that goes as well.


@pytest.mark.requirement("VAL-11")
def test_cardinality_counts_edges_that_another_process_has_committed(judged: Judged, peers: Peers) -> None:
    """A handle that was warm before counts them too, on every surface."""
    graph = judged(SOCIAL, [*PEOPLE, *(node("Company", name=name) for name in ("b", "c"))])
    stale = graph.engine.open(graph.uri)
    assert len(stale.read("edge:WorksAt")) == 1
    graph.mutate(insert_edge("WorksAt", "ann", "b"), through=peers().open(graph.uri))

    with proving("VAL-11"):
        refused("bad_request", partial(graph.mutate, insert_edge("WorksAt", "ann", "c"), through=stale), "a third edge")
        refused("bad_request", partial(graph.load, [edge("WorksAt", "ann", "c")], through=stale), "a third edge (load)")


# -- merges ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("VAL-02", "VAL-11", "MRG-03")
def test_a_merge_is_held_to_the_same_rules_and_reports_every_violation(judged: Judged) -> None:
    """Each branch keeps the rules by itself; only the two together break them."""
    graph = judged(SOCIAL, [*PEOPLE, *(node("Company", name=name) for name in ("b", "c"))])
    graph.branch_create("feat")
    graph.load(
        [person("dan", email="d@x"), edge("Knows", "ann", "cat", id="k3"), edge("WorksAt", "ann", "b", id="w2")],
        branch="feat",
    )
    graph.load([person("eve", email="d@x"), edge("WorksAt", "ann", "c", id="w3")])
    graph.mutate(delete("Person", where("name", "cat")))

    with proving("VAL-02", "MRG-03"):
        error = refused("conflict", partial(graph.merge, "feat"), "the merge")
        found = {(table, kind) for table, _, kind in conflicts_of(error.details)}
        assert found == {
            ("node:Person", "UniqueViolation"),
            ("edge:Knows", "OrphanEdge"),
            ("edge:WorksAt", "CardinalityViolation"),
        }
    with proving("VAL-11"):
        kinds = [each["kind"] for each in error.details["conflicts"]]
        assert kinds.count("CardinalityViolation") == 1, "the edges of the target count, and one source has too many"


# -- schemas ---------------------------------------------------------------------------------------------------------

IMPOSSIBLE: Final[dict[str, tuple[str, str]]] = {
    "an edge from a type that there is not": ("VAL-13", "node A { k: String @key }\nedge E: B -> A"),
    "an edge to a type that there is not": ("VAL-13", "node A { k: String @key }\nedge E: A -> B"),
    "a node type twice": ("VAL-13", "node A { k: String @key }\nnode A { k: String @key }"),
    "an edge type twice": ("VAL-13", "node A { k: String @key }\nedge E: A -> A\nedge E: A -> A"),
    "edge names that differ in case": ("VAL-13", "node A { k: String @key }\nedge Ab: A -> A\nedge AB: A -> A"),
    "a minimum above its maximum": ("VAL-13", "node A { k: String @key }\nedge E: A -> A @card(2..1)"),
    "a pattern that is none": ("VAL-15", 'node A { k: String @key\n t: String?\n @check(t, "[a") }'),
    "an empty range": ("VAL-15", "node A { k: String @key\n n: I32?\n @range(n, 2..1) }"),
    "a range of nothing": ("VAL-15", "node A { k: String @key\n @range(n, 1..2) }"),
    "a pattern of nothing": ("VAL-15", 'node A { k: String @key\n @check(n, "a") }'),
    "a key of nothing": ("VAL-15", "node A { t: String?\n @key(k) }"),
    "a unique nothing": ("VAL-15", "node A { k: String @key\n @unique(k, n) }"),
}


@pytest.mark.requirement("VAL-13", "VAL-15")
@pytest.mark.parametrize("requirement", ["VAL-13", "VAL-15"])
def test_a_schema_that_nothing_can_keep_is_refused(
    judged: Judged, engine: Engine, root: str, forge: ForgeOf, requirement: str
) -> None:
    """At init, where it leaves nothing, and for a graph that is there, by plan and by apply."""
    graph = judged("node A { k: String @key\n n: I32?\n t: String? }", [node("A", k="a")])

    for what, schema in ((what, schema) for what, (broken, schema) in IMPOSSIBLE.items() if broken == requirement):
        with proving(requirement):
            refused("bad_request", partial(engine.init, root, schema), f"{what} (init)")
            assert forge(root).list() == [], f"{what}: a refused init leaves nothing"
            refused("bad_request", partial(graph.handle.schema_plan, schema), f"{what} (plan)")
            refused("bad_request", partial(graph.handle.schema_apply, schema), f"{what} (apply)")
    graph.compare("only refused schemas", requirement)
    graph.mutate(insert("A", k="b"))
