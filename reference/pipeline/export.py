"""export: a snapshot as files, sorted by id, written by as many tasks as there are parts.

As JSON lines it is the engine's own export cut into parts: `cat OUT/part-*.jsonl` gives the same bytes [EXP-01,
EXP-02]. As Parquet it is a directory that `load` takes, as `generate` writes it. Ids are sampled, tables are cut into
ranges of ids of about equal size, and rows go to the task of their range as Arrow bytes. Blobs stay where they are
until the task that writes them reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest
from reference.format.export_lines import export_lines
from reference.format.values import blob_column
from reference.pipeline.exchange import exchange
from reference.pipeline.id_order import prefixes, ranges_of
from reference.pipeline.outputs import Output
from reference.pipeline.parquet_tables import as_records, record_schema, write_parquet
from reference.pipeline.pinned import PinnedGraph, PinnedTable, open_pinned
from reference.pipeline.scans import ROW_ID, ROW_UPDATED_AT, Piece, blob_contents, blob_names, chosen_fragments, pieces
from reference.pipeline.tasks import Progress, run_tasks
from reference.schema.types import Catalog, EdgeType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.graph import Graph

Format = Literal["jsonl", "parquet"]
FORMATS: Final = ("jsonl", "parquet")
PART_ROWS: Final = 500_000
# Ids that are looked at for each part: so that no part is far larger than another.
_SAMPLES_PER_PART: Final = 64
_WRITTEN_AT_ONCE: Final = 16_384


@dataclass(frozen=True)
class Exported:
    """What was written."""

    uri: str
    format: Format
    tables: Mapping[str, int]
    files: tuple[str, ...]
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "output": self.uri,
            "format": self.format,
            "tables": dict(self.tables),
            "records": sum(self.tables.values()),
            "files": len(self.files),
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class _Part:
    """A range of the ids of a table, to become one file."""

    table: PinnedTable
    name: str
    columns: tuple[str, ...]
    blobs: tuple[str, ...]
    foreign_versions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Plan:
    """Everything that the tasks of an export share."""

    format: Format
    output: Output
    catalog: Catalog
    parts: tuple[_Part, ...]
    storage_options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class _Cut:
    """A piece of a table, the ids at which its table is cut, and the number of the table's first part."""

    piece: Piece
    columns: tuple[str, ...]
    points: tuple[bytes, ...]
    first_part: int


