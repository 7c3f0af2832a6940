"""What a typed value is: one meaning for load, mutate, predicates, keys, merge and export.

A JSON value enters through `coerce` (one value) or `column` (many), both with the same result. The canonical values are

    String, enum   str                          Bool        bool
    I32 … U64      int                          F32, F64    float (an F32 is already rounded to 32 bits)
    Date           int, days since 1970-01-01   DateTime    int, milliseconds since 1970-01-01T00:00:00 UTC
    Blob           bytes (content) or str (a URI reference)
    [T]            list, items may be None      Vector(d)   list of d floats

Nothing is repaired: a value of another type, out of range or not finite is refused, for a nullable property too
[LOD-14]. Dates and times reach from year 0001 to year 9999, the years that four digits can write, so that whatever is
accepted can be exported and loads again to the same value [EXP-06]. Enum membership, ranges and patterns are the
validator's business. This module is pure.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import itertools
import json
import math
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest
from reference.schema.types import NodeType, Property, PropertyType

BLOB_PREFIX: Final = "base64:"
BLOB_SCHEMES: Final = frozenset({"file", "s3", "gs", "az", "memory"})
INTEGER_RANGES: Final = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
DAYS_MIN, DAYS_MAX = -719_162, 2_932_896  # 0001-01-01 … 9999-12-31
MILLIS_MIN, MILLIS_MAX = DAYS_MIN * 86_400_000, (DAYS_MAX + 1) * 86_400_000 - 1

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
# The forms of a time that Arrow reads exactly as `_millis` does: all values with a zone, or none.
_PLAIN_TIME = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,3})?"
_BULK_TIMES = ((_PLAIN_TIME + r"$", None), (_PLAIN_TIME + r"(Z|[+-]\d\d:\d\d)$", "UTC"))
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s\x00-\x1f]+")
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_NOT_BULK = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)


class _Unfit(Exception):
    """Why a value cannot be a value of its type, to be completed with the property and the place."""


def coerce(prop: Property, value: Any, where: str) -> Any:
    """The canonical value for a JSON value, or a refusal that names the place, the property and the value."""
    if value is None:
        if prop.type.nullable:
            return None
        raise BadRequest(
            f"{where}: '{prop.name}' must have a value",
            code="missing_value",
            details={"property": prop.name, "value": None},
        )
    try:
        return _canonical(prop.type, value)
    except _Unfit as unfit:
        raise BadRequest(
            f"{where}: {shown(value)} does not fit '{prop.name}': {unfit}",
            code="invalid_value",
            details={"property": prop.name, "value": detail(value), "expected": prop.type.scalar},
        ) from None


def literal(prop: Property, value: Any, where: str = "predicate") -> Any:
    """A value to compare a property with: like `coerce`, and null may be asked for on every property."""
    return None if value is None else coerce(prop, value, where)


def _canonical(kind: PropertyType, value: Any) -> Any:
    if kind.is_list:
        if type(value) is not list:
            raise _Unfit(f"a list of {kind.scalar} is needed")
        return _items(kind.scalar, value, null_allowed=True)
    if kind.scalar == "Vector":
        if type(value) is not list:
            raise _Unfit("a vector is a list of numbers")
        if len(value) != kind.dimensions:
            raise _Unfit(f"the vector has {len(value)} items and needs {kind.dimensions}")
        return _items("F32", value, null_allowed=False)
    return _SCALARS[kind.scalar](value)


def _items(scalar: str, values: list[Any], *, null_allowed: bool) -> list[Any]:
    read, items = _SCALARS[scalar], []
    for index, value in enumerate(values):
        try:
            items.append(None if value is None and null_allowed else read(value))
        except _Unfit as unfit:
            raise _Unfit(f"item {index}: {unfit}") from None
    return items


def is_text(value: Any) -> bool:
    """Whether it is a str that UTF-8 can write: JSON can spell half of a surrogate pair, which is no text."""
    return type(value) is str and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))


def _string(value: Any) -> str:
    if not is_text(value):
        raise _Unfit("text is needed")
    return str(value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unfit("true or false is needed")
    return value


def _integer(scalar: str) -> Callable[[Any], int]:
    lowest, highest = INTEGER_RANGES[scalar]

    def read(value: Any) -> int:
        return _bounded(value, lowest, highest, f"{scalar} holds whole numbers")

    return read


def _bounded(value: Any, lowest: int, highest: int, rule: str) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise _Unfit(f"{rule} from {lowest} to {highest}")
    return value


def _float64(value: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise _Unfit("a number is needed")
    try:
        number = float(value)
    except OverflowError:
        raise _Unfit("the number is too large") from None
    if not math.isfinite(number):
        raise _Unfit("the number is not finite")
    return number


def _float32(value: Any) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _float64(value)))[0])
    except OverflowError:
        raise _Unfit("the number is too large for 32 bits") from None


def _days(value: Any) -> int:
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value).toordinal() - _EPOCH_ORDINAL
        except ValueError:
            raise _Unfit("the calendar has no such day in the years 0001 to 9999") from None
    return _bounded(value, DAYS_MIN, DAYS_MAX, "a date is YYYY-MM-DD, or the days since 1970-01-01,")


def _millis(value: Any) -> int:
    match = _DATETIME.fullmatch(value) if type(value) is str else None
    if match is None:
        return _bounded(
            value, MILLIS_MIN, MILLIS_MAX, "a time is YYYY-MM-DDTHH:MM:SS, or the milliseconds since 1970-01-01,"
        )
    day, hour, minute, second, fraction, zone = match.groups()
    clock = [int(part or 0) for part in (hour, minute, second)]
    offset = [0, 0] if zone is None or zone == "Z" else [int(zone[1:3]), int(zone[4:6])]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59 or offset[0] > 23 or offset[1] > 59:
        raise _Unfit("the clock has no such time")
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    offset_seconds = (offset[0] * 3600 + offset[1] * 60) * (-1 if zone and zone[0] == "-" else 1)
    millis = int((fraction or "")[:3].ljust(3, "0"))  # finer than a millisecond is cut [EXP-01]
    total = _days(day) * 86_400_000 + (seconds - offset_seconds) * 1000 + millis
    return _bounded(total, MILLIS_MIN, MILLIS_MAX, "in UTC the time lies outside the milliseconds")


def _blob(value: Any) -> bytes | str:
    if type(value) is not str:
        raise _Unfit("a blob is 'base64:…' or a URI")
    if value.startswith(BLOB_PREFIX):
        try:
            return base64.b64decode(value[len(BLOB_PREFIX) :].encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise _Unfit("what follows 'base64:' is not standard base64") from None
    uri = _URI.fullmatch(_string(value))
    if uri is None or uri[1].lower() not in BLOB_SCHEMES:
        raise _Unfit(f"a blob reference is an absolute URI with one of the schemes {', '.join(sorted(BLOB_SCHEMES))}")
    return value


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "String": _string,
    "Blob": _blob,
    "Bool": _bool,
    "F32": _float32,
    "F64": _float64,
    "Date": _days,
    "DateTime": _millis,
    **{scalar: _integer(scalar) for scalar in INTEGER_RANGES},
}


def column(prop: Property, values: list[Any], where: Callable[[int], str] = "value {}".format) -> pa.Array:
    """Many JSON values as one Arrow column. `where(index)` names a place, for the error message.

    Values of the usual shapes are converted in bulk. When that does not work out, each value goes through `coerce`,
    which either finds the exact offender or accepts a rarer shape (a mix of date forms, say).
    """
    try:
        array = _bulk(prop.type, values)
    except _NOT_BULK:
        array = None
    if array is None or (array.null_count and not prop.type.nullable):
        canonical = [coerce(prop, value, where(index)) for index, value in enumerate(values)]
        array = blob_column(canonical) if prop.type.scalar == "Blob" else pa.array(canonical, prop.type.arrow_type())
    return array


def blob_column(values: Sequence[bytes | str | None]) -> pa.Array:
    """Blobs as Lance takes them: bytes are content (possibly empty), a str is a URI, None is null."""
    blob_type = PropertyType("Blob").arrow_type()
    contents = pa.array([value if isinstance(value, bytes) else None for value in values], pa.large_binary())
    uris = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    mask = pa.array([value is None for value in values], pa.bool_())
    storage = pa.StructArray.from_arrays([contents, uris], fields=list(blob_type.storage_type), mask=mask)
    return pa.ExtensionArray.from_storage(blob_type, storage)


def _bulk(kind: PropertyType, values: list[Any]) -> pa.Array | None:
    types = _types(values)
    if not kind.is_list and kind.scalar != "Vector":
        return _bulk_scalar(kind.scalar, kind.arrow_type(), types, values)
    if not types <= {list}:
        return None
    if kind.scalar == "Vector" and not kind.is_list:
        return _bulk_vector(kind, values)
    items = list(itertools.chain.from_iterable(filter(None, values)))
    array = _bulk_scalar(kind.scalar, kind.arrow_type().value_type, _types(items), items)
    if array is None:
        return None
    offsets = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value or ()) for value in values], out=offsets[1:])
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), array, type=kind.arrow_type(), mask=mask)


def _bulk_vector(kind: PropertyType, values: list[Any]) -> pa.Array | None:
    filler = [0.0] * (kind.dimensions or 0)
    if set(map(len, filter(None, values))) - {kind.dimensions} or [] in values:
        return None
    items = list(itertools.chain.from_iterable(filler if value is None else value for value in values))
    array = _bulk_scalar("F32", pa.float32(), _types(items), items)
    if array is None or array.null_count:
        return None
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.FixedSizeListArray.from_arrays(array, type=kind.arrow_type(), mask=mask)


def _bulk_scalar(scalar: str, arrow_type: pa.DataType, types: set[type], values: list[Any]) -> pa.Array | None:
    if scalar == "String" or scalar == "Bool":
        return pa.array(values, arrow_type) if types <= {str if scalar == "String" else bool} else None
    if scalar in INTEGER_RANGES:
        return pa.array(values, arrow_type) if types <= {int} else None
    if scalar in ("F32", "F64") and types <= {int, float}:
        array = pa.array(values, pa.float64()).cast(arrow_type, safe=False)
        return array if pc.all(pc.is_finite(array)).as_py() is not False else None
    if scalar == "Date" and types <= {str}:
        return _within(pa.array(values, pa.string()).cast(pa.date32()).view(pa.int32()), DAYS_MIN, DAYS_MAX, arrow_type)
    if scalar == "Date" and types <= {int}:
        return _within(pa.array(values, pa.int32()), DAYS_MIN, DAYS_MAX, arrow_type)
    if scalar == "DateTime" and types <= {int}:
        return _within(pa.array(values, pa.int64()), MILLIS_MIN, MILLIS_MAX, arrow_type)
    if scalar == "DateTime" and types <= {str}:
        texts = pa.array(values, pa.string())
        for pattern, zone in _BULK_TIMES:
            if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False:
                millis = texts.cast(pa.timestamp("ms", zone)).view(pa.int64())
                return _within(millis, MILLIS_MIN, MILLIS_MAX, arrow_type)
    return None


def _within(array: pa.Array, lowest: int, highest: int, arrow_type: pa.DataType) -> pa.Array | None:
    bounds = pc.min_max(array)
    if bounds["min"].is_valid and not (lowest <= bounds["min"].as_py() and bounds["max"].as_py() <= highest):
        return None
    return array.view(arrow_type)


def _types(values: Iterable[Any]) -> set[type]:
    return set(map(type, values)) - {type(None)}


def texts(array: pa.Array) -> pa.Array:
    """The values of a scalar column as plain text: what a single key turns into an id [VAL-14].

    Text is itself, integers are decimal, bools `true`/`false`, floats in export's digits, dates `YYYY-MM-DD` and times
    `YYYY-MM-DDTHH:MM:SS[.mmm]` in UTC.
    """
    if pa.types.is_floating(array.type):
        numbers = array.cast(pa.float64()).to_pylist()
        return pa.array([None if number is None else orjson.dumps(number).decode() for number in numbers], pa.string())
    if pa.types.is_date64(array.type):
        spaced = array.view(pa.int64()).view(pa.timestamp("ms")).cast(pa.string())
        return pc.replace_substring_regex(pc.replace_substring(spaced, " ", "T"), r"\.000$", "")
    return array.cast(pa.string())


def row_ids(node_type: NodeType, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The ids of keyed rows, from their typed key columns [LOD-05, VAL-14].

    One key column: its text. Several: the compact JSON array of the values, columns in sorted order, with dates and
    times as the same text as in a single key.
    """
    keys = sorted(node_type.key)
    if len(keys) == 1:
        return texts(columns[keys[0]])
    parts = [_json_parts(columns[key]) for key in keys]
    return pa.array([orjson.dumps(row).decode() for row in zip(*parts, strict=True)], pa.string())


