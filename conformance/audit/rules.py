"""The rules of a schema, held against the rows of one table: values, ids, keys, uniqueness [LOD-06, VAL].

Every function takes columns and yields at most a few problems: how many rows break a rule, and the first of them. All
of it is Arrow; only patterns, and keys that are not plain text, are looked at value by value.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from conformance.audit.schema import Property, Range, TableType

SAMPLES_MAX: Final = 5
_INTEGERS: Final = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
_FLOATS: Final = ("F32", "F64")


@dataclass(frozen=True)
class Problem:
    """Rows that break one rule. `what` is the rule in words, the same for whichever rows break it."""

    code: str
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    what: str = ""


def problems(owner: TableType, rows: pa.Table) -> Iterator[Problem]:
    """Everything that is wrong with the rows of a table, looked at alone. Blob columns may be absent."""
    yield from row_problems(owner, rows)
    yield from duplicate_ids(rows["id"])
    for group in owner.unique:
        yield from shared_values(group, rows)


def row_problems(owner: TableType, rows: pa.Table) -> Iterator[Problem]:
    """What single rows break, whichever other rows there are: so a table may be looked at part by part."""
    yield from _null_ids(rows["id"])
    for prop in owner.columns():
        if prop.name in rows.column_names:
            yield from _values(prop, rows)
    for limit in owner.ranges:
        yield from _range(owner, limit, rows)
    for name, pattern in owner.checks:
        yield from _check(name, pattern, rows)
    if owner.key:
        yield from _keys(owner.key, rows)


def merged(parts: Iterable[Problem]) -> list[Problem]:
    """The problems of several parts of one table as those of the whole: counts added up, the first samples kept."""
    found: dict[tuple[str, str], list[Problem]] = {}
    for problem in parts:
        found.setdefault((problem.code, problem.what), []).append(problem)
    return [_together(alike) for alike in found.values()]


def _together(alike: list[Problem]) -> Problem:
    first = alike[0]
    if "count" not in first.details:
        return first
    count = sum(each.details["count"] for each in alike)
    details: dict[str, Any] = {**first.details, "count": count}
    for name in {"ids", "values"} & details.keys():
        samples = [sample for each in alike for sample in each.details[name]]
        details[name] = (list(dict.fromkeys(samples)) if name == "values" else samples)[:SAMPLES_MAX]
    return Problem(first.code, _counted(count, details.get("ids"), first.what), details, first.what)


def _counted(count: int, ids: list[Any] | None, what: str) -> str:
    return f"{count} row(s) {what}" if ids is None else f"{count} row(s), first id {ids[0]!r}: {what}"


def _reported(code: str, rows: pa.Table, indices: Any, what: str, **details: Any) -> Iterator[Problem]:
    """The rows at some indices break a rule; an index that comes twice is one row."""
    indices = pc.unique(indices)
    if len(indices):
        ids = rows["id"].take(indices.slice(0, SAMPLES_MAX)).to_pylist()
        count = len(indices)
        yield Problem(code, _counted(count, ids, what), {"count": count, "ids": ids, **details}, what)


def _null_ids(ids: pa.ChunkedArray) -> Iterator[Problem]:
    if ids.null_count:
        what = "have no id"
        yield Problem("id-null", _counted(ids.null_count, None, what), {"count": ids.null_count}, what)


def duplicate_ids(ids: pa.ChunkedArray) -> Iterator[Problem]:
    """An id names one row of its table [LOD-06]."""
    if pc.count_distinct(ids).as_py() + ids.null_count < len(ids):
        counted = pc.value_counts(ids.drop_null())
        double = counted.filter(pc.greater(counted.field("counts"), 1)).field("values").to_pylist()
        message = f"{len(double)} id(s) name more than one row, first {double[0]!r}"
        yield Problem("id-duplicate", message, {"count": len(double), "ids": double[:SAMPLES_MAX]})


def _values(prop: Property, rows: pa.Table) -> Iterator[Problem]:
    column = rows[prop.name]
    if not prop.nullable and column.null_count and prop.name != "id":
        yield from _reported("value-missing", rows, pc.indices_nonzero(column.is_null()), f"'{prop.name}' has no value")
    nested = prop.is_list or prop.dimensions is not None
    if not nested and prop.enum_values is None and prop.scalar not in _FLOATS:
        return
    # Of a list the items are looked at, and `parents` says to which row each belongs. Null lists may hide items.
    present = pc.indices_nonzero(column.is_valid())
    filled = column.drop_null().combine_chunks()
    items, parents = filled, present
    if nested:
        items, parents = pc.list_flatten(filled), present.take(pc.list_parent_indices(filled))
    if prop.enum_values is not None:
        allowed = pc.is_in(items, value_set=pa.array(prop.enum_values, pa.string()))
        wrong = pc.and_(items.is_valid(), pc.invert(allowed))
        values = pc.unique(items.filter(wrong)).slice(0, SAMPLES_MAX).to_pylist()
        message = f"'{prop.name}' is not one of {', '.join(prop.enum_values)}"
        yield from _reported("enum", rows, parents.filter(wrong), message, values=values)
    if prop.scalar in _FLOATS or prop.dimensions is not None:
        infinite = pc.fill_null(pc.invert(pc.is_finite(items)), False)
        yield from _reported("value-not-finite", rows, parents.filter(infinite), f"'{prop.name}' holds NaN or infinity")
    if prop.dimensions is not None:
        message = f"the vector '{prop.name}' has an item without a value"
        yield from _reported("vector", rows, parents.filter(items.is_null()), message)


def _range(owner: TableType, limit: Range, rows: pa.Table) -> Iterator[Problem]:
    """Both bounds belong to the range. Integers are compared as integers, whatever their size [VAL-16]."""
    prop = next((each for each in owner.properties if each.name == limit.property), None)
    if prop is None or prop.is_list or limit.property not in rows.column_names:
        return
    column = rows[limit.property]
    lowest: float = -math.inf if limit.minimum is None else limit.minimum
    highest: float = math.inf if limit.maximum is None else limit.maximum
    if prop.scalar in _INTEGERS:
        smallest, largest = _INTEGERS[prop.scalar]
        lowest = max(smallest, smallest if lowest == -math.inf else math.ceil(lowest))
        highest = min(largest, largest if highest == math.inf else math.floor(highest))
        if lowest > largest or highest < smallest or lowest > highest:
            outside = column.is_valid()
        else:
            low, high = pa.scalar(lowest, column.type), pa.scalar(highest, column.type)
            outside = pc.or_(pc.less(column, low), pc.greater(column, high))
    elif prop.scalar in _FLOATS:
        column = column.cast(pa.float64())
        outside = pc.or_(pc.less(column, float(lowest)), pc.greater(column, float(highest)))
    else:
        return
    shown = f"{'' if limit.minimum is None else limit.minimum}..{'' if limit.maximum is None else limit.maximum}"
    message = f"'{limit.property}' lies outside {shown}"
    yield from _reported("range", rows, pc.indices_nonzero(outside), message, property=limit.property)


def compile_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""A pattern of the format as Python reads it: its `$` is the very end of the text, which Python calls `\Z`.

    None for what Python cannot read, or would read otherwise: sets within sets, classes such as `[[:alpha:]]`.
    """
    multiline = re.search(r"\(\?[isx]*m", pattern) is not None
    parts: list[str] = []
    in_set = False
    for token in re.findall(r"\\.|\[\^?\]?|.", pattern, re.DOTALL):
        if in_set:
            if token[0] == "[":
                return None
            in_set = token != "]"
        elif token[0] == "[":
            in_set = True
        elif token == r"\z" or (token == "$" and not multiline):
            token = r"\Z"
        parts.append(token)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile("".join(parts))
    except (re.error, FutureWarning, DeprecationWarning, OverflowError, RecursionError):
        return None