def export(
    spark: SparkSession,
    graph: Graph,
    pinned: PinnedGraph,
    uri: str,
    *,
    format: Format = "jsonl",
    part_rows: int = PART_ROWS,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write a pinned snapshot into an empty directory. The graph is asked only who wrote its blobs."""
    if format not in FORMATS:
        raise BadRequest(f"'{format}' is not a format", code="unknown_format", hint=f"one of {', '.join(FORMATS)}")
    output = Output.at(uri, env)
    output.refuse_unless_empty()
    keys = [key for key, table in pinned.tables.items() if table.row_count]
    asked = [_Asked(piece, part_rows) for key in keys for piece in pieces(pinned, key)]
    answers = run_tasks(spark, "sampling ids", asked, _sample, progress=progress)
    plan, cuts = _planned(graph, pinned, keys, asked, answers, output, format, part_rows)
    written = exchange(
        spark,
        f"writing {format}",
        cuts,
        _scatter,
        partial(_gather, plan),
        buckets=len(plan.parts),
        progress=progress,
    )
    if format == "parquet":
        output.write("schema.pg", graph.store.schema.current().source.encode())
    rows = dict.fromkeys(pinned.tables, 0)
    for part, (count, _) in zip(plan.parts, written, strict=True):
        rows[part.table.table_key] += count
    names = tuple(part.name for part in plan.parts)
    return Exported(output.uri, format, rows, names, sum(size for _, size in written))


# -- sampling ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    piece: Piece
    part_rows: int


@dataclass(frozen=True)
class _Answer:
    """Some ids of a piece, evenly spaced over its rows, cut to their first bytes; and who wrote its blobs, if any."""

    prefixes: tuple[bytes, ...]
    columns: tuple[str, ...]
    blobs: tuple[str, ...]
    versions: frozenset[int]


def _sample(asked: _Asked) -> _Answer:
    from reference.storage.tables import translated

    piece = asked.piece
    handle = piece.open()
    found: list[bytes] = []
    with translated(f"the ids of {piece.table.table_key}"):
        if piece.table.row_count > asked.part_rows:
            step = max(1, asked.part_rows // _SAMPLES_PER_PART)
            for fragment in chosen_fragments(handle, piece.fragment_ids):
                places = list(range(step // 2, fragment.count_rows(), step))
                ids = fragment.take(places, columns=["id"]).column("id") if places else pa.array([], pa.string())
                found += prefixes(ids).tolist()
        blobs = blob_names(handle)
        versions = piece.read([ROW_UPDATED_AT], handle=handle)[ROW_UPDATED_AT] if blobs else pa.array([], pa.uint64())
    return _Answer(tuple(found), tuple(handle.schema.names), tuple(blobs), frozenset(pc.unique(versions).to_pylist()))


def _planned(
    graph: Graph,
    pinned: PinnedGraph,
    keys: Sequence[str],
    asked: Sequence[_Asked],
    answers: Sequence[_Answer],
    output: Output,
    format: Format,
    part_rows: int,
) -> tuple[_Plan, list[_Cut]]:
    parts: list[_Part] = []
    cuts: list[_Cut] = []
    for key in keys:
        mine = [(each.piece, answer) for each, answer in zip(asked, answers, strict=True) if _key(each) == key]
        table = pinned.tables[key]
        _refuse_other_columns(pinned.catalog, key, mine[0][1].columns)
        points = _points(sorted(each for _, answer in mine for each in answer.prefixes), table.row_count, part_rows)
        first = mine[0][1]
        versions = frozenset[int]().union(*(answer.versions for _, answer in mine))
        foreign = frozenset(
            version for version in versions if not graph.store.tables.is_ours(table.path, table.branch, version)
        )
        cuts += [_Cut(piece, _read_columns(first), points, len(parts)) for piece, _ in mine]
        base = _Part(table, "", first.columns, first.blobs, foreign)
        for number in range(len(points) + 1):
            parts.append(replace(base, name=_file_name(key, number, len(parts), format)))
    return _Plan(format, output, pinned.catalog, tuple(parts), pinned.storage_options), cuts


def _refuse_other_columns(catalog: Catalog, table_key: str, columns: Sequence[str]) -> None:
    """A snapshot from before a schema change has columns that no line of an export has a place for."""
    if set(columns) != set(catalog.arrow_schema(table_key).names):
        raise BadRequest(
            f"'{table_key}' had other columns then than the accepted schema has now",
            code="snapshot_of_another_schema",
            details={"table_key": table_key},
            hint="export a version from after the schema change",
        )


def _key(asked: _Asked) -> str:
    return asked.piece.table.table_key


def _points(sample: Sequence[bytes], rows: int, part_rows: int) -> tuple[bytes, ...]:
    """Where a table is cut: between any two neighbours lie about as many rows. Equal points would cut nothing."""
    parts = -(-rows // part_rows)
    wanted = [sample[len(sample) * number // parts] for number in range(1, parts)] if sample else []
    return tuple(dict.fromkeys(wanted))


def _read_columns(answer: _Answer) -> tuple[str, ...]:
    return (*answer.columns, *((ROW_UPDATED_AT,) if answer.blobs else ()))


def _file_name(table_key: str, number: int, number_of_all: int, format: Format) -> str:
    """JSON lines are one sequence over all tables; Parquet has a directory for each."""
    if format == "jsonl":
        return f"part-{number_of_all:05}.jsonl"
    kind, _, name = table_key.partition(":")
    return f"{kind}s/{name}/part-{number:05}.parquet"


# -- sorting and writing -----------------------------------------------------------------------------------------------


def _scatter(cut: _Cut) -> Iterator[tuple[int, bytes]]:
    """The rows of a piece, each to the part that its id belongs to."""
    rows = cut.piece.read(cut.columns, with_row_id=ROW_UPDATED_AT in cut.columns)
    if not cut.points:
        yield cut.first_part, _packed(rows)
        return
    ranges = ranges_of(rows["id"], cut.points)
    order = np.argsort(ranges, kind="stable")
    bounds = np.searchsorted(ranges[order], np.arange(len(cut.points) + 2))
    for number, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        if start < stop:
            yield cut.first_part + number, _packed(rows.take(order[start:stop]))


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _gather(plan: _Plan, number: int, blocks: Iterable[bytes]) -> tuple[int, int]:
    """Sort the rows of a part and write its file; how many rows and bytes it has."""
    part = plan.parts[number]
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
    if not tables:
        return _WRITERS[plan.format](plan, part, None)
    rows = pa.concat_tables(tables)
    return _WRITERS[plan.format](plan, part, rows.take(pc.sort_indices(rows["id"])))


def _write_lines(plan: _Plan, part: _Part, rows: pa.Table | None) -> tuple[int, int]:
    owner = plan.catalog.type_of(part.table.table_key)
    size = 0
    with plan.output.writing(part.name) as stream:
        for chunk, blobs in _chunks(plan, part, rows):
            lines = b"".join(export_lines(chunk, owner, blobs))
            stream.write(lines)
            size += len(lines)
    return 0 if rows is None else rows.num_rows, size


def _write_parquet(plan: _Plan, part: _Part, rows: pa.Table | None) -> tuple[int, int]:
    owner = plan.catalog.type_of(part.table.table_key)
    schema = record_schema(plan.catalog, part.table.table_key, with_ids=isinstance(owner, EdgeType) or not owner.key)
    with plan.output.writing(part.name) as stream:
        if part.blobs and rows is not None:
            chunks = [_with_blobs(chunk, blobs) for chunk, blobs in _chunks(plan, part, rows)]
            rows = pa.concat_tables(chunks)
        write_parquet(schema.empty_table() if rows is None else as_records(rows, schema), stream)
        return 0 if rows is None else rows.num_rows, stream.tell()


def _chunks(plan: _Plan, part: _Part, rows: pa.Table | None) -> Iterator[tuple[pa.Table, dict[str, list[Any]]]]:
    """The rows a few at a time, each time with the contents of their blobs."""
    if rows is None:
        return
    handle = open_pinned(part.table, plan.storage_options)
    for start in range(0, rows.num_rows, _WRITTEN_AT_ONCE):
        chunk = rows.slice(start, _WRITTEN_AT_ONCE)
        yield chunk, {name: blob_contents(handle, chunk, name, part.foreign_versions) for name in part.blobs}


def _with_blobs(rows: pa.Table, blobs: Mapping[str, list[Any]]) -> pa.Table:
    for name, values in blobs.items():
        array = blob_column(values)
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, pa.field(name, array.type, rows.schema.field(index).nullable), array)
    return rows.drop_columns([name for name in (ROW_ID, ROW_UPDATED_AT) if name in rows.column_names])


_WRITERS: Final[Mapping[Format, Callable[[_Plan, _Part, pa.Table | None], tuple[int, int]]]] = {
    "jsonl": _write_lines,
    "parquet": _write_parquet,
}
