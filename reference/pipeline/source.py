"""Tables of a graph as DataFrames: `spark.read.format("omnigraph")`, after `register(spark)`.

    register(spark)
    spark.read.format("omnigraph").option("table", "node:Person").load("s3://bucket/graph")

    option    meaning
    table     node:<Type> or edge:<Type>; needed
    branch    a branch other than main
    version   a manifest version; the same one for several tables makes them one snapshot
    commit    a commit, in place of a version
    columns   only these, separated by commas: Spark tells a source in Python nothing about the columns that it needs

The snapshot is pinned when the frame is made, and every task opens exactly that version. A partition is some
fragments. Filters that mean the same in Lance are pushed down; Spark applies the others. Credentials come from the
environment of the driver, or from `register`, and travel inside the pickled reader: no option, plan or setting holds
them.

    Date is a date, DateTime a timestamp without a zone, U32 a long, U64 a decimal, a vector an array of floats, and a
    blob a struct of `data` and `uri`, of which one is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reference.errors import BadRequest, NotFound
from reference.operations.reading import is_blob, quoted
from reference.pipeline.pinned import PinnedGraph, PinnedTable, open_pinned, pin
from reference.pipeline.session import refuse_without_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT_NAME: Final = "omnigraph"
OPTIONS: Final = ("branch", "columns", "commit", "table", "version")
_BATCH_ROWS: Final = 65_536
_OPERATORS: Final = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def register(spark: SparkSession, env: Mapping[str, str] | None = None) -> None:
    """Make the format known to a session. `env` holds the variables of an S3 store, if not the process's own."""
    refuse_without_spark()
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):  # type: ignore[misc, unused-ignore]
        """What Spark asks for; the work is done by `TableReader`."""

        def __init__(self, table: TableReader) -> None:
            self.table = table

        def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
            return self.table.push(filters)

        def partitions(self) -> list[Any]:
            from pyspark.sql.datasource import InputPartition

            return [InputPartition(index) for index in range(len(self.table.table.fragment_ids))]

        def read(self, partition: Any) -> Iterator[Any]:
            return self.table.read(partition.value)

    class OmniGraph(DataSource):  # type: ignore[misc, unused-ignore]
        """A table of a graph."""

        def __init__(self, options: Any) -> None:
            # Once for the frame: Spark keeps this object, and asks it for a reader for each action.
            super().__init__(options)
            self.table = TableReader.of(options, env)

        @classmethod
        def name(cls) -> str:
            return FORMAT_NAME

        def schema(self) -> Any:
            from pyspark.sql.pandas.types import from_arrow_schema

            return from_arrow_schema(self.table.frame_schema(), prefer_timestamp_ntz=True)

        def reader(self, schema: Any) -> Any:
            return Reader(replace(self.table))

    # Without this, a data source that can push filters down fails on every read.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(OmniGraph)


def read_table(
    spark: SparkSession, pinned: PinnedGraph, table_key: str, columns: Iterable[str] | None = None
) -> DataFrame:
    """A table of a pinned snapshot, where the format is registered. Frames of one pinned graph are one snapshot."""
    reading = spark.read.format(FORMAT_NAME).option("table", table_key).option("version", pinned.manifest_version)
    if pinned.branch is not None:
        reading = reading.option("branch", pinned.branch)
    if columns is not None:
        reading = reading.option("columns", ",".join(columns))
    frame: DataFrame = reading.load(pinned.uri)
    return frame


