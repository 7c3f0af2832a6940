"""history: the records of many runs as trends: when a requirement began to fail, what an operation cost when.

    OUT/requirements.parquet   per engine, store and requirement: first seen, last pass, last fail, flips
    OUT/operations.parquet     per engine, store, operation and measure: the cost of every run, and of the run before

Tasks read the files; the tables are ordinary DataFrame work. A record that cannot be used is named, and changes nothing
about the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from reference.pipeline.outputs import Output
from reference.pipeline.run_records import Cost, Facts, Malformed, Verdict, columns_of, find_records, read_records
from reference.pipeline.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REQUIREMENTS_FILE: Final = "requirements.parquet"
OPERATIONS_FILE: Final = "operations.parquet"
# Files of one task: a record is small, and a task costs more than reading a few.
_FILES_AT_ONCE: Final = 64
_PASSED: Final = ("passed",)
_FAILED: Final = ("failed", "known_failing")


@dataclass(frozen=True)
class History:
    """The two tables, how many records they are made of, and the records that could not be used."""

    requirements: pa.Table
    operations: pa.Table
    files: int
    records: int
    malformed: tuple[Malformed, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "records": self.records,
            "malformed": [{"file": each.file, "reason": each.reason} for each in self.malformed],
            "requirements": _json_rows(self.requirements),
            "operations": _json_rows(self.operations),
        }


def history(
    spark: SparkSession,
    sources: Sequence[str],
    output: str | None = None,
    *,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> History:
    """Read all records and write the trends, if a directory is given."""
    target = None if output is None else Output.at(output, env)
    if target is not None:
        target.refuse_unless_empty()
    files = find_records(sources)
    groups = [files[start : start + _FILES_AT_ONCE] for start in range(0, len(files), _FILES_AT_ONCE)]
    facts = [each for group in run_tasks(spark, "reading records", groups, _read, progress=progress) for each in group]
    verdicts = _frame(spark, Verdict, [each for fact in facts for each in fact.verdicts])
    costs = _frame(spark, Cost, [each for fact in facts for each in fact.costs])
    found = History(
        _requirement_trends(verdicts).toArrow(),
        _operation_trends(costs).toArrow(),
        len(files),
        sum(fact.records for fact in facts),
        tuple(each for fact in facts for each in fact.malformed),
    )
    if target is not None:
        for name, table in ((REQUIREMENTS_FILE, found.requirements), (OPERATIONS_FILE, found.operations)):
            with target.writing(name) as stream:
                pq.write_table(table, stream)
    return found


def _read(files: Sequence[str]) -> list[Facts]:
    return [read_records(file) for file in files]


def _frame(spark: SparkSession, kind: type[Verdict] | type[Cost], facts: Sequence[Any]) -> DataFrame:
    from pyspark.sql import functions

    plain = spark.createDataFrame([astuple(fact) for fact in facts], ", ".join(columns_of(kind)))
    return plain.withColumn("at", functions.to_timestamp("at"))


def _requirement_trends(verdicts: DataFrame) -> DataFrame:
    """One row for each engine, store and requirement. Only passing and failing can flip; a skip says nothing."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = ["engine", "store", "requirement"]
    outcome = f.col("outcome")
    judged = f.when(outcome.isin(*_PASSED), f.lit("passed")).when(outcome.isin(*_FAILED), f.lit("failed"))
    # A run of the kit has one moment; two records of one moment are told apart by what they say, always alike.
    by_time = Window.partitionBy(*keys).orderBy("at", "outcome")
    before = f.last("judged", ignorenulls=True).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    flipped = f.when(f.col("judged") != f.col("before"), 1).otherwise(0)
    return (
        verdicts.withColumn("judged", judged)
        .withColumn("before", before)
        .withColumn("flipped", flipped)
        .groupBy(*keys)
        .agg(
            f.min("at").alias("first_seen"),
            f.max("at").alias("last_seen"),
            f.max(f.when(f.col("judged") == "passed", f.col("at"))).alias("last_pass"),
            f.max(f.when(f.col("judged") == "failed", f.col("at"))).alias("last_fail"),
            f.sum("flipped").alias("flips"),
            f.count("*").alias("runs"),
            f.max_by("outcome", f.struct("at", "outcome")).alias("latest"),
            f.max_by("version", f.struct("at", "outcome")).alias("latest_version"),
        )
        .orderBy(*keys)
    )


def _operation_trends(costs: DataFrame) -> DataFrame:
    """One row for each run of an operation, beside what it cost in the run before and in the first one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    keys = ["engine", "store", "operation", "measure"]
    by_time = Window.partitionBy(*keys).orderBy("at", "value")
    return (
        costs.withColumn("value_before", f.lag("value").over(by_time))
        .withColumn("value_first", f.first("value").over(by_time.rowsBetween(Window.unboundedPreceding, 0)))
        .withColumn("is_latest", f.lead("value").over(by_time).isNull())
        .orderBy(*keys, "at", "value")
    )


def _json_rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in table.to_pylist()
    ]
