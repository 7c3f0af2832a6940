"""IDX: indexes are derived state. Which there are, what they cover and when they are built never changes an answer.

An engine may build indexes with every write or only when it is asked to, so no test here says what a table has before
`ensure_indices` or `optimize`, nor which version number it gets by them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from conformance.adapters import EngineError, Unsupported
from conformance.judge import Engine, JudgedGraph, proving
from conformance.runner.plugin import ForgeOf, Judged, Peers
from conformance.suites.graphs import SOCIAL, delete, edge, insert, insert_edge, node, person, update, where
from fixtures.forge import Forge

INDEXED: Final = """
node Doc {
  slug: String @key
  title: String? @index
  rank: I32? @index
  size: U64? @index
  weight: F64? @index
  day: Date? @index
  moment: DateTime? @index
  mood: enum(calm, busy)? @index
  flag: Bool?
  plain: I32?
  tags: [String]?
  face: Vector(3)? @index
  one: I32?
  two: I32?
  @index(one, two)
}
node Part {
  row: I32
  seat: I32
  @key(row, seat)
}
node Serial {
  number: I64 @key
}
node Empty {
  name: String @key
  rank: I32? @index
}
edge Cites: Doc -> Doc {
  weight: I32? @index
}
"""
BTREE: Final = "btree"
TEXT: Final = "inverted"
VECTOR: Final = "vector"


def doc(number: int, **more: Any) -> dict[str, Any]:
    values = {
        "title": f"title {number}",
        "rank": number % 4,
        "size": 2**53 + number,
        "weight": number / 2,
        "day": number,
        "moment": 1000 * number,
        "mood": ("calm", "busy")[number % 2],
        "flag": number % 2 == 0,
        "plain": number,
        "tags": ["x", str(number)],
        "one": 1,
        "two": number,
    }
    return node("Doc", slug=f"d{number}", **{**values, **more})


DOCS: Final = (
    *(doc(number) for number in range(8)),
    node("Part", row=1, seat=2),
    node("Serial", number=7),
    *(edge("Cites", f"d{number}", f"d{number + 1}", id=f"c{number}", weight=number) for number in range(5)),
)


def indexed(disk: Forge, table_key: str, branch: str | None = None) -> dict[tuple[str, ...], str]:
    """The indexes of a table, by their columns: a B-tree, a full-text index, or what else there is for vectors."""
    kinds = {"btree": BTREE, "inverted": TEXT}
    found = disk.indices(table_key, branch)
    return {index.columns: kinds.get(index.kind.lower(), VECTOR) for index in found}


def coverage(disk: Forge, table_key: str) -> set[int]:
    return {index.rows_indexed for index in disk.indices(table_key)}


SEARCHED: Final = """
node Doc {
  slug: String @key
  title: String? @index
  rank: I32? @index
  day: Date? @index
  plain: I32?
}
edge Cites: Doc -> Doc
"""


def page(number: int, **more: Any) -> dict[str, Any]:
    return node("Doc", slug=f"d{number}", **{"title": f"title {number}", "rank": number % 4, "day": number, **more})


PAGES: Final = (
    *(page(number) for number in range(8)),
    *(edge("Cites", f"d{number}", f"d{number + 1}", id=f"c{number}") for number in range(5)),
)


# -- which indexes there are -------------------------------------------------------------------------------------------


@pytest.mark.requirement("IDX-02", "IDX-03", "IDX-04", "IDX-05")
def test_the_schema_says_which_columns_are_indexed_and_how(judged: Judged, engine: Engine, forge: ForgeOf) -> None:
    engine.require("ensure_indices")
    graph = judged(INDEXED, DOCS)
    disk = forge(graph.uri)

    pending = graph.ensure_indices()

    with proving("IDX-02"):
        trees = ("id", "rank", "size", "weight", "day", "moment", "mood")
        assert indexed(disk, "node:Doc") == {
            **{(column,): BTREE for column in trees},
            ("slug",): TEXT,
            ("title",): TEXT,
        }
        assert indexed(disk, "node:Part") == {("id",): BTREE}, "a group of columns has no index"
        assert indexed(disk, "node:Serial") == {("id",): BTREE, ("number",): BTREE}
        assert indexed(disk, "edge:Cites") == {(column,): BTREE for column in ("id", "src", "dst", "weight")}
        assert coverage(disk, "node:Doc") == {8} and coverage(disk, "edge:Cites") == {5}, "they cover every row"
    with proving("IDX-03"):
        assert [(each["table_key"], each["column"]) for each in pending] == [("node:Doc", "face")]
        assert pending[0]["reason"], "it says why"
    with proving("IDX-04"):
        assert indexed(disk, "node:Empty") == {}
        assert graph.handle.table("node:Empty")["table_version"] == 1, "there is nothing to commit"
    with proving("IDX-05"):
        before, commits = disk.listing(), graph.handle.commits()
        assert graph.ensure_indices() == pending
        assert disk.listing() == before and graph.handle.commits() == commits, "nothing is written"
        assert disk.sidecars() == {}


@pytest.mark.requirement("IDX-03")
def test_an_index_on_vectors_is_built_once_there_is_a_vector(judged: Judged, engine: Engine, forge: ForgeOf) -> None:
    engine.require("ensure_indices")
    schema = "node Doc {\n  slug: String @key\n  face: Vector(3)? @index\n}"
    graph = judged(schema, [node("Doc", slug="d1"), node("Doc", slug="d2")])

    with proving("IDX-03"):
        waiting = graph.optimize()[0]["pending_indexes"]
        assert [(each["table_key"], each["column"]) for each in waiting] == [("node:Doc", "face")]
        graph.load([node("Doc", slug="d2", face=[1.0, 2.0, 3.0])])
        assert graph.ensure_indices() == []
        assert indexed(forge(graph.uri), "node:Doc")[("face",)] == VECTOR
        graph.load([node("Doc", slug="d2", face=None)])
        graph.ensure_indices()
        graph.load([node("Doc", slug="d3", face=[3.0, 2.0, 1.0])])


@pytest.mark.requirement("IDX-02")
def test_lists_and_blobs_have_no_index(judged: Judged, engine: Engine, forge: ForgeOf) -> None:
    engine.require("ensure_indices")
    graph = judged(
        "node Pic {\n  name: String @key\n  photo: Blob? @index\n  tags: [I32]? @index\n}",
        [node("Pic", name="p", photo="base64:AAAA", tags=[1])],
    )

    graph.ensure_indices()

    with proving("IDX-02"):
        assert indexed(forge(graph.uri), "node:Pic") == {("id",): BTREE, ("name",): TEXT}


@pytest.mark.requirement("IDX-06")
def test_on_a_branch_only_its_own_tables_are_indexed(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SOCIAL, [person("ann"), node("Company", name="acme")])
    graph.branch_create("b")
    graph.load([person("bob")], branch="b")
    disk = forge(graph.uri)
    before = {key: disk.storage(key).version for key in ("node:Person", "node:Company")}
    company = graph.handle.table("node:Company", "b")

    graph.ensure_indices("b")

    with proving("IDX-06"):
        assert indexed(disk, "node:Person", "b")[("id",)] == BTREE
        assert {index.rows_indexed for index in disk.indices("node:Person", "b")} == {2}
        assert graph.handle.table("node:Company", "b") == company, "a table that main owns is left alone"
        assert {key: disk.storage(key).version for key in before} == before, "main does not move"


@pytest.mark.requirement("IDX-07")
def test_a_failed_index_build_leaves_the_tables_writable(judged: Judged, peers: Peers, forge: ForgeOf) -> None:
    graph = judged(SEARCHED, [page(1), page(2)])
    failing = peers(failpoints="ensure_indices.post_stage_pre_commit_btree=error*1").open(graph.uri)

    # An engine may have nothing left to build; then there is no failure to survive.
    with contextlib.suppress(EngineError):
        failing.ensure_indices()

    with proving("IDX-07"):
        graph.reopen()
        graph.mutate(update("Doc", where("slug", "d1"), rank=9))
        graph.mutate(insert("Doc", slug="d3"), insert_edge("Cites", "d3", "d1"))
        graph.mutate(delete("Doc", where("slug", "d2")))
        graph.ensure_indices()
        assert coverage(forge(graph.uri), "node:Doc") == {2}


@pytest.mark.requirement("IDX-09")
def test_schema_apply_builds_no_index(judged: Judged, forge: ForgeOf) -> None:
    schema = "node Doc {\n  slug: String @key\n  rank: I32?\n  title: String?\n}"
    graph = judged(schema, [node("Doc", slug="d1", rank=1, title="t")])
    disk = forge(graph.uri)
    before = indexed(disk, "node:Doc")

    graph.schema_apply(schema.replace("rank: I32?", "rank: I32? @index"))

    with proving("IDX-09"):
        assert indexed(disk, "node:Doc") == before
    graph.schema_apply(schema.replace("rank: I32?", "rank: I32? @index\n  more: I32? @index"))
    with proving("IDX-09"):
        assert indexed(disk, "node:Doc").keys() <= before.keys(), "a rewrite builds none either"
    graph.ensure_indices()
    assert {("rank",), ("more",)} <= indexed(disk, "node:Doc").keys()


@pytest.mark.requirement("IDX-09")
def test_a_fast_forward_merge_builds_no_index(judged: Judged, forge: ForgeOf) -> None:
    graph = judged(SEARCHED, [page(1), page(2)])
    graph.ensure_indices()
    graph.branch_create("b")
    graph.load([page(3), page(4)], branch="b")
    disk = forge(graph.uri)
    before = {index.name: index.rows_indexed for index in disk.indices("node:Doc")}

    assert graph.merge("b")["outcome"] == "fast_forward"

    with proving("IDX-09"):
        assert {index.name: index.rows_indexed for index in disk.indices("node:Doc")} == before


# -- no answer depends on them -----------------------------------------------------------------------------------------


def unindexed(graph: JudgedGraph, branch: str) -> None:
    """Whatever the engine does by itself."""


def full(graph: JudgedGraph, branch: str) -> None:
    graph.ensure_indices(branch)


def partial(graph: JudgedGraph, branch: str) -> None:
    """Rows that the index has not seen, rows that it has seen with another value, and rows that are gone."""
    graph.ensure_indices(branch)
    graph.load([page(8, rank=1), page(9, rank=None, title=None), page(0, rank=3)], branch=branch)
    graph.mutate(update("Doc", where("slug", "d1"), rank=2, title="new"), branch=branch)
    graph.mutate(delete("Doc", where("slug", "d6")), branch=branch)


def overwritten(graph: JudgedGraph, branch: str) -> None:
    graph.ensure_indices(branch)
    graph.load([page(number, rank=1) for number in range(6)], "overwrite", branch=branch)


def optimized(graph: JudgedGraph, branch: str) -> None:
    partial(graph, branch)
    graph.optimize()
    graph.load([page(10, rank=2), page(3, rank=0)], branch=branch)


def cleaned(graph: JudgedGraph, branch: str) -> None:
    optimized(graph, branch)
    graph.cleanup(keep_versions=1)


STATES: Final = (
    *(pytest.param(state, "main", id=state.__name__) for state in (unindexed, full, partial, overwritten, optimized)),
    pytest.param(partial, "b", id="partial on a branch"),
    pytest.param(cleaned, "main", id="cleaned", marks=pytest.mark.long),
    pytest.param(cleaned, "b", id="cleaned below a branch", marks=pytest.mark.long),
)


@pytest.mark.requirement("IDX-01")
@pytest.mark.parametrize(("state", "branch"), STATES)
def test_writes_find_the_same_rows_whatever_the_indexes_cover(
    judged: Judged, state: Callable[[JudgedGraph, str], None], branch: str
) -> None:
    """Every predicate below is decided by the model on all rows, and by the engine with the indexes that it has."""
    graph = judged(SEARCHED, PAGES)
    if branch != "main":
        graph.branch_create(branch)
        graph.load([page(7, rank=3)], branch=branch)
    state(graph, branch)

    with proving("IDX-01"):
        for change in (
            update("Doc", where("rank", 1), plain=100),
            update("Doc", where("rank", [2, 3], "in"), plain=101),
            update("Doc", where("title", "title 4"), plain=102),
            update("Doc", {"property": "rank", "op": "is_null"}, plain=103),
            update("Doc", where("day", 5, "ge"), title=None),
        ):
            with contextlib.suppress(Unsupported):  # What an engine has no words for has no index either.
                graph.mutate(change, branch=branch)
        graph.load([page(2, title="again"), page(5, rank=None), page(11)], branch=branch)
        graph.mutate(delete("Doc", {"or": [where("slug", "d1"), where("rank", 3)]}), branch=branch)
        found = [row["id"] for row in graph.handle.read("node:Doc", branch)]
        assert len(found) == len(set(found)), "an upsert finds the row that it replaces"
        assert graph.handle.row("node:Doc", "d1", branch) is None
        assert graph.handle.row("node:Doc", "d2", branch)["title"] == "again"  # type: ignore[index]
