"""What the commands take: the arguments and options that several of them share, and the files they name."""

from __future__ import annotations

import json
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reference.errors import BadRequest, NotFound, OmniError

if TYPE_CHECKING:
    from reference.graph import Graph
    from reference.protocol.manifests import Snapshot

Uri = Annotated[str, typer.Argument(metavar="GRAPH", help="A directory, or s3://bucket/prefix.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="node:TYPE or edge:TYPE.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
Branch = Annotated[str | None, typer.Option("--branch", help="A branch other than main.")]
Version = Annotated[int | None, typer.Option("--version", help="The graph as of this manifest version.")]
Commit = Annotated[str | None, typer.Option("--commit", help="The graph as of this commit.")]
Actor = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="Who to record as the author.")]
Confirm = Annotated[bool, typer.Option("--confirm", help="Do it. Without this, only say what would be done.")]
SchemaFile = Annotated[str, typer.Option("--schema", metavar="FILE", help="A schema file, or - for stdin.")]
DataLoss = Annotated[bool, typer.Option("--allow-data-loss", help="Remove the files of what is dropped for good.")]

_DURATION = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def open_for_reading(uri: str, branch: str | None = None) -> Graph:
    """Open a graph without writing a byte, whatever a dead writer may have left there."""
    from reference.graph import Graph

    return Graph.open(uri, branch=branch, read_only=True)


def open_for_writing(uri: str) -> Graph:
    """Open a graph and recover it; says so if there was something to recover."""
    from reference.cli.output import note
    from reference.graph import Graph

    graph = Graph.open(uri)
    for row in graph.recovered:
        note(f"recovered: {row.sidecar_writer_kind} {row.operation_id} {row.recovery_kind}")
    return graph


def snapshot_of(graph: Graph, branch: str | None, version: int | None, commit: str | None) -> Snapshot:
    if commit is not None and branch is not None:
        raise BadRequest("a commit knows its branch: name one of the two", code="ambiguous_snapshot")
    return graph.snapshot(branch, version=version, commit=commit)


def read_text(name: str) -> str:
    """The text of a file, or of stdin for `-`."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name} is not UTF-8: {error.reason} at byte {error.start}", code="not_utf8") from None
    except OSError as error:
        raise file_error(name, error) from None


def file_error(name: str, error: OSError) -> OmniError:
    kind = NotFound if isinstance(error, FileNotFoundError) else BadRequest
    return kind(f"{name}: {error.strerror or error}", code="file_unusable")


def read_statements(inline: str | None, file: str | None) -> list[Any]:
    """The statements of a mutation: one JSON object, or an array of them."""
    if (inline is None) == (file is None):
        raise BadRequest("give the statements as an argument or with --statements, not both", code="statements")
    try:
        parsed = json.loads(inline if inline is not None else read_text(file or "-"))
    except ValueError as error:
        hint = """write them like {"op": "insert", "type": "Person", "data": {…}}"""
        raise BadRequest(f"the statements are not JSON: {error}", code="statements", hint=hint) from None
    return parsed if isinstance(parsed, list) else [parsed]


def duration(text: str | None) -> timedelta | None:
    """A duration such as 90s, 15m, 6h, 7d or 2w [CLI-02]."""
    if text is None:
        return None
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise BadRequest(f"{text!r} is not a duration", code="duration", hint="a number and one of s m h d w, as in 7d")
    return timedelta(**{_UNITS[matched[2]]: int(matched[1])})
