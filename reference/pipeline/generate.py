"""generate: a graph of any size, made of nothing but a seed.

    OUT/schema.pg                           the schema to initialize a graph with
    OUT/nodes/<Type>/part-00000.parquet     columns are the properties; `id` only for types without a key
    OUT/edges/<Type>/part-00000.parquet     `from` and `to`, perhaps `id`, and the properties
    OUT/truth.json                          what is in it: rows of each table and a checksum of them

Tasks make the rows with numpy and write them with pyarrow; no row crosses the JVM. The same seed and sizes give the
same rows, however many tasks make them and however they are cut into files. The checksum of a table does not depend
on the order of its rows: `table_checksum` of a scan or of an export must give it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reference.errors import BadRequest
from reference.pipeline.generated_types import EDGES_WITH_IDS, SCHEMA, Sizes, edge_rows, node_rows, sizes
from reference.pipeline.hashing import Checksum, checksum
from reference.pipeline.outputs import Output
from reference.pipeline.parquet_tables import record_schema, write_parquet
from reference.pipeline.tasks import Progress, run_tasks
from reference.schema.types import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = 1
PART_ROWS: Final = 250_000
TRUTH_FILE: Final = "truth.json"
SCHEMA_FILE: Final = "schema.pg"
_MADE_AT_ONCE: Final = 65_536


@dataclass(frozen=True)
class Truth:
    """What was generated. `columns` are those that the checksum of a table covers, in order."""

    seed: int
    tables: Mapping[str, Checksum]
    columns: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "seed": self.seed,
            "tables": {
                key: {"rows": found.rows, "checksum": str(found), "columns": list(self.columns[key])}
                for key, found in self.tables.items()
            },
        }


@dataclass(frozen=True)
class _Part:
    """Some rows of one table, to become one file."""

    output: Output
    size: Sizes
    table_key: str
    number: int
    start: int
    stop: int
    schema: pa.Schema


def generate(
    spark: SparkSession,
    uri: str,
    *,
    nodes: int,
    edges: int,
    seed: int,
    part_rows: int = PART_ROWS,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Truth:
    """Write a generated graph into an empty directory."""
    size, output = sizes(nodes, edges, seed), Output.at(uri, env)
    output.refuse_unless_empty()
    catalog = generated_catalog()
    parts = _parts(output, size, catalog, part_rows)
    sums = run_tasks(spark, "making rows", parts, _make_part, progress=progress)
    tables = {key: Checksum() for key in catalog.table_keys()}
    for part, found in zip(parts, sums, strict=True):
        tables[part.table_key] += found
    truth = Truth(seed, tables, {key: checksum_columns(catalog, key) for key in tables})
    output.write(SCHEMA_FILE, SCHEMA.encode())
    # Last: where it is, everything else is.
    output.write(TRUTH_FILE, json.dumps(truth.to_json(), indent=1).encode() + b"\n")
    return truth


def generated_catalog() -> Catalog:
    from reference.pipeline.pinned import picklable
    from reference.schema import compile_schema

    return picklable(compile_schema(SCHEMA))


def checksum_columns(catalog: Catalog, table_key: str) -> tuple[str, ...]:
    """The columns of a table that a generated graph decides: not the ids that a load makes up, or makes of a key."""
    names = tuple(catalog.arrow_schema(table_key).names)
    return names if _has_ids(catalog, table_key) else names[1:]


def table_checksum(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Checksum:
    """The checksum of a table as a scan gives it, over the columns that `truth.json` names."""
    return checksum(rows, columns)


def _has_ids(catalog: Catalog, table_key: str) -> bool:
    kind, _, name = table_key.partition(":")
    return name in EDGES_WITH_IDS if kind == "edge" else not catalog.nodes[name].key


def _parts(output: Output, size: Sizes, catalog: Catalog, part_rows: int) -> list[_Part]:
    if part_rows < 1:
        raise BadRequest("a file holds at least one row", code="invalid_size")
    counts = {f"node:{name}": rows for name, rows in size.nodes.items()}
    counts |= {f"edge:{name}": rows for name, rows in size.edges.items()}
    return [
        _Part(output, size, key, number, start, min(start + part_rows, rows), _file_schema(catalog, key))
        for key, rows in sorted(counts.items())
        for number, start in enumerate(range(0, rows, part_rows))
    ]


def _file_schema(catalog: Catalog, table_key: str) -> pa.Schema:
    return record_schema(catalog, table_key, with_ids=_has_ids(catalog, table_key))


def _make_part(part: _Part) -> Checksum:
    """Make the rows of one file, write it, and sum it up."""
    kind, _, name = part.table_key.partition(":")
    made = [_rows(kind, name, part, start) for start in range(part.start, part.stop, _MADE_AT_ONCE)]
    rows = pa.Table.from_batches(made, part.schema)
    folder = "nodes" if kind == "node" else "edges"
    with part.output.writing(f"{folder}/{name}/part-{part.number:05}.parquet") as stream:
        write_parquet(rows, stream)
    return checksum(rows, rows.column_names if kind == "node" else _as_stored(rows.column_names))


def _rows(kind: str, name: str, part: _Part, start: int) -> pa.RecordBatch:
    numbers = np.arange(start, min(start + _MADE_AT_ONCE, part.stop), dtype=np.int64)
    columns = (node_rows if kind == "node" else edge_rows)(name, numbers, part.size)
    return pa.record_batch([columns[field.name].cast(field.type) for field in part.schema], schema=part.schema)


def _as_stored(names: Sequence[str]) -> list[str]:
    """The columns of an edge file in the order of its table: the id before the ends, the properties after them."""
    ids = ["id"] if "id" in names else []
    return [*ids, "from", "to", *(name for name in names if name not in ("id", "from", "to"))]
