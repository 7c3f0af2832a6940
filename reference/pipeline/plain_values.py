"""Values of a Parquet file as the JSON that means the same, for the rows that go through the engine's reader.

Nothing is repaired on the way: a time where text is needed does not become text, nor do bytes or decimals. What JSON
has no value for becomes an object, which no property takes, so the reader refuses it in its own words.
"""

from __future__ import annotations

import base64
import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reference.format.values import BLOB_PREFIX
from reference.schema.types import Property

_TIMES = ("Date", "DateTime")


def plain_column(prop: Property | None, column: Any) -> list[Any]:
    """The values of a column. `prop` is the property that they are for, if the schema has one."""
    return [plain_value(prop, value) for value in python_values(column)]


def plain_value(prop: Property | None, value: Any) -> Any:
    """One value of a column."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [plain_value(prop, item) for item in value]
    scalar = "" if prop is None else prop.type.scalar
    if scalar == "Blob":
        return _blob(value)
    if scalar in _TIMES and isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): plain_value(None, item) for name, item in value.items()}
    shown = base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
    return {type(value).__name__: shown}


def _blob(value: Any) -> Any:
    """A blob as the tables have it, content or a URI, or as plain bytes."""
    if isinstance(value, bytes):
        return BLOB_PREFIX + base64.b64encode(value).decode()
    if isinstance(value, dict) and value.keys() == {"data", "uri"} and None in value.values():
        content = value["data"]
        return value["uri"] if content is None else _blob(content)
    return plain_value(None, value)


def python_values(column: Any) -> list[Any]:
    """The values of a column as they are in Python."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return _values_that_python_lacks(column)


def _values_that_python_lacks(column: Any) -> list[Any]:
    """Text that is no UTF-8 keeps its bytes, and a time beyond the calendar is a number beyond it."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="surrogateescape") for value in values]
    if pa.types.is_date32(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        millis = column.cast(pa.timestamp("ms"), safe=False) if pa.types.is_timestamp(kind) else column
        return list(millis.cast(pa.int64()).to_pylist())
    return [None if is_null else {"value": str(kind)} for is_null in pc.is_null(column).to_pylist()]
