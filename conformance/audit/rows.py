"""The rows that branches read: each table once per pinned version, each pair of tables once per pair of versions.

Of a table the ids and endpoints are kept for the rules that reach over two tables: every edge has its ends [VAL-09],
and no source has too many edges, or too few if it has any [VAL-10].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from conformance.audit.datasets import DatasetMissing, Datasets, DatasetUnreadable
from conformance.audit.findings import Findings
from conformance.audit.manifest import Entry, Manifest
from conformance.audit.pins import Pins, Storage
from conformance.audit.rules import SAMPLES_MAX, problems
from conformance.audit.schema import Catalog, TableType, is_blob

_KEPT = ("id", "src", "dst")
SCANNED_AT_ONCE = 4


def check_rows(
    found: Findings, datasets: Datasets, pins: Pins, catalog: Catalog, manifests: Iterable[Manifest]
) -> None:
    """Check the rows of all branches, in this process."""
    rows = Rows(found, datasets, pins, catalog)
    for manifest in manifests:
        rows.check(manifest)


@dataclass
class Rows:
    """Checks rows, branch by branch, and never the same ones twice."""

    found: Findings
    datasets: Datasets
    pins: Pins
    catalog: Catalog
    _kept: dict[Storage, pa.Table | None] = field(default_factory=dict)
    _joined: set[tuple[Storage, Storage, str]] = field(default_factory=set)

    def check(self, manifest: Manifest) -> None:
        """Everything that the rows of a branch have to fulfil."""
        entries = manifest.entries()
        with ThreadPoolExecutor(SCANNED_AT_ONCE) as pool:
            self._read_all(
                manifest, [(entries[key], owner) for key, owner in self.catalog.types.items() if key in entries], pool
            )
        for key, owner in self.catalog.types.items():
            if owner.kind == "edge" and key in entries:
                self._check_edges(manifest, entries, owner)

    def _read_all(self, manifest: Manifest, tables: list[tuple[Entry, TableType]], pool: ThreadPoolExecutor) -> None:
        """Check one table after the other while the next ones are being read; few at once, for they may be large."""
        new = [(entry, owner) for entry, owner in tables if _storage(entry) not in self._kept]
        self._kept.update((_storage(entry), None) for entry, _ in new)
        waiting = [(entry, owner) for entry, owner in new if _storage(entry) in self.pins.fit_for_rules]
        reading = deque(pool.submit(self._scan, entry) for entry, _ in waiting[:SCANNED_AT_ONCE])
        for number, (entry, owner) in enumerate(waiting):
            rows = reading.popleft().result()
            reading.extend(pool.submit(self._scan, each) for each, _ in waiting[number + SCANNED_AT_ONCE :][:1])
            self._check_rows(entry, owner, rows, f"{manifest.where}/{entry.table_key}")

    def _scan(self, entry: Entry) -> pa.Table | Exception:
        handle = self.pins.readable[_storage(entry)]
        columns = [column.name for column in handle.schema if not is_blob(column)]
        try:
            with self.datasets.reading(f"the rows of {entry.path}"):
                return handle.to_table(columns=columns)
        except (DatasetMissing, DatasetUnreadable) as error:
            return error

    def _check_rows(self, entry: Entry, owner: TableType, rows: pa.Table | Exception, where: str) -> None:
        if isinstance(rows, Exception):
            self.found.add("table-unreadable", where, f"the rows of version {entry.version} cannot be read: {rows}")
            return
        self.found.checked["rows"] += rows.num_rows
        for problem in problems(owner, rows):
            self.found.add(problem.code, where, problem.message, version=entry.version, **problem.details)
        self._kept[_storage(entry)] = rows.select([name for name in _KEPT if name in rows.column_names])
        if owner.kind == "edge":
            self._check_cardinality(owner, rows["src"], where)

    def _check_cardinality(self, owner: TableType, sources: pa.ChunkedArray, where: str) -> None:
        if not has_cardinality(owner):
            return
        counted = pc.value_counts(sources.drop_null())
        counts = counted.field("counts")
        few = pc.less(counts, owner.minimum)
        outside = few if owner.maximum is None else pc.or_(few, pc.greater(counts, owner.maximum))
        wrong = counted.filter(outside)
        if len(wrong):
            samples = [(each["values"], each["counts"]) for each in wrong.slice(0, SAMPLES_MAX).to_pylist()]
            add_cardinality(self.found, owner, where, len(wrong), samples)

    def _check_edges(self, manifest: Manifest, entries: Mapping[str, Entry], owner: TableType) -> None:
        edges = entries[owner.table_key]
        for end, type_name in (("src", owner.source), ("dst", owner.target)):
            nodes = entries.get(f"node:{type_name}")
            if nodes is None:
                continue  # The tables are not those of the schema, which was reported.
            pair = (_storage(edges), _storage(nodes), end)
            kept, ids = self._kept.get(pair[0]), self._kept.get(pair[1])
            if pair in self._joined or kept is None or ids is None:
                continue
            self._joined.add(pair)
            where = f"{manifest.where}/{owner.table_key}"
            self._check_ends(kept, end, ids["id"], type_name, where)

    def _check_ends(self, edges: pa.Table, end: str, ids: pa.ChunkedArray, type_name: str, where: str) -> None:
        known: Any = pc.is_in(edges[end], value_set=ids.combine_chunks())
        dangling = edges.filter(pc.invert(known))
        self.found.checked["edge_ends"] += edges.num_rows
        if dangling.num_rows:
            samples = dangling.slice(0, SAMPLES_MAX)
            ends = list(zip(samples["id"].to_pylist(), samples[end].to_pylist(), strict=True))
            add_dangling(self.found, end, type_name, where, dangling.num_rows, ends)


def has_cardinality(owner: TableType) -> bool:
    """Whether a source can have too many edges, or too few: it has at least one where it has any."""
    return owner.minimum > 1 or owner.maximum is not None


def add_cardinality(
    found: Findings, owner: TableType, where: str, count: int, samples: Sequence[tuple[str, int]]
) -> None:
    """Report sources with too many or too few edges; a sample is a source and how many it has."""
    allowed = f"{owner.minimum}..{'*' if owner.maximum is None else owner.maximum}"
    first, number = samples[0]
    message = f"{count} source(s) break the cardinality {allowed}: {first!r} has {number} edges"
    found.add("cardinality", where, message, count=count, ids=[source for source, _ in samples])


def add_dangling(
    found: Findings, end: str, type_name: str, where: str, count: int, samples: Sequence[tuple[str, str]]
) -> None:
    """Report edges without a node at one end; a sample is an edge and the node that is not there."""
    edges, missing = [list(each) for each in zip(*samples, strict=True)]
    message = f"{count} edge(s) whose {end} is in no row of {type_name}, first {missing[0]!r}"
    found.add("edge-dangling", where, message, count=count, edges=edges, missing=missing)


def _storage(entry: Entry) -> Storage:
    return (entry.path, entry.branch, entry.version)
