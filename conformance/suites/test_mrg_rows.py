"""MRG: which rows conflict, by typed value, and that the merged state is held to every rule of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import lance
import pyarrow as pa
import pytest

from conformance.judge import JudgedGraph, proving
from conformance.judge.compare import conflicts_of
from conformance.runner.plugin import ForgeOf, Judged
from conformance.suites.graphs import (
    EVERYTHING,
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
from conformance.suites.refusals import refused
from fixtures.forge import Forge

Found = set[tuple[str, str, str]]


def conflicts(graph: JudgedGraph, source: str = "b", target: str = "main") -> Found:
    """What a merge is refused with; the model has agreed to all of it, and that nothing changed."""
    error = refused("conflict", lambda: graph.merge(source, target), "a merge with conflicts")
    return set(conflicts_of(error.details))


# -- rows that both sides changed --------------------------------------------------------------------------------------


@pytest.mark.requirement("MRG-02")
def test_all_conflicting_rows_of_all_tables_are_listed(judged: Judged) -> None:
    graph = judged(SOCIAL, [*PEOPLE, person("d'oh"), person("eve"), person("fay")])
    graph.branch_create("b")
    for branch, age in (("b", 1), ("main", 2)):
        graph.mutate(
            insert("Person", name="both", age=age),
            update("Person", where("name", "bob"), age=age),
            insert("Company", name=f"only-{branch}"),
            branch=branch,
        )
        graph.load([edge("Knows", "ann", "cat" if age == 1 else "bob", id="k1", since=age)], branch=branch)
    graph.mutate(delete("Person", where("name", "eve")), branch="b")
    graph.mutate(update("Person", where("name", "eve"), age=5))
    graph.mutate(update("Person", where("name", "d'oh"), age=5), branch="b")
    graph.mutate(delete("Person", where("name", "d'oh")))
    commits = len(graph.handle.commits())

    with proving("MRG-02"):
        assert conflicts(graph) == {
            ("node:Person", "both", "DivergentInsert"),
            ("node:Person", "bob", "DivergentUpdate"),
            ("node:Person", "eve", "DeleteVsUpdate"),
            ("node:Person", "d'oh", "DeleteVsUpdate"),
            ("edge:Knows", "k1", "DivergentUpdate"),
        }
        assert len(graph.handle.commits()) == commits, "nothing is published"


@pytest.mark.requirement("MRG-02")
def test_equal_changes_of_both_sides_and_changes_taken_back_are_no_conflict(judged: Judged) -> None:
    graph = judged(SOCIAL, PEOPLE)
    graph.branch_create("b")
    for branch in ("b", "main"):
        graph.mutate(insert("Person", name="both", age=1), branch=branch)
        graph.mutate(update("Person", where("name", "bob"), age=77), branch=branch)
        graph.mutate(delete_edge("Knows", where("from", "ann")), branch=branch)
    graph.mutate(update("Person", where("name", "cat"), age=1), branch="b")
    graph.mutate(update("Person", where("name", "cat"), age=None), branch="b")
    graph.mutate(update("Person", where("name", "cat"), age=9))

    with proving("MRG-02"):
        assert graph.merge("b")["outcome"] == "merged"
        assert graph.handle.row("node:Person", "cat")["age"] == 9, "a change that was taken back is none"  # type: ignore[index]


@pytest.mark.requirement("MRG-02")
def test_a_row_removed_and_made_anew_is_a_changed_row(judged: Judged) -> None:
    graph = judged(SOCIAL, [person("ann", age=1), person("bob", age=1), person("cat", age=1)])
    graph.branch_create("b")
    for name in ("ann", "bob", "cat"):
        graph.mutate(delete("Person", where("name", name)), branch="b")
    graph.mutate(insert("Person", name="ann", age=2), insert("Person", name="bob", age=1), branch="b")
    graph.mutate(update("Person", where("name", "ann"), age=3), update("Person", where("name", "bob"), age=3))

    with proving("MRG-02"):
        assert conflicts(graph) == {("node:Person", "ann", "DivergentUpdate")}, "bob is as he was, cat is gone"


# -- typed values ------------------------------------------------------------------------------------------------------

UNIT: Final = "\u001f"
# Two values of a property that are not the same, however similar they look as text.
PAIRS: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("text", None, ""),
    ("text", None, "null"),
    ("text", "", " "),
    ("text", "a", "A"),
    ("text", "e\u0301", "\u00e9"),
    ("text", "a", f"a{UNIT}"),
    ("text", "1", f"1{UNIT}1"),
    ("tags", ["a", "b"], ["a, b"]),
    ("tags", ["a", "b"], ["a,b"]),
    ("tags", ["a", "b"], [f"a{UNIT}b"]),
    ("tags", ["a", "b"], ["b", "a"]),
    ("tags", [], None),
    ("tags", [], [None]),
    ("tags", [], [""]),
    ("tags", [None], ["null"]),
    ("tags", ['a", "b'], ["a", "b"]),
    ("numbers", [1, 2], [12]),
    ("numbers", [0], [None]),
    ("flag", False, None),
    ("small", 0, None),
    ("large", 2**53, 2**53 + 1),
    ("huge", 2**64 - 1, 2**64 - 2),
    ("double", 0.0, -0.0),
    ("double", 0.1, 0.10000000000000002),
    ("double", 1e300, 1.0000000000000001e301),
    ("single", 0.1, 0.10000001),
    ("single", 0.0, -0.0),
    ("day", 0, None),
    ("moment", "2026-01-02T03:04:05", "2026-01-02T03:04:05.001"),
    ("face", [0.0, 0.0, 0.0], None),
    ("face", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0000002]),
    ("photo", "base64:AAAA", "base64:AAAB"),
    ("photo", "base64:", None),
    ("photo", "base64:QQ==", "s3://pictures/a"),
    ("photo", "s3://pictures/a", "s3://pictures/b"),
)
# One value, written in two ways.
SPELLINGS: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("double", 1, 1.0),
    ("double", 100.0, 1e2),
    ("single", 0.1, 0.10000000149011612),
    ("day", "2020-01-01", 18262),
    ("moment", "2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00"),
    ("moment", "2026-01-02T03:04:05", 1767323045000),
    ("photo", "base64:AAAA", "base64:AAAA"),
    ("text", "\u00e9", "\u00e9"),
)


def things(values: Mapping[str, tuple[str, Any]]) -> list[dict[str, Any]]:
    return [node("Thing", name=name, **{column: value}) for name, (column, value) in values.items()]


def numbered(pairs: tuple[tuple[str, Any, Any], ...], side: int) -> dict[str, tuple[str, Any]]:
    return {f"{number:02}-{pair[0]}": (pair[0], pair[side]) for number, pair in enumerate(pairs)}


@pytest.mark.requirement("MRG-13")
@pytest.mark.parametrize(("older", "newer"), [(1, 2), (2, 1)], ids=["there", "back"])
def test_a_change_of_a_value_into_a_similar_one_is_merged(judged: Judged, older: int, newer: int) -> None:
    graph = judged(EVERYTHING, [*things(numbered(PAIRS, older)), node("Thing", name="other")])
    graph.branch_create("b")
    graph.load(things(numbered(PAIRS, newer)), branch="b")
    graph.mutate(update("Thing", where("name", "other"), small=1))

    with proving("MRG-13"):
        graph.merge("b")
        merged, meant = graph.handle.read("node:Thing"), graph.handle.read("node:Thing", "b")
        assert [row for row in merged if row["id"] != "other"] == [row for row in meant if row["id"] != "other"]


@pytest.mark.requirement("MRG-13")
def test_similar_values_on_both_sides_conflict(judged: Judged) -> None:
    graph = judged(EVERYTHING)
    graph.branch_create("b")
    graph.load(things(numbered(PAIRS, 1)), branch="b")
    graph.load(things(numbered(PAIRS, 2)))

    with proving("MRG-13"):
        assert conflicts(graph) == {("node:Thing", name, "DivergentInsert") for name in numbered(PAIRS, 1)}


@pytest.mark.requirement("MRG-13")
def test_one_value_in_two_spellings_does_not_conflict(judged: Judged) -> None:
    graph = judged(EVERYTHING, things({name: (column, None) for name, (column, _) in numbered(SPELLINGS, 1).items()}))
    graph.branch_create("b")
    graph.load(things(numbered(SPELLINGS, 1)), branch="b")
    graph.load(things(numbered(SPELLINGS, 2)))

    with proving("MRG-13"):
        assert graph.merge("b")["outcome"] == "merged"


@pytest.mark.requirement("MRG-13")
def test_every_property_takes_part_whatever_its_name_and_its_neighbour(judged: Judged) -> None:
    """Text that wanders from one column to the next, and names that look like a system's own or like each other."""
    graph = judged(
        """
        node Pair {
          name: String @key
          p1: String?
          p2: String?
          _row_color: String?
          noteA: String?
          notea: String?
        }
        """,
        [
            node("Pair", name="wanders", p1=f"p{UNIT}q", p2="r"),
            node("Pair", name="moves", p1="x", p2=None),
            node("Pair", name="system", _row_color="red"),
            node("Pair", name="cased", noteA="1", notea="2"),
            node("Pair", name="other"),
        ],
    )
    graph.branch_create("b")
    changed = [
        node("Pair", name="wanders", p1="p", p2=f"q{UNIT}r"),
        node("Pair", name="moves", p1=None, p2="x"),
        node("Pair", name="system", _row_color="blue"),
        node("Pair", name="cased", noteA="2", notea="1"),
    ]
    graph.load(changed, branch="b")
    graph.mutate(update("Pair", where("name", "other"), p1="z"))

    with proving("MRG-13"):
        graph.merge("b")
        found = {row["id"]: row for row in graph.handle.read("node:Pair")}
        for record in changed:
            for name, value in record["data"].items():
                assert found[record["data"]["name"]][name] == value