def _check(name: str, pattern: str, rows: pa.Table) -> Iterator[Problem]:
    if name not in rows.column_names or not pa.types.is_string(rows[name].type):
        return
    compiled = compile_pattern(pattern)
    if compiled is None:
        message = f"the pattern {pattern!r} of '{name}' cannot be evaluated here"
        yield Problem("check-not-evaluated", message, what=message)
        return
    values = pc.unique(rows[name]).drop_null().to_pylist()
    wrong = pa.array([value for value in values if not compiled.search(value)], pa.string())
    indices = pc.indices_nonzero(pc.is_in(rows[name], value_set=wrong))
    message = f"'{name}' does not match {pattern!r}"
    yield from _reported("check", rows, indices, message, values=wrong.slice(0, SAMPLES_MAX).to_pylist())


def can_be_unique(group: tuple[str, ...], schema: pa.Schema) -> bool:
    """Whether a table has the columns of a group, and they can be compared."""
    return all(name in schema.names and not pa.types.is_nested(schema.field(name).type) for name in group)


def shared_values(group: tuple[str, ...], rows: pa.Table) -> Iterator[Problem]:
    """No two rows share the values of a group; a row with a null in it is exempt [VAL-05]."""
    names = list(group)
    if not can_be_unique(group, rows.schema):
        return
    filled = rows.select(names).drop_null()
    counted = filled.group_by(names).aggregate([([], "count_all")])
    if counted.num_rows == filled.num_rows:
        return
    shared = counted.filter(pc.greater(counted["count_all"], 1)).select(names)
    values = [list(row.values()) for row in shared.slice(0, SAMPLES_MAX).to_pylist()]
    message = f"{shared.num_rows} value(s) of ({', '.join(names)}) are held by several rows, first {values[0]!r}"
    yield Problem(
        "unique", message, {"columns": names, "count": shared.num_rows, "values": [str(each) for each in values]}
    )


