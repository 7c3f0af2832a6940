"""Records in, typed tables out: the input of `load`, and the rows of a mutation's inserts.

The input is a stream of JSON values separated by any whitespace [LOD-02]. A node is `{"type": T, "data": {…}}`, an edge
`{"edge": E, "from": id, "to": id, "data": {…}}`, and `data` may be left out. Nothing is dropped or repaired: an
undeclared property, an unknown top-level field, a field given twice or a value that does not fit its property is
refused, and of several offences the one in the earliest record is reported, by its 1-based number.

There are two readers of everything, one fast and one exact. The fast one takes a piece of the input, one value per
line, and checks it in bulk; it decides only whether the piece is beyond doubt. If it is not, the exact reader goes
through the same piece value by value and says what is wrong, or finds that nothing is (pretty-printed JSON, say).

Whether two rows share an id or a key is not decided here: the validator sees `explicit` and `positions`.
"""

from __future__ import annotations

import gc
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from reference.errors import BadRequest
from reference.format import values
from reference.schema.types import Catalog, EdgeType, NodeType

# Small enough that the Python objects of a chunk stay in the processor's cache: larger chunks are slower.
CHUNK_BYTES = 128 * 1024
CHUNK_RECORDS = 2_000

_NODE_FIELDS: Final = frozenset({"type", "data"})
_EDGE_FIELDS: Final = frozenset({"edge", "from", "to", "data"})
BLACK = re.compile(r"[^ \t\r\n]")


_ABSENT: Final = object()  # an id that is not there, which is not the same as null
_NO_DATA: Final[dict[str, Any]] = {}


@dataclass(frozen=True)
class TableRecords:
    """The records of one table, in the order of the input.

    `positions` holds each row's record number. `explicit` says of each row whether its input fixed the id (by a key or
    by `data.id`) or the id was made here.
    """

    table: pa.Table
    positions: npt.NDArray[np.int64]
    explicit: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RecordSet:
    """What an input holds, by table key; only tables that it mentions."""

    tables: Mapping[str, TableRecords]
    record_count: int


class _Group(NamedTuple):
    """The records of one type in a chunk, not yet typed."""

    owner: NodeType | EdgeType
    positions: npt.NDArray[np.int64]
    records: list[dict[str, Any]]


def read_records(data: bytes | str, catalog: Catalog) -> RecordSet:
    """Parse and type a whole input, or refuse it because of its first bad record."""
    collecting = gc.isenabled()
    gc.disable()  # JSON has no cycles, and looking for some doubles the time
    try:
        return _read(data, catalog)
    finally:
        if collecting:
            gc.enable()


def _read(data: bytes | str, catalog: Catalog) -> RecordSet:
    parts: dict[str, list[TableRecords]] = {}
    schemas = {key: catalog.arrow_schema(key) for key in catalog.table_keys()}
    count = 0
    for chunk in value_chunks(data):
        first = count + 1
        count += len(chunk)
        try:
            for group in _grouped(chunk, first, catalog):
                key = group.owner.table_key
                parts.setdefault(key, []).append(_typed(group, schemas[key]))
        except (BadRequest, AttributeError, TypeError):  # the latter two: a record or a type name of another JSON type
            for number, record in enumerate(chunk, first):
                check_record(record, number, catalog)
            raise
    return RecordSet({key: _joined(tables) for key, tables in parts.items()}, count)


def _joined(parts: list[TableRecords]) -> TableRecords:
    return TableRecords(
        pa.concat_tables([part.table for part in parts]).combine_chunks(),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.explicit for part in parts]),
    )


def rows_to_table(
    catalog: Catalog, table_key: str, rows: list[dict[str, Any]], where: str, endpoints: Sequence[tuple[Any, Any]] = ()
) -> pa.Table:
    """Rows of property values as a typed table, with ids: the inserts of a mutation [MUT-08].

    The same coercion and the same refusals as a load; `where` ("statement 2") takes the place of the record number.
    `endpoints` are the (from, to) ids of edge rows.
    """
    owner, schema = catalog.type_of(table_key), catalog.arrow_schema(table_key)
    if not rows:
        return schema.empty_table()
    ends = [_edge_ends(source, target, where) for source, target in endpoints]
    try:
        return _table(owner, schema, rows, [list(side) for side in zip(*ends, strict=True)])[0]
    except BadRequest:
        for row in rows:
            _check_data(owner, row, where)
        raise


def check_record(record: Any, number: int, catalog: Catalog) -> None:
    """Refuse one record for the first thing that is wrong with it."""
    where = f"record {number}"
    try:
        owner = _owner(record, where, catalog)
        allowed = _EDGE_FIELDS if isinstance(owner, EdgeType) else _NODE_FIELDS
        for name in record:
            if name not in allowed:
                raise _refusal(
                    "unknown_field", f"{where}: a record has no field {values.shown(name)}", field=values.detail(name)
                )
        data = record.get("data", _NO_DATA)
        if type(data) is not dict:
            raise _refusal("invalid_record", f"{where}: 'data' must be an object, not {values.shown(data)}")
        if isinstance(owner, EdgeType):
            _edge_ends(record.get("from"), record.get("to"), where)
        _check_data(owner, data, where)
    except BadRequest as refusal:
        refusal.details.setdefault("record", number)
        raise