@dataclass
class TableReader:
    """One table at one version, some of its columns, and a filter."""

    table: PinnedTable
    columns: list[str]
    storage_options: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    condition: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], env: Mapping[str, str] | None) -> TableReader:
        from reference.graph import Graph

        _refuse_unknown(options)
        uri, key = options.get("path"), options.get("table")
        if uri is None or key is None:
            raise BadRequest("name the graph in load() and the table in option('table')", code="invalid_option")
        version = options.get("version")
        if version is not None and not _is_number(version):
            raise BadRequest(f"'{version}' is no manifest version", code="invalid_option")
        graph = Graph.open(uri, read_only=True, env=env)
        pinned = pin(
            graph,
            options.get("branch"),
            version=None if version is None else int(version),
            commit=options.get("commit"),
        )
        graph.catalog.type_of(key)
        if key not in pinned.tables:
            raise NotFound(
                f"manifest version {pinned.manifest_version} has no table '{key}': the type is younger",
                code="table_not_found",
                details={"table_key": key, "version": pinned.manifest_version},
                hint="name a version from after the schema change",
            )
        table = pinned.tables[key]
        schema = open_pinned(table, pinned.storage_options).schema
        columns = [name.strip() for name in options.get("columns", "").split(",") if name.strip()] or schema.names
        for name in columns:
            if name not in schema.names:
                raise BadRequest(f"{key} has no column '{name}'", code="invalid_option", details={"column": name})
        return cls(table, columns, pinned.storage_options, pa.schema([schema.field(name) for name in columns]))

    def frame_schema(self) -> pa.Schema:
        return pa.schema([pa.field(each.name, _frame_type(each), each.nullable) for each in self.schema])

    def push(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Take the filters that Lance understands; the others are handed back."""
        conditions = []
        for each in filters:
            condition = self._condition(each)
            if condition is None:
                yield each
            else:
                conditions.append(condition)
        self.condition = " AND ".join(conditions) or None

    def _condition(self, each: Any) -> str | None:
        """A filter in the filter language. None is the answer for everything that is not surely the same there."""
        kind = type(each).__name__
        # One that is made of others, as Not, names no column itself.
        path: tuple[str, ...] = getattr(each, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        if name not in self.schema.names:
            return None
        column = self.schema.field(name)
        if kind in ("IsNull", "IsNotNull") and not is_blob(column):
            return f"`{name}` IS {'NOT ' if kind == 'IsNotNull' else ''}NULL"
        if kind in _OPERATORS and (value := _literal(column.type, each.value)) is not None:
            return f"`{name}` {_OPERATORS[kind]} {value}"
        if kind == "In":
            values = [_literal(column.type, value) for value in each.value]
            return None if None in values or not values else f"`{name}` IN ({', '.join(map(str, values))})"
        return None

    def read(self, index: int) -> Iterator[Any]:
        """The rows of one fragment, as batches of exactly the frame's schema."""
        handle = open_pinned(self.table, self.storage_options)
        fragment = handle.get_fragments()[index]
        target = self.frame_schema()
        blobs = [each.name for each in self.schema if is_blob(each)]
        scanner = handle.scanner(
            columns=self.columns,
            filter=self.condition,
            fragments=[fragment],
            batch_size=_BATCH_ROWS,
            with_row_id=bool(blobs),
        )
        for batch in scanner.to_batches():
            columns = [
                _blobs(handle, batch, each.name)
                if each.name in blobs
                else _cast(batch[each.name], target.field(each.name))
                for each in self.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    """An option that nobody reads is a mistake: a misspelled `version` would read today's rows."""
    unknown = sorted(name for name in options if name.lower() not in ("path", *OPTIONS))
    if unknown:
        raise BadRequest(
            f"there is no option '{unknown[0]}'",
            code="invalid_option",
            details={"option": unknown[0]},
            hint=f"one of {', '.join(OPTIONS)}",
        )


def _is_number(text: str) -> bool:
    """Whether it is digits that int() takes: a superscript two is a digit to Python as well."""
    return text.isascii() and text.isdigit()


def _frame_type(column: pa.Field) -> pa.DataType:
    if is_blob(column):
        return pa.struct([pa.field("data", pa.binary()), pa.field("uri", pa.string())])
    return _plain_type(column.type)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has: it knows no unsigned numbers and no dates in milliseconds."""
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_date64(kind):
        return pa.timestamp("us")
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", _plain_type(kind.value_type), nullable=True))
    return kind


def _cast(array: Any, column: pa.Field) -> Any:
    if pa.types.is_date64(array.type):
        array = array.view(pa.int64()).view(pa.timestamp("ms"))
    elif pa.types.is_list(array.type) and pa.types.is_date64(array.type.value_type):
        items = _cast(array.values, pa.field("item", column.type.value_type))
        return pa.ListArray.from_arrays(array.offsets, items, type=column.type, mask=array.is_null())
    elif pa.types.is_fixed_size_list(array.type):
        # The items below a null vector are of no meaning, and a cast would take them along.
        array = pc.if_else(array.is_valid(), array, pa.scalar(None, array.type)) if array.null_count else array
    return array.cast(column.type)


def _blobs(handle: Any, batch: pa.RecordBatch, name: str) -> pa.Array:
    from reference.format.export_lines import blob_values

    row_ids = batch["_rowid"].to_pylist()

    def read(indices: list[int]) -> list[bytes]:
        wanted = [row_ids[index] for index in indices]
        return [content or b"" for _, content in handle.read_blobs(name, ids=wanted, preserve_order=True)]

    values = blob_values(pa.chunked_array([batch[name]]), read)
    contents = pa.array([value if isinstance(value, bytes) else None for value in values], pa.binary())
    uris = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays([contents, uris], names=["data", "uri"], mask=mask)


def _literal(kind: pa.DataType, value: Any) -> str | None:
    """A value in the filter language, where it surely means the same there as in Spark."""
    if pa.types.is_string(kind) and isinstance(value, str):
        return quoted(value)
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_signed_integer(kind) and type(value) is int:
        return str(value)
    return None
