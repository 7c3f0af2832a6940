"""Looking at some records of an input again: for the words about what is wrong with them, and for the quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.format.records import TableRecords
from reference.pipeline.findings import Keys
from reference.pipeline.inputs import Piece, Place, read_json
from reference.pipeline.lines import newlines
from reference.pipeline.parse import parse_piece, raw_records
from reference.pipeline.rejections import Found
from reference.pipeline.scan import without
from reference.schema.types import Catalog


@dataclass(frozen=True)
class Wanted:
    """Records of one table to be looked at: by their numbers, by the values of a column, or by the hashes of those.

    Of what `columns` names each piece tells the first `most`. Only the columns in `keep` are brought.
    """

    positions: tuple[int, ...] = ()
    columns: Mapping[str, pa.Array | Keys] = field(default_factory=dict)
    always: Mapping[str, pa.Array] = field(default_factory=dict)
    keep: tuple[str, ...] = ("id",)
    most: int | None = None


@dataclass(frozen=True)
class Fetched:
    """Records that were wanted, and how many more there are."""

    records: TableRecords
    beyond: int = 0


@dataclass(frozen=True)
class FetchItem:
    """A piece in which some records are looked for."""

    piece: Piece
    place: Place
    catalog: Catalog
    wanted: Mapping[str, Wanted]
    excluded: tuple[int, ...] = ()


def fetch_rows(item: FetchItem) -> dict[str, Fetched]:
    """The rows of a piece that are wanted."""
    parsed = parse_piece(item.place, item.piece, item.catalog)
    found = {}
    for key, wanted in item.wanted.items():
        records = parsed.tables.get(key)
        if records is None:
            continue
        records = without(records, item.excluded)
        named = np.isin(records.positions, np.array(wanted.positions, dtype=np.int64))
        for column, texts in wanted.always.items():
            named |= pc.is_in(records.table[column], value_set=texts).to_numpy()
        some = np.zeros(len(named), dtype=np.bool_)
        for column, values in wanted.columns.items():
            texts = records.table[column]
            if isinstance(values, Keys):
                some |= Keys.of_texts(texts).found_in(values)
            else:
                some |= pc.is_in(texts, value_set=values).to_numpy()
        told = np.flatnonzero(some)[: wanted.most]
        chosen = np.union1d(np.flatnonzero(named), told)
        if len(chosen):
            rows = records.table.select(list(wanted.keep)).take(pa.array(chosen))
            kept = TableRecords(rows, records.positions[chosen], records.explicit[chosen])
            found[key] = Fetched(kept, int(np.count_nonzero(some)) - len(told))
    return found


def joined(parts: Sequence[Fetched]) -> Fetched:
    """The records of several pieces as one, in the order of their numbers."""
    table = pa.concat_tables([part.records.table for part in parts]).combine_chunks()
    positions = np.concatenate([part.records.positions for part in parts])
    explicit = np.concatenate([part.records.explicit for part in parts])
    order = np.argsort(positions, kind="stable")
    records = TableRecords(table.take(pa.array(order)), positions[order], explicit[order])
    return Fetched(records, sum(part.beyond for part in parts))


@dataclass(frozen=True)
class TextItem:
    """A piece of which some records are to be shown, by their numbers."""

    piece: Piece
    place: Place
    catalog: Catalog
    positions: tuple[int, ...]


def fetch_texts(item: TextItem) -> dict[int, Found]:
    """Rejected records as they are written, with their lines and bytes in a JSON file."""
    chosen = [position - item.piece.first for position in item.positions]
    raws = raw_records(item.place, item.piece, item.catalog, chosen)
    is_json = item.piece.file.form == "json"
    data, start = read_json(item.place, item.piece) if is_json else (b"", 0)
    ends = newlines(data)
    found = {}
    for index, raw in raws.items():
        line = item.piece.first_line + int(np.searchsorted(ends, raw.offset)) if is_json else None
        text = raw.text.decode(errors="backslashreplace").rstrip("\r\n")
        found[item.piece.first + index] = Found(
            item.piece.file.path, line, start + raw.offset if is_json else None, text
        )
    return found
