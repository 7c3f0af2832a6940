"""Commands that read: each opens the graph read-only, so none of them writes a byte or waits for anybody."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from reference.cli.arguments import (
    Branch,
    Commit,
    DataLoss,
    Json,
    SchemaFile,
    Table,
    Types,
    Uri,
    Version,
    file_error,
    open_for_reading,
    read_text,
    snapshot_of,
)
from reference.cli.output import engine_version, json_line, progress, show, table, write, write_all
from reference.errors import BadRequest, NotFound


def version(as_json: Json = False) -> None:
    """The version of omniref, and the one internal schema that it reads and writes."""
    from reference.format.stamp import INTERNAL_SCHEMA_VERSION

    body = {"name": "omniref", "version": engine_version(), "internal_schema_version": INTERNAL_SCHEMA_VERSION}
    lines = [f"omniref {body['version']}", f"internal-schema {INTERNAL_SCHEMA_VERSION}"]
    show(body, lambda: lines, as_json=as_json)


def snapshot(
    uri: Uri, branch: Branch = None, version: Version = None, commit: Commit = None, as_json: Json = False
) -> None:
    """The tables of a branch, and the version of each."""
    found = snapshot_of(open_for_reading(uri), branch, version, commit)
    body = found.to_json()

    def lines() -> Iterable[str]:
        yield f"branch {body['branch']}, manifest version {found.version}, internal schema {found.stamp}"
        rows = ({**each, "table_branch": each["table_branch"] or "main"} for each in body["tables"])
        yield from table(rows, "table_key", "table_version", "row_count", "table_branch", "table_path")

    show(body, lines, as_json=as_json)


def read(
    uri: Uri,
    table_key: Table,
    branch: Branch = None,
    version: Version = None,
    commit: Commit = None,
    as_json: Json = False,
) -> None:
    """All rows of a table, by id: one JSON object per line, or with --json one array."""
    graph = open_for_reading(uri)
    snapshot = snapshot_of(graph, branch, version, commit)
    likely = [key for key in (f"node:{table_key}", f"edge:{table_key}") if key in snapshot.entries]
    with progress(f"reading {table_key}"):
        try:
            rows = graph.read(table_key, snapshot)
        except (BadRequest, NotFound) as error:
            error.hint = f"did you mean {' or '.join(likely)}?" if likely else error.hint
            raise
    write_all([json_line(rows)] if as_json else map(json_line, rows))


def entity(
    uri: Uri,
    table_key: Table,
    id: Annotated[str, typer.Argument(metavar="ID")],
    branch: Branch = None,
    version: Version = None,
    commit: Commit = None,
    as_json: Json = False,
) -> None:
    """One row as JSON, or null if it is not there."""
    graph = open_for_reading(uri)
    write(json_line(graph.entity_at(table_key, id, snapshot_of(graph, branch, version, commit))))


def export(
    uri: Uri,
    branch: Branch = None,
    types: Types = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only this table; may be repeated.")
    ] = None,
    output: Annotated[str | None, typer.Option("--output", metavar="FILE", help="Write there, all or nothing.")] = None,
    as_json: Json = False,
) -> None:
    """A branch as JSON lines that `load` takes back."""
    if output is not None and not Path(output).name:
        raise BadRequest(f"'{output}' is not the name of a file", code="file_unusable")
    graph = open_for_reading(uri)
    lines = graph.export(branch, types=types or (), tables=tables or ())
    if output is None:
        write_all(lines)
        return
    rows = sum(entry.row_count for entry in graph.snapshot(branch).entries.values())
    with progress(f"exporting to {output}", rows) as advance:
        count = _write_whole(Path(output), lines, advance)
    show({"output": output, "records": count}, lambda: [f"{count} records in {output}"], as_json=as_json)


def _write_whole(path: Path, lines: Iterable[bytes], advance: Any) -> int:
    """Write a file beside the one that is meant, then put it in its place: nobody ever sees a half."""
    count = 0
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "xb") as file:
            for line in lines:
                file.write(line)
                count += line.count(b"\n")
                advance(count)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException as error:
        scratch.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise file_error(str(path), error) from None
        raise
    return count


def diff(
    uri: Uri,
    older: Annotated[str, typer.Argument(metavar="FROM", help="BRANCH, BRANCH@VERSION or commit:ID.")],
    newer: Annotated[str, typer.Argument(metavar="TO", help="The same.")],
    types: Types = None,
    ops: Annotated[list[str] | None, typer.Option("--op", metavar="OP", help="Only insert, update or delete.")] = None,
    as_json: Json = False,
) -> None:
    """What changed from one state of the graph to another, row by row."""
    graph = open_for_reading(uri)
    with progress("comparing"):
        found = graph.diff(_point(graph, older), _point(graph, newer), types=types or (), ops=ops or ())
    body = found.to_json()

    def lines() -> Iterable[str]:
        stats = body["stats"]
        yield f"{stats['inserts']} inserted, {stats['updates']} updated, {stats['deletes']} deleted"
        yield from table(body["changes"], "op", "table_key", "id")

    show(body, lines, as_json=as_json)


def _point(graph: Any, text: str) -> Any:
    """A state of the graph as a person names it. Neither '@' nor ':' can be part of a branch's name."""
    if text.startswith("commit:"):
        return graph.snapshot(commit=text.removeprefix("commit:"))
    branch, at, version = text.partition("@")
    if at and not (version.isascii() and version.isdigit()):
        raise BadRequest(f"'{text}' names no state", code="point", hint="write BRANCH, BRANCH@VERSION or commit:ID")
    return graph.snapshot(branch, version=int(version) if at else None)


