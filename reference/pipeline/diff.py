"""diff: what changed between two snapshots, counted, with some of the rows, on tables of any size [CHG].

Tables that both snapshots pin at one version are not opened. Where one state of a table came out of the other by
commits, fragments that both states have in common are not read, and of a fragment that only lost rows only the lost
ones are: what is read grows with what changed [CHG-02]. Any other two states are compared in full, by id and by 128
bits of content. The answer is that of the engine's own diff: a row counts as updated when a value of it changed,
whoever rewrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from reference.errors import BadRequest, NotFound
from reference.format.names import branch_label, parse_table_key
from reference.operations.merge_rows import is_one_history, rows_by_id
from reference.pipeline.diff_rows import OPS, Part, Shared, Side, compare, read_part
from reference.pipeline.exchange import exchange
from reference.pipeline.pinned import PinnedGraph, PinnedTable, pin_snapshot
from reference.pipeline.scans import ROW_UPDATED_AT, TASK_ROWS, Piece, blob_names, pieces
from reference.pipeline.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.format.manifest import TableEntry
    from reference.graph import Graph
    from reference.protocol.manifests import Snapshot

SAMPLES: Final = 5
BUCKET_ROWS: Final = 1_000_000
BUCKETS_MIN: Final = 2


@dataclass(frozen=True)
class TableDiff:
    """How many rows of a table are new, changed or gone, and some of them by the order of their ids."""

    table_key: str
    counts: Mapping[str, int]
    samples: Mapping[str, tuple[dict[str, Any], ...]]

    def to_json(self) -> dict[str, Any]:
        counts = {f"{op}s": self.counts[op] for op in OPS}
        return {"table_key": self.table_key, **counts, "samples": {op: list(rows) for op, rows in self.samples.items()}}


@dataclass(frozen=True)
class GraphDiff:
    """All tables that were compared, and those that did not have to be."""

    older: Snapshot
    newer: Snapshot
    tables: tuple[TableDiff, ...]
    unread: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        changed = [each for each in self.tables if any(each.counts.values())]
        stats: dict[str, Any] = {f"{op}s": sum(each.counts[op] for each in self.tables) for op in OPS}
        stats["types_affected"] = sorted({parse_table_key(each.table_key).type_name for each in changed})
        return {
            "from_version": self.older.version,
            "to_version": self.newer.version,
            "branch": branch_label(self.newer.branch),
            "tables": [each.to_json() for each in self.tables],
            "unread": list(self.unread),
            "stats": stats,
        }


def snapshot_at(graph: Graph, text: str) -> Snapshot:
    """A state of the graph as a person names it: a branch, a branch@version, or a commit by its id."""
    if text.startswith("commit:"):
        return graph.snapshot(commit=text.removeprefix("commit:"))
    branch, at, version = text.partition("@")
    if at:
        if not (version.isascii() and version.isdigit()):
            raise BadRequest(
                f"'{text}' names no state", code="point", hint="write BRANCH, BRANCH@VERSION or a commit id"
            )
        return graph.snapshot(branch, version=int(version))
    try:
        return graph.snapshot(branch)
    except NotFound as error:
        if error.code != "branch_not_found":
            raise
        try:
            return graph.snapshot(commit=text)
        except NotFound:
            message = f"there is neither a branch nor a commit '{text}'"
            raise NotFound(message, code="point_not_found", details={"point": text}) from None


def diff(
    spark: SparkSession,
    graph: Graph,
    older: Snapshot,
    newer: Snapshot,
    *,
    samples: int = SAMPLES,
    progress: Progress | None = None,
) -> GraphDiff:
    """Compare two snapshots of a graph; of each kind of change that many rows are shown."""
    graph.store.schema.current()
    keys = sorted(older.entries.keys() | newer.entries.keys())
    unread = [key for key in keys if _is_same(older.entries.get(key), newer.entries.get(key))]
    compared = [key for key in keys if key not in unread]
    sides = _Sides(graph, older, newer, compared)
    parts = [part for key in compared for part in sides.parts(key)]
    blob_versions = _foreign_versions(spark, sides, parts, progress)
    buckets = max(BUCKETS_MIN, -(-sum(part.rows for part in parts) // BUCKET_ROWS))
    answers = exchange(
        spark,
        "comparing rows",
        parts,
        partial(read_part, Shared(buckets, blob_versions)),
        partial(compare, samples),
        buckets=buckets,
        progress=progress,
    )
    found = {key: dict.fromkeys(OPS, 0) for key in compared}
    named: dict[tuple[str, str], list[str]] = {}
    for each in (change for answer in answers for change in answer):
        found[each.table_key][each.op] += each.count
        named.setdefault((each.table_key, each.op), []).extend(each.first_ids)
    shown = {key: sides.samples(key, named, samples) for key in compared}
    return GraphDiff(older, newer, tuple(TableDiff(key, found[key], shown[key]) for key in compared), tuple(unread))


def _is_same(older: TableEntry | None, newer: TableEntry | None) -> bool:
    return older is not None and newer is not None and older.pin == newer.pin


def _foreign_versions(
    spark: SparkSession, sides: _Sides, parts: Sequence[Part], progress: Progress | None
) -> dict[str, frozenset[int]]:
    """For tables with blobs, the versions that another engine wrote: it spells a null blob like an empty one."""
    asked = [part for part in parts if sides.has_blobs(part)]
    answers = run_tasks(spark, "who wrote the blobs", asked, _written_at, progress=progress)
    found: dict[str, set[int]] = {}
    for part, versions in zip(asked, answers, strict=True):
        table = part.piece.table
        ours = sides.graph.store.tables.is_ours
        foreign = {version for version in versions if not ours(table.path, table.branch, version)}
        found.setdefault(table.table_key, set()).update(foreign)
    return {key: frozenset(versions) for key, versions in found.items()}


def _written_at(part: Part) -> frozenset[int]:
    return frozenset(pc.unique(part.piece.read([ROW_UPDATED_AT])[ROW_UPDATED_AT]).to_pylist())


@dataclass
class _Sides:
    """Two snapshots, pinned, and how their tables are to be compared."""

    graph: Graph
    older: Snapshot
    newer: Snapshot
    compared: Sequence[str]
    pinned: dict[Side, PinnedGraph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side, snapshot in ((Side.OLDER, self.older), (Side.NEWER, self.newer)):
            entries = {key: entry for key, entry in snapshot.entries.items() if key in self.compared}
            self.pinned[side] = pin_snapshot(self.graph.store, replace(snapshot, entries=entries), self.graph.catalog)

    def parts(self, key: str) -> Iterator[Part]:
        """What has to be read of a table, on both sides."""
        older, newer = self.older.entries.get(key), self.newer.entries.get(key)
        if older is None or newer is None or not is_one_history(self.graph.store, older, newer):
            # A side that is not there leaves the ids of the other; two unrelated states are read whole.
            ids_only = older is None or newer is None
            for side in Side:
                if key in self.pinned[side].tables:
                    for piece in pieces(self.pinned[side], key):
                        yield Part(side, piece, rows=_rows(piece), ids_only=ids_only)
            return
        fragments = {side: self._fragments(side, key) for side in Side}
        for side, other in ((Side.OLDER, Side.NEWER), (Side.NEWER, Side.OLDER)):
            yield from self._changed(key, side, fragments[side], fragments[other], self.pinned[other].tables[key])

    def _changed(
        self, key: str, side: Side, mine: Mapping[str, Any], theirs: Mapping[str, Any], other: PinnedTable
    ) -> Iterator[Part]:
        """The fragments that the other side does not have, and those of which it has other rows."""
        pinned = self.pinned[side]
        table = pinned.tables[key]
        alone = sorted(number for data, (number, _) in mine.items() if data not in theirs)
        for start in range(0, len(alone), at_once := _at_once(table)):
            piece = Piece(table, tuple(alone[start : start + at_once]), pinned.storage_options)
            yield Part(side, piece, rows=_rows(piece), in_one_history=True)
        for data, (number, deletions) in mine.items():
            if data in theirs and theirs[data][1] != deletions:
                piece = Piece(table, (number,), pinned.storage_options)
                against = Piece(other, (theirs[data][0],), pinned.storage_options)
                yield Part(side, piece, rows=_rows(piece), in_one_history=True, against=against)

    def _fragments(self, side: Side, key: str) -> dict[str, tuple[int, str]]:
        """The fragments of a table by the files that hold their rows, each with its number and its deletions."""
        entry = (self.older if side is Side.OLDER else self.newer).entries[key]
        handle = self.graph.store.tables.open(entry.path, entry.branch, entry.version)
        found = {}
        for fragment in handle.get_fragments():
            body = fragment.metadata.to_json()
            # Files have names of their own wherever they are read from. A deletion file has a random number in it.
            files = [(file["path"].rpartition("/")[2], file["fields"]) for file in body["files"]]
            data = repr((files, body.get("overlays"), body.get("last_updated_at_version_meta")))
            deletions = body["deletion_file"] or {}
            found[data] = (int(fragment.fragment_id), repr([deletions.get(name) for name in ("read_version", "id")]))
        return found

    def has_blobs(self, part: Part) -> bool:
        table = part.piece.table
        return bool(blob_names(self.graph.store.tables.open(table.path, table.branch, table.version)))

    def samples(
        self, key: str, named: Mapping[tuple[str, str], list[str]], count: int
    ) -> dict[str, tuple[dict[str, Any], ...]]:
        """Some changed rows with their values: before, after, or both."""
        shown: dict[str, tuple[dict[str, Any], ...]] = {}
        for op in OPS:
            ids = sorted(named.get((key, op), []), key=str.encode)[:count]
            before = {} if op == "insert" else self._rows_of(self.older, key, ids)
            after = {} if op == "delete" else self._rows_of(self.newer, key, ids)
            shown[op] = tuple({"id": each, "before": before.get(each), "after": after.get(each)} for each in ids)
        return shown

    def _rows_of(self, snapshot: Snapshot, key: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        if not ids:
            return {}
        found = rows_by_id(self.graph.store, snapshot.entries[key], frozenset(ids))
        return {row["id"]: row for row in found.to_json()}


def _at_once(table: PinnedTable) -> int:
    return max(1, TASK_ROWS * len(table.fragment_ids) // max(1, table.row_count))


def _rows(piece: Piece) -> int:
    """About how many rows a piece has."""
    return piece.table.row_count * len(piece.fragment_ids) // max(1, len(piece.table.fragment_ids))
