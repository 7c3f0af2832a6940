"""Commands that write: each opens the graph read-write, which recovers whatever a dead writer left behind first."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from reference.cli.arguments import (
    Actor,
    Branch,
    Confirm,
    DataLoss,
    Json,
    SchemaFile,
    Uri,
    checked_place,
    duration,
    file_label,
    open_for_writing,
    read_statements,
    read_text,
)
from reference.cli.output import EXIT_CODES, note, progress, show, table
from reference.cli.reading import plan_lines, recovery_lines
from reference.errors import BadRequest

Name = Annotated[str, typer.Argument(metavar="NAME", help="The branch.")]


def init(
    uri: Uri,
    schema: SchemaFile,
    force: Annotated[bool, typer.Option("--force", help="Replace the graph that is there.")] = False,
    as_json: Json = False,
) -> None:
    """Create a graph with a schema and no rows."""
    source = read_text(schema)
    from reference.graph import Graph

    with progress("creating tables"):
        graph = Graph.init(checked_place(uri), source, force=force)
    tables = graph.catalog.table_keys()
    lines = [f"{graph.store.root.uri}: {len(tables)} tables"]
    show({"uri": graph.store.root.uri, "tables": list(tables)}, lambda: lines, as_json=as_json)


def load(
    uri: Uri,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON records, or - for stdin.")],
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="append, merge or overwrite.")],
    branch: Branch = None,
    base: Annotated[
        str | None, typer.Option("--from", metavar="BASE", help="Create the branch from this one if it is new.")
    ] = None,
    actor: Actor = None,
    as_json: Json = False,
) -> None:
    """Load records into a branch, all of them or none."""
    if base is not None and branch is None:
        raise BadRequest("--from says what a new branch starts from, so it needs --branch", code="usage")
    data = read_text(file)
    graph = open_for_writing(uri)
    with progress(f"loading {file_label(file)}"):
        result = graph.load(data, mode=cast(Any, mode), branch=branch, base=base, actor=actor)
    show(
        result.to_json(),
        lambda: [f"loaded into {result.branch}: nodes {result.nodes_loaded}, edges {result.edges_loaded}"],
        as_json=as_json,
    )


def mutate(
    uri: Uri,
    inline: Annotated[str | None, typer.Argument(metavar="STATEMENTS", help="The statements, as JSON.")] = None,
    statements: Annotated[str | None, typer.Option(metavar="FILE", help="A file of them, or - for stdin.")] = None,
    branch: Branch = None,
    actor: Actor = None,
    as_json: Json = False,
) -> None:
    """Insert, update or delete rows by JSON statements, all of them or none."""
    parsed = read_statements(inline, statements)
    graph = open_for_writing(uri)
    with progress("writing"):
        result = graph.mutate(parsed, branch=branch, actor=actor)
    lines = [f"nodes affected: {result.affected_nodes}, edges affected: {result.affected_edges}"]
    show(result.to_json(), lambda: lines, as_json=as_json)


def branch_create(
    uri: Uri,
    name: Name,
    source: Annotated[
        str | None, typer.Option("--from", metavar="BASE", help="The branch to start from; main otherwise.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a branch at the head of another. No table is copied."""
    open_for_writing(uri).branch_create(name, source)
    body = {"branch": name, "source": source or "main"}
    show(body, lambda: [f"branch {name} created from {body['source']}"], as_json=as_json)


def branch_delete(uri: Uri, name: Name, as_json: Json = False) -> None:
    """Delete a branch that no other depends on."""
    open_for_writing(uri).branch_delete(name)
    show({"branch": name}, lambda: [f"branch {name} deleted"], as_json=as_json)


def branch_merge(
    uri: Uri,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The branch whose changes are taken.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The branch that gets them.")],
    actor: Actor = None,
    as_json: Json = False,
) -> None:
    """Merge one branch into another, row by row."""
    graph = open_for_writing(uri)
    with progress(f"merging {source} into {target}"):
        result = graph.merge(source, target, actor=actor)
    show(result.to_json(), lambda: [f"{source} into {target}: {result.outcome}"], as_json=as_json)


