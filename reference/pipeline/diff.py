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
from reference.format.export_lines import row_json
from reference.format.names import branch_label, parse_table_key
from reference.operations.merge_rows import is_one_history, rows_by_id
from reference.operations.reading import open_entry
from reference.pipeline.diff_rows import OPS, Example, Pairs, Part, Shared, Side, compare, read_part
from reference.pipeline.exchange import exchange
from reference.pipeline.pinned import PinnedGraph, PinnedTable, pin_snapshot
from reference.pipeline.scans import ROW_UPDATED_AT, TASK_ROWS, Share, blob_names, chosen_fragments, shares
from reference.pipeline.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.format.manifest import TableEntry
    from reference.graph import Graph
    from reference.protocol.manifests import Snapshot

SAMPLES: Final = 5
BUCKET_ROWS: Final = 1_000_000
BUCKETS_MIN: Final = 2
# Of fragments that both sides have only row numbers are read, and the few rows that changed.
PAIRED_ROWS: Final = 1_500_000


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
    buckets = max(BUCKETS_MIN, -(-sum(map(_rows, parts)) // BUCKET_ROWS))
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
    named: dict[tuple[str, str], list[Example]] = {}
    for each in (change for answer in answers for change in answer):
        found[each.table_key][each.op] += each.count
        named.setdefault((each.table_key, each.op), []).extend(each.first)
    shown = {key: sides.samples(key, named, samples) for key in compared}
    return GraphDiff(older, newer, tuple(TableDiff(key, found[key], shown[key]) for key in compared), tuple(unread))


def _is_same(older: TableEntry | None, newer: TableEntry | None) -> bool:
    return older is not None and newer is not None and older.pin == newer.pin


def _foreign_versions(
    spark: SparkSession, sides: _Sides, parts: Sequence[Part | Pairs], progress: Progress | None
) -> dict[str, frozenset[int]]:
    """For tables with blobs, the versions that another engine wrote: it spells a null blob like an empty one."""
    asked = [share for part in parts for share in part.shares.values() if sides.blobs(share.table)]
    answers = run_tasks(spark, "who wrote the blobs", asked, _written_at, progress=progress)
    found: dict[str, set[int]] = {}
    for share, versions in zip(asked, answers, strict=True):
        table = share.table
        ours = sides.graph.store.tables.is_ours
        foreign = {version for version in versions if not ours(table.path, table.branch, version)}
        found.setdefault(table.table_key, set()).update(foreign)
    return {key: frozenset(versions) for key, versions in found.items()}


def _written_at(share: Share) -> frozenset[int]:
    return frozenset(pc.unique(share.read([ROW_UPDATED_AT])[ROW_UPDATED_AT]).to_pylist())


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

    def parts(self, key: str) -> Iterator[Part | Pairs]:
        """What has to be read of a table, on both sides."""
        older, newer = self.older.entries.get(key), self.newer.entries.get(key)
        if older is None or newer is None or not is_one_history(self.graph.store, older, newer):
            # A side that is not there leaves the ids of the other; two unrelated states are read whole.
            ids_only = older is None or newer is None
            for side in Side:
                if key in self.pinned[side].tables:
                    yield from (Part(side, share, ids_only=ids_only) for share in shares(self.pinned[side], key))
            return
        fragments = {side: self._fragments(side, key) for side in Side}
        for side, other in ((Side.OLDER, Side.NEWER), (Side.NEWER, Side.OLDER)):
            alone = sorted(number for data, (number, _) in fragments[side].items() if data not in fragments[other])
            for share in self._shares(side, key, alone, TASK_ROWS):
                yield Part(side, share, in_one_history=True)
        before, after = fragments[Side.OLDER], fragments[Side.NEWER]
        paired = [data for data in before if data in after and before[data][1] != after[data][1]]
        older_shares, newer_shares = (
            self._shares(side, key, [fragments[side][data][0] for data in paired], PAIRED_ROWS) for side in Side
        )
        yield from (Pairs(one, other) for one, other in zip(older_shares, newer_shares, strict=True))

    def _shares(self, side: Side, key: str, numbers: Sequence[int], rows: int) -> list[Share]:
        """Some fragments of a table, as many at once as have about so many rows in the older state."""
        pinned = self.pinned[side]
        size = self.pinned[Side.OLDER].tables[key]
        at_once = max(1, rows * len(size.fragment_ids) // max(1, size.row_count))
        starts = range(0, len(numbers), at_once)
        table = pinned.tables[key]
        return [Share(table, tuple(numbers[start : start + at_once]), pinned.storage_options) for start in starts]

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

    def blobs(self, table: PinnedTable) -> list[str]:
        return blob_names(self.graph.store.tables.open(table.path, table.branch, table.version))

    def samples(
        self, key: str, named: Mapping[tuple[str, str], list[Example]], count: int
    ) -> dict[str, tuple[dict[str, Any], ...]]:
        """Some changed rows with their values: before, after, or both."""
        shown: dict[str, tuple[dict[str, Any], ...]] = {}
        for op in OPS:
            first = sorted(named.get((key, op), []), key=lambda example: example.row_id.encode())[:count]
            before, after = (self._rows_of(side, key, first) for side in Side)
            ids = [example.row_id for example in first]
            shown[op] = tuple({"id": each, "before": before.get(each), "after": after.get(each)} for each in ids)
        return shown

    def _rows_of(self, side: Side, key: str, examples: Sequence[Example]) -> dict[str, dict[str, Any]]:
        """The rows of one side, from where they were found. Blobs are read as the engine reads them, by id."""
        found = [example for example in examples if side in example.places]
        if not found:
            return {}
        entry = (self.older if side is Side.OLDER else self.newer).entries[key]
        table = self.pinned[side].tables[key]
        if self.blobs(table):
            rows = rows_by_id(self.graph.store, entry, frozenset(example.row_id for example in found)).to_json()
        else:
            handle = open_entry(self.graph.store, entry)
            rows = [row for example in found for row in _row_at(handle, example.places[side])]
        return {row["id"]: row for row in rows}


def _row_at(handle: Any, place: int) -> list[dict[str, Any]]:
    (fragment,) = chosen_fragments(handle, [place >> 32])
    return row_json(fragment.take([place & 0xFFFFFFFF], columns=list(handle.schema.names)))


def _rows(part: Part | Pairs) -> int:
    """About how many rows a part sends; of paired fragments few have changed."""
    if isinstance(part, Pairs):
        return 0
    share = part.share
    return share.table.row_count * len(share.fragment_ids) // max(1, len(share.table.fragment_ids))
