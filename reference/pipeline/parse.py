"""A piece of an input as typed tables, and the records of it that cannot be typed, each with its reason.

The engine's own reader does the work: this module only finds where each record is, hands the records over, and where
the reader refuses asks it again record by record. So a record is refused here for the same reason, in the same words
and under the same number as by `load`, and unlike there the records after it are looked at too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from reference.errors import BadRequest, Internal
from reference.format.records import TableRecords, check_record, read_records, value_chunks
from reference.pipeline.columns import typed_rows
from reference.pipeline.inputs import Piece, Place, holds_records, read_json, read_rows
from reference.pipeline.lines import NotLines, Raw, broken_line, nonblank_lines, placed_lines, stream
from reference.pipeline.plain_values import plain_column, plain_value, python_values
from reference.pipeline.rejections import REJECTED_MAX, Rejection
from reference.schema.types import Catalog, EdgeType, NodeType

Owner = NodeType | EdgeType


@dataclass
class Parsed:
    """What a piece holds. `is_malformed`: its lines are no records of their own, and the file is to be read whole."""

    tables: dict[str, TableRecords] = field(default_factory=dict)
    rejected: list[Rejection] = field(default_factory=list)
    rejected_count: int = 0
    records: int = 0
    is_malformed: bool = False


def parse_piece(place: Place, piece: Piece, catalog: Catalog, most: int = REJECTED_MAX) -> Parsed:
    """Read a piece and type its records. Of those that are refused, `most` are told with their reasons."""
    if piece.file.form == "rows":
        return _parse_rows(piece, read_rows(place, piece), catalog, most)
    if piece.file.form == "records":
        return _typed(_record_texts(piece, read_rows(place, piece), catalog), piece, catalog, most)
    data, _ = read_json(place, piece)
    if piece.is_stream:
        return _typed(stream(data), piece, catalog, most)
    lines = nonblank_lines(data)
    try:
        found = read_records(b"\n".join(lines), catalog)
    except BadRequest:
        try:
            return _typed(_judged_lines(data, piece), piece, catalog, most)
        except NotLines:
            return Parsed(records=len(lines), is_malformed=True)
    if found.record_count != len(lines):
        return Parsed(records=len(lines), is_malformed=True)
    return _renumbered(found.tables, np.arange(piece.first, piece.first + len(lines), dtype=np.int64))


def _judged_lines(data: bytes, piece: Piece) -> list[Raw]:
    """The lines of a piece as records, each with what is wrong with it."""
    ends_here = piece.end == piece.file.size
    return [
        line if _is_value(line.text) else replace(line, refusal=broken_line(data, line, ends_here=ends_here))
        for line in placed_lines(data)
    ]


def _is_value(text: bytes) -> bool:
    try:
        return sum(map(len, value_chunks(text))) == 1
    except BadRequest:
        return False


def raw_records(place: Place, piece: Piece, catalog: Catalog, indices: Sequence[int]) -> dict[int, Raw]:
    """Some records of a piece as they are written, by their place in it, for those who must show them."""
    if piece.file.form == "json":
        data, _ = read_json(place, piece)
        raws = stream(data) if piece.is_stream else list(placed_lines(data))
        return {index: raws[index] for index in indices}
    rows = read_rows(place, piece).take(list(indices))
    if piece.file.form == "records":
        texts = _record_texts(piece, rows, catalog)
    else:
        texts = _row_texts(_owner(piece, catalog), rows)
    return dict(zip(indices, texts, strict=True))


def _typed(raws: Sequence[Raw], piece: Piece, catalog: Catalog, most: int) -> Parsed:
    """Records in bulk; where the reader refuses them, each by itself."""
    parsed = Parsed(records=len(raws))
    good = [index for index, raw in enumerate(raws) if raw.refusal is None]
    try:
        found = read_records(b"\n".join(raws[index].text for index in good), catalog)
    except BadRequest:
        good = _good_ones(raws, good, piece.first, catalog, parsed, most)
        found = read_records(b"\n".join(raws[index].text for index in good), catalog)
    for index, raw in enumerate(raws):
        if raw.refusal is not None:
            number = piece.first + index
            message = f"record {number} {raw.refusal.message}"
            _reject(parsed, BadRequest(message, code=raw.refusal.code, details={"record": number}), number)
    parsed.rejected = sorted(parsed.rejected, key=lambda each: each.order)[:most]
    if found.record_count != len(good):
        raise Internal(
            f"{piece.file.path} holds {len(good)} records by one reader and {found.record_count} by another",
            code="records_miscounted",
            details={"file": piece.file.path},
        )
    parsed.tables = _renumbered(found.tables, np.array(good, dtype=np.int64) + piece.first).tables
    return parsed


def _renumbered(tables: Any, numbers: Any) -> Parsed:
    """What the reader found, with the numbers that the records have in the whole input."""
    found = {key: TableRecords(each.table, numbers[each.positions - 1], each.explicit) for key, each in tables.items()}
    return Parsed(found, records=len(numbers))


def _good_ones(
    raws: Sequence[Raw], indices: Iterable[int], first: int, catalog: Catalog, parsed: Parsed, most: int
) -> list[int]:
    good = []
    for index in indices:
        try:
            check_record(_value(raws[index].text, first + index), first + index, catalog)
            good.append(index)
        except BadRequest as refusal:
            if len(parsed.rejected) < most:
                _reject(parsed, refusal, first + index)
            else:
                parsed.rejected_count += 1
    return good


def _value(text: bytes, number: int) -> Any:
    """The one value of a text. How deep a value may be nested depends on who asks, so even here one may be refused."""
    try:
        values = [value for chunk in value_chunks(text) for value in chunk]
    except BadRequest as refusal:
        message = refusal.message.replace("record 1 ", f"record {number} ", 1)
        raise BadRequest(message, code=refusal.code, details={"record": number}) from None
    if len(values) != 1:
        raise Internal(f"record {number} is {len(values)} records to another reader", code="records_miscounted")
    return values[0]


def _reject(parsed: Parsed, refusal: BadRequest, number: int) -> None:
    parsed.rejected_count += 1
    parsed.rejected.append(Rejection.of(refusal, (0, number), number))


# -- rows of Parquet files -----------------------------------------------------------------------------------------


def _owner(piece: Piece, catalog: Catalog) -> Owner:
    name = piece.file.type_name
    owner = catalog.nodes.get(name) if piece.file.kind == "node" else catalog.edge_by_name(name)
    if owner is None:
        message = f"record {piece.first}: the schema has no {piece.file.kind} type {json.dumps(name)}"
        details = {"type": name, "record": piece.first, "file": piece.file.path}
        raise BadRequest(message, code="unknown_type", details=details)
    return owner


def _parse_rows(piece: Piece, rows: pa.Table, catalog: Catalog, most: int) -> Parsed:
    owner = _owner(piece, catalog)
    _refuse_values_in_directories(piece, owner, rows)
    _refuse_names_of_ends(piece, owner)
    found = typed_rows(owner, catalog.arrow_schema(owner.table_key), rows)
    if found is None:
        return _typed(_row_texts(owner, rows), piece, catalog, most)
    table, explicit = found
    positions = np.arange(piece.first, piece.first + table.num_rows, dtype=np.int64)
    return Parsed({owner.table_key: TableRecords(table, positions, explicit)}, records=table.num_rows)


def _refuse_values_in_directories(piece: Piece, owner: Owner, rows: pa.Table) -> None:
    """A property that only the name of a directory has would be lost."""
    declared = {prop.name for prop in owner.properties} & piece.file.partitions
    lost = sorted(declared - set(rows.column_names))
    if lost:
        raise BadRequest(
            f"{piece.file.path} has '{lost[0]}' in the name of a directory and not as a column",
            code="file_unusable",
            details={"file": piece.file.path, "property": lost[0]},
            hint="write the column into the file",
        )


def _refuse_names_of_ends(piece: Piece, owner: Owner) -> None:
    """A file of edges has their ends in `from` and `to`: a property of that name cannot be told apart."""
    ambiguous = [prop.name for prop in owner.properties if prop.name in ("from", "to")]
    if isinstance(owner, EdgeType) and ambiguous:
        raise BadRequest(
            f"{owner.name} has a property '{ambiguous[0]}', which in {piece.file.path} is an end of the edge",
            code="file_unusable",
            details={"file": piece.file.path, "property": ambiguous[0]},
            hint="load records: JSON, or Parquet with the columns type, edge, from, to and data",
        )


def _row_texts(owner: Owner, rows: pa.Table) -> list[Raw]:
    """Rows as the records that mean the same. A column that is null says nothing."""
    properties = {prop.name: prop for prop in owner.properties}
    columns = [plain_column(properties.get(name), rows.column(name)) for name in rows.column_names]
    found = []
    for row in zip(*columns, strict=True):
        data = {name: value for name, value in zip(rows.column_names, row, strict=True) if value is not None}
        record: dict[str, Any] = {"type": owner.name}
        if isinstance(owner, EdgeType):
            record = {"edge": owner.name, "from": data.pop("from", None), "to": data.pop("to", None)}
        found.append(_judged(json.dumps({**record, "data": data}).encode()))
    return found


def _record_texts(piece: Piece, rows: pa.Table, catalog: Catalog) -> list[Raw]:
    if not holds_records(rows.column_names):
        message = f"{piece.file.path} holds neither the rows of a type nor records"
        hint = "put it below nodes/<Type> or edges/<Type>, or name its columns type, edge, from, to and data"
        raise BadRequest(message, code="file_unusable", details={"file": piece.file.path}, hint=hint)
    names = rows.column_names
    found = []
    columns = [python_values(rows.column(name)) if name == "data" else plain_column(None, rows[name]) for name in names]
    for row in zip(*columns, strict=True):
        record = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        data = record.pop("data", "{}")
        text = json.dumps(record).encode()
        # The text of `data` is JSON already, and is judged by the reader like any other.
        written = data.encode(errors="surrogateescape") if isinstance(data, str) else _data_text(record, data, catalog)
        found.append(_judged(text[:-1] + (b", " if record else b"") + b'"data": ' + written + b"}"))
    return found


def _data_text(record: dict[str, Any], data: Any, catalog: Catalog) -> bytes:
    """The fields of a struct. Rows of other types share it, so one that is null says nothing."""
    if not isinstance(data, dict):
        return json.dumps(plain_value(None, data)).encode()
    name = record.get("type", record.get("edge"))
    owner = catalog.nodes.get(str(name)) if "type" in record else catalog.edge_by_name(str(name))
    properties = {} if owner is None else {prop.name: prop for prop in owner.properties}
    given = {name: plain_value(properties.get(name), value) for name, value in data.items()}
    return json.dumps({name: value for name, value in given.items() if value is not None}).encode()


def _judged(text: bytes) -> Raw:
    """A text that should be one record: a number that is none, or broken text in `data`, is the record's own fault."""
    found = stream(text)
    broken = next((each.refusal for each in found if each.refusal is not None), None)
    if broken is None and len(found) != 1:
        broken = BadRequest("is not valid JSON: 'data' is not one value", code="invalid_json")
    return Raw(0, text, broken)