@pytest.mark.requirement("MRG-13")
def test_a_blob_is_its_content_and_a_reference_stays_a_reference(judged: Judged) -> None:
    """Blobs of one length in files of their own: what tells them apart is neither a place in a file nor a size."""
    graph = judged(EVERYTHING, [node("Thing", name=name, photo="base64:AAAA") for name in ("a", "b", "c")])
    graph.branch_create("b")
    graph.load([node("Thing", name=name, photo="base64:AAAA") for name in ("a", "b", "c")], "overwrite")
    graph.load([node("Thing", name=name, photo="base64:BBBB") for name in ("a", "b")], branch="b")
    graph.load([node("Thing", name="link", photo="s3://pictures/a")], branch="b")
    graph.mutate(update("Thing", where("name", "c"), small=1))

    with proving("MRG-13"):
        assert graph.merge("b")["outcome"] == "merged", "rewriting a blob with its own content is no change"
        found = {row["id"]: row["photo"] for row in graph.handle.read("node:Thing")}
        assert found == {
            "a": "base64:BBBB",
            "b": "base64:BBBB",
            "c": "base64:AAAA",
            "link": "s3://pictures/a",
        }
    graph.merge("main", "b")
    graph.load([node("Thing", name="c", photo="base64:CCCC")], branch="b")
    graph.load([node("Thing", name="c", photo="base64:DDDD")])
    with proving("MRG-13"):
        assert conflicts(graph) == {("node:Thing", "c", "DivergentUpdate")}


