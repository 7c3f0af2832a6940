"""Columns of a Parquet file as columns of a table: converted whole where that is beyond doubt.

A column of the same kind is cast, checked for what the format refuses (a null where none may be, a number that does
not fit or is not finite) and used. Anything else is in doubt: None is returned, and the rows go the way of JSON
records, one by one, through the engine's own reader, which says exactly what is wrong or finds that nothing is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest
from reference.format import values
from reference.schema.types import EdgeType, NodeType, Property, PropertyType

Owner = NodeType | EdgeType
_DOUBTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError)


def typed_rows(owner: Owner, schema: pa.Schema, rows: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]] | None:
    """Rows with their ids, and of which rows the input fixed the id; None where a row may be wrong."""
    ends = ("from", "to") if isinstance(owner, EdgeType) else ()
    known = {"id", *ends, *(prop.name for prop in owner.properties)}
    if not set(rows.column_names) <= known or not set(ends) <= set(rows.column_names):
        return None
    try:
        columns = {prop.name: _column(prop, rows) for prop in owner.properties}
        sides = [_texts(_whole(rows, end)) for end in ends]
        given = _texts(_whole(rows, "id")) if "id" in rows.column_names else None
    except _DOUBTS:
        return None
    if any(column is None for column in (*columns.values(), *sides)):
        return None
    if any(side.null_count for side in sides if side is not None):
        return None
    if "id" in rows.column_names and given is None:
        return None
    made = _ids(owner, columns, given, rows.num_rows)
    if made is None:
        return None
    ids, explicit = made
    return pa.Table.from_arrays([ids, *sides, *columns.values()], schema=schema), explicit


def _whole(rows: pa.Table, name: str) -> Any:
    column = rows.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _ids(
    owner: Owner, columns: dict[str, Any], given: Any | None, count: int
) -> tuple[pa.Array, npt.NDArray[np.bool_]] | None:
    if given is not None and pc.any(pc.equal(given, "")).as_py():
        return None
    if isinstance(owner, NodeType) and owner.key:
        if any(columns[name].null_count for name in owner.key):
            return None
        made = values.row_ids(owner, columns)
        # An id beside a key must be what the key makes it; one that is null says nothing.
        if given is not None and pc.any(pc.not_equal(given, made)).as_py():
            return None
        return made, np.ones(count, dtype=np.bool_)
    if given is None:
        return values.fresh_ids(count), np.zeros(count, dtype=np.bool_)
    if not given.null_count:
        return given, np.ones(count, dtype=np.bool_)
    return pc.coalesce(given, values.fresh_ids(count)), given.is_valid().to_numpy(zero_copy_only=False)


def _column(prop: Property, rows: pa.Table) -> Any | None:
    if prop.name not in rows.column_names:
        if not prop.type.nullable:
            return None
        is_blob = prop.type.scalar == "Blob"
        return (
            values.blob_column([None] * rows.num_rows) if is_blob else pa.nulls(rows.num_rows, prop.type.arrow_type())
        )
    array = _converted(prop, _whole(rows, prop.name))
    return None if array is None or (array.null_count and not prop.type.nullable) else array


def _converted(prop: Property, array: Any) -> Any | None:
    kind, target = array.type, prop.type.arrow_type()
    if prop.type.dimensions is not None and not prop.type.is_list:
        return _vector(array, target)
    if prop.type.scalar == "Blob":
        return _blobs(prop, array)
    if prop.type.is_list:
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return None
        items = _scalar(prop.type.scalar, array.flatten())
        if items is None or kind.value_type != target.value_type:
            return None
        return array.cast(target)
    return _scalar(prop.type.scalar, array)


def _vector(array: Any, target: pa.DataType) -> Any | None:
    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    if not pa.types.is_floating(kind.value_type):
        return None
    vectors = array.cast(target)
    items = vectors.drop_null().flatten()
    return vectors if not items.null_count and _is_finite(items) else None


def _is_finite(numbers: Any) -> bool:
    return pc.all(pc.is_finite(numbers)).as_py() is not False


def _texts(array: Any) -> Any | None:
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return None
    texts = array.cast(pa.string())
    texts.validate(full=True)  # Foreign files may hold bytes that are no text.
    return texts


def _blobs(prop: Property, array: Any) -> Any | None:
    """Blobs as the tables have them, content or a URI, or as plain bytes."""
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    kind = storage.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return values.blob_column(storage.to_pylist())
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {"data", "uri"}:
        return None
    data, uri = (kind.field(name).type for name in ("data", "uri"))
    if not (pa.types.is_binary(data) or pa.types.is_large_binary(data)) or not pa.types.is_string(uri):
        return None
    found = [None if blob is None else (blob["data"], blob["uri"]) for blob in storage.to_pylist()]
    if any(blob is not None and None not in blob for blob in found):
        return None
    for _, reference in filter(None, found):
        if reference is not None:
            try:
                values.coerce(prop, reference, "")
            except BadRequest:
                return None
    return values.blob_column([None if blob is None else blob[1] if blob[0] is None else blob[0] for blob in found])


def _scalar(scalar: str, array: Any) -> Any | None:
    kind = array.type
    target = PropertyType(scalar).arrow_type()
    if scalar == "String":
        return _texts(array)
    if scalar == "Bool":
        return array if pa.types.is_boolean(kind) else None
    if scalar in values.INTEGER_RANGES:
        return array.cast(target) if pa.types.is_integer(kind) else None
    if scalar in ("F32", "F64"):
        if not pa.types.is_floating(kind):
            return None
        numbers = array.cast(target, safe=False)
        return numbers if _is_finite(numbers) else None
    if scalar == "Date":
        days = array.cast(target) if pa.types.is_date(kind) else None
        return None if days is None else _within(days, pa.int32(), values.DAYS_MIN, values.DAYS_MAX, target)
    if scalar == "DateTime":
        if pa.types.is_date64(kind):
            return _within(array, pa.int64(), values.MILLIS_MIN, values.MILLIS_MAX, target)
        if pa.types.is_timestamp(kind):
            # Finer than a millisecond is cut, towards the past as text is.
            millis = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", kind.tz), safe=False)
            return _within(millis, pa.int64(), values.MILLIS_MIN, values.MILLIS_MAX, target)
    return None


def _within(array: Any, bits: pa.DataType, lowest: int, highest: int, target: pa.DataType) -> Any | None:
    numbers = array.view(bits)
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and not (lowest <= bounds["min"].as_py() and bounds["max"].as_py() <= highest):
        return None
    return numbers.view(target)
