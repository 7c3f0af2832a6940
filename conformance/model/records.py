"""The input of a load: a stream of JSON values, each a node or an edge [LOD-02].

{"type": T, "data": {…}}        {"edge": E, "from": id, "to": id, "data": {…}}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.model.errors import bad_request
from conformance.model.schema import Property, Schema, Type
from conformance.model.values import Row, Value, is_text, key_id, read_value

FreshId = Callable[[], str]
Reader = Callable[[Property, Any], Value]


def read_records(schema: Schema, data: str, fresh_id: FreshId) -> list[tuple[Type, Row]]:
    """Every record as a typed row, in the order of the input, or a refusal of the first bad one."""
    return [_record(schema, value, fresh_id) for value in _stream(data)]


def _record(schema: Schema, record: Any, fresh_id: FreshId) -> tuple[Type, Row]:
    if type(record) is not dict or ("type" in record) == ("edge" in record):
        raise bad_request("invalid_record", f"a record has 'type' or 'edge': {record!r}")
    word = "type" if "type" in record else "edge"
    if record.keys() - ({"type", "data"} if word == "type" else {"edge", "from", "to", "data"}):
        raise bad_request("unknown_field", f"a record has a field that no record has: {record!r}")
    owner = find_type(schema, word, record[word])
    return owner, read_row(owner, record.get("data", {}), record, fresh_id)


def find_type(schema: Schema, word: str, name: Any) -> Type:
    """The type that `{"type": name}` or `{"edge": name}` means."""
    owner = None
    if type(name) is str:
        owner = schema.node(name) if word == "type" else schema.edge(name)
    if owner is None:
        raise bad_request("unknown_type", f"the schema has no {word} {name!r}")
    return owner


def read_row(owner: Type, data: Any, ends: Mapping[str, Any], fresh_id: FreshId, read: Reader = read_value) -> Row:
    """A complete row: the id first, then the ends of an edge, then every property [LAY-13, LOD-05]."""
    if type(data) is not dict or data.keys() - {"id", *(each.name for each in owner.properties)}:
        raise bad_request("undeclared_property", f"not the properties of a {owner.name}: {data!r}")
    values = {prop.name: read(prop, data.get(prop.name)) for prop in owner.properties}
    row: dict[str, Value] = {"id": _row_id(owner, data, values, fresh_id)}
    for side, field in zip(owner.ends, ("from", "to"), strict=False):
        if not is_text(ends.get(field)):
            raise bad_request("invalid_endpoint", f"'{field}' of a {owner.name} is the id of a node")
        row[side] = ends[field]
    return MappingProxyType({**row, **values})


def _row_id(owner: Type, data: Mapping[str, Any], values: Mapping[str, Value], fresh_id: FreshId) -> str:
    """A key makes the id; without one it is given, or new [LOD-05]."""
    made = key_id(owner, values) if owner.key else None
    if "id" not in data:
        return fresh_id() if made is None else made
    given = data["id"]
    if not is_text(given) or (given != made if made is not None else given == ""):
        raise bad_request("invalid_id", f"{given!r} cannot be the id of this {owner.name}")
    return str(given)


def _stream(data: str) -> Iterator[Any]:
    """The values of a stream, whatever whitespace is between them."""
    text = data.strip(" \t\r\n")
    while text:
        try:
            value, end = _DECODER.raw_decode(text)
        except (ValueError, RecursionError) as broken:
            raise bad_request("invalid_json", str(broken)) from None
        yield value
        text = text[end:].lstrip(" \t\r\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a field is given twice")
    return dict(pairs)


def _no_constant(token: str) -> Any:
    raise ValueError(f"{token} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
