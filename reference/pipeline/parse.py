"""A piece of an input as typed tables, and the records of it that cannot be typed, each with its reason.

The engine's own reader does the work: this module only finds where each record is, hands the records over, and where
the reader refuses asks it again record by record. So a record is refused here for the same reason, in the same words
and under the same number as by `load`, and unlike there the records after it are looked at too.
"""

from __future__ import annotations

import base64
import datetime
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from reference.errors import BadRequest
from reference.format import records as reader
from reference.format.records import TableRecords, check_record, read_records
from reference.pipeline.columns import typed_rows
from reference.pipeline.inputs import Piece, Place, holds_records, nonblank_lines, read_json, read_rows
from reference.pipeline.rejections import REJECTED_PER_PIECE_MAX, Rejection
from reference.schema.types import Catalog, EdgeType, NodeType


@dataclass
class Parsed:
    """What a piece holds. `is_malformed`: its lines are no records of their own, and the file is to be read whole."""

    tables: dict[str, TableRecords] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    rejected_count: int = 0
    records: int = 0
    is_malformed: bool = False


@dataclass(frozen=True)
class Raw:
    """One value of a JSON file: where it begins, and its text or why it has none."""

    offset: int
    text: bytes
    refusal: BadRequest | None = None


def parse_piece(place: Place, piece: Piece, catalog: Catalog) -> Parsed:
    """Read a piece and type its records."""
    if piece.file.form == "rows":
        return _parse_rows(piece, read_rows(place, piece), catalog)
    if piece.file.form == "records":
        return _typed(_record_texts(piece, read_rows(place, piece)), piece.first, catalog)
    data, _ = read_json(place, piece)
    if piece.is_stream:
        return _typed(scan(data), piece.first, catalog)
    lines = nonblank_lines(data)
    return _typed([Raw(0, line) for line in lines], piece.first, catalog)


def raw_records(place: Place, piece: Piece, catalog: Catalog, indices: Sequence[int]) -> dict[int, Raw]:
    """Some records of a piece as they are written, by their place in it, for those who must show them."""
    if piece.file.form == "json":
        raws = scan(read_json(place, piece)[0])
        return {index: raws[index] for index in indices}
    rows = read_rows(place, piece).take(list(indices))
    texts = _record_texts(piece, rows) if piece.file.form == "records" else _row_texts(_owner(piece, catalog), rows)
    return dict(zip(indices, texts, strict=True))


def scan(data: bytes) -> list[Raw]:
    """The values of a stream, wherever their lines end. What follows a broken value is looked for on the next line."""
    text = data.decode(errors="surrogateescape")
    found: list[Raw] = []
    position = offset = seen = 0
    while begin := reader._BLACK.search(text, position):
        start = begin.start()
        offset, seen = offset + len(text[seen:start].encode(errors="surrogateescape")), start
        try:
            _, position = reader._DECODER.raw_decode(text, start)
            raw = text[start:position].encode()
            found.append(Raw(offset, raw))
        except (ValueError, RecursionError) as broken:
            position = text.find("\n", start) + 1 or len(text)
            raw = text[start:position].encode(errors="surrogateescape")
            found.append(Raw(offset, raw, _broken(broken)))
    return found


def _broken(error: Exception) -> BadRequest:
    cause = str(error)
    if isinstance(error, UnicodeEncodeError):
        cause = "the text is not UTF-8"
    elif isinstance(error, RecursionError):
        cause = "it is nested too deep"
    code = "duplicate_field" if isinstance(error, reader._Twice) else "invalid_json"
    return BadRequest(f"is not valid JSON: {cause}", code=code)


def _typed(raws: Sequence[Raw], first: int, catalog: Catalog) -> Parsed:
    """Records in bulk; where the reader refuses them, each by itself."""
    parsed = Parsed(records=len(raws))
    good = [index for index, raw in enumerate(raws) if raw.refusal is None]
    try:
        found = read_records(b"\n".join(raws[index].text for index in good), catalog)
    except BadRequest:
        good = _good_ones(raws, good, first, catalog, parsed)
        found = read_records(b"\n".join(raws[index].text for index in good), catalog)
    for index, raw in enumerate(raws):
        if raw.refusal is not None:
            message = f"record {first + index} {raw.refusal.message}"
            _reject(
                parsed, BadRequest(message, code=raw.refusal.code, details={"record": first + index}), first + index
            )
    parsed.is_malformed |= found.record_count != len(good)
    numbers = np.array(good, dtype=np.int64) + first
    if not parsed.is_malformed:
        parsed.tables = {
            key: TableRecords(each.table, numbers[each.positions - 1], each.explicit)
            for key, each in found.tables.items()
        }
    return parsed


