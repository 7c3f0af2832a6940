"""The operations whose cost is measured: what is done before anybody counts, and what is counted.

A cold operation is all that a new process does: it opens the graph and does one thing. A warm one is done through a
handle that has been in use. Each is small and always the same, so that what differs between two measurements is the
graph: its history, its fragments, its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from conformance.judge import Engine, Handle
from failpoints.writers import delete, insert, insert_edge, load, update

SCHEMA: Final = """
node Person {
  name: String @key
  age: I32? @index
  email: String? @unique
}
node Company {
  name: String @key
  size: I32?
}
node Project {
  name: String @key
}
edge Knows: Person -> Person
edge WorksAt: Person -> Company
edge Leads: Person -> Project
"""
PERSON, KNOWS, WORKS_AT, LEADS = "node:Person", "edge:Knows", "edge:WorksAt", "edge:Leads"
ROWS_OF_A_LOAD: Final = 64
# Which graph: one that was never optimized, one that was just now, one with a dead writer's sidecar, one with branches.
Ground = Literal["grown", "optimized", "crashed", "branched"]
Depths = Literal["depths", "merges", "crashes", "branches"]


class Place(Protocol):
    """A graph that grows, with an engine on it: what operations need of it."""

    uri: str
    handle: Handle

    def name(self) -> str:
        """A name that nobody has used."""

    def other(self) -> Handle:
        """The graph, opened by another process that stays."""


Prepare = Callable[[Place], Any]


@dataclass(frozen=True)
class Operation:
    """One thing to measure. `prepare` is not counted, and what it returns is given to `work`, which is.

    `touches` are the tables that it reads or writes rows of, and `rows` how many rows it writes. `elsewhere` says that
    the other process does it, the one that stays.
    """

    name: str
    sentence: str
    work: Callable[[Any, Any], object]
    prepare: Prepare = lambda place: None
    cold: bool = False
    grounds: tuple[Ground, ...] = ("grown",)
    depths: Depths = "depths"
    touches: tuple[str, ...] = ()
    rows: int = 0
    elsewhere: bool = False
    needs: tuple[str, ...] = field(default=())


def _cold(
    name: str,
    sentence: str,
    work: Callable[[Handle, Any], object],
    prepare: Prepare = lambda place: None,
    *,
    read_only: bool = False,
    grounds: Sequence[Ground] = ("grown", "optimized"),
    **more: Any,
) -> Operation:
    def opened(engine: Engine, given: Any) -> object:
        uri, rest = given
        return work(engine.open(uri, read_only=read_only or None), rest)

    def prepared(place: Place) -> tuple[str, Any]:
        return place.uri, prepare(place)

    return Operation(name, sentence, opened, prepared, cold=True, grounds=tuple(grounds), **more)


def _person(place: Place) -> str:
    """A person that is there, with a row of its own in its table."""
    name = place.name()
    place.handle.mutate(insert("Person", name=name, age=1))
    return name


def _two_people(place: Place) -> tuple[str, str]:
    return _person(place), _person(place)


def _branch(place: Place) -> str:
    name = place.name()
    place.handle.branch_create(name)
    return name


def _branch_with_a_row(place: Place) -> str:
    name = _branch(place)
    place.handle.mutate(insert("Person", name=place.name()), branch=name)
    return name


def _branch_apart(place: Place) -> str:
    """A branch with a row of its own, while main has got one of its own too: a merge must look at both."""
    name = _branch_with_a_row(place)
    place.handle.mutate(insert("Person", name=place.name()))
    return name


def _loved(place: Place) -> str:
    """A person with an edge in each of the three tables of edges: a delete has to remove all of them."""
    name, other = place.name(), place.name()
    place.handle.mutate(insert("Person", name=name), insert("Person", name=other))
    place.handle.mutate(insert("Company", name=name), insert("Project", name=name))
    place.handle.mutate(
        insert_edge("Knows", other, name), insert_edge("WorksAt", name, name), insert_edge("Leads", name, name)
    )
    return name


def _records(place: Place) -> str:
    """Records with a unique column, for one load."""
    from conformance.judge.graph import text_of

    first = place.name()
    rows = [
        {"type": "Person", "data": {"name": f"{first}-{number}", "email": f"{first}-{number}@x"}}
        for number in range(ROWS_OF_A_LOAD)
    ]
    return text_of(load(*rows)["records"])


def _stale(place: Place) -> Handle:
    """Another process that knew the graph, before somebody wrote."""
    reader = place.other()
    reader.snapshot()
    _person(place)
    return reader


def _a_few_fragments(place: Place) -> None:
    for _ in range(4):
        _person(place)


def _versions_to_remove(place: Place) -> None:
    place.handle.cleanup(keep_versions=1)
    _a_few_fragments(place)
    place.handle.optimize()


def _head(place: Place) -> dict[str, Any]:
    return {"commit": place.handle.commits()[-1]["graph_commit_id"]}


def _insert(handle: Handle, name: str, branch: str | None = None) -> object:
    return handle.mutate(insert("Person", name=name), branch=branch)


_BRANCHES: Final = ("branch_create", "branch_list")
_ALL: Final = (
    # -- a new process -------------------------------------------------------------------------------------------------
    _cold("cold-open-read-only", "a new process opens the graph to read", lambda handle, _: None, read_only=True),
    _cold("cold-open-read-write", "a new process opens the graph to write", lambda handle, _: None),
    _cold(
        "cold-snapshot",
        "a new process asks for a snapshot",
        lambda handle, _: handle.snapshot(),
        read_only=True,
        needs=("snapshot",),
    ),
    _cold(
        "cold-query",
        "a new process looks one row up by its key",
        lambda handle, name: handle.entity_at(PERSON, name),
        _person,
        read_only=True,
        touches=(PERSON,),
        needs=("entity_at",),
    ),
    _cold(
        "cold-insert-node",
        "a new process inserts one node",
        lambda handle, name: _insert(handle, name),
        lambda place: place.name(),
        touches=(PERSON,),
        rows=1,
    ),
    _cold(
        "cold-insert-edge",
        "a new process inserts one edge",
        lambda handle, ends: handle.mutate(insert_edge("Knows", *ends)),
        _two_people,
        touches=(PERSON, KNOWS),
        rows=1,
    ),
    _cold(
        "cold-update",
        "a new process updates one node",
        lambda handle, name: handle.mutate(update("Person", name, age=2)),
        _person,
        touches=(PERSON,),
        rows=1,
    ),
    _cold(
        "cold-branch-create",
        "a new process makes a branch",
        lambda handle, name: handle.branch_create(name),
        lambda place: place.name(),
        needs=_BRANCHES,
    ),
    _cold(
        "cold-first-write",
        "a new process writes to a branch that has no table of its own yet",
        lambda handle, names: _insert(handle, names[0], names[1]),
        lambda place: (place.name(), _branch(place)),
        touches=(PERSON,),
        rows=1,
        needs=_BRANCHES,
    ),
    _cold(
        "cold-merge",
        "a new process merges one row by fast forward",
        lambda handle, branch: handle.merge(branch),
        _branch_with_a_row,
        depths="merges",
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    _cold(
        "cold-branch-delete",
        "a new process deletes a branch with one table of its own",
        lambda handle, name: handle.branch_delete(name),
        _branch_with_a_row,
        touches=(PERSON,),
        needs=(*_BRANCHES, "branch_delete"),
    ),
    _cold(
        "cold-open-pending",
        "a new process opens a graph and finishes what a dead writer left",
        lambda handle, _: None,
        grounds=("crashed",),
        depths="crashes",
        touches=(PERSON,),
    ),
    # -- reading through a handle --------------------------------------------------------------------------------------
    Operation(
        "warm-read",
        "a snapshot by whoever knows the newest",
        lambda place, _: place.handle.snapshot(),
        lambda place: place.handle.snapshot(),
        needs=("snapshot",),
    ),
    Operation(
        "repeat-read",
        "the rows of a table, by whoever has just read them",
        lambda place, _: place.handle.read(PERSON),
        lambda place: place.handle.read(PERSON),
        touches=(PERSON,),
    ),
    Operation(
        "stale-read",
        "a snapshot by whoever knows the last but one",
        lambda place, reader: reader.snapshot(),
        _stale,
        elsewhere=True,
        needs=("snapshot",),
    ),
    Operation(
        "cold-branch-read",
        "a snapshot of a branch that this handle has not read",
        lambda place, branch: place.handle.snapshot(branch),
        _branch,
        grounds=("grown", "optimized"),
        needs=(*_BRANCHES, "snapshot"),
    ),
    Operation(
        "diff-caught-up",
        "the difference of a commit and itself",
        lambda place, head: place.handle.diff(head, head),
        _head,
        grounds=("grown", "optimized"),
        needs=("diff",),
    ),
    Operation(
        "commit-page",
        "the commits of main",
        lambda place, _: place.handle.commits(),
        lambda place: place.handle.commits(),
    ),
    # -- writing through a handle --------------------------------------------------------------------------------------
    Operation(
        "insert-node",
        "one node",
        lambda place, name: _insert(place.handle, name),
        lambda place: (_person(place), place.name())[1],
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=1,
    ),
    Operation(
        "insert-edge",
        "one edge",
        lambda place, ends: place.handle.mutate(insert_edge("Knows", *ends)),
        _two_people,
        grounds=("grown", "optimized"),
        touches=(PERSON, KNOWS),
        rows=1,
    ),
    Operation(
        "update",
        "one property of one node",
        lambda place, name: place.handle.mutate(update("Person", name, age=2)),
        _person,
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=1,
    ),
    Operation(
        "delete-cascade",
        "one node, with an edge in each of three tables",
        lambda place, name: place.handle.mutate(delete("Person", name)),
        _loved,
        grounds=("grown", "optimized"),
        touches=(PERSON, KNOWS, WORKS_AT, LEADS),
        rows=4,
    ),
    Operation(
        "load-64",
        "64 nodes with a unique column",
        lambda place, records: place.handle.load(records, "append"),
        _records,
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=ROWS_OF_A_LOAD,
    ),
    # -- branches ------------------------------------------------------------------------------------------------------
    Operation(
        "branch-create",
        "a branch of main",
        lambda place, name: place.handle.branch_create(name),
        lambda place: place.name(),
        needs=_BRANCHES,
    ),
    Operation(
        "branch-delete",
        "a branch with one table of its own, among others",
        lambda place, name: place.handle.branch_delete(name),
        _branch_with_a_row,
        grounds=("branched",),
        depths="branches",
        touches=(PERSON,),
        needs=(*_BRANCHES, "branch_delete"),
    ),
    Operation(
        "first-write",
        "one node on a branch that has no table of its own yet",
        lambda place, names: _insert(place.handle, names[0], names[1]),
        lambda place: (place.name(), _branch(place)),
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=1,
        needs=_BRANCHES,
    ),
    Operation(
        "merge-fast-forward",
        "one row, into a main that has not moved",
        lambda place, branch: place.handle.merge(branch),
        _branch_with_a_row,
        depths="merges",
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    Operation(
        "merge-three-way",
        "one row, into a main that has moved",
        lambda place, branch: place.handle.merge(branch),
        _branch_apart,
        depths="merges",
        grounds=("grown", "optimized"),
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    # -- maintenance ---------------------------------------------------------------------------------------------------
    Operation(
        "ensure-indices",
        "indexes that are all there",
        lambda place, _: place.handle.ensure_indices(),
        lambda place: place.handle.ensure_indices(),
        grounds=("optimized",),
        needs=("ensure_indices",),
    ),
    Operation(
        "optimize",
        "four rows that were written since the last time",
        lambda place, _: place.handle.optimize(),
        _a_few_fragments,
        grounds=("optimized",),
        touches=(PERSON,),
        needs=("optimize",),
    ),
    Operation(
        "cleanup",
        "the versions of four writes",
        lambda place, _: place.handle.cleanup(keep_versions=1),
        _versions_to_remove,
        grounds=("optimized",),
        needs=("optimize", "cleanup"),
    ),
)
OPERATIONS: Final = {operation.name: operation for operation in _ALL}
