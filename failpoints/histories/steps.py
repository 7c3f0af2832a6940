"""One call twice: asked of an engine, and done to the model in its place in a chain. The vocabulary is that of
`failpoints.steps`; beside the commit, what an answer has to say counts here, and a merge may be of an older head.

Also what can be said of a step without either: the branch on which its commit will be, and the rows that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.judge import Engine, Handle
from conformance.judge.graph import text_of
from conformance.model import Commit, Model
from conformance.sequences.player import NEEDS
from failpoints.histories.record import Call, Step
from failpoints.steps import branch_of as written_branch

Row = tuple[str, str]
WRITES: Final = ("load", "mutate", "merge")


@dataclass(frozen=True)
class Meaning:
    """What a step comes to in the model: a commit or none, and what its answer has to say."""

    commit: Commit | None
    facts: Mapping[str, Any] = field(default_factory=dict)


def supported(engine: Engine, step: Step) -> bool:
    """Whether an engine has what a step needs; if not, the step is passed over."""
    return engine.supports(*NEEDS.get(step["do"], ()))


def perform(handle: Handle, call: Call) -> dict[str, Any]:
    """Ask an engine; the answer without what nobody compares."""
    step = call.step
    match step["do"]:
        case "load":
            return handle.load(text_of(step["records"]), step["mode"], branch=branch_of(step), actor=call.actor)
        case "mutate":
            return handle.mutate(*step["statements"], branch=branch_of(step), actor=call.actor)
        case "merge":
            return handle.merge(step["source"], step["target"], actor=call.actor)
        case "branch_create":
            handle.branch_create(step["name"], step["source"])
            return {}
        case "optimize":
            return {"committed": [table["table_key"] for table in handle.optimize() if table["committed"]]}
        case "ensure_indices":
            handle.ensure_indices()
            return {}
    raise ValueError(f"no process of a history can do {step['do']!r}")


def mean(model: Model, step: Step, branch: str, source: str | None = None) -> Meaning:
    """Do a write to a branch of the model, which may refuse it. `source`: what to merge, where that is not now."""
    match step["do"]:
        case "load":
            loaded = model.load(text_of(step["records"]), mode=step["mode"], branch=branch)
            facts = {"nodes_loaded": loaded.nodes_loaded, "edges_loaded": loaded.edges_loaded}
            return Meaning(loaded.commit, facts)
        case "mutate":
            changed = model.mutate(step["statements"], branch=branch)
            facts = {"affected_nodes": changed.affected_nodes, "affected_edges": changed.affected_edges}
            return Meaning(changed.commit, facts)
        case "merge":
            return Meaning(model.merge(source or step["source"], branch).commit)
    raise ValueError(f"{step['do']!r} writes no rows")


def branch_of(step: Step) -> str | None:
    """The branch on which the commit of a step will be; None if it makes none of its own."""
    return written_branch(step) if step["do"] in WRITES else None


def names_row(step: Step, row: Row, ends: frozenset[Row]) -> bool:
    """Whether a step is about a row by name: it writes it, or may match it. `ends` are the nodes of an edge."""
    if step["do"] == "load":
        return row in {_row_of(record) for record in step["records"]}
    if step["do"] != "mutate":
        return bool(step["do"] == "merge")
    return any(_statement_names(statement, row, ends) for statement in step["statements"])


def _statement_names(statement: Mapping[str, Any], row: Row, ends: frozenset[Row]) -> bool:
    key = f"edge:{statement['edge']}" if "edge" in statement else f"node:{statement['type']}"
    if statement["op"] == "insert":
        return row == _row_of(statement)
    named = set(_keys_in(statement["where"]))
    if not named:
        return row[0] == key
    if statement["op"] == "delete" and any((key, name) in ends for name in named):
        return True
    return row[0] == key and (row[1] in named or row[0].startswith("edge:"))


def _row_of(record: Mapping[str, Any]) -> Row:
    """The row of a record or of an insert: nodes here are known by their name, everything else by its id."""
    data = record.get("data", {})
    if "edge" in record:
        return f"edge:{record['edge']}", str(data.get("id", ""))
    return f"node:{record['type']}", str(data.get("name", data.get("id", "")))


def _keys_in(where: Mapping[str, Any]) -> Iterator[str]:
    if where.get("property") in ("name", "id", "from", "to"):
        value = where.get("value")
        yield from (str(each) for each in (value if isinstance(value, list) else [value]))
    for part in where.get("and", where.get("or", [])):
        yield from _keys_in(part)