def _good_ones(raws: Sequence[Raw], indices: Iterable[int], first: int, catalog: Catalog, parsed: Parsed) -> list[int]:
    good = []
    for index in indices:
        try:
            values = list(itertools.chain.from_iterable(reader._chunks(raws[index].text)))
        except BadRequest:
            values = []
        if len(values) != 1:
            parsed.is_malformed = True  # Half a value, or two: only the whole file says where one ends.
            continue
        try:
            check_record(values[0], first + index, catalog)
            good.append(index)
        except BadRequest as refusal:
            _reject(parsed, refusal, first + index)
    return good


def _reject(parsed: Parsed, refusal: BadRequest, number: int) -> None:
    parsed.rejected_count += 1
    if len(parsed.rejected) < REJECTED_PER_PIECE_MAX:
        parsed.rejected.append(Rejection.of(refusal, (0, number), number))


# -- rows of Parquet files -----------------------------------------------------------------------------------------


def _owner(piece: Piece, catalog: Catalog) -> NodeType | EdgeType:
    name = piece.file.type_name
    owner = catalog.nodes.get(name) if piece.file.kind == "node" else catalog.edge_by_name(name)
    if owner is None:
        message = f"record {piece.first}: the schema has no {piece.file.kind} type {json.dumps(name)}"
        details = {"type": name, "record": piece.first, "file": piece.file.path}
        raise BadRequest(message, code="unknown_type", details=details)
    return owner


def _parse_rows(piece: Piece, rows: pa.Table, catalog: Catalog) -> Parsed:
    owner = _owner(piece, catalog)
    found = typed_rows(owner, catalog.arrow_schema(owner.table_key), rows)
    if found is None:
        return _typed(_row_texts(owner, rows), piece.first, catalog)
    table, explicit = found
    positions = np.arange(piece.first, piece.first + table.num_rows, dtype=np.int64)
    return Parsed({owner.table_key: TableRecords(table, positions, explicit)}, records=table.num_rows)


def _row_texts(owner: NodeType | EdgeType, rows: pa.Table) -> list[Raw]:
    """Rows as the records that mean the same. A column that is null says nothing."""
    found = []
    for row in rows.to_pylist():
        data = {name: value for name, value in row.items() if value is not None}
        record: dict[str, Any] = {"type": owner.name}
        if isinstance(owner, EdgeType):
            record = {"edge": owner.name, "from": data.pop("from", None), "to": data.pop("to", None)}
        found.append(_judged(_dumped({**record, "data": data})))
    return found


def _record_texts(piece: Piece, rows: pa.Table) -> list[Raw]:
    if not holds_records(rows.column_names):
        message = f"{piece.file.path} holds neither the rows of a type nor records"
        hint = "put it below nodes/<Type> or edges/<Type>, or name its columns type, edge, from, to and data"
        raise BadRequest(message, code="file_unusable", hint=hint)
    found = []
    for row in rows.to_pylist():
        record = {name: value for name, value in row.items() if value is not None}
        data = record.pop("data", "{}")
        text = _dumped(record)
        # The text of `data` is JSON already, and is judged by the reader like any other.
        written = data.encode() if isinstance(data, str) else _dumped(data)
        found.append(_judged(text[:-1] + (b", " if record else b"") + b'"data": ' + written + b"}"))
    return found


def _judged(text: bytes) -> Raw:
    """A text that should be one record: a number that is none, or broken text in `data`, is the record's own fault."""
    found = scan(text)
    broken = next((each.refusal for each in found if each.refusal is not None), None)
    if broken is None and len(found) != 1:
        broken = BadRequest("is not valid JSON: 'data' is not one value", code="invalid_json")
    return Raw(0, text, broken)


def _dumped(value: Any) -> bytes:
    return json.dumps(value, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    return str(value)
