"""Indexes: derived state. They speed reads up and never change an answer, so nothing ever waits for one [IDX].

An index is built over all fragments of a table, before the sidecar is written, and committed in one short move. One
that does not cover every fragment is built again; so an index is either missing, behind, or complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from lance import LanceDataset
from lance.dataset import Index

from reference.errors import ExpectedVersionMismatch
from reference.failpoint import fire
from reference.format.manifest import TableEntry
from reference.protocol.commit import Intent, Move, TableWork, commit_graph, with_retries
from reference.protocol.recovery import heal
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog, EdgeType, NodeType, PropertyType

NOTHING_TO_TRAIN_ON = "no row of the column has a vector yet"
ROWS_PER_PARTITION = 4096


@dataclass(frozen=True)
class PendingIndex:
    """An index that the schema asks for and that cannot be built yet; never an error [IDX-03]."""

    table_key: str
    column: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def ensure_indices(store: GraphStore, catalog: Catalog, branch: str | None) -> list[PendingIndex]:
    """Build every index that is missing or behind, on the tables that the branch owns [IDX-05, IDX-06]."""
    refuse_during_schema_apply(store.manifests, "ensure_indices")
    heal(store)
    return with_retries(store, lambda: _ensure(store, catalog, branch), strict=False)


def _ensure(store: GraphStore, catalog: Catalog, branch: str | None) -> list[PendingIndex]:
    snapshot = store.manifests.fresh(branch).snapshot()
    owned = [entry for entry in snapshot.entries.values() if entry.branch == branch]
    with store.queues.hold([(entry.table_key, branch) for entry in owned]):
        works: list[TableWork] = []
        pending: list[PendingIndex] = []
        for entry in owned:
            moves, waiting = stage_indexes(store, catalog, entry)
            pending += waiting
            if moves:
                works.append(TableWork(entry, branch, tuple(moves), one_version_each=False))
        if works:
            fire("ensure_indices.post_stage_pre_commit_btree")
            committed = partial(fire, "ensure_indices.post_phase_b_pre_manifest_commit")
            commit_graph(
                store, Intent("EnsureIndices", branch, snapshot.incarnation, works=tuple(works), committed=committed)
            )
        return pending


def wanted_indexes(owner: NodeType | EdgeType) -> dict[str, str]:
    """The columns of a table that are to be indexed, and the kind of index of each [IDX-02]."""
    wanted = dict.fromkeys(("id", "src", "dst") if isinstance(owner, EdgeType) else ("id",), "BTREE")
    for columns in (owner.key, *owner.indexes):
        declared = owner.property(columns[0]) if len(columns) == 1 else None
        kind = _kind(declared.type) if declared is not None else None
        if kind is not None:
            wanted.setdefault(columns[0], kind)
    return wanted


def _kind(column: PropertyType) -> str | None:
    if column.dimensions is not None:
        return "IVF_FLAT"
    if column.is_list or column.scalar == "Blob":
        return None
    return "INVERTED" if column.scalar == "String" and column.enum_values is None else "BTREE"


def stage_indexes(store: GraphStore, catalog: Catalog, entry: TableEntry) -> tuple[list[Move], list[PendingIndex]]:
    """Build what is missing or behind in one table; the moves commit it. An empty table needs none [IDX-04]."""
    if entry.row_count == 0 or entry.table_key not in catalog.table_keys():
        return [], []
    # Lance borrows a handle for as long as it builds, so a held one, which others read through, is not used.
    handle = open_own(store, entry, entry.version)
    moves: list[Move] = []
    pending: list[PendingIndex] = []
    covered = covered_columns(store, entry.table_key, handle)
    for column, kind in wanted_indexes(catalog.type_of(entry.table_key)).items():
        name, complete = covered.get(column, (f"{column}_idx", False))
        if complete:
            continue
        options: dict[str, Any] = {}
        if kind == "IVF_FLAT":
            vectors = store.tables.run(entry.table_key, partial(handle.count_rows, f"`{column}` IS NOT NULL"))
            if vectors == 0:
                pending.append(PendingIndex(entry.table_key, column, NOTHING_TO_TRAIN_ON))
                continue
            options = {"num_partitions": 1 + vectors // ROWS_PER_PARTITION}
        fragments = [fragment.fragment_id for fragment in handle.get_fragments()]
        build = partial(handle.create_index_uncommitted, column, kind, name=name, replace=True, fragment_ids=fragments)
        segment = store.tables.run(entry.table_key, partial(build, **options))
        moves.append(_committing_index(store, entry, column, name, segment))
    return moves, pending


def covered_columns(store: GraphStore, table_key: str, handle: LanceDataset) -> dict[str, tuple[str, bool]]:
    """Each indexed column: the name of its index, and whether that covers every fragment in one piece."""
    fragments = {fragment.fragment_id for fragment in handle.get_fragments()}
    found: dict[str, tuple[str, bool]] = {}
    for index in store.tables.run(table_key, handle.describe_indices):
        if len(index.field_names) == 1:
            segments = [set(segment.fragment_ids) for segment in index.segments]
            found[index.field_names[0]] = (index.name, len(segments) == 1 and fragments <= segments[0])
    return found


def _committing_index(store: GraphStore, entry: TableEntry, column: str, name: str, segment: Index) -> Move:
    def move(handle: LanceDataset, _: str) -> LanceDataset:
        # Committing an index moves the handle itself, and held handles must stay where they are.
        own = open_own(store, entry, int(handle.version))
        store.tables.run(entry.table_key, partial(own.commit_existing_index_segments, name, column, [segment]))
        if own.version != handle.version + 1:
            raise ExpectedVersionMismatch(entry.table_key, int(handle.version), int(own.version) - 1)
        return own

    return move


def open_own(store: GraphStore, entry: TableEntry, version: int) -> LanceDataset:
    """A handle that nobody else holds, at HEAD, which must be where the writer's last step left it."""
    handle = store.tables.open_latest(entry.path, entry.branch)
    if handle.version != version:
        raise ExpectedVersionMismatch(entry.table_key, version, int(handle.version))
    return handle