def recover(uri: Uri, as_json: Json = False) -> None:
    """Run the full recovery sweep, and say what it found and did."""
    from reference.graph import Graph
    from reference.protocol.store import open_store

    found = open_store(checked_place(uri)).sidecars.operation_ids()
    with progress("recovering"):
        graph = Graph.open(uri)
    left = graph.store.sidecars.operation_ids()
    done = [row.to_json() for row in graph.recovered]

    summary = f"sidecars found: {len(found)}, recovered: {len(done)}, left: {len(left)}"
    lines = [summary, *(recovery_lines(done) if done else [])]
    show({"found": found, "done": done, "left": left}, lambda: lines, as_json=as_json)


def schema_apply(uri: Uri, schema: SchemaFile, allow_data_loss: DataLoss = False, as_json: Json = False) -> None:
    """Change the schema and rewrite the tables that it changes. The graph must have no branch but main."""
    source = read_text(schema)
    graph = open_for_writing(uri)
    with progress("applying the schema"):
        result = graph.schema_apply(source, allow_data_loss=allow_data_loss)
    show(result.to_json(), lambda: plan_lines(result), as_json=as_json)


def ensure_indices(uri: Uri, branch: Branch = None, as_json: Json = False) -> None:
    """Build the indexes that the schema asks for; lists those that cannot be built yet."""
    graph = open_for_writing(uri)
    with progress("building indexes"):
        pending = graph.ensure_indices(branch)
    _show_stats([each.to_json() for each in pending], "every index is there", as_json=as_json)


def optimize(uri: Uri, as_json: Json = False) -> None:
    """Compact the tables of main and the manifest, and complete their indexes. Content stays as it is."""
    graph = open_for_writing(uri)
    with progress("optimizing"):
        stats = graph.optimize()
    _show_stats([each.to_json() for each in stats], as_json=as_json)


def repair(
    uri: Uri,
    branch: Branch = None,
    confirm: Confirm = False,
    force: Annotated[bool, typer.Option("--force", help="Publish suspicious drift too. Needs --confirm.")] = False,
    as_json: Json = False,
) -> None:
    """Publish the HEAD of tables that was moved without the manifest, and release a lost schema lock."""
    if force and not confirm:
        message = "--force publishes rows that nobody has checked, so it needs --confirm"
        raise BadRequest(message, code="confirm_required", hint="see the preview, then pass --confirm --force")
    graph = open_for_writing(uri)
    with progress("looking for drift"):
        result = graph.repair(branch, confirm=confirm, force=force)
    _preview(confirm)
    if result.schema_lock is not None:
        note(f"a schema lock that no sidecar explains: {result.schema_lock}")
    tables = [table.to_json() for table in result.tables]
    _show_stats(tables, body={"confirmed": confirm, **result.to_json()}, as_json=as_json)
    if any(table.action == "refused" for table in result.tables):
        raise typer.Exit(EXIT_CODES["conflict"])


def cleanup(
    uri: Uri,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", help="Keep the newest N versions of each table.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Remove only what is older: 90s 15m 6h 7d 2w.")
    ] = None,
    confirm: Confirm = False,
    as_json: Json = False,
) -> None:
    """Remove old versions of the tables of main, and forks that no branch owns any more."""
    age = duration("--older-than", older_than)
    if keep is None and age is None:
        hint = "give --keep N, or --older-than 7d, or both"
        raise BadRequest("cleanup needs to know what is old", code="cleanup_policy_missing", hint=hint)
    if keep is not None and keep < 1:
        raise BadRequest(f"--keep {keep}: at least one version of each table is kept", code="cleanup_policy")
    graph = open_for_writing(uri)
    with progress("cleaning up"):
        stats = graph.cleanup(keep_versions=keep, older_than=age, confirm=confirm)
    _preview(confirm)
    tables = [each.to_json() for each in stats]
    _show_stats(tables, body={"confirmed": confirm, "tables": tables}, as_json=as_json)
    if any(each.error for each in stats):
        raise typer.Exit(EXIT_CODES["storage"])


def _show_stats(stats: list[dict[str, Any]], none: str = "no tables", *, body: Any = None, as_json: bool) -> None:
    """One row per table, one column per number."""
    show(stats if body is None else body, lambda: table(stats, *stats[0]) if stats else [none], as_json=as_json)


def _preview(confirm: bool) -> None:
    if not confirm:
        note("this is a preview: no table was changed; pass --confirm to do it")


def drive() -> None:
    """Serve the engine as JSON lines: one request per line on stdin, one answer per line on stdout."""
    from reference.driver import main

    main()
