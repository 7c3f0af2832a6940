"""`omniref drive`: the engine behind one JSON request per line on stdin and one JSON answer per line on stdout.

The vocabulary is the harness's, written down in `conformance/protocol/`. An operation is a method of `Graph` or a
function below; the names and types of its parameters are the arguments that a request may carry. Graphs that a session
has opened are known by handles (`h1`, `h2`, …), each with a warm state of its own: one driver can play several clients.

A request ends in exactly one answer: `ok`, `error`, or `unsupported` for an operation that is not here. Nothing that a
request says can end the driver; it ends with its stdin.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Any, BinaryIO, Literal, get_args, get_origin, get_type_hints

from reference.cli.arguments import LONGEST_AGE, checked_actor, parse_json
from reference.cli.output import engine_version, scrubbed, unexpected
from reference.errors import BadRequest, NotFound, OmniError
from reference.format.stamp import INTERNAL_SCHEMA_VERSION
from reference.graph import Graph
from reference.operations.init import init_graph
from reference.protocol.store import open_store

PROTOCOL_VERSION = 1
Names = list[str] | None
Point = dict[str, Any]
Shape = Callable[[Any], Any]


# -- operations on an open graph -------------------------------------------------------------------------------


def read(
    graph: Graph, table_key: str, branch: str | None = None, version: int | None = None, commit: str | None = None
) -> Any:
    return {"rows": graph.read(table_key, graph.snapshot(branch, version=version, commit=commit))}


def entity_at(
    graph: Graph,
    table_key: str,
    id: str,
    branch: str | None = None,
    version: int | None = None,
    commit: str | None = None,
) -> Any:
    return {"entity": graph.entity_at(table_key, id, graph.snapshot(branch, version=version, commit=commit))}


def export(graph: Graph, branch: str | None = None, types: Names = None, tables: Names = None) -> Any:
    return {"data": b"".join(graph.export(branch, types=types or (), tables=tables or ())).decode()}


def diff(graph: Graph, older: Point, newer: Point, types: Names = None, ops: Names = None) -> Any:
    before, after = (graph.snapshot(**_fitting(Graph.snapshot, point)) for point in (older, newer))
    return graph.diff(before, after, types=types or (), ops=ops or ()).to_json()


def cleanup(
    graph: Graph, keep_versions: int | None = None, older_than_seconds: int | None = None, confirm: bool = False
) -> Any:
    if older_than_seconds is not None and not 0 <= older_than_seconds <= LONGEST_AGE.total_seconds():
        message = f"argument 'older_than_seconds' is {older_than_seconds}, not from 0 to a hundred years"
        raise BadRequest(message, code="bad_argument", details={"argument": "older_than_seconds"})
    older_than = None if older_than_seconds is None else timedelta(seconds=older_than_seconds)
    stats = graph.cleanup(keep_versions=keep_versions, older_than=older_than, confirm=confirm)
    return {"tables": [each.to_json() for each in stats]}


def _listed(name: str) -> Shape:
    return lambda found: {name: [each if isinstance(each, str) else each.to_json() for each in found]}


def _whole(found: Any) -> Any:
    return found.to_json()


def _done(_: None) -> Any:
    return {}


# What to call with the graph and the arguments, and how its answer is put.
GRAPH_OPERATIONS: dict[str, tuple[Callable[..., Any], Shape]] = {
    "refresh": (Graph.refresh, _listed("recovered")),
    "sync_branch": (Graph.sync_branch, _done),
    "load": (Graph.load, _whole),
    "mutate": (Graph.mutate, _whole),
    "snapshot": (Graph.snapshot, _whole),
    "read": (read, dict),
    "entity_at": (entity_at, dict),
    "export": (export, dict),
    "diff": (diff, dict),
    "commits": (Graph.commits, _listed("commits")),
    "commit": (Graph.commit, _whole),
    "recoveries": (Graph.recoveries, _listed("recoveries")),
    "branch_list": (Graph.branch_list, _listed("branches")),
    "branch_create": (Graph.branch_create, _done),
    "branch_delete": (Graph.branch_delete, _done),
    "merge": (Graph.merge, _whole),
    "schema_plan": (Graph.schema_plan, _whole),
    "schema_apply": (Graph.schema_apply, _whole),
    "ensure_indices": (Graph.ensure_indices, _listed("pending")),
    "optimize": (Graph.optimize, _listed("tables")),
    "cleanup": (cleanup, dict),
    "repair": (Graph.repair, _whole),
}


# -- a session -----------------------------------------------------------------------------------------------


class Session:
    """The graphs that one client has open, and the answers to its requests."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = env  # The variables of the store; None is this process's own environment.
        self._graphs: dict[str, Graph] = {}
        self._opened = 0
        self._own: dict[str, Callable[..., Any]] = {
            "hello": self.hello,
            "init": self.init,
            "open": self.open,
            "close": self.close,
        }

    def hello(self) -> Any:
        return {
            "name": "omniref",
            "version": engine_version(),
            "protocol_version": PROTOCOL_VERSION,
            "internal_schema_version": INTERNAL_SCHEMA_VERSION,
            "capabilities": sorted([*self._own, *GRAPH_OPERATIONS, "failpoints", "s3"]),
        }

    def init(self, uri: str, schema: str, force: bool = False) -> Any:
        # The graph stays closed: what fails in an open does not undo it [SCH-16].
        init_graph(open_store(uri, self._env), schema, force=force)
        return {}

    def open(self, uri: str, branch: str | None = None, read_only: bool = False) -> Any:
        graph = Graph.open(uri, branch=branch, read_only=read_only, env=self._env)
        self._opened += 1
        handle = f"h{self._opened}"
        self._graphs[handle] = graph
        return {"handle": handle, "recovered": [row.to_json() for row in graph.recovered]}

    def close(self, handle: str) -> Any:
        self._graph(handle)
        del self._graphs[handle]
        return {}

    def _graph(self, handle: Any) -> Graph:
        if not isinstance(handle, str):
            message = f"argument 'handle' {'is missing' if handle is None else 'has the wrong type'}"
            raise BadRequest(
                message, code="bad_argument", details={"argument": "handle"}, hint="`open` answers with one"
            )
        if handle not in self._graphs:
            raise NotFound(f"no graph is open as {handle!r}", code="handle_not_found", hint="open it first")
        return self._graphs[handle]

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one line, whatever it holds."""
        seq: int | None = None
        try:
            request = _parse(line)
            seq = request["seq"]
            op, args = _check(request)
            if op not in self._own and op not in GRAPH_OPERATIONS:
                return {"seq": seq, "unsupported": f"this engine has no operation '{op}'"}
            return {"seq": seq, "ok": self._perform(op, args)}
        except OmniError as error:
            return {"seq": seq, "error": {"details": {}, **scrubbed(error.to_json())}}
        except Exception as error:
            return {"seq": seq, "error": {"details": {}, **scrubbed(unexpected(error))}}

    def _perform(self, op: str, args: dict[str, Any]) -> Any:
        if op in self._own:
            return self._own[op](**_fitting(self._own[op], args))
        operation, shape = GRAPH_OPERATIONS[op]
        rest = {name: value for name, value in args.items() if name != "handle"}
        graph = self._graph(args.get("handle"))
        checked_actor(_fitting(operation, rest).get("actor"))
        return shape(operation(graph, **_fitting(operation, rest)))


def _parse(line: bytes) -> dict[str, Any]:
    try:
        request = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise BadRequest(f"a request is one JSON object on one line: {error}", code="malformed_request") from None
    if not isinstance(request, dict) or not _fits(request.get("seq"), int):
        raise BadRequest("a request is an object with a whole number 'seq'", code="malformed_request")
    return request


def _check(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    op, args = request.get("op"), request.get("args", {})
    if unknown := sorted(request.keys() - {"seq", "op", "args"}):
        problem = f"'{unknown[0]}' is no part of a request, which has 'seq', 'op' and 'args'"
    elif not isinstance(op, str):
        problem = "'op' is not a string" if "op" in request else "'op' is missing"
    elif not isinstance(args, dict):
        problem = "'args' is not an object"
    else:
        return op, args
    raise BadRequest(problem, code="malformed_request")


@cache
def _parameters(operation: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    """What an operation takes, and the types of it."""
    parameters = inspect.signature(operation).parameters
    wanted = {name: each for name, each in parameters.items() if name not in ("graph", "self")}
    return wanted, get_type_hints(operation)


def _fitting(operation: Callable[..., Any], args: dict[str, Any]) -> dict[str, Any]:
    """The arguments, if they are those that the operation's parameters name and of their types."""
    wanted, hints = _parameters(getattr(operation, "__func__", operation))
    missing = {name for name, each in wanted.items() if each.default is each.empty} - args.keys()
    wrong = [name for name, value in args.items() if name not in wanted or not _fits(value, hints[name])]
    for name in [*sorted(missing), *wrong]:
        what = "is missing" if name in missing else "is unknown" if name not in wanted else "has the wrong type"
        raise BadRequest(f"argument '{name}' {what}", code="bad_argument", details={"argument": name})
    return args


def _fits(value: Any, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return isinstance(value, str)  # Which words there are is the operation's to say.
    if kind in (list, Sequence):
        return isinstance(value, list) and all(parts[0] is Any or _fits(each, parts[0]) for each in value)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


# -- the process ---------------------------------------------------------------------------------------------


def serve(requests: Iterable[bytes], answers: BinaryIO) -> None:
    """Answer every line until there are no more."""
    session = Session()
    for line in requests:
        answers.write(json.dumps(session.answer(line), separators=(",", ":"), default=str).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Serve stdin. Whatever a library prints goes to stderr: stdout carries answers and nothing else."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(sys.stdin.buffer, answers)
    except BrokenPipeError:
        return  # Nobody listens any more.