# -- the rules of the schema on the merged state -----------------------------------------------------------------------

RULES: Final = """
node Person {
  name: String @key
  email: String? @unique
  first: String?
  last: String?
  age: I32?
  mood: enum(calm, busy)?
  code: String?
  @unique(first, last)
  @range(age, 0..150)
  @check(code, "^[A-Z]+$")
}
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company @card(1..2)
"""
STAFF: Final = (
    *(person(name) for name in ("ann", "bob", "cat")),
    *(node("Company", name=name) for name in ("acme", "beta", "corp", "dyne")),
    edge("WorksAt", "ann", "acme", id="w1"),
    edge("WorksAt", "bob", "dyne", id="w2"),
    edge("WorksAt", "bob", "beta", id="w3"),
)
Statements = tuple[dict[str, Any], ...]
# What the branch does, what main does, and what the merge of both is refused with.
VIOLATIONS: Final[Mapping[str, tuple[Statements, Statements, Found]]] = {
    "an edge to a node that main removed": (
        (insert_edge("Knows", "ann", "cat", id="k"),),
        (delete("Person", where("name", "cat")),),
        {("edge:Knows", "k", "OrphanEdge")},
    ),
    "edges from and to a node that the branch removed": (
        (delete("Person", where("name", "cat")),),
        (insert_edge("Knows", "ann", "cat", id="k1"), insert_edge("Knows", "cat", "ann", id="k2")),
        {("edge:Knows", "k1", "OrphanEdge"), ("edge:Knows", "k2", "OrphanEdge")},
    ),
    "too many edges of one source": (
        (insert_edge("WorksAt", "ann", "beta", id="w4"),),
        (insert_edge("WorksAt", "ann", "corp", id="w5"),),
        {("edge:WorksAt", "", "CardinalityViolation")},
    ),
    "too few edges of one source": (
        (delete_edge("WorksAt", where("to", "dyne")),),
        (delete_edge("WorksAt", where("to", "beta")),),
        {("edge:WorksAt", "", "CardinalityViolation")},
    ),
}


