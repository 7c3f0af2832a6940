"""The operations whose cost is measured: what is done before anybody counts, and what is counted.

A cold operation is all that a new process does: it opens the graph and does one thing. A warm one is done through a
handle that has been in use. Each is small and always the same, so that what differs between two measurements is the
graph: its history, its fragments, its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from conformance.judge import Engine, Handle
from cost_budgets.preparing import (
    DOCUMENT,
    KNOWS,
    LEADS,
    PERSON,
    ROWS_OF_A_LOAD,
    WORKS_AT,
    Place,
    Prepare,
    a_branch,
    a_branch_apart,
    a_branch_with_a_row,
    a_branch_with_rows,
    a_document,
    a_few_fragments,
    a_loved_person,
    a_person,
    a_stale_reader,
    insert_document,
    insert_person,
    records,
    the_head,
    two_people,
    versions_to_remove,
)
from failpoints.writers import delete, insert_edge, update

# Which graph: one that was never optimized, one that was just now, one with a dead writer's sidecar, one with branches,
# one with rows that have payloads, one into which more and more rows are loaded at once, one with more and more tables.
Ground = Literal["grown", "optimized", "crashed", "branched", "payloads", "loads", "wide"]
GROUNDS: Final[tuple[Ground, ...]] = get_args(Ground)
# Where something else than history is varied, nothing else is to grow: the manifest would, while it is measured.
JUST_OPTIMIZED: Final[tuple[Ground, ...]] = ("optimized", "branched", "loads", "wide")
# What a graph varies, and so what growth is looked for along; history everywhere else.
VARIED: Final[Mapping[Ground, str]] = {"branched": "B", "loads": "R", "wide": "C"}
Depths = Literal["depths", "merges", "crashes"]


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


_BRANCHES: Final = ("branch_create", "branch_list")
_WITH_BRANCHES: Final[tuple[Ground, ...]] = ("grown", "optimized", "branched")
_ALL: Final = (
    # -- a new process -------------------------------------------------------------------------------------------------
    _cold(
        "cold-open-read-only",
        "a new process opens the graph to read",
        lambda handle, _: None,
        read_only=True,
        grounds=_WITH_BRANCHES,
    ),
    _cold(
        "cold-open-read-write",
        "a new process opens the graph to write",
        lambda handle, _: None,
        grounds=_WITH_BRANCHES,
    ),
    _cold(
        "cold-snapshot",
        "a new process asks for a snapshot",
        lambda handle, _: handle.snapshot(),
        read_only=True,
        grounds=(*_WITH_BRANCHES, "wide"),
        needs=("snapshot",),
    ),
    _cold(
        "cold-query",
        "a new process looks one row up by its key",
        lambda handle, name: handle.entity_at(PERSON, name),
        a_person,
        grounds=_WITH_BRANCHES,
        read_only=True,
        touches=(PERSON,),
        needs=("entity_at",),
    ),
    _cold(
        "cold-insert-node",
        "a new process inserts one node",
        lambda handle, name: insert_person(handle, name),
        lambda place: place.name(),
        grounds=(*_WITH_BRANCHES, "wide"),
        touches=(PERSON,),
        rows=1,
    ),
    _cold(
        "cold-insert-edge",
        "a new process inserts one edge",
        lambda handle, ends: handle.mutate(insert_edge("Knows", *ends)),
        two_people,
        touches=(PERSON, KNOWS),
        rows=1,
    ),
    _cold(
        "cold-update",
        "a new process updates one node",
        lambda handle, name: handle.mutate(update("Person", name, age=2)),
        a_person,
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
        lambda handle, names: insert_person(handle, names[0], names[1]),
        lambda place: (place.name(), a_branch(place)),
        grounds=_WITH_BRANCHES,
        touches=(PERSON,),
        rows=1,
        needs=_BRANCHES,
    ),
    _cold(
        "cold-merge",
        "a new process merges one row by fast forward",
        lambda handle, branch: handle.merge(branch),
        a_branch_with_a_row,
        grounds=_WITH_BRANCHES,
        depths="merges",
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    _cold(
        "cold-branch-delete",
        "a new process deletes a branch with one table of its own",
        lambda handle, name: handle.branch_delete(name),
        a_branch_with_a_row,
        grounds=_WITH_BRANCHES,
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
        grounds=("grown", "branched"),
        needs=("snapshot",),
    ),
    Operation(
        "repeat-read",
        "the rows of a table, by whoever has just read them",
        lambda place, _: place.handle.read(PERSON),
        lambda place: place.handle.read(PERSON),
        grounds=("grown", "branched"),
        touches=(PERSON,),
    ),
    Operation(
        "stale-read",
        "a snapshot by whoever knows the last but one",
        lambda place, reader: reader.snapshot(),
        a_stale_reader,
        grounds=("grown", "branched"),
        elsewhere=True,
        needs=("snapshot",),
    ),
    Operation(
        "cold-branch-read",
        "a snapshot of a branch that this handle has not read",
        lambda place, branch: place.handle.snapshot(branch),
        a_branch,
        grounds=("grown", "optimized"),
        needs=(*_BRANCHES, "snapshot"),
    ),
    Operation(
        "diff-caught-up",
        "the difference of a commit and itself",
        lambda place, head: place.handle.diff(head, head),
        the_head,
        grounds=_WITH_BRANCHES,
        needs=("diff",),
    ),
    Operation(
        "commit-page",
        "the commits of main",
        lambda place, _: place.handle.commits(),
        lambda place: place.handle.commits(),
        grounds=("grown", "branched"),
    ),
    Operation(
        "payload-read",
        "one row with its payload, among others with theirs",
        lambda place, name: place.handle.entity_at(DOCUMENT, name),
        a_document,
        grounds=("payloads",),
        touches=(DOCUMENT,),
        needs=("entity_at",),
    ),
    # -- writing through a handle --------------------------------------------------------------------------------------
    Operation(
        "insert-node",
        "one node",
        lambda place, name: insert_person(place.handle, name),
        lambda place: (a_person(place), place.name())[1],
        grounds=(*_WITH_BRANCHES, "wide"),
        touches=(PERSON,),
        rows=1,
    ),
    Operation(
        "insert-edge",
        "one edge",
        lambda place, ends: place.handle.mutate(insert_edge("Knows", *ends)),
        two_people,
        grounds=_WITH_BRANCHES,
        touches=(PERSON, KNOWS),
        rows=1,
    ),
    Operation(
        "update",
        "one property of one node",
        lambda place, name: place.handle.mutate(update("Person", name, age=2)),
        a_person,
        grounds=(*_WITH_BRANCHES, "wide"),
        touches=(PERSON,),
        rows=1,
    ),
    Operation(
        "delete-cascade",
        "one node, with an edge in each of three tables",
        lambda place, name: place.handle.mutate(delete("Person", name)),
        a_loved_person,
        grounds=(*_WITH_BRANCHES, "wide"),
        touches=(PERSON, KNOWS, WORKS_AT, LEADS),
        rows=4,
    ),
    Operation(
        "load-64",
        "64 nodes with a unique column",
        lambda place, records: place.handle.load(records, "append"),
        records,
        grounds=_WITH_BRANCHES,
        touches=(PERSON,),
        rows=ROWS_OF_A_LOAD,
    ),
    Operation(
        "load-rows",
        "more and more nodes with a unique column in one load",
        lambda place, records: place.handle.load(records, "append"),
        records,
        grounds=("loads",),
        touches=(PERSON,),
    ),
    Operation(
        "payload-insert",
        "one row with a payload, beside others with theirs",
        lambda place, name: insert_document(place.handle, name),
        lambda place: (a_document(place), place.name())[1],
        grounds=("payloads",),
        touches=(DOCUMENT,),
        rows=1,
    ),
    Operation(
        "payload-update",
        "another property of one row that has a payload",
        lambda place, name: place.handle.mutate(update("Document", name, title="new")),
        a_document,
        grounds=("payloads",),
        touches=(DOCUMENT,),
        rows=1,
    ),
    # -- branches ------------------------------------------------------------------------------------------------------
    Operation(
        "branch-create",
        "a branch of main",
        lambda place, name: place.handle.branch_create(name),
        lambda place: place.name(),
        grounds=("grown", "branched"),
        needs=_BRANCHES,
    ),
    Operation(
        "branch-delete",
        "a branch with one table of its own, among others",
        lambda place, name: place.handle.branch_delete(name),
        a_branch_with_a_row,
        grounds=("branched",),
        touches=(PERSON,),
        needs=(*_BRANCHES, "branch_delete"),
    ),
    Operation(
        "first-write",
        "one node on a branch that has no table of its own yet",
        lambda place, names: insert_person(place.handle, names[0], names[1]),
        lambda place: (place.name(), a_branch(place)),
        grounds=_WITH_BRANCHES,
        touches=(PERSON,),
        rows=1,
        needs=_BRANCHES,
    ),
    Operation(
        "merge-fast-forward",
        "one row, into a main that has not moved",
        lambda place, branch: place.handle.merge(branch),
        a_branch_with_a_row,
        depths="merges",
        grounds=(*_WITH_BRANCHES, "wide"),
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    Operation(
        "merge-three-way",
        "one row, into a main that has moved",
        lambda place, branch: place.handle.merge(branch),
        a_branch_apart,
        depths="merges",
        grounds=_WITH_BRANCHES,
        touches=(PERSON,),
        rows=1,
        needs=(*_BRANCHES, "merge"),
    ),
    Operation(
        "merge-rows",
        "more and more rows in one merge, into a main that has not moved",
        lambda place, branch: place.handle.merge(branch),
        a_branch_with_rows,
        grounds=("loads",),
        touches=(PERSON,),
        needs=(*_BRANCHES, "merge"),
    ),
    # -- maintenance ---------------------------------------------------------------------------------------------------
    Operation(
        "ensure-indices",
        "indexes that are all there",
        lambda place, _: place.handle.ensure_indices(),
        lambda place: place.handle.ensure_indices(),
        grounds=("optimized", "branched"),
        needs=("ensure_indices",),
    ),
    Operation(
        "optimize",
        "four rows that were written since the last time",
        lambda place, _: place.handle.optimize(),
        a_few_fragments,
        grounds=("optimized", "branched"),
        touches=(PERSON,),
        needs=("optimize",),
    ),
    Operation(
        "cleanup",
        "the versions of four writes",
        lambda place, _: place.handle.cleanup(keep_versions=1),
        versions_to_remove,
        grounds=("optimized", "branched"),
        needs=("optimize", "cleanup"),
    ),
)


OPERATIONS: Final = {operation.name: operation for operation in _ALL}