def _json_parts(array: pa.Array) -> list[Any]:
    array = texts(array) if pa.types.is_date(array.type) else array
    return list((array.cast(pa.float64()) if pa.types.is_floating(array.type) else array).to_pylist())


def row_id(node_type: NodeType, data: Mapping[str, Any], where: str = "row") -> str:
    """The id that a keyed node's JSON values give it: the same as `row_ids` of their columns."""
    columns: dict[str, pa.Array] = {}
    for prop in node_type.properties:
        key = prop.name
        if key not in node_type.key:
            continue
        if data.get(key) is None:
            raise BadRequest(
                f"{where}: a {node_type.name} is known by '{key}', which has no value",
                code="missing_key",
                details={"type": node_type.name, "property": key},
            )
        columns[key] = column(prop, [data[key]], lambda _: where)
    return str(row_ids(node_type, columns)[0].as_py())


def fresh_ids(count: int) -> pa.Array:
    """New ULIDs (48 bits of milliseconds, 80 random bits, Crockford's base 32), many at a time."""
    millis = time.time_ns() // 1_000_000
    digits = np.empty((count, 26), dtype=np.uint8)
    digits[:, :10] = [(millis >> shift) & 31 for shift in range(45, -1, -5)]
    digits[:, 10:] = np.frombuffer(os.urandom(16 * count), dtype=np.uint8).reshape(count, 16) & 31
    packed = pa.py_buffer(np.ascontiguousarray(_CROCKFORD[digits]))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * 26)
    return pa.StringArray.from_buffers(count, offsets, packed)


def detail(value: Any) -> Any:
    """A value as an error's details may carry it: itself when JSON can, else the text of it."""
    if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
        return value
    return value if type(value) is str and len(value) <= 200 and value.isprintable() else shown(value)


def shown(value: Any) -> str:
    """A value in a message: its JSON, in ASCII, cut when long."""
    try:
        text = json.dumps(value, default=repr)
    except RecursionError:
        text = "a value that is nested too deep to be shown"
    return text if len(text) <= 80 else text[:77] + "..."