def commit_list(
    uri: Uri,
    branch: Branch = None,
    filter: Annotated[str | None, typer.Option("--filter", metavar="actor=NAME", help="Only this actor's.")] = None,
    as_json: Json = False,
) -> None:
    """The commits of a branch, oldest first."""
    field, _, actor = (filter or "").partition("=")
    if filter is not None and (field != "actor" or not actor):
        raise BadRequest(f"'{filter}' is no filter", code="filter", hint="write --filter actor=NAME")
    found = [each.to_json() for each in open_for_reading(uri).commits(branch) if not actor or each.actor_id == actor]
    show(found, lambda: _commit_lines(found), as_json=as_json)


def _commit_lines(commits: list[dict[str, Any]]) -> list[str]:
    rows = (
        {**each, "manifest_branch": each["manifest_branch"] or "main", "created_at": _moment(each["created_at"])}
        for each in commits
    )
    fields = ("graph_commit_id", "manifest_branch", "manifest_version", "actor_id", "created_at")
    return table(rows, *fields, "merged_parent_commit_id")


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def commit_show(uri: Uri, commit: Annotated[str, typer.Argument(metavar="COMMIT")], as_json: Json = False) -> None:
    """One commit, from whichever branch holds it."""
    body = open_for_reading(uri).commit(commit).to_json()
    show(body, lambda: (f"{name}: {value}" for name, value in body.items() if value is not None), as_json=as_json)


def recoveries(uri: Uri, as_json: Json = False) -> None:
    """What recovery has done to this graph, oldest first: the audit rows."""
    found = [row.to_json() for row in open_for_reading(uri).recoveries()]
    show(found, lambda: recovery_lines(found), as_json=as_json)


def recovery_lines(recoveries: list[dict[str, Any]]) -> list[str]:
    rows = (
        {**row, "outcomes": ", ".join("{table_key} {from_version}→{to_version}".format(**o) for o in row["outcomes"])}
        for row in recoveries
    )
    fields = ("operation_id", "sidecar_writer_kind", "recovery_kind", "recovery_for_actor", "graph_commit_id")
    return table(rows, *fields, "outcomes")


def branch_list(uri: Uri, as_json: Json = False) -> None:
    """Every branch."""
    found = open_for_reading(uri).branch_list()
    show(found, lambda: found, as_json=as_json)


def schema_show(uri: Uri, as_json: Json = False) -> None:
    """The accepted schema, as it was written."""
    source = open_for_reading(uri).store.schema.current().source
    if as_json:
        show({"schema": source}, list, as_json=True)
    else:
        write(source.encode())


def schema_plan(uri: Uri, schema: SchemaFile, allow_data_loss: DataLoss = False, as_json: Json = False) -> None:
    """What it takes to get from the accepted schema to another, and whether it can be done."""
    plan = open_for_reading(uri).schema_plan(read_text(schema), allow_data_loss=allow_data_loss)
    show(plan.to_json(), lambda: plan_lines(plan), as_json=as_json)


def plan_lines(plan: Any) -> Iterable[str]:
    """A plan, one step per line."""
    if not plan.steps:
        yield "nothing to do"
    for step in plan.steps:
        named = {"old_name": "from", "new_name": "to", "mode": "mode", "reason": "because"}
        target = ".".join(filter(None, (step.type_name, step.property_name)))
        rest = (f"{word} {getattr(step, name)}" for name, word in named.items() if getattr(step, name) is not None)
        yield " ".join([step.kind, step.type_kind, target, *rest])
    if not plan.supported:
        yield "this change is not supported as a whole; nothing of it can be applied"