def _keys(key: tuple[str, ...], rows: pa.Table) -> Iterator[Problem]:
    """The id of a keyed row is made of its key [VAL-14]."""
    if any(name not in rows.column_names for name in key):
        return
    if len(key) == 1 and not (pa.types.is_date(rows[key[0]].type) or pa.types.is_floating(rows[key[0]].type)):
        texts = rows[key[0]].cast(pa.string())
        indices = pc.indices_nonzero(pc.fill_null(pc.not_equal(texts, rows["id"]), True))
        yield from _reported("key", rows, indices, f"the id is not the text of the key '{key[0]}'")
        return
    ids, columns = rows["id"].to_pylist(), [_key_values(rows[name]) for name in key]
    wrong = [index for index, values in enumerate(zip(*columns, strict=True)) if not is_id_of(ids[index], values)]
    form = "text" if len(key) == 1 else "JSON array"
    message = f"the id is not the {form} of the key ({', '.join(key)})"
    yield from _reported("key", rows, pa.array(wrong, pa.uint64()), message)


def _key_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column of a key. Arrow would give the day alone of a moment."""
    if not pa.types.is_date64(column.type):
        return list(column.to_pylist())
    return [None if millis is None else _moment(millis) for millis in column.cast(pa.int64()).to_pylist()]


def _moment(millis: int) -> datetime | str:
    """A moment; one that Python has no name for, as text."""
    try:
        return datetime(1970, 1, 1) + timedelta(milliseconds=millis)
    except OverflowError:
        spaced = str(pa.array([millis], pa.timestamp("ms")).cast(pa.string())[0])
        return spaced.replace(" ", "T").removesuffix(".000")


def is_id_of(text: str | None, values: tuple[Any, ...]) -> bool:
    """Whether an id stands for the values of a key: one as text, several as a compact JSON array."""
    if text is None:
        return False
    if len(values) == 1:
        return _stands_for(text, values[0])
    try:
        parts = json.loads(text)
    except ValueError:
        return False
    if not isinstance(parts, list) or len(parts) != len(values):
        return False
    has_floats = any(isinstance(part, float) for part in parts)
    if not has_floats and text != json.dumps(parts, separators=(",", ":"), ensure_ascii=False):
        return False
    return all(
        _stands_for(part, value) if isinstance(value, date | float) else (part == value and type(part) is type(value))
        for part, value in zip(parts, values, strict=True)
    )


def _stands_for(text: Any, value: Any) -> bool:
    """Dates and floats have several spellings; one that reads as the same value will do."""
    try:
        if isinstance(value, bool) or value is None:
            return bool(text == json.dumps(value))
        if isinstance(value, float):
            return float(text) == value
        if isinstance(value, datetime):
            return datetime.fromisoformat(str(text)).replace(tzinfo=None) == value.replace(tzinfo=None)
        if isinstance(value, date):
            return date.fromisoformat(str(text)) == value
    except ValueError:
        return False
    return bool(text == str(value))
