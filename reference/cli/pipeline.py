"""`omniref pipeline load` and `clean`: the commands that write to a graph with Spark.

Nothing of Spark is imported before one of them runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from reference.cli.arguments import Actor, Branch, Confirm, Json, Uri, duration, open_for_writing
from reference.cli.output import note, show, table
from reference.errors import BadRequest

if TYPE_CHECKING:
    from reference.pipeline.load import LoadReport
    from reference.pipeline.tasks import Progress

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077; by default here."),
]


def load(
    uri: Uri,
    source: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A file, a directory or a pattern of JSON or Parquet, local or s3://."),
    ],
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="append, merge or overwrite.")],
    branch: Branch = None,
    actor: Actor = None,
    max_rejected: Annotated[
        int, typer.Option("--max-rejected", metavar="N", help="Leave out up to N records that break a rule.")
    ] = 0,
    quarantine: Annotated[
        str | None,
        typer.Option("--quarantine", metavar="DIR", help="Where rejected records go; by default beside the input."),
    ] = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Load any number of records into a branch, all of them or none, checked on Spark."""
    if max_rejected < 0:
        raise BadRequest("--max-rejected is a number of records, so not below 0", code="usage")
    from reference.pipeline.load import pipeline_load
    from reference.pipeline.session import refuse_without_spark, spark_session
    from reference.pipeline.tasks import Progress

    refuse_without_spark()
    graph = open_for_writing(uri)
    with Progress() as progress:
        report = pipeline_load(
            graph,
            source,
            mode=cast(Any, mode),
            spark=spark_session(master),
            branch=branch,
            actor=actor,
            max_rejected=max_rejected,
            quarantine=quarantine,
            progress=progress,
        )
    stages = [vars(stage) for stage in progress.stages]
    show({**report.to_json(), "stages": stages}, lambda: _load_lines(report, progress), as_json=as_json)


def _load_lines(report: LoadReport, progress: Progress) -> list[str]:
    lines = table([vars(stage) for stage in progress.stages], "stage", "tasks", "seconds")
    if report.tables:
        lines += ["", *table(report.tables, "table", "rows", "fragments")]
    lines += ["", f"loaded into {report.branch}: nodes {report.nodes_loaded}, edges {report.edges_loaded}"]
    if report.rejected:
        lines.append(f"left out: {report.rejected} records, in {report.quarantine}")
    if report.left_behind is not None:
        lines.append(f"files that are not needed may be left: {report.left_behind}; 'pipeline clean' removes them")
    return lines


def clean(
    uri: Uri,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only files older than any load takes: 6h 7d 2w.")
    ] = "7d",
    confirm: Confirm = False,
    as_json: Json = False,
) -> None:
    """Remove data files that killed loads have left and that no version refers to."""
    from reference.pipeline.orphans import clean as clean_graph

    age = duration("--older-than", older_than)
    assert age is not None
    found = [each.to_json() for each in clean_graph(open_for_writing(uri).store, older_than=age, confirm=confirm)]
    if not confirm:
        note("this is a preview: nothing was removed; pass --confirm to do it")
    show(
        {"confirmed": confirm, "tables": found},
        lambda: table(found, "table_key", "files", "bytes", "jobs"),
        as_json=as_json,
    )
