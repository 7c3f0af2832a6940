"""Diff: what changed between two snapshots, row by row [CHG].

A row counts as updated when a value of it changed, whoever rewrote it: compaction, indexing and an upsert of equal
values are no change. Only where the columns of a table themselves changed are all of its rows updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from reference.errors import BadRequest
from reference.format.manifest import TableEntry
from reference.format.names import branch_label, parse_table_key
from reference.operations.merge_rows import delta_between, rows_by_id
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore

ChangeOp = Literal["insert", "update", "delete"]


@dataclass(frozen=True)
class Change:
    """One row that is new, different or gone. Edges say which nodes they join, or joined."""

    table_key: str
    row_id: str
    op: ChangeOp
    endpoints: tuple[str, str] | None = None


@dataclass(frozen=True)
class Diff:
    """All changes from one snapshot to another, by table and id."""

    older: Snapshot
    newer: Snapshot
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        counts = {f"{op}s": sum(change.op == op for change in self.changes) for op in get_args(ChangeOp)}
        types = sorted({parse_table_key(change.table_key).type_name for change in self.changes})
        return {
            "from_version": self.older.version,
            "to_version": self.newer.version,
            "branch": branch_label(self.newer.branch),
            "changes": [self._change_json(change) for change in self.changes],
            "stats": {**counts, "types_affected": types},
        }

    def _change_json(self, change: Change) -> dict[str, Any]:
        kind, type_name = parse_table_key(change.table_key)
        body = {
            "table_key": change.table_key,
            "kind": kind,
            "type_name": type_name,
            "id": change.row_id,
            "op": change.op,
            "manifest_version": self.newer.version,
        }
        if change.endpoints is not None:
            body["endpoints"] = dict(zip(("src", "dst"), change.endpoints, strict=True))
        return body


def diff(
    store: GraphStore, older: Snapshot, newer: Snapshot, *, types: Sequence[str] = (), ops: Sequence[str] = ()
) -> Diff:
    """The changes from one snapshot to another, of some types and of some kinds only if asked so."""
    keys = sorted(older.entries.keys() | newer.entries.keys())
    _check_filters(keys, types, ops)
    chosen = [key for key in keys if not types or parse_table_key(key).type_name in types]
    found = (change for key in chosen for change in _changes(store, older.entries.get(key), newer.entries.get(key)))
    return Diff(older, newer, tuple(change for change in found if not ops or change.op in ops))


def _check_filters(keys: list[str], types: Sequence[str], ops: Sequence[str]) -> None:
    for name in types:
        if not any(parse_table_key(key).type_name == name for key in keys):
            raise BadRequest(f"neither snapshot has a type '{name}'", code="unknown_type", details={"type": name})
    for op in ops:
        if op not in get_args(ChangeOp):
            raise BadRequest(f"'{op}' is not insert, update or delete", code="unknown_change_op", details={"op": op})


def _changes(store: GraphStore, older: TableEntry | None, newer: TableEntry | None) -> Iterator[Change]:
    delta = delta_between(store, older, newer)
    found: dict[ChangeOp, frozenset[str]] = {"insert": delta.inserted, "update": delta.updated, "delete": delta.deleted}
    ops = sorted((row_id, op) for op, ids in found.items() for row_id in ids)
    endpoints = _endpoints(store, older, delta.deleted) | _endpoints(store, newer, delta.present)
    entry = newer or older
    if entry is not None:
        yield from (Change(entry.table_key, row_id, op, endpoints.get(row_id)) for row_id, op in ops)


def _endpoints(store: GraphStore, entry: TableEntry | None, ids: frozenset[str]) -> dict[str, tuple[str, str]]:
    if entry is None or not ids or parse_table_key(entry.table_key).kind != "edge":
        return {}
    ends = rows_by_id(store, entry, ids, ["id", "src", "dst"]).table
    return dict(
        zip(ends["id"].to_pylist(), zip(ends["src"].to_pylist(), ends["dst"].to_pylist(), strict=True), strict=True)
    )
