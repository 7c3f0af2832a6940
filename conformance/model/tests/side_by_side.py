"""An engine and the model on the same operations, held against each other after every step.

A step is a plain dictionary, so that a failing sequence prints as something that can be run again. The engine here is
the reference, called in process; what is compared is what any engine answers: the result or the kind of the refusal,
the branches, and the export of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.model import Model, Refusal
from reference.errors import MergeConflicts, OmniError
from reference.format.manifest import GraphCommit
from reference.graph import Graph

Step = dict[str, Any]
Answer = tuple[Any, ...]


class SideBySide:
    """One graph, twice."""

    def __init__(self, uri: str, schema: str) -> None:
        self.engine = Graph.init(uri, schema)
        self.model = Model(json.loads(Path(uri, "_schema.ir.json").read_text(encoding="utf-8")))
        genesis = self.engine.commits()[0]
        self._identify(self.model.head(), genesis)

    def step(self, step: Step) -> None:
        """Do one thing to both, and compare everything that can be seen."""
        args = {name: value for name, value in step.items() if name != "do"}
        operations: dict[str, Callable[..., None]] = {
            "load": self._load,
            "mutate": self._mutate,
            "merge": self._merge,
            "branch_create": self._branch_create,
            "branch_delete": self._branch_delete,
            "optimize": lambda: self._maintain(self.engine.optimize),
            "ensure_indices": lambda: self._maintain(self.engine.ensure_indices),
            "reopen": self._reopen,
        }
        operations[step["do"]](**args)
        self.compare_branches(step)

    # -- operations ------------------------------------------------------------------------------------------------

    def _load(self, records: list[Any], mode: Any, branch: str, base: str | None = None) -> None:
        data = "\n".join(json.dumps(record) for record in records)

        def by_engine() -> Answer:
            done = self.engine.load(data, mode=mode, branch=branch, base=base)
            return done.branch_created, done.nodes_loaded, done.edges_loaded, done.commit

        def by_model() -> Answer:
            found = self.model.load(data, mode=mode, branch=branch, base=base)
            return found.branch_created, found.nodes_loaded, found.edges_loaded, found.commit

        self._both(by_engine, by_model, branch)

    def _mutate(self, statements: list[Any], branch: str) -> None:
        def by_engine() -> Answer:
            done = self.engine.mutate(statements, branch=branch)
            return done.affected_nodes, done.affected_edges, done.commit

        def by_model() -> Answer:
            found = self.model.mutate(statements, branch=branch)
            return found.affected_nodes, found.affected_edges, found.commit

        self._both(by_engine, by_model, branch)

    def _merge(self, source: str, target: str) -> None:
        def by_engine() -> Answer:
            done = self.engine.merge(source, target)
            return done.outcome, done.commit

        def by_model() -> Answer:
            found = self.model.merge(source, target)
            return found.outcome, found.commit

        self._both(by_engine, by_model, target)

    def _branch_create(self, name: str, source: str) -> None:
        self._both(
            _done(lambda: self.engine.branch_create(name, source)),
            _done(lambda: self.model.branch_create(name, source)),
        )

    def _branch_delete(self, name: str) -> None:
        self._both(_done(lambda: self.engine.branch_delete(name)), _done(lambda: self.model.branch_delete(name)))

    def _maintain(self, work: Callable[[], object]) -> None:
        """What the engine commits on main without changing a row, the model is told."""
        work()
        for commit in self.engine.commits("main")[len(self.model.commits("main")) :]:
            self._identify(self.model.maintain("main"), commit)

    def _reopen(self) -> None:
        self.engine = Graph.open(self.engine.store.root.uri)

    # -- comparing -------------------------------------------------------------------------------------------------

    def _both(self, by_engine: Callable[[], Answer], by_model: Callable[[], Answer], branch: str | None = None) -> None:
        did, meant = _answered(by_engine), _answered(by_model)
        *did_result, did_commit = did
        *meant_result, meant_commit = meant
        assert did_result == meant_result, f"the engine answered {did}, the model {meant}"
        if did[0] != "ok":
            assert did_commit == meant_commit, f"the engine refused for {did_commit}, the model for {meant_commit}"
            return
        assert (did_commit is None) == (meant_commit is None), f"the engine answered {did}, the model {meant}"
        if branch is not None and did_commit is not None:
            self._identify(meant_commit, did_commit)
            self.model.learn_ids(branch, self.exported(branch))

    def _identify(self, commit: Any, engines: GraphCommit) -> None:
        parents = {parent.commit_id for parent in self.model.parents(commit)}
        recorded = {engines.parent_commit_id, engines.merged_parent_commit_id} - {None}
        assert parents == recorded, f"the parents of the commit are {recorded} in the engine and {parents} in the model"
        self.model.identify(commit, engines.graph_commit_id, engines.manifest_version, engines.created_at)

    def exported(self, branch: str) -> str:
        return b"".join(self.engine.export(branch)).decode()

    def compare_branches(self, step: Step) -> None:
        assert self.engine.branch_list() == self.model.branch_list(), f"the branches differ after {step}"
        for branch in self.model.branch_list():
            found, meant = self.exported(branch), self.model.export(branch)
            assert found == meant, f"'{branch}' differs after {step}:\nengine\n{found}\nmodel\n{meant}"

    def compare_histories(self) -> None:
        """Old states, single rows and diffs, for the first, a middle and the last commit of each branch."""
        for branch in self.model.branch_list():
            commits = self.model.commits(branch)
            assert [each.commit_id for each in commits] == [
                each.graph_commit_id for each in self.engine.commits(branch)
            ]
            chosen = [commits[0], commits[len(commits) // 2], commits[-1]]
            snapshots = [self.engine.snapshot(commit=commit.commit_id) for commit in chosen]
            for commit, snapshot in zip(chosen[1:2], snapshots[1:2], strict=True):
                for key in self.model.schema.types:
                    assert self.engine.read(key, snapshot) == self.model.read(key, commit=commit.commit_id)
                    for row_id in sorted(commit.state[key])[:1]:
                        found = self.engine.entity_at(key, row_id, snapshot)
                        assert found == self.model.entity_at(key, row_id, commit=commit.commit_id)
            for older, newer in ((0, 1), (1, 2), (2, 1)):
                diff = self.engine.diff(snapshots[older], snapshots[newer])
                did = [(each.table_key, each.row_id, each.op, each.endpoints) for each in diff.changes]
                changes = self.model.diff(chosen[older].state, chosen[newer].state)
                assert did == [(each.table_key, each.row_id, each.op, each.endpoints) for each in changes]


def _done(operation: Callable[[], None]) -> Callable[[], Answer]:
    """An operation that answers nothing, and makes no commit."""

    def run() -> Answer:
        operation()
        return (None,)

    return run


def _answered(operation: Callable[[], Answer]) -> Answer:
    """("ok", result…, commit), or (the kind of the refusal, its conflicts)."""
    try:
        return "ok", *operation()
    except MergeConflicts as error:
        return error.kind, _conflicts(
            [(each["table_key"], each["row_id"], each["kind"]) for each in error.details["conflicts"]]
        )
    except OmniError as error:
        return error.kind, _conflicts([])
    except Refusal as refusal:
        return refusal.kind, _conflicts([(each.table_key, each.row_id, each.kind) for each in refusal.conflicts])


def _conflicts(found: list[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Of rows that share a value, each of them may be called the one too many."""
    return {(key, "" if kind == "UniqueViolation" else row_id, kind) for key, row_id, kind in found}