@pytest.mark.requirement("MRG-03")
@pytest.mark.parametrize("case", VIOLATIONS)
def test_what_each_side_may_do_alone_is_refused_together(judged: Judged, case: str) -> None:
    source, target, meant = VIOLATIONS[case]
    graph = judged(RULES, STAFF)
    graph.branch_create("b")
    graph.mutate(*source, branch="b")
    graph.mutate(*target)

    with proving("MRG-03"):
        assert conflicts(graph) == meant
        assert conflicts(graph, "main", "b") == meant, "in the other direction too"


@pytest.mark.requirement("MRG-03")
def test_a_unique_value_that_both_sides_gave_away_is_a_conflict(judged: Judged) -> None:
    graph = judged(RULES, [person("ann"), person("bob"), person("cat", first="a", last="b")])
    graph.branch_create("b")
    graph.mutate(update("Person", where("name", "ann"), email="x"), branch="b")
    graph.mutate(insert("Person", name="new", email="x"))

    with proving("MRG-03"):
        assert {(table, kind) for table, _, kind in conflicts(graph)} == {("node:Person", "UniqueViolation")}
    graph.mutate(update("Person", where("name", "ann"), email=None, first="a", last="c"), branch="b")
    graph.mutate(update("Person", where("name", "bob"), first="a", last="c"))
    with proving("MRG-03"):
        assert {(table, kind) for table, _, kind in conflicts(graph)} == {("node:Person", "UniqueViolation")}
    graph.mutate(update("Person", where("name", "ann"), first="c", last="b"), branch="b")
    assert graph.merge("b")["outcome"] == "merged"


@pytest.mark.requirement("MRG-03")
def test_a_unique_value_that_was_freed_may_be_given_to_another_row(judged: Judged) -> None:
    graph = judged(RULES, [person("ann", email="x"), person("bob", email="y"), person("cat")])
    graph.branch_create("b")
    graph.mutate(update("Person", where("name", "ann"), email="z"), branch="b")
    graph.mutate(update("Person", where("name", "cat"), email="x"), branch="b")
    graph.mutate(delete("Person", where("name", "bob")))
    graph.mutate(insert("Person", name="dan", email="y"))

    with proving("MRG-03"):
        assert graph.merge("b")["outcome"] == "merged"


FORGED: Final[Mapping[str, tuple[str, Mapping[str, Any], str]]] = {
    "range": ("node:Person", {"id": "bad", "name": "bad", "age": 151}, "ValueConstraintViolation"),
    "enum": ("node:Person", {"id": "bad", "name": "bad", "mood": "angry"}, "ValueConstraintViolation"),
    "check": ("node:Person", {"id": "bad", "name": "bad", "code": "a"}, "ValueConstraintViolation"),
    "orphan": ("edge:Knows", {"id": "bad", "src": "ann", "dst": "nobody"}, "OrphanEdge"),
}


def forge_row(disk: Forge, table_key: str, row: Mapping[str, Any], branch: str) -> None:
    """A row that no write would have let through, as if an engine of other rules had written the branch."""

    def append(handle: lance.LanceDataset) -> None:
        lance.write_dataset(pa.Table.from_pylist([dict(row)], schema=handle.schema), handle, mode="append")

    disk.amend(table_key, append, branch)


@pytest.mark.requirement("MRG-03")
@pytest.mark.parametrize("main_moved", [False, True], ids=["fast_forward", "merged"])
@pytest.mark.parametrize("rule", FORGED)
def test_rows_of_a_branch_that_break_a_rule_do_not_get_into_main(
    judged: Judged, forge: ForgeOf, rule: str, main_moved: bool
) -> None:
    """Also where the branch could simply be adopted: what was valid there need not be so here."""
    table_key, row, kind = FORGED[rule]
    graph = judged(RULES, [person("ann"), person("bob")])
    graph.audited = False
    graph.branch_create("b")
    graph.mutate(insert("Person", name="dan"), insert_edge("Knows", "ann", "bob", id="k"), branch="b")
    if main_moved:
        graph.mutate(insert("Person", name="eve"), insert_edge("Knows", "bob", "ann", id="l"))
    forge_row(forge(graph.uri), table_key, row, "b")
    handle = graph.engine.open(graph.uri)
    before = handle.export()

    with proving("MRG-03"):
        error = refused("conflict", lambda: handle.merge("b", "main"), f"a row that breaks the rule {rule}")
        assert {(table, kind) for table, _, kind in conflicts_of(error.details)} == {(table_key, kind)}
        assert handle.export() == before
