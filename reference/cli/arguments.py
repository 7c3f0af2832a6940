"""What the commands take: the arguments and options that several of them share, and the files they name."""

from __future__ import annotations

import codecs
import json
import os.path
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
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="A branch other than main.")]
Version = Annotated[int | None, typer.Option("--version", metavar="N", help="The graph as of this manifest version.")]
Commit = Annotated[str | None, typer.Option("--commit", metavar="ID", help="The graph as of this commit.")]
Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Only this type; may be repeated.")]
Confirm = Annotated[bool, typer.Option("--confirm", help="Do it. Without this, only say what would be done.")]
SchemaFile = Annotated[str, typer.Option("--schema", metavar="FILE", help="A schema file, or - for stdin.")]
DataLoss = Annotated[bool, typer.Option("--allow-data-loss", help="Remove the files of what is dropped for good.")]

_DURATION = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
LONGEST_AGE = timedelta(days=36_500)
DEEPEST = 100
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def checked_actor(actor: str | None) -> str | None:
    """An author that can be told from the engine itself, which signs its recoveries."""
    if actor is not None and (not actor.strip() or actor.startswith("omnigraph:")):
        why = "names starting with 'omnigraph:' are the engine's own" if actor.strip() else "it is empty"
        raise BadRequest(f"'{actor}' cannot be the author: {why}", code="invalid_actor", details={"actor": actor})
    return actor


Actor = Annotated[
    str | None, typer.Option("--as", metavar="ACTOR", help="Who to record as the author.", callback=checked_actor)
]


def checked_place(uri: str) -> str:
    """The URI, unless it is local and a file is where the directory of the graph, or one above it, should be."""
    from reference.storage.uris import parse_root

    root = parse_root(uri)
    place = root.uri
    while root.scheme == "file" and not os.path.exists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if root.scheme == "file" and os.path.exists(place) and not os.path.isdir(place):
        shown = uri if place == root.uri else place
        raise BadRequest(f"{shown} is a file, not the directory of a graph", code="not_a_directory")
    return uri


def open_for_reading(uri: str, branch: str | None = None) -> Graph:
    """Open a graph without writing a byte, whatever a dead writer may have left there."""
    from reference.graph import Graph

    return Graph.open(checked_place(uri), branch=branch, read_only=True)


def open_for_writing(uri: str) -> Graph:
    """Open a graph and recover it; says so if there was something to recover."""
    from reference.cli.output import note
    from reference.graph import Graph

    graph = Graph.open(checked_place(uri))
    for row in graph.recovered:
        note(f"recovered: {row.sidecar_writer_kind} {row.operation_id} {row.recovery_kind}")
    return graph


def snapshot_of(graph: Graph, branch: str | None, version: int | None, commit: str | None) -> Snapshot:
    if commit is not None and branch is not None:
        raise BadRequest("a commit knows its branch: name one of the two", code="ambiguous_snapshot")
    return graph.snapshot(branch, version=version, commit=commit)


def read_text(name: str) -> str:
    """The text of a file, or of stdin for `-`."""
    shown = file_label(name)
    try:
        if name == "-" and sys.stdin is None:
            raise BadRequest("stdin is closed", code="file_unusable")
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        if data.startswith(codecs.BOM_UTF8):
            hint = "save it as UTF-8 without one"
            raise BadRequest(f"{shown} begins with a byte order mark", code="byte_order_mark", hint=hint)
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{shown} is not UTF-8: {error.reason} at byte {error.start}", code="not_utf8") from None
    except OSError as error:
        raise file_error(shown, error) from None


def file_label(name: str) -> str:
    return "stdin" if name == "-" else name or "''"


def file_error(name: str, error: OSError) -> OmniError:
    kind = NotFound if isinstance(error, FileNotFoundError) else BadRequest
    return kind(f"{name}: {error.strerror or error}", code="file_unusable")


def read_statements(inline: str | None, file: str | None) -> list[Any]:
    """The statements of a mutation: one JSON object, or an array of them."""
    if (inline is None) == (file is None):
        raise BadRequest("give the statements as an argument or with --statements, not both", code="statements")
    try:
        parsed = parse_json(inline if inline is not None else read_text(file or ""))
    except ValueError as error:
        hint = """write them like {"op": "insert", "type": "Person", "data": {…}}"""
        raise BadRequest(f"the statements are not JSON: {error}", code="statements", hint=hint) from None
    return parsed if isinstance(parsed, list) else [parsed]


def parse_json(text: str) -> Any:
    """Read JSON that means one thing only and that every function can walk through; raises ValueError."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [
            each
            for outer in level
            if isinstance(outer, dict | list)
            for each in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"'{name}' occurs twice in one object")
        found[name] = value
    return found


def duration(option: str, text: str | None) -> timedelta | None:
    """A duration such as 90s, 15m, 6h, 7d or 2w [CLI-02]."""
    if text is None:
        return None
    matched = _DURATION.fullmatch(text)
    hint = "a number and one of s m h d w, as in 7d, up to a hundred years"
    if matched is None:
        raise BadRequest(f"{option} {text!r} is not a duration", code="duration", hint=hint)
    found = timedelta(**{_UNITS[matched[2]]: int(matched[1])})
    if found > LONGEST_AGE:
        raise BadRequest(f"{option} {text!r} is too long", code="duration", hint=hint)
    return found
