"""export: a snapshot as files, sorted by id, written by as many tasks as there are parts.

As JSON lines it is the engine's own export cut into parts: `cat OUT/part-*.jsonl` gives the same bytes [EXP-01,
EXP-02]. As Parquet it is a directory that `load` takes, as `generate` writes it. `export_plan` says which rows have to
meet: those of most parts lie together, and the task that reads them writes the file. Others go to the task of their
part as Arrow bytes. Blobs stay where they are until the task that writes them reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from reference.errors import BadRequest
from reference.format.export_lines import export_lines
from reference.format.values import blob_column
from reference.pipeline.exchange import exchange
from reference.pipeline.export_plan import Extent, Group, Look, groups, is_little, look, look_here, sample_step, whole
from reference.pipeline.id_order import cut_places, sorted_by_id
from reference.pipeline.keys import packed
from reference.pipeline.outputs import Output
from reference.pipeline.parquet_tables import as_records, parquet_writer, record_schema
from reference.pipeline.pinned import PinnedGraph, PinnedTable, open_pinned
from reference.pipeline.scans import ROW_UPDATED_AT, Share, blob_contents, blob_names, shares
from reference.pipeline.tasks import Progress, run_tasks
from reference.schema.types import Catalog, EdgeType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.graph import Graph

Format = Literal["jsonl", "parquet"]
FORMATS: Final = ("jsonl", "parquet")
PART_ROWS: Final = 500_000
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
class _Source:
    """A table that is exported: the columns that are read, which of them are blobs, and who else wrote blobs."""

    table: PinnedTable
    columns: tuple[str, ...]
    blobs: tuple[str, ...]
    foreign_versions: frozenset[int] = frozenset()

    def read(self, share: Share) -> pa.Table:
        return share.read(self.columns, with_row_id=bool(self.blobs))


@dataclass(frozen=True)
class _Part:
    """A range of the ids of a table, to become one file."""

    source: _Source
    name: str


@dataclass(frozen=True)
class _Plan:
    """Everything that the tasks of an export share. `exchanged` are the numbers of the parts that rows travel for."""

    format: Format
    output: Output
    catalog: Catalog
    parts: tuple[_Part, ...]
    exchanged: tuple[int, ...]
    storage_options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class _Work:
    """Rows for one task: the ids at which they are cut, and the part that the first of them belong to.

    Without points they are all rows of that part, and the task writes it.
    """

    share: Share
    rows: int
    first_part: int
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Written:
    """A file: the number of its part, and how many rows and bytes it has."""

    part: int
    rows: int
    bytes: int


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
    sources = _sources(spark, graph, pinned, part_rows, progress)
    plan, work = _planned(pinned, sources, output, format)
    written = [*_written_here(plan, work), *_written_by_tasks(spark, plan, work, progress)]
    if format == "parquet":
        output.write("schema.pg", graph.store.schema.current().source.encode())
    rows = dict.fromkeys(pinned.tables, 0)
    for each in written:
        rows[plan.parts[each.part].source.table.table_key] += each.rows
    names = tuple(part.name for part in plan.parts)
    return Exported(output.uri, format, rows, names, sum(each.bytes for each in written))


def _written_here(plan: _Plan, work: Sequence[_Work]) -> list[_Written]:
    """Parts without rows, which no task is needed for."""
    asked = {each.first_part for each in work} | set(plan.exchanged)
    return [_write(plan, number, None) for number in range(len(plan.parts)) if number not in asked]


def _written_by_tasks(
    spark: SparkSession, plan: _Plan, work: Sequence[_Work], progress: Progress | None
) -> Iterator[_Written]:
    """All other parts, in one job: rows that travel and rows that do not, whatever takes longest first."""
    stage = f"writing {plan.format}"
    work = sorted(work, key=lambda each: -each.rows)
    if not plan.exchanged:
        yield from run_tasks(spark, stage, work, partial(_write_directly, plan), progress=progress)
        return
    buckets = len(plan.exchanged) + 1
    gather = partial(_gather, plan)
    for found in exchange(spark, stage, work, partial(_scatter, plan), gather, buckets=buckets, progress=progress):
        yield from found


# -- planning ----------------------------------------------------------------------------------------------------------


def _sources(
    spark: SparkSession, graph: Graph, pinned: PinnedGraph, part_rows: int, progress: Progress | None
) -> dict[str, tuple[_Source, list[Group]]]:
    """Every table with rows, and the groups of rows that it is written in."""
    tables = {key: table for key, table in pinned.tables.items() if table.row_count}
    handles = {key: open_pinned(table, pinned.storage_options) for key, table in tables.items()}
    blobs = {key: tuple(blob_names(handle)) for key, handle in handles.items()}
    for key, handle in handles.items():
        _refuse_other_columns(pinned.catalog, key, handle.schema.names)
    looks = [
        Look(share, sample_step(part_rows), with_versions=bool(blobs[key]))
        for key, table in tables.items()
        if blobs[key] or table.row_count > part_rows
        for share in shares(pinned, key)
    ]
    found = (
        look_here(looks, handles)
        if is_little(looks)
        else run_tasks(spark, "looking at ids", looks, look, progress=progress)
    )
    extents: dict[str, list[Extent]] = {}
    for task, answer in zip(looks, found, strict=True):
        extents.setdefault(task.share.table.table_key, []).extend(answer)
    planned = {}
    for key, table in tables.items():
        known = extents.get(key, [])
        versions = frozenset[int]().union(*(each.versions for each in known))
        foreign = frozenset(each for each in versions if not graph.store.tables.is_ours(table.path, table.branch, each))
        columns = (*handles[key].schema.names, *((ROW_UPDATED_AT,) if blobs[key] else ()))
        is_one = table.row_count <= part_rows
        options = pinned.storage_options
        rows = [whole(table, options)] if is_one else list(groups(table, options, known, part_rows))
        planned[key] = (_Source(table, columns, blobs[key], foreign), rows)
    return planned


def _planned(
    pinned: PinnedGraph, sources: Mapping[str, tuple[_Source, list[Group]]], output: Output, format: Format
) -> tuple[_Plan, list[_Work]]:
    parts: list[_Part] = []
    exchanged: list[int] = []
    work: list[_Work] = []
    for key, table in pinned.tables.items():
        source, found = sources.get(key, (_Source(table, (), ()), []))
        number = 0
        for group in found:
            first = len(parts)
            work += [_Work(share, group.rows // len(group.shares), first, group.points) for share in group.shares]
            for _ in range(len(group.points) + 1):
                parts.append(_Part(source, _file_name(key, number, len(parts), format)))
                number += 1
            if group.points:
                exchanged += range(first, len(parts))
        if not found and format == "parquet":
            # A table without rows has a file as well: a directory without any holds no graph.
            parts.append(_Part(source, _file_name(key, 0, len(parts), format)))
    if not parts:
        parts = [_Part(_Source(table, (), ()), _file_name(key, 0, 0, format)) for key, table in pinned.tables.items()][
            :1
        ]
    return _Plan(format, output, pinned.catalog, tuple(parts), tuple(exchanged), pinned.storage_options), work


def _refuse_other_columns(catalog: Catalog, table_key: str, columns: Sequence[str]) -> None:
    """A snapshot from before a schema change has columns that no line of an export has a place for."""
    if set(columns) != set(catalog.arrow_schema(table_key).names):
        raise BadRequest(
            f"'{table_key}' had other columns then than the accepted schema has now",
            code="snapshot_of_another_schema",
            details={"table_key": table_key},
            hint="export a version from after the schema change",
        )


def _file_name(table_key: str, number: int, number_of_all: int, format: Format) -> str:
    """JSON lines are one sequence over all tables; Parquet has a directory for each."""
    if format == "jsonl":
        return f"part-{number_of_all:05}.jsonl"
    kind, _, name = table_key.partition(":")
    return f"{kind}s/{name}/part-{number:05}.parquet"


# -- sorting and writing -----------------------------------------------------------------------------------------------


def _write_directly(plan: _Plan, work: _Work) -> _Written:
    """A part whose rows no other task has."""
    rows = plan.parts[work.first_part].source.read(work.share)
    return _write(plan, work.first_part, sorted_by_id(rows))


def _scatter(plan: _Plan, work: _Work) -> Iterator[tuple[int, bytes | _Written]]:
    """Rows for the parts that their ids belong to; in the last bucket, what was written without an exchange."""
    if not work.points:
        yield len(plan.exchanged), _write_directly(plan, work)
        return
    rows = sorted_by_id(plan.parts[work.first_part].source.read(work.share))
    bounds = cut_places(rows["id"], work.points)
    first = plan.exchanged.index(work.first_part)
    for number, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        if start < stop:
            yield first + number, packed(rows.slice(start, stop - start))


def _gather(plan: _Plan, bucket: int, blocks: Iterable[Any]) -> list[_Written]:
    """Sort the rows of a part and write its file."""
    if bucket == len(plan.exchanged):
        return list(blocks)
    tables = [pa.ipc.open_stream(block).read_all() for block in blocks]
    return [_write(plan, plan.exchanged[bucket], sorted_by_id(pa.concat_tables(tables)) if tables else None)]


def _write(plan: _Plan, number: int, rows: pa.Table | None) -> _Written:
    count, size = _WRITERS[plan.format](plan, plan.parts[number], rows)
    return _Written(number, count, size)


def _write_lines(plan: _Plan, part: _Part, rows: pa.Table | None) -> tuple[int, int]:
    owner = plan.catalog.type_of(part.source.table.table_key)
    size = 0
    with plan.output.writing(part.name) as stream:
        for chunk, blobs in _chunks(plan, part, rows):
            lines = b"".join(export_lines(chunk, owner, blobs))
            stream.write(lines)
            size += len(lines)
    return 0 if rows is None else rows.num_rows, size


def _write_parquet(plan: _Plan, part: _Part, rows: pa.Table | None) -> tuple[int, int]:
    key = part.source.table.table_key
    owner = plan.catalog.type_of(key)
    schema = record_schema(plan.catalog, key, with_ids=isinstance(owner, EdgeType) or not owner.key)
    with plan.output.writing(part.name) as stream:
        with parquet_writer(schema, stream) as write:
            if part.source.blobs:
                for chunk, blobs in _chunks(plan, part, rows):
                    write(as_records(_with_blobs(chunk, blobs), schema))
            elif rows is not None:
                write(as_records(rows, schema))
        return 0 if rows is None else rows.num_rows, stream.tell()


def _chunks(plan: _Plan, part: _Part, rows: pa.Table | None) -> Iterator[tuple[pa.Table, dict[str, list[Any]]]]:
    """The rows a few at a time, each time with the contents of their blobs."""
    if rows is None:
        return
    source = part.source
    handle: Any = open_pinned(source.table, plan.storage_options) if source.blobs else None
    for start in range(0, rows.num_rows, _WRITTEN_AT_ONCE):
        chunk = rows.slice(start, _WRITTEN_AT_ONCE)
        yield chunk, {name: blob_contents(handle, chunk, name, source.foreign_versions) for name in source.blobs}


def _with_blobs(rows: pa.Table, blobs: Mapping[str, list[Any]]) -> pa.Table:
    for name, values in blobs.items():
        array = blob_column(values).storage
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, pa.field(name, array.type, rows.schema.field(index).nullable), array)
    return rows


_WRITERS: Final[Mapping[Format, Callable[[_Plan, _Part, pa.Table | None], tuple[int, int]]]] = {
    "jsonl": _write_lines,
    "parquet": _write_parquet,
}
