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

from reference.format.records import TableRecords
from reference.operations.validate import Violation, value_violations
from reference.pipeline.inputs import Piece, Place, read_json
from reference.pipeline.keys import Block, CommittedNeeds, committed_blocks, input_blocks, split
from reference.pipeline.lines import count_lines, may_fix_ids, named_types, stream
from reference.pipeline.parse import parse_piece
from reference.pipeline.pinned import PinnedTable, open_pinned
from reference.pipeline.rejections import REJECTED_MAX, VALUE, Rejection
from reference.pipeline.staging import Target, Workplace
from reference.pipeline.tasks import Attempt, Refused
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
    most: int = REJECTED_MAX


@dataclass(frozen=True)
class PieceReport:
    """What the driver is told of a piece: by table its rows, its first record, and the fragments that were written;
    `fixed` are the tables in which its records say the ids."""

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


@dataclass(frozen=True)
class CountedPiece:
    """What a look at a piece of a JSON file tells: its records and lines are counted, and the names are noted that may
    be types of its records, and those of them whose ids it may fix."""

    piece: Piece
    types: frozenset[str]
    fixed: frozenset[str]


def count_piece(item: CountItem) -> CountedPiece:
    """Count the records of a piece of a JSON file."""
    data, _ = read_json(item.place, item.piece)
    records, lines = count_lines(data)
    if item.piece.is_stream:
        records = len(stream(data))
    types = named_types(data)
    return CountedPiece(
        replace(item.piece, records=records, lines=lines), types, types if may_fix_ids(data) else frozenset()
    )


@dataclass(frozen=True)
class ScanTask:
    """A task: blocks by bucket, and the report on a piece, or a refusal, in the bucket after the last."""

    attempts: int

    def __call__(self, item: PieceItem | CommittedItem) -> list[tuple[int, Any]]:
        found = Attempt(_scanned, self.attempts)(item)
        return [(item.buckets, found)] if isinstance(found, Refused) else found


def _scanned(item: PieceItem | CommittedItem) -> list[tuple[int, Any]]:
    return list(scan_piece(item) if isinstance(item, PieceItem) else scan_committed(item))


def scan_piece(item: PieceItem) -> Iterator[tuple[int, Block | PieceReport]]:
    # Those that are left out already must not take the places of others.
    parsed = parse_piece(item.place, item.piece, item.catalog, item.most + len(item.excluded))
    tables = {key: without(records, item.excluded) for key, records in parsed.tables.items()}
    excluded = set(item.excluded)
    rejected = [each for each in parsed.rejected if each.record not in excluded]
    count = parsed.rejected_count - len(parsed.rejected) + len(rejected)
    fragments: dict[str, tuple[str, ...]] = {}
    order = {key: index for index, key in enumerate(item.catalog.table_keys())}
    for key, records in tables.items():
        owner = item.catalog.type_of(key)
        wrong_values, wrong_count = value_rejections(owner, records, order[key], item.most)
        rejected += wrong_values
        count += wrong_count
        if key in item.targets and records.table.num_rows and not parsed.is_malformed:
            fragments[key] = item.work.write(item.targets[key], records.table, str(item.index))
        for block, rows in input_blocks(owner, records):
            yield from split(block, rows, item.buckets, item.index)
    yield (
        item.buckets,
        PieceReport(
            index=item.index,
            records=parsed.records,
            rows={key: records.table.num_rows for key, records in tables.items()},
            firsts={key: int(records.positions[0]) for key, records in parsed.tables.items() if len(records.positions)},
            fixed=frozenset(key for key, records in tables.items() if records.explicit.any()),
            fragments=fragments,
            rejected=tuple(sorted(rejected, key=lambda each: each.order)[: item.most]),
            rejected_count=count,
            is_malformed=parsed.is_malformed,
        ),
    )


def write_piece(item: PieceItem) -> PieceReport:
    """Write the rows of a piece into the target tables, and nothing else."""
    parsed = parse_piece(item.place, item.piece, item.catalog)
    fragments = {}
    for key, records in parsed.tables.items():
        kept = without(records, item.excluded)
        if key in item.targets and kept.table.num_rows:
            fragments[key] = item.work.write(item.targets[key], kept.table, str(item.index))
    return PieceReport(item.index, fragments=fragments)


def without(records: TableRecords, excluded: Iterable[int]) -> TableRecords:
    """Some records without those that are left out, by their numbers."""
    gone = np.fromiter(excluded, dtype=np.int64)
    if not len(gone):
        return records
    kept = ~np.isin(records.positions, gone)
    return TableRecords(records.table.filter(pa.array(kept)), records.positions[kept], records.explicit[kept])


# -- single values -----------------------------------------------------------------------------------------------------


def value_rejections(owner: Owner, records: TableRecords, table_order: int, most: int) -> tuple[list[Rejection], int]:
    """Enum, range and check of each row, by the engine's own rules, one rule at a time: the first of each rule, and how
    many there are in all."""
    found: list[Rejection] = []
    count = 0
    for number, rule in enumerate(single_rules(owner)):
        wrong: set[str] = {violation.row_id for violation in value_violations(rule, records.table)}
        if not wrong:
            continue
        # Two records may have one id, and only one of them the wrong value: each is asked by itself.
        suspects = pc.indices_nonzero(pc.is_in(records.table["id"], value_set=pa.array(sorted(wrong), pa.string())))
        told: list[Rejection] = []
        for index in suspects.to_pylist():
            position = int(records.positions[index])
            if len(told) >= most:
                count += 1
                continue
            for violation in value_violations(rule, records.table.slice(index, 1)):
                told.append(rejection_of(violation, (VALUE, table_order, number, position), position))
        found += told
        count += len(told)
    return found, count


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
            yield from split(block, keys, item.buckets, index)