def _owner(record: Any, where: str, catalog: Catalog) -> NodeType | EdgeType:
    if type(record) is not dict:
        raise _refusal("invalid_record", f"{where}: an object is needed, not {values.shown(record)}")
    if ("type" in record) == ("edge" in record):
        raise _refusal("invalid_record", f"{where}: exactly one of 'type' and 'edge' must say what it is")
    kind, name = ("node", record["type"]) if "type" in record else ("edge", record["edge"])
    if type(name) is not str:
        raise _refusal("invalid_record", f"{where}: a type's name is text, not {values.shown(name)}")
    owner = catalog.nodes.get(name) if kind == "node" else catalog.edge_by_name(name)
    if owner is None:
        raise _refusal(
            "unknown_type", f"{where}: the schema has no {kind} type {values.shown(name)}", type=values.detail(name)
        )
    return owner


def _edge_ends(source: Any, target: Any, where: str) -> tuple[str, str]:
    for side, end in (("from", source), ("to", target)):
        if not values.is_text(end):
            what = "is missing" if end is None else f"is {values.shown(end)}"
            raise _refusal("invalid_endpoint", f"{where}: '{side}' must be the id of a node and {what}", field=side)
    return source, target


def _check_data(owner: NodeType | EdgeType, data: dict[str, Any], where: str) -> None:
    try:
        declared = {prop.name for prop in owner.properties} | {"id"}
        for name in data:
            if name not in declared:
                message = f"{where}: {owner.name} declares no property {values.shown(name)}"
                raise _refusal("undeclared_property", message, property=values.detail(name))
        key_id = values.row_id(owner, data, where) if isinstance(owner, NodeType) and owner.key else None
        for prop in owner.properties:
            values.coerce(prop, data.get(prop.name), where)
        _check_id(owner, data.get("id", _ABSENT), key_id, where)
    except BadRequest as refusal:
        refusal.details.setdefault("type", owner.name)
        raise


def _check_id(owner: NodeType | EdgeType, given: Any, key_id: str | None, where: str) -> None:
    if given is _ABSENT:
        return
    if not values.is_text(given) or (given == "" and key_id is None):
        raise _refusal("invalid_id", f"{where}: an id is text and not empty, not {values.shown(given)}")
    if key_id is not None and given != key_id:
        message = (
            f"{where}: the id is {values.shown(given)}, but its key makes this {owner.name} {values.shown(key_id)}"
        )
        details = {"property": ",".join(owner.key), "value": values.detail(given), "expected": values.detail(key_id)}
        raise BadRequest(message, code="id_mismatch", details=details)


def _refusal(code: str, message: str, **details: Any) -> BadRequest:
    return BadRequest(message, code=code, details=details)


def _grouped(chunk: list[Any], first: int, catalog: Catalog) -> list[_Group]:
    """The records by type. Only existing types pass; all else that can be wrong is left to `_typed`."""
    indices: dict[Any, list[int]] = {}  # by the name of a node type, or by (name,) as an edge spells it
    groups: dict[str, tuple[NodeType | EdgeType, list[int]]] = {}
    for index, record in enumerate(chunk):
        name = record["type"] if "type" in record else (record.get("edge"),)
        try:
            indices[name].append(index)
        except KeyError:
            owner = _owner(record, f"record {first + index}", catalog)
            indices[name] = groups.setdefault(owner.table_key, (owner, []))[1]
            indices[name].append(index)
    return [
        _Group(owner, np.array(members, dtype=np.int64) + first, [chunk[index] for index in members])
        for owner, members in groups.values()
    ]


def _typed(group: _Group, schema: pa.Schema) -> TableRecords:
    """A group as Arrow, or a refusal of no particular record."""
    is_edge = isinstance(group.owner, EdgeType)
    fields = _members(group.records, data=_NO_DATA)
    if not fields.keys() <= (_EDGE_FIELDS if is_edge else _NODE_FIELDS):
        raise _doubt("a field")
    datas = fields.get("data") or [_NO_DATA] * len(group.records)
    if set(map(type, datas)) != {dict}:
        raise _doubt("'data'")
    ends = [fields.get(side, [None]) for side in ("from", "to")] if is_edge else []
    if set(map(type, itertools.chain(*ends))) - {str}:
        raise _doubt("an endpoint")
    table, explicit = _table(group.owner, schema, datas, ends)
    return TableRecords(table, group.positions, explicit)


def _members(objects: list[dict[str, Any]], **defaults: Any) -> dict[str, list[Any]]:
    """Objects turned on their side: for each field that any of them has, the values, or the default, of all of them."""
    names = list(objects[0])
    if set(map(len, objects)) == {len(names)}:
        try:
            return {name: list(map(operator.itemgetter(name), objects)) for name in names}
        except KeyError:
            pass
    every: set[str] = set().union(*objects)
    return {name: [each.get(name, default) for each in objects] for name in every for default in [defaults.get(name)]}


