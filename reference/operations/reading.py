"""Reading rows of a snapshot: whole tables, single entities, and the JSON that people and drivers see [SNP]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lance import LanceDataset

from reference.format.export_lines import BlobValue, blob_values, row_json
from reference.format.manifest import TableEntry
from reference.format.values import blob_column
from reference.protocol.manifests import Snapshot
from reference.protocol.store import GraphStore

ROW_ID = "_rowid"
PROBE_VALUES_MAX = 1_000
ROW_UPDATED_AT = "_row_last_updated_at_version"


@dataclass(frozen=True)
class Rows:
    """Rows of a table. Lance hands out blobs as descriptors, so their contents stand beside the table."""

    table: pa.Table
    blobs: dict[str, list[BlobValue]] = field(default_factory=dict)

    def writable(self) -> pa.Table:
        """The same rows as a table that can be written again, blobs included."""
        table = self.table
        for name, values in self.blobs.items():
            index = table.schema.get_field_index(name)
            nullable = table.schema.field(index).nullable
            array = blob_column(values)
            table = table.set_column(index, pa.field(name, array.type, nullable=nullable), array)
        return table

    def sorted_by_id(self) -> Rows:
        """Ascending by id, which is how exports and results are ordered."""
        order = pa.compute.sort_indices(self.table.column("id"))
        blobs = {name: [values[i] for i in order.to_pylist()] for name, values in self.blobs.items()}
        return Rows(self.table.take(order), blobs)

    def to_json(self) -> list[dict[str, Any]]:
        return row_json(self.table, self.blobs)


def quoted(text: str) -> str:
    """A text as a literal of the filter language: quotes doubled."""
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, texts: Iterable[str]) -> str:
    """A filter for rows whose column is one of some texts."""
    return f"`{column}` IN ({', '.join(quoted(text) for text in texts)})"


def open_entry(store: GraphStore, entry: TableEntry) -> LanceDataset:
    """The dataset behind an entry of a snapshot."""
    return store.tables.readable(entry.path, store.tables.open(entry.path, entry.branch, entry.version))


def read_entry(
    store: GraphStore, entry: TableEntry, *, columns: list[str] | None = None, where: str | None = None
) -> Rows:
    """Rows of one table at one version, with the contents of its blobs. `where` is a filter this engine has made."""
    handle = open_entry(store, entry)
    names = handle.schema.names if columns is None else columns
    blobs = [name for name in names if is_blob(handle.schema.field(name))]

    def scan() -> Rows:
        extra = [ROW_UPDATED_AT] if blobs else []
        table = handle.to_table(columns=[*names, *extra], filter=where, with_row_id=bool(blobs))
        contents = {name: _read_blobs(store, entry, table, name) for name in blobs}
        return Rows(table.select(names), contents)

    rows: Rows = store.tables.run(entry.table_key, scan)
    return rows


def read_matching(
    store: GraphStore, entry: TableEntry | None, schema: pa.Schema, column: str, wanted: Any | None
) -> pa.Table:
    """The columns of `schema` of the rows whose `column` is one of `wanted`, or of all rows. No blobs.

    A few texts are asked for, which an index can answer; anything else is compared with the column, read once. A table
    that is not there, or has no rows, or of which nothing is wanted, is not opened.
    """
    if entry is None or not entry.row_count or (wanted is not None and not len(wanted)):
        return schema.empty_table()
    few = wanted is not None and len(wanted) <= PROBE_VALUES_MAX and pa.types.is_string(schema.field(column).type)
    where = one_of(column, wanted.to_pylist()) if wanted is not None and few else None
    rows = read_entry(store, entry, columns=schema.names, where=where).table
    return rows if wanted is None or few else rows.filter(pa.compute.is_in(rows[column], value_set=wanted))


def is_blob(column: pa.Field) -> bool:
    """Whether a column of a dataset holds blobs."""
    return isinstance(column.type, pa.BaseExtensionType) and "blob" in column.type.extension_name


def _read_blobs(store: GraphStore, entry: TableEntry, rows: pa.Table, name: str) -> list[BlobValue]:
    handle = open_entry(store, entry)
    row_ids = rows.column(ROW_ID).to_pylist()

    def read(indices: list[int]) -> list[bytes]:
        wanted = [row_ids[index] for index in indices]
        return [content or b"" for _, content in handle.read_blobs(name, ids=wanted, preserve_order=True)]

    values = blob_values(rows.column(name), read)
    written_at = rows.column(ROW_UPDATED_AT).to_pylist()
    empty = {written_at[index] for index, value in enumerate(values) if value == b""}
    # OmniGraph 0.8 writes a null blob as what Lance now writes for an empty one. Who wrote a row tells them apart.
    foreign = {version for version in empty if not store.tables.is_ours(entry.path, entry.branch, version)}
    return [
        None if value == b"" and version in foreign else value
        for value, version in zip(values, written_at, strict=True)
    ]


def read_rows(store: GraphStore, snapshot: Snapshot, table_key: str, where: str | None = None) -> Rows:
    """Rows of one table of a snapshot, by id."""
    return read_entry(store, snapshot.entry(table_key), where=where).sorted_by_id()


def entity_at(store: GraphStore, snapshot: Snapshot, table_key: str, entity_id: str) -> dict[str, Any] | None:
    """One row as JSON; null where the table or the id is not in the snapshot [SNP-06]."""
    entry = snapshot.entries.get(table_key)
    if entry is None:
        return None
    found = read_entry(store, entry, where=f"`id` = {quoted(entity_id)}").to_json()
    return found[0] if found else None
