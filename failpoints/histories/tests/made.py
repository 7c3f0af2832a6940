"""Histories made by hand: an engine that is nothing but the model, one call after the other, and ways to falsify it.

made = Made()
made.ok("p00-000", insert("ann"))
history, look = made.history(), made.look
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.audit.names import RECOVERY_ACTOR
from conformance.model import Commit as ModelCommit
from conformance.model import Model
from failpoints.histories.plan import SCHEMA
from failpoints.histories.record import ALONE, MAIN, Call, Done, History, Outcome, Step, Verdict
from failpoints.histories.steps import branch_of, mean

READ_ONLY = {"kind": "bad_request", "code": "read_only", "message": "this graph is opened for reading"}
CONFLICT = {"kind": "conflict", "code": "expected_version_mismatch", "message": "somebody was faster"}
BAD_REQUEST = {"kind": "bad_request", "code": "OrphanEdge", "message": "an end is missing"}
CARDINALITY = {"kind": "bad_request", "code": "cardinality_violation", "message": "too many edges"}
KILLED = {"kind": "killed", "code": "exited_mid_request"}


def insert(name: str, age: int = 0, kind: str = "Person", **rest: Any) -> Step:
    data = {"name": name, "age": age} if kind == "Person" else {"name": name}
    return {"do": "mutate", "statements": [{"op": "insert", "type": kind, "data": data}], **rest}


def update(name: str, age: int, **rest: Any) -> Step:
    where = {"property": "name", "op": "eq", "value": name}
    statement = {"op": "update", "type": "Person", "where": where, "set": {"age": age}}
    return {"do": "mutate", "statements": [statement], **rest}


def delete(name: str) -> Step:
    where = {"property": "name", "op": "eq", "value": name}
    return {"do": "mutate", "statements": [{"op": "delete", "type": "Person", "where": where}]}


def both(name: str) -> Step:
    """A person and a pet: two tables in one mutation."""
    return {"do": "mutate", "statements": [*insert(name)["statements"], *insert(name, kind="Pet")["statements"]]}


def knows(edge_id: str, one: str, other: str) -> Step:
    statement = {"op": "insert", "edge": "Knows", "from": one, "to": other, "data": {"id": edge_id}}
    return {"do": "mutate", "statements": [statement]}


def owns(edge_id: str, person: str, pet: str) -> Step:
    """An edge of which a person may have three."""
    statement = {"op": "insert", "edge": "Owns", "from": person, "to": pet, "data": {"id": edge_id}}
    return {"do": "mutate", "statements": [statement]}


def log(text: str) -> Step:
    return {"do": "mutate", "statements": [{"op": "insert", "type": "Log", "data": {"text": text}}]}


def merge(source: str, target: str = MAIN) -> Step:
    return {"do": "merge", "source": source, "target": target}


class Made:
    """A graph whose engine is the model, and the record of what was done to it."""

    def __init__(self) -> None:
        self.model = Model.from_source(SCHEMA)
        self.calls: list[Done] = []
        self.chains: dict[str, list[dict[str, Any]]] = {MAIN: []}
        self.recoveries: list[dict[str, Any]] = []
        self.seen: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self._clock = itertools.count(1)
        self._chain(MAIN, self.model.head(), None)
        self.ok("first-000", insert("ann"), process=ALONE)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def ok(self, actor: str, step: Step, process: int = 0) -> dict[str, Any]:
        """A call that is done, and answered with its commit."""
        began = next(self._clock)
        commit, facts = self._do(actor, step)
        self.record(actor, step, "ok", {**facts, "commit": commit}, process=process, began=began)
        return commit

    def record(
        self,
        actor: str,
        step: Step,
        verdict: Verdict,
        answer: Mapping[str, Any],
        *,
        process: int = 0,
        began: int | None = None,
        killed: bool = False,
    ) -> None:
        """An answer, whatever has happened."""
        call = Call(process, len(self.calls), actor, step)
        since = next(self._clock) if began is None else began
        self.calls.append(Done(call, Outcome(verdict, answer, since, next(self._clock), killed)))

    def lost(self, actor: str, step: Step, *, happened: bool) -> None:
        """A call whose process is killed: it happened, or it did not."""
        began = next(self._clock)
        if happened:
            self._do(actor, step)
        self.record(actor, step, "unknown", KILLED, began=began, killed=True)

    def branch(self, name: str, source: str = MAIN) -> None:
        self.model.branch_create(name, source)
        self.chains[name] = list(self.chains[source])
        self.record(f"made-{name}", {"do": "branch_create", "name": name, "source": source}, "ok", {})

    def maintained(self, actor: str | None = None, branch: str = MAIN) -> dict[str, Any]:
        """A commit that changes no row."""
        return self._chain(branch, self.model.maintain(branch), actor)

    def rolled_forward(self, step: Step) -> dict[str, Any]:
        """Recovery publishes what a dead call had committed."""
        return self._do(RECOVERY_ACTOR, step)[0]

    def audited(self, kind: str, actor: str, commit: Mapping[str, Any], operation: str | None = None) -> None:
        row = {"graph_commit_id": commit["graph_commit_id"], "recovery_kind": kind, "recovery_for_actor": actor}
        self.recoveries.append({**row, "operation_id": operation or f"operation-{len(self.recoveries)}"})

    # -- the record ----------------------------------------------------------------------------------------------------

    def history(self) -> History:
        exports = {branch: _with_ids(self.model.export(branch)) for branch in self.chains}
        chains = {branch: tuple(commits) for branch, commits in self.chains.items()}
        return History(SCHEMA, tuple(self.calls), chains, exports, tuple(self.recoveries))

    def look(self, table_key: str, commit_id: str) -> Sequence[Mapping[str, Any]]:
        return self.seen[commit_id][table_key]

    def falsify(self, commit: Mapping[str, Any], table_key: str, rows: list[dict[str, Any]]) -> None:
        """Let the engine show other rows as of a commit."""
        self.seen[commit["graph_commit_id"]][table_key] = rows

    def _do(self, actor: str, step: Step) -> tuple[dict[str, Any], Mapping[str, Any]]:
        branch = branch_of(step) or MAIN
        meaning = mean(self.model, step, branch)
        assert meaning.commit is not None, "this step changes nothing"
        return self._chain(branch, meaning.commit, actor), meaning.facts

    def _chain(self, branch: str, made: ModelCommit, actor: str | None) -> dict[str, Any]:
        number = len(self.seen)
        parents = [parent.commit_id for parent in self.model.parents(made)]
        commit = {
            "graph_commit_id": f"C{number:03}",
            "manifest_branch": None if branch == MAIN else branch,
            "manifest_version": number + 1,
            "parent_commit_id": parents[0] if parents else None,
            "merged_parent_commit_id": parents[1] if len(parents) > 1 else None,
            "actor_id": actor,
            "created_at": number,
        }
        self.model.identify(made, f"C{number:03}", number + 1, number)
        self.chains[branch].append(commit)
        tables = self.model.schema.types
        self.seen[f"C{number:03}"] = {
            key: [{**row, "id": _with_ids(row["id"])} for row in self.model.read(key, branch)] for key in tables
        }
        return commit


def _with_ids(text: str) -> str:
    """The ids that the model leaves open, as an engine would have made them."""
    return text.replace("new row ", "LOG")


def without_commit(history: History, commit: Mapping[str, Any]) -> History:
    """The same chain without one commit, closed again over the gap, as if it had never been published."""
    kept = []
    for each in history.chains[MAIN]:
        if each["graph_commit_id"] == commit["graph_commit_id"]:
            continue
        if each["parent_commit_id"] == commit["graph_commit_id"]:
            each = {**each, "parent_commit_id": commit["parent_commit_id"]}
        kept.append(each)
    return with_chain(history, kept)


def with_chain(history: History, commits: Sequence[Mapping[str, Any]], branch: str = MAIN) -> History:
    """Another chain, and answers that agree with it."""
    by_id = {commit["graph_commit_id"]: commit for commit in commits}
    calls = [_answered_as(done, by_id) for done in history.calls]
    return replace(history, chains={**history.chains, branch: tuple(commits)}, calls=tuple(calls))


def _answered_as(done: Done, by_id: Mapping[str, Mapping[str, Any]]) -> Done:
    commit = done.outcome.commit
    if commit is None or commit["graph_commit_id"] not in by_id:
        return done
    answer = {**done.outcome.answer, "commit": by_id[commit["graph_commit_id"]]}
    return Done(done.call, replace(done.outcome, answer=answer))