def _table(
    owner: NodeType | EdgeType, schema: pa.Schema, datas: list[dict[str, Any]], endpoints: list[list[str]]
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    members = _members(datas, id=_ABSENT)
    given = members.pop("id", None)
    columns: dict[str, pa.Array] = {}
    for prop in owner.properties:
        columns[prop.name] = values.column(prop, members.pop(prop.name, []) or [None] * len(datas))
    if members:
        raise _doubt("a property")
    ids, explicit = _ids(owner, given, columns, len(datas))
    try:
        ends = [pa.array(side, pa.string()) for side in endpoints]
    except UnicodeEncodeError:
        raise _doubt("an endpoint") from None
    return pa.Table.from_arrays([ids, *ends, *columns.values()], schema=schema), explicit


def _ids(
    owner: NodeType | EdgeType, given: Sequence[Any] | None, columns: Mapping[str, pa.Array], count: int
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    keyed = isinstance(owner, NodeType) and bool(owner.key)
    if keyed and any(columns[key].null_count for key in owner.key):
        raise _doubt("a key")
    if given is not None and not keyed and set(map(type, given)) == {str}:
        ids, explicit = given, np.ones(count, dtype=np.bool_)
    else:
        made = values.row_ids(owner, columns) if isinstance(owner, NodeType) and keyed else values.fresh_ids(count)
        if given is None:
            return made, np.full(count, keyed)
        ids = [other if own is _ABSENT else own for own, other in zip(given, made.to_pylist(), strict=True)]
        explicit = np.array([keyed or own is not _ABSENT for own in given], dtype=np.bool_)
    try:
        array = pa.array(ids, pa.string())
    except (pa.ArrowTypeError, pa.ArrowInvalid, UnicodeEncodeError):
        raise _doubt("an id") from None
    if array.null_count or (not array.equals(made) if keyed else "" in ids):
        raise _doubt("an id")
    return array, explicit


def _doubt(what: str) -> BadRequest:
    return BadRequest(f"{what} in these records is not valid", code="invalid_record")


def value_chunks(data: bytes | str) -> Iterator[list[Any]]:
    """The values of the stream, many at a time; when a value is broken, first all values before it."""
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")  # which is no UTF-8, as the reader will find
    start, count = 0, 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + CHUNK_BYTES) + 1 if start + CHUNK_BYTES < len(data) else len(data)
        if end <= start:  # one line longer than a chunk
            end = data.find(b"\n", start) + 1 or len(data)
        chunk = _lines(data[start:end])
        if chunk is None:
            yield from _scanned(data[start:], count)
            return
        if chunk:
            yield chunk
        count += len(chunk)
        start = end


def _lines(piece: bytes) -> list[Any] | None:
    """The values of a piece that has one whole value on each line, and surely no field twice; else None."""
    try:
        lines = [line for line in piece.split(b"\n") if line and line.strip(b" \t\r")]
        chunk = list(map(orjson.loads, lines))
        fields = sum(map(len, chunk)) + sum([len(record["data"]) for record in chunk if "data" in record])
    except (orjson.JSONDecodeError, TypeError):
        return None
    # Every field has its own colon after a quote or a space, so the count of those is never below the count of
    # fields in the text; and that is the count of fields in the values unless one was given twice.
    text = np.frombuffer(piece, dtype=np.uint8)
    before = text[np.flatnonzero(text == ord(":")) - 1]
    if np.count_nonzero((before == ord('"')) | (before <= ord(" "))) == fields:
        return chunk
    try:
        for line in lines:
            json.loads(line, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None
    return chunk


def _scanned(data: bytes, count: int) -> Iterator[list[Any]]:
    """The values of any stream, one after the other; `count` values came before it."""
    try:
        text, tail = data.decode(), ""
    except UnicodeDecodeError as broken:
        text, tail = data[: broken.start].decode(), "the text is not UTF-8"
    chunk: list[Any] = []
    position = 0
    while (begin := BLACK.search(text, position)) or tail:
        try:
            value, position = DECODER.raw_decode(text, begin.start() if begin else len(text))
        except (ValueError, RecursionError) as broken:
            if chunk:
                yield chunk
            cause = tail or ("it is nested too deep" if isinstance(broken, RecursionError) else str(broken))
            number = count + len(chunk) + 1
            code = "duplicate_field" if isinstance(broken, FieldTwice) else "invalid_json"
            raise _refusal(code, f"record {number} is not valid JSON: {cause}", record=number) from None
        chunk.append(value)
        if len(chunk) == CHUNK_RECORDS:
            yield chunk
            count += len(chunk)
            chunk = []
    if chunk:
        yield chunk


class FieldTwice(ValueError):
    """A field was given twice in one object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = values.shown(next(name for name in names if names.count(name) > 1))
        raise FieldTwice(f"the field {twice} is given twice")
    return members


def _no_constant(token: str) -> Callable[..., Any]:
    raise ValueError(f"{token} is not a JSON number")


DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
