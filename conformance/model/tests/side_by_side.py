"""An engine and the model on the same operations, held against each other after every step.

A step is a plain dictionary, so that a failing sequence prints as something that can be run again. The engine here is
the reference, called in process; what is compared is what any engine answers: the result or the kind of the refusal,
the branches, the export and the manifest version of each, and at the end what was at older points.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.model import Commit, Model, Refusal
from reference.errors import MergeConflicts, OmniError
from reference.format.manifest import GraphCommit
from reference.graph import Graph
from reference.protocol.manifests import Snapshot

Step = dict[str, Any]
Answer = tuple[Any, ...]


class SideBySide:
    """One graph, twice."""

    def __init__(self, uri: str, schema: str) -> None:
        self.engine = Graph.init(uri, schema)
        self.model = Model.from_source(schema)
        assert json.loads(Path(uri, "_schema.ir.json").read_text(encoding="utf-8")) == self.model.schema.ir
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
            "schema_apply": self._schema_apply,
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

    def _schema_apply(self, source: str, allow_data_loss: bool = False) -> None:
        def by_engine() -> Answer:
            plan = self.engine.schema_plan(source, allow_data_loss=allow_data_loss)
            plans.append(plan.supported)
            done = self.engine.schema_apply(source, allow_data_loss=allow_data_loss)
            return done.applied, [_bare(step.to_json()) for step in done.steps], done.commit

        def by_model() -> Answer:
            plan = self.model.schema_plan(source, allow_data_loss=allow_data_loss)
            plans.append(plan.supported)
            found = self.model.schema_apply(source, allow_data_loss=allow_data_loss)
            return found.applied, [_bare(step) for step in found.steps], found.commit

        plans: list[bool] = []
        self._both(by_engine, by_model, "main")
        assert len(set(plans)) < 2, f"the engine supports the plan: {plans[0]}, the model: {plans[1]}"

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
        counted, version = commit.manifest_version, engines.manifest_version
        assert version >= counted, f"the commit is at version {version}, and the one before it at {counted - 1}"
        self.model.identify(commit, engines.graph_commit_id, engines.manifest_version, engines.created_at)

    def exported(self, branch: str) -> str:
        return b"".join(self.engine.export(branch)).decode()

    def compare_branches(self, step: Step) -> None:
        assert self.engine.branch_list() == self.model.branch_list(), f"the branches differ after {step}"
        for branch in self.model.branch_list():
            found, meant = self.exported(branch), self.model.export(branch)
            assert found == meant, f"'{branch}' differs after {step}:\nengine\n{found}\nmodel\n{meant}"
            version, known = self.engine.snapshot(branch).version, self.model.last_version(branch)
            assert version >= known, f"'{branch}' went back from version {known} to {version} after {step}"
            self.model.reach(branch, version)  # An engine may compact its manifest whenever it likes [OPT-07].

    def compare_histories(self) -> None:
        """Old states, single rows and diffs, for the first, a middle and the last commit of each branch."""
        for branch in self.model.branch_list():
            commits = self.model.commits(branch)
            assert [each.commit_id for each in commits] == [
                each.graph_commit_id for each in self.engine.commits(branch)
            ]
            self.compare_points([commits[0], commits[len(commits) // 2], commits[-1]])
            self.compare_versions(branch)

    def compare_points(self, points: Sequence[Commit]) -> None:
        snapshots = [self.engine.snapshot(commit=point.commit_id) for point in points]
        for point, snapshot in zip(points[1:2], snapshots[1:2], strict=True):
            self.compare_rows(point, snapshot)
        for older, newer in ((0, 1), (1, 2), (2, 1)):
            if points[older].lost or points[newer].lost:
                continue
            diff = self.engine.diff(snapshots[older], snapshots[newer])
            did = [(each.table_key, each.row_id, each.op, each.endpoints) for each in diff.changes]
            changes = self.model.diff(points[older], points[newer])
            meant = [(each.table_key, each.row_id, each.op, each.endpoints) for each in changes]
            if points[older].schema != points[newer].schema:
                # Whether a rewrite with another schema updates a row whose values stay is left open [CHG-04].
                did, meant = ([each for each in found if each[2] != "update"] for found in (did, meant))
            assert did == meant

    def compare_versions(self, branch: str) -> None:
        """Every version that the manifest of a branch has had, and one beside it at each end."""
        last = self.model.last_version(branch)
        for version in {
            0,
            1,
            last - 1,
            last,
            last + 1,
            *(each.manifest_version for each in self.model.commits(branch)),
        }:
            try:
                point = self.model.at(branch, version)
            except Refusal as refusal:
                with pytest.raises(OmniError) as refused:
                    self.engine.snapshot(branch, version=version)
                assert refused.value.kind == refusal.kind
                continue
            self.compare_rows(point, self.engine.snapshot(branch, version=version))

    def compare_rows(self, point: Commit, snapshot: Snapshot) -> None:
        """All rows at a point, and one row of each table. What a hard drop may have removed is not asked for."""
        assert sorted(snapshot.entries) == sorted(point.state), f"there are other tables at {point}"
        for key in point.state.keys() - point.lost:
            assert self.engine.read(key, snapshot) == self.model.read(key, commit=point.commit_id), (
                f"{key} differs at {point}"
            )
            for row_id in [*sorted(point.state[key])[:1], "nobody"]:
                meant = self.model.entity_at(key, row_id, commit=point.commit_id)
                assert self.engine.entity_at(key, row_id, snapshot) == meant
        assert self.engine.entity_at("node:Nowhere", "x", snapshot) is None
        assert self.model.entity_at("node:Nowhere", "x", commit=point.commit_id) is None


def _bare(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step without the words that an engine finds for it."""
    return {name: value for name, value in step.items() if name != "reason"}


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
