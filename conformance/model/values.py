"""What a value is: how JSON becomes one, when two are the same, and how an export writes it.

    String, enum   str                          Bool        bool
    I32 … U64      int                          F32, F64    float (an F32 is already rounded to 32 bits)
    Date           int, days since 1970         DateTime    int, milliseconds since 1970, UTC
    Blob           bytes, or str for a URI      [T], Vector tuple

Nothing is repaired: what does not fit is refused, for nullable properties too [LOD-14].
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from conformance.model.errors import bad_request
from conformance.model.schema import Property, Type

Value = None | bool | int | float | str | bytes | tuple[Any, ...]
# Of a node: id and the properties. Of an edge: id, src, dst and the properties. In the order of the table's columns.
Row = Mapping[str, Value]

INTEGERS: Final = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_DAYS: Final = (1 - _DAY_ZERO, date.max.toordinal() - _DAY_ZERO)  # 0001-01-01 … 9999-12-31
_MILLIS_PER_DAY: Final = 86_400_000
_MILLIS: Final = (_DAYS[0] * _MILLIS_PER_DAY, (_DAYS[1] + 1) * _MILLIS_PER_DAY - 1)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)(?:[T ]({_CLOCK})(?:(:[0-5]\d)(?:\.(\d+))?)?(?:Z|([+-])({_CLOCK}))?)?", re.ASCII
)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\x00-\x1f]+")


class _Unfit(Exception):
    pass


# -- from JSON ---------------------------------------------------------------------------------------------------


def read_value(prop: Property, given: Any) -> Value:
    """The value of a property for a JSON value, or a refusal."""
    if given is None:
        if prop.nullable:
            return None
        raise bad_request("missing_value", f"'{prop.name}' must have a value")
    try:
        if prop.is_list:
            return tuple(None if each is None else _READERS[prop.scalar](each) for each in _items(given))
        if prop.scalar == "Vector":
            if len(_items(given)) != prop.dimensions:
                raise _Unfit
            return tuple(_float32(each) for each in given)
        value: Value = _READERS[prop.scalar](given)
        return value
    except _Unfit:
        raise bad_request("invalid_value", f"{given!r} is no value of '{prop.name}'") from None


def is_text(given: Any) -> bool:
    """Whether it is text that UTF-8 can write: JSON can spell half of a surrogate pair."""
    return type(given) is str and not any("\ud800" <= each <= "\udfff" for each in given)


def _items(given: Any) -> list[Any]:
    if type(given) is not list:
        raise _Unfit
    return given


def _string(given: Any) -> str:
    if not is_text(given):
        raise _Unfit
    return str(given)


def _bool(given: Any) -> bool:
    if type(given) is not bool:
        raise _Unfit
    return given


def _between(lowest: int, highest: int) -> Callable[[Any], int]:
    def read(given: Any) -> int:
        if type(given) is not int or not lowest <= given <= highest:
            raise _Unfit
        return given

    return read


def _float64(given: Any) -> float:
    try:
        number = float(given) if type(given) in (int, float) else math.nan
    except OverflowError:
        raise _Unfit from None
    if not math.isfinite(number):
        raise _Unfit
    return number


def _float32(given: Any) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _float64(given)))[0])
    except OverflowError:
        raise _Unfit from None


def _day(given: Any) -> int:
    if type(given) is not str:
        return _between(*_DAYS)(given)
    if not _DATE.fullmatch(given):
        raise _Unfit
    try:
        return date.fromisoformat(given).toordinal() - _DAY_ZERO
    except ValueError:
        raise _Unfit from None


def _moment(given: Any) -> int:
    """A time without a zone is UTC; what is finer than a millisecond is cut [EXP-01]."""
    if type(given) is not str:
        return _between(*_MILLIS)(given)
    match = _TIME.fullmatch(given)
    if match is None:
        raise _Unfit
    day, clock, seconds, fraction, sign, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}{seconds or ':00'}+00:00")
    except ValueError:
        raise _Unfit from None
    millis = (moment - _EPOCH) // timedelta(milliseconds=1) + int((fraction or "")[:3].ljust(3, "0"))
    if offset:
        shift = (int(offset[:2]) * 60 + int(offset[3:])) * 60_000
        millis += shift if sign == "-" else -shift
    return _between(*_MILLIS)(millis)


def _blob(given: Any) -> bytes | str:
    text = _string(given)
    if not text.startswith("base64:"):
        if not _URI.fullmatch(text):
            raise _Unfit
        return text
    try:
        return base64.b64decode(text.removeprefix("base64:").encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _Unfit from None


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "String": _string,
    "Bool": _bool,
    "F32": _float32,
    "F64": _float64,
    "Date": _day,
    "DateTime": _moment,
    "Blob": _blob,
    **{scalar: _between(*limits) for scalar, limits in INTEGERS.items()},
}


# -- sameness ----------------------------------------------------------------------------------------------------


def identity(value: Value) -> Any:
    """What makes two values of one property the same [MRG-13]: null is not "", and a zero keeps its sign."""
    if isinstance(value, float):
        return struct.pack(">d", value)
    return tuple(identity(each) for each in value) if isinstance(value, tuple) else value


def same_row(one: Row | None, other: Row | None) -> bool:
    """Whether two rows of a table have the same columns and values; None is a row that is not there."""
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(identity(one[column]) == identity(other[column]) for column in one)


# -- to JSON -----------------------------------------------------------------------------------------------------


def shown(prop: Property, value: Value) -> Any:
    """A value as JSON has it in exports and reads."""
    if isinstance(value, tuple):
        item = Property(prop.name, "F32" if prop.scalar == "Vector" else prop.scalar)
        return [shown(item, each) for each in value]
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode()
    return _time_text(value) if prop.scalar == "DateTime" and isinstance(value, int) else value


def shown_row(owner: Type, row: Row) -> dict[str, Any]:
    """A row as a JSON object of its columns."""
    return {
        name: value if (prop := owner.property(name)) is None else shown(prop, value) for name, value in row.items()
    }


def export_line(owner: Type, row: Row) -> str:
    """A row as a line of an export, without the line feed [EXP-01]."""
    data = {name: value for name, value in shown_row(owner, row).items() if name not in owner.ends}
    if owner.kind == "node":
        return json_text({"type": owner.name, "data": data})
    return json_text({"edge": owner.name, "from": row["src"], "to": row["dst"], "data": data})


def json_text(value: Any) -> str:
    """Compact JSON: text is not escaped beyond need, and floats have the digits of the format."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _float_text(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _float_text(number: float) -> str:
    """The shortest digits that read back to the same number: plain from 1e-5 to 1e16, else with an exponent."""
    if number == 0 or 1e-5 <= abs(number) < 1e16:
        text = format(Decimal(repr(number)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = Decimal(repr(number)).as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    exponent = Decimal(repr(number)).adjusted()
    mantissa = significant[0] + ("." + significant[1:] if significant[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{'+' if exponent > 0 else ''}{exponent}"


def _time_text(millis: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=millis)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds" if millis % 1000 else "seconds")


# -- ids ---------------------------------------------------------------------------------------------------------


def key_id(owner: Type, row: Mapping[str, Value]) -> str:
    """The id that a key gives a node: its text, or the JSON array of several [VAL-14]."""
    parts = [_key_part(prop, row[prop.name]) for prop in owner.properties if prop.name in owner.key]
    if len(parts) > 1:
        return json_text(parts)
    return str(parts[0]) if isinstance(parts[0], str) else json_text(parts[0])


def _key_part(prop: Property, value: Value) -> Any:
    """As an export shows it, but a Date as text."""
    if prop.scalar == "Date" and isinstance(value, int):
        return date.fromordinal(value + _DAY_ZERO).isoformat()
    return shown(prop, value)
