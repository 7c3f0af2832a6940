"""The two kinds of task of a load: one takes a piece of the input, one takes fragments of a committed table.

A task on a piece reads and types its records, checks the rules about single values, writes the rows as fragments
where it is told to, and hands on the keys. What it hands to the driver, a report, goes into a bucket of its own, so
that one shuffle carries everything and a piece is never read twice for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import OmniError, StorageError
from reference.format.records import TableRecords
from reference.operations.validate import Violation, _values
from reference.pipeline.buckets import Keys
from reference.pipeline.inputs import Piece, Place, count_lines, named_types, read_json
from reference.pipeline.keys import Block, CommittedNeeds, committed_blocks, input_blocks, split
from reference.pipeline.parse import parse_piece, raw_records, scan
from reference.pipeline.pinned import PinnedTable, open_pinned
from reference.pipeline.rejections import REJECTED_PER_PIECE_MAX, VALUE, Found, Rejection
from reference.pipeline.staging import Target, Workplace
from reference.pipeline.tasks import Refused
from reference.schema.types import Catalog, EdgeType, NodeType

Owner = NodeType | EdgeType


@dataclass(frozen=True)
class PieceItem:
    """One piece, and what to do with it. `targets` are the tables that may be written now."""

    index: int
    piece: Piece
    place: Place
    catalog: Catalog
    work: Workplace
    targets: Mapping[str, Target] = field(default_factory=dict)
    excluded: tuple[int, ...] = ()
    buckets: int = 1


@dataclass(frozen=True)
class PieceReport:
    """What the driver is told of a piece: by table its rows, its first record, and the fragments that were written."""

    index: int
    records: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    firsts: Mapping[str, int] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    fragments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: tuple[Rejection, ...] = ()
    rejected_count: int = 0
    is_malformed: bool = False


@dataclass(frozen=True)
class CountItem:
    """A piece whose records are to be counted."""

    piece: Piece
    place: Place


def count_piece(item: CountItem) -> tuple[Piece, frozenset[str]]:
    """A piece of a JSON file with its number of records and lines, and the names that may be types of its records."""
    data, _ = read_json(item.place, item.piece)
    records, lines = count_lines(data)
    if item.piece.is_stream:
        records = len(scan(data))
    return replace(item.piece, records=records, lines=lines), named_types(data)


@dataclass(frozen=True)
class ScanTask:
    """A task: blocks by bucket, and the report on a piece in the bucket after the last."""

    attempts: int

    def __call__(self, item: PieceItem | CommittedItem) -> Iterator[tuple[int, Any]]:
        try:
            yield from scan_piece(item) if isinstance(item, PieceItem) else scan_committed(item)
        except OmniError as error:
            if isinstance(error, StorageError) and not _is_last(self.attempts):
                raise
            yield item.buckets, Refused.of(error)


def _is_last(attempts: int) -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is None or context.attemptNumber() + 1 >= attempts


def scan_piece(item: PieceItem) -> Iterator[tuple[int, Block | PieceReport]]:
    parsed = parse_piece(item.place, item.piece, item.catalog)
    tables = {key: _without(records, item.excluded) for key, records in parsed.tables.items()}
    excluded = set(item.excluded)
    rejected = [each for each in parsed.rejected if each.record not in excluded]
    fragments: dict[str, tuple[str, ...]] = {}
    order = {key: index for index, key in enumerate(item.catalog.table_keys())}
    for key, records in tables.items():
        owner = item.catalog.type_of(key)
        rejected += value_rejections(owner, records, order[key])
        if key in item.targets and records.table.num_rows and not parsed.is_malformed:
            fragments[key] = item.work.write(item.targets[key], records.table, str(item.index))
        for block, rows in input_blocks(owner, records):
            yield from split(block, rows, item.buckets)
    yield (
        item.buckets,
        PieceReport(
            index=item.index,
            records=parsed.records,
            rows={key: records.table.num_rows for key, records in tables.items()},
            firsts={key: int(records.positions[0]) for key, records in parsed.tables.items() if len(records.positions)},
            fixed=frozenset(key for key, records in tables.items() if records.explicit.any()),
            fragments=fragments,
            rejected=tuple(sorted(rejected, key=lambda each: each.order)[:REJECTED_PER_PIECE_MAX]),
            rejected_count=len(rejected) + parsed.rejected_count - len(parsed.rejected),
            is_malformed=parsed.is_malformed and not item.piece.is_stream,
        ),
    )


def write_piece(item: PieceItem) -> PieceReport:
    """Write the rows of a piece into the target tables, and nothing else."""
    parsed = parse_piece(item.place, item.piece, item.catalog)
    fragments = {}
    for key, records in parsed.tables.items():
        kept = _without(records, item.excluded)
        if key in item.targets and kept.table.num_rows:
            fragments[key] = item.work.write(item.targets[key], kept.table, str(item.index))
    return PieceReport(item.index, fragments=fragments)


def _without(records: TableRecords, excluded: Iterable[int]) -> TableRecords:
    gone = np.fromiter(excluded, dtype=np.int64)
    if not len(gone):
        return records
    kept = ~np.isin(records.positions, gone)
    return TableRecords(records.table.filter(pa.array(kept)), records.positions[kept], records.explicit[kept])


# -- single values -----------------------------------------------------------------------------------------------------


def value_rejections(owner: Owner, records: TableRecords, table_order: int) -> list[Rejection]:
    """Enum, range and check of each row, by the engine's own rules, one rule at a time."""
    found = []
    for number, rule in enumerate(single_rules(owner)):
        wrong: set[str] = {violation.row_id for violation in _values(rule, records.table)}
        if not wrong:
            continue
        # Two records may have one id, and only one of them the wrong value: each is asked by itself.
        suspects = pc.indices_nonzero(pc.is_in(records.table["id"], value_set=pa.array(sorted(wrong), pa.string())))
        for index in suspects.to_pylist():
            position = int(records.positions[index])
            for violation in _values(rule, records.table.slice(index, 1)):
                found.append(rejection_of(violation, (VALUE, table_order, number, position), position))
    return found


