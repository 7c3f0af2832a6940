"""The rows that branches read: each table once per pinned version, each pair of tables once per pair of versions.

Of a table the ids and endpoints are kept for the rules that reach over two tables: every edge has its ends [VAL-09],
and no source has too many edges, or too few if it has any [VAL-10].
"""

from __future__ import annotations

from collections.abc import Mapping
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
        for key, owner in self.catalog.types.items():
            if key in entries:
                self._read(manifest, entries[key], owner)
        for key, owner in self.catalog.types.items():
            if owner.kind == "edge" and key in entries:
                self._check_edges(manifest, entries, owner)

    def _read(self, manifest: Manifest, entry: Entry, owner: TableType) -> None:
        storage = _storage(entry)
        if storage in self._kept:
            return
        self._kept[storage] = None
        if storage not in self.pins.fit_for_rules:
            return
        handle, where = self.pins.readable[storage], f"{manifest.where}/{entry.table_key}"
        columns = [column.name for column in handle.schema if not is_blob(column)]
        try:
            with self.datasets.reading(f"the rows of {entry.path}"):
                rows = handle.to_table(columns=columns)
        except (DatasetMissing, DatasetUnreadable) as error:
            self.found.add("table-unreadable", where, f"the rows of version {entry.version} cannot be read: {error}")
            return
        self.found.checked["rows"] += rows.num_rows
        for problem in problems(owner, rows):
            self.found.add(problem.code, where, problem.message, version=entry.version, **problem.details)
        self._kept[storage] = rows.select([name for name in _KEPT if name in columns])
        if owner.kind == "edge":
            self._check_cardinality(owner, rows["src"], where)

    def _check_cardinality(self, owner: TableType, sources: pa.ChunkedArray, where: str) -> None:
        if owner.minimum <= 1 and owner.maximum is None:
            return
        counted = pc.value_counts(sources.drop_null())
        values, counts = counted.field("values"), counted.field("counts")
        few = pc.less(counts, owner.minimum)
        outside = few if owner.maximum is None else pc.or_(few, pc.greater(counts, owner.maximum))
        wrong = counted.filter(outside)
        if len(wrong):
            first, number = values.filter(outside)[0].as_py(), counts.filter(outside)[0].as_py()
            allowed = f"{owner.minimum}..{'*' if owner.maximum is None else owner.maximum}"
            message = f"{len(wrong)} source(s) break the cardinality {allowed}: {first!r} has {number} edges"
            ids = values.filter(outside).slice(0, SAMPLES_MAX).to_pylist()
            self.found.add("cardinality", where, message, count=len(wrong), ids=ids)

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
            missing = dangling[end].slice(0, SAMPLES_MAX).to_pylist()
            message = f"{dangling.num_rows} edge(s) whose {end} is in no row of {type_name}, first {missing[0]!r}"
            edge_ids = dangling["id"].slice(0, SAMPLES_MAX).to_pylist()
            self.found.add("edge-dangling", where, message, count=dangling.num_rows, edges=edge_ids, missing=missing)


def _storage(entry: Entry) -> Storage:
    return (entry.path, entry.branch, entry.version)
