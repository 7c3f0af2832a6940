"""Tables as Parquet files that `load` takes: what the columns are called there, and which types they have.

A file of nodes has the properties, and `id` where the type has no key; a file of edges has `from`, `to`, perhaps
`id`, and the properties. Types are those of the tables, with two exceptions. Parquet has no time in milliseconds that
Arrow calls date64, and pyarrow would write the day alone. So a DateTime is a timestamp in milliseconds there, without
a zone, in UTC. A blob is a plain struct of `data` and `uri`, of which one is null: no reader has to know Lance's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reference.schema.types import Catalog

# As much as a load reads at once.
ROW_GROUP_ROWS: Final = 250_000
_ENDS = {"src": "from", "dst": "to"}


def record_schema(catalog: Catalog, table_key: str, *, with_ids: bool) -> pa.Schema:
    """The columns of a table's files."""
    stored = catalog.arrow_schema(table_key)
    fields = [pa.field(_ENDS.get(each.name, each.name), _file_type(each.type), each.nullable) for each in stored]
    if table_key.startswith("edge:"):
        ids, source, target, *properties = fields
        return pa.schema([source, target, *([ids] if with_ids else []), *properties])
    return pa.schema(fields if with_ids else fields[1:])


def as_records(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a table in the columns of its files."""
    stored = {name: column for column, name in _ENDS.items()}
    is_edge = schema.names[:2] == ["from", "to"]
    columns = [rows.column(stored.get(each.name, each.name) if is_edge else each.name) for each in schema]
    arrays = [_as_file_type(column, each.type) for column, each in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def write_parquet(rows: pa.Table, stream: Any) -> None:
    """One file. The items of lists keep their name, which Parquet would change."""
    pq.write_table(rows, stream, use_compliant_nested_type=False)


@contextmanager
def parquet_writer(schema: pa.Schema, stream: Any) -> Iterator[Callable[[pa.Table], None]]:
    """One file, some rows at a time. No dictionaries: most texts of a graph are ids, which do not come often enough
    to be worth them."""
    with pq.ParquetWriter(stream, schema, use_compliant_nested_type=False, use_dictionary=False) as writer:
        yield lambda rows: writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)


def _file_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_date64(kind):
        return pa.timestamp("ms")
    if pa.types.is_list(kind) and pa.types.is_date64(kind.value_type):
        return pa.list_(pa.field("item", pa.timestamp("ms")))
    return kind


def _as_file_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
