"""Export: a snapshot as JSON lines, table by table, rows by id; what `load` reads back [EXP]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reference.errors import BadRequest, Internal
from reference.format.export_lines import export_lines
from reference.operations.reading import read_rows
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore
from reference.schema.types import Catalog


def export_snapshot(
    store: GraphStore, snapshot: Snapshot, catalog: Catalog, *, types: Sequence[str] = (), tables: Sequence[str] = ()
) -> Iterator[bytes]:
    """The lines of a snapshot. The filters are checked before the first line."""
    chosen = choose_tables(snapshot, types, tables)
    return _lines(store, snapshot, catalog, chosen)


def choose_tables(snapshot: Snapshot, types: Sequence[str], tables: Sequence[str]) -> list[str]:
    """The tables that the filters name; all of them when there is no filter. Sorted by key [EXP-02, EXP-04]."""
    for name in types:
        if not {f"node:{name}", f"edge:{name}"} & snapshot.entries.keys():
            raise BadRequest(f"there is no type '{name}' to export", code="unknown_export_type", details={"type": name})
    for key in tables:
        if key not in snapshot.entries:
            raise BadRequest(f"there is no table '{key}' here", code="unknown_export_table", details={"table": key})
    if not types and not tables:
        return list(snapshot.entries)
    wanted = set(tables) | {f"{kind}:{name}" for name in types for kind in ("node", "edge")}
    return [key for key in snapshot.entries if key in wanted]


def _lines(store: GraphStore, snapshot: Snapshot, catalog: Catalog, keys: list[str]) -> Iterator[bytes]:
    for key in keys:
        rows, type_ = read_rows(store, snapshot, key), catalog.type_of(key)
        for missing in sorted({each.name for each in type_.properties} - {*rows.table.column_names}):
            raise Internal(f"'{key}' has no column '{missing}' here, and the schema has", code="column_missing")
        yield from export_lines(rows.table, type_, rows.blobs)
