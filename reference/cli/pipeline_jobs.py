"""`omniref pipeline`: the jobs on Spark that read, and the one that makes graphs up. Loading is in `pipeline.py`.

Each command starts a Spark session, runs one job with a bar for each of its stages, and ends with tables: what came
of it, and what the stages took. Nothing of Spark is imported before a command runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reference.cli.arguments import Branch, Json, Uri, Version, open_for_reading
from reference.cli.output import show, table
from reference.cli.pipeline import Master
from reference.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.pipeline.tasks import Progress

Out = Annotated[str, typer.Argument(metavar="OUT", help="A directory, or s3://bucket/prefix; empty or not there yet.")]
EXIT_NOT_SOUND = 1
# A terminal is no place for more; the files and --json have everything.
LINES_MAX = 40


@contextmanager
def job(master: str | None) -> Iterator[tuple[SparkSession, Progress]]:
    """A Spark session for one command, and the bars of its stages."""
    from reference.pipeline.session import spark_session
    from reference.pipeline.tasks import Progress

    spark = spark_session(master)
    with Progress() as progress:
        yield spark, progress


def show_job(body: dict[str, Any], lines: Callable[[], Iterable[str]], progress: Progress, *, as_json: bool) -> None:
    """What came of a job, and what its stages took."""
    stages = [{"stage": each.stage, "tasks": each.tasks, "seconds": each.seconds} for each in progress.stages]

    def all_lines() -> Iterable[str]:
        yield from lines()
        yield ""
        yield from table(stages, "stage", "tasks", "seconds")

    show({**body, "stages": stages}, all_lines, as_json=as_json)


def generate(
    out: Out,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes of all types together.")] = 1_000,
    edges: Annotated[int, typer.Option("--edges", metavar="N", help="Edges of all types together.")] = 5_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same rows.")] = 0,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Make a graph up, as Parquet files that `pipeline load` takes, with the truth about it."""
    from reference.pipeline.generate import generate as run

    with job(master) as (spark, progress):
        body = run(spark, out, nodes=nodes, edges=edges, seed=seed, progress=progress).to_json()

    def lines() -> Iterable[str]:
        rows = [{"table": key, **found} for key, found in body["tables"].items()]
        yield from table(rows, "table", "rows", "checksum")
        yield f"{nodes} nodes and {edges} edges in {out}; the schema is {out.rstrip('/')}/schema.pg"

    show_job({"output": out, **body}, lines, progress, as_json=as_json)


def export(
    uri: Uri,
    out: Out,
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="jsonl or parquet.")] = "jsonl",
    branch: Branch = None,
    version: Version = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """A snapshot as files sorted by id. JSON lines: `cat OUT/part-*.jsonl` is what `omniref export` prints."""
    from reference.pipeline.export import FORMATS, Format
    from reference.pipeline.export import export as run
    from reference.pipeline.pinned import pin

    known: dict[str, Format] = {each: each for each in FORMATS}
    if format not in known:
        raise BadRequest(f"'{format}' is not a format", code="unknown_format", hint=f"one of {', '.join(FORMATS)}")
    graph = open_for_reading(uri)
    pinned = pin(graph, branch, version=version)
    with job(master) as (spark, progress):
        done = run(spark, graph, pinned, out, format=known[format], progress=progress)
    body = done.to_json()

    def lines() -> Iterable[str]:
        yield from table([{"table": key, "records": rows} for key, rows in done.tables.items()], "table", "records")
        yield f"{body['records']} records in {body['files']} files in {out}, {body['bytes']} bytes"

    show_job({**body, "manifest_version": pinned.manifest_version}, lines, progress, as_json=as_json)


def diff(
    uri: Uri,
    older: Annotated[str, typer.Option("--from", metavar="STATE", help="BRANCH, BRANCH@VERSION or a commit id.")],
    newer: Annotated[str, typer.Option("--to", metavar="STATE", help="The same.")] = "main",
    samples: Annotated[int, typer.Option("--samples", min=0, metavar="N", help="Rows of each change to show.")] = 5,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """What changed from one state of the graph to another: counts by table, and some of the rows."""
    from reference.pipeline.diff import diff as run
    from reference.pipeline.diff import snapshot_at

    graph = open_for_reading(uri)
    then, now = snapshot_at(graph, older), snapshot_at(graph, newer)
    with job(master) as (spark, progress):
        body = run(spark, graph, then, now, samples=samples, progress=progress).to_json()

    def lines() -> Iterable[str]:
        stats = body["stats"]
        yield f"{stats['inserts']} inserted, {stats['updates']} updated, {stats['deletes']} deleted"
        yield from table(body["tables"], "table_key", "inserts", "updates", "deletes")
        if body["unread"]:
            yield f"the same in both, and not read: {', '.join(body['unread'])}"
        changed = [
            {"op": op, "table_key": each["table_key"], "id": row["id"]}
            for each in body["tables"]
            for op, rows in each["samples"].items()
            for row in rows
        ]
        if changed:
            yield ""
            yield from table(changed[:LINES_MAX], "op", "table_key", "id")

    show_job(body, lines, progress, as_json=as_json)


def audit(uri: Uri, master: Master = None, as_json: Json = False) -> None:
    """Audit every branch of a graph, every row of it. Nothing is written.

    Exit codes: 0 sound; 1 something is wrong; 2 the request is wrong; 3 no graph can be read there.
    """
    from reference.pipeline.audit import audit as run
    from reference.pipeline.audit import report_json, report_lines

    with job(master) as (spark, progress):
        report = run(spark, uri, progress=progress)
    body = report_json(report)

    def lines() -> Iterable[str]:
        if body["findings"]:
            yield from table(body["findings"], "severity", "requirement", "code", "where", "message")
        yield from report_lines(report)

    show_job(body, lines, progress, as_json=as_json)
    if not report.ok:
        raise typer.Exit(EXIT_NOT_SOUND)


def history(
    sources: Annotated[
        list[str], typer.Argument(metavar="RECORDS...", help="Directories, files or patterns of run records.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", metavar="OUT", help="Write the trends there, as Parquet.")
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Records of many runs (report.json, cost.json, benchmarks.jsonl) as trends."""
    from reference.pipeline.history import history as run

    with job(master) as (spark, progress):
        body = run(spark, sources, output, progress=progress).to_json()

    def lines() -> Iterable[str]:
        told = [row for row in body["requirements"] if row["flips"] or row["latest"] in ("failed", "known_failing")]
        yield from table(
            told[:LINES_MAX],
            "engine",
            "store",
            "requirement",
            "first_seen",
            "last_pass",
            "last_fail",
            "flips",
            "latest",
        )
        yield f"{len(told)} of {len(body['requirements'])} requirements have flipped or fail"
        latest = [row for row in body["operations"] if row["is_latest"]]
        yield ""
        yield from table(
            latest[:LINES_MAX], "engine", "store", "operation", "measure", "value_first", "value_before", "value", "at"
        )
        yield f"{body['records']} records of {body['files']} files; {len(body['malformed'])} could not be used"
        yield from (f"  {each['file']}: {each['reason']}" for each in body["malformed"])

    show_job(body, lines, progress, as_json=as_json)