def single_rules(owner: Owner) -> list[Owner]:
    """The type with one of its rules at a time, in the engine's order."""
    bare: Owner = replace(owner, properties=(), ranges=(), checks=())
    enums = [replace(bare, properties=(each,)) for each in owner.properties if each.type.enum_values is not None]
    numbers = {each.name: each for each in owner.properties}
    ranges = [replace(bare, properties=(numbers[each.property],), ranges=(each,)) for each in owner.ranges]
    return [*enums, *ranges, *(replace(bare, checks=(each,)) for each in owner.checks)]


def rejection_of(violation: Violation, order: tuple[int, ...], record: int | None) -> Rejection:
    return Rejection.of(violation.to_error(), order, record).numbered()


# -- committed tables ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommittedItem:
    """Some fragments of one committed table, by their place in it."""

    table: PinnedTable
    fragments: tuple[int, ...]
    catalog: Catalog
    needs: CommittedNeeds
    buckets: int
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def scan_committed(item: CommittedItem) -> Iterator[tuple[int, Block]]:
    """The keys of committed rows, by bucket."""
    owner = item.catalog.type_of(item.table.table_key)
    handle = open_pinned(item.table, item.storage_options)
    fragments = handle.get_fragments()
    for index in item.fragments:
        scanner = handle.scanner(columns=item.needs.columns(owner), fragments=[fragments[index]], scan_in_order=True)
        rows = scanner.to_table()
        order = pa.array(np.arange(rows.num_rows, dtype=np.int64) + (index << 32))
        for block, keys in committed_blocks(owner, item.needs, rows, order):
            yield from split(block, keys, item.buckets)


# -- looking at records again ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Records of one table to be looked at: by their numbers, or by the values of a column or the hashes of those."""

    positions: tuple[int, ...] = ()
    columns: Mapping[str, pa.Array | Keys] = field(default_factory=dict)


@dataclass(frozen=True)
class FetchItem:
    """A piece in which some records are looked for."""

    piece: Piece
    place: Place
    catalog: Catalog
    wanted: Mapping[str, Wanted]
    excluded: tuple[int, ...] = ()


def fetch_rows(item: FetchItem) -> dict[str, TableRecords]:
    """The rows of a piece that are wanted."""
    parsed = parse_piece(item.place, item.piece, item.catalog)
    found = {}
    for key, wanted in item.wanted.items():
        records = parsed.tables.get(key)
        if records is None:
            continue
        records = _without(records, item.excluded)
        chosen = np.isin(records.positions, np.array(wanted.positions, dtype=np.int64))
        for column, values in wanted.columns.items():
            texts = records.table[column]
            if isinstance(values, Keys):
                chosen |= Keys.of_texts(texts).found_in(values)
            else:
                chosen |= pc.is_in(texts, value_set=values).to_numpy()
        if chosen.any():
            rows = records.table.filter(pa.array(chosen))
            found[key] = TableRecords(rows, records.positions[chosen], records.explicit[chosen])
    return found


@dataclass(frozen=True)
class TextItem:
    """A piece of which some records are to be shown, by their numbers."""

    piece: Piece
    place: Place
    catalog: Catalog
    positions: tuple[int, ...]


def fetch_texts(item: TextItem) -> dict[int, Found]:
    """Rejected records as they are written, with their lines and bytes in a JSON file."""
    chosen = [position - item.piece.first for position in item.positions[:REJECTED_PER_PIECE_MAX]]
    raws = raw_records(item.place, item.piece, item.catalog, chosen)
    is_json = item.piece.file.form == "json"
    data, start = read_json(item.place, item.piece) if is_json else (b"", 0)
    found = {}
    for index, raw in raws.items():
        line = item.piece.first_line + data.count(b"\n", 0, raw.offset) if is_json else None
        text = raw.text.decode(errors="backslashreplace").rstrip("\r\n")
        found[item.piece.first + index] = Found(
            item.piece.file.path, line, start + raw.offset if is_json else None, text
        )
    return found
