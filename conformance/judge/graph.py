"""One graph, twice: every operation goes to the engine and to the model, and everything that can be seen is compared.

    graph = JudgedGraph.init(engine, uri, env, schema)
    graph.load(records)                 # judged: answer, lineage, rows of every branch
    graph.audit()                       # judged: the bytes

An operation that both refuse, for the same kind of reason, is raised as the engine's `EngineError`, after a look that
nothing has changed. Wherever the two differ, `RequirementBroken` says which requirement that breaks, and because of
what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.adapters import EngineError
from conformance.audit import GraphUnreadable, audit
from conformance.judge import blame
from conformance.judge.broken import RequirementBroken
from conformance.judge.compare import conflicts_of, first_difference, misread, plan_of
from conformance.judge.engine import Answer, Engine, Handle
from conformance.judge.subjects import Subject, subject_of
from conformance.model import Model, Refusal
from conformance.model.merge import Commit

Records = str | Sequence[Mapping[str, Any]]
MAIN = "main"
# The kinds that say: this did not happen, and never will.
DEFINITE = ("bad_request", "not_found", "conflict")


def text_of(records: Records) -> str:
    """Records as the text that an engine loads."""
    return records if isinstance(records, str) else "\n".join(json.dumps(record) for record in records)


class JudgedGraph:
    """A graph of the engine under test, and its meaning."""

    def __init__(self, handle: Handle, uri: str, env: Mapping[str, str], model: Model) -> None:
        self.handle = handle
        self.uri = uri
        self.env = env
        self.model = model
        self.audited = True
        # The branches whose rows somebody has read: what cannot be read any more has lost something.
        self._once_read: set[str] = set()
        commits = handle.commits(MAIN)
        if not commits:
            raise RequirementBroken(("LIN-08",), "a new graph has no commit, and should have its genesis")
        self._identify(model.head(), commits[0])

    @classmethod
    def init(cls, engine: Engine, uri: str, env: Mapping[str, str], schema: str) -> JudgedGraph:
        """Create the graph, and open it."""
        model = Model.from_source(schema)
        engine.init(uri, schema)
        return cls(engine.open(uri), uri, env, model)

    @property
    def engine(self) -> Engine:
        return self.handle.engine

    # -- writing -----------------------------------------------------------------------------------------------------

    def load(
        self,
        records: Records,
        mode: Any = "merge",
        *,
        branch: str = MAIN,
        base: str | None = None,
        actor: str | None = None,
        through: Handle | None = None,
    ) -> Answer:
        data = text_of(records)
        handle = through or self.handle

        def meant() -> Answer:
            found = self.model.load(data, mode=mode, branch=branch, base=base)
            return {
                "branch_created": found.branch_created,
                "nodes_loaded": found.nodes_loaded,
                "edges_loaded": found.edges_loaded,
                "commit": found.commit,
            }

        args = {"mode": mode, "branch": branch, "base": base, "data": data}
        return self._judge(
            "load", args, lambda: handle.load(data, mode, branch=branch, base=base, actor=actor), meant, branch, actor
        )

    def mutate(
        self,
        *statements: Mapping[str, Any],
        branch: str = MAIN,
        actor: str | None = None,
        through: Handle | None = None,
    ) -> Answer:
        handle = through or self.handle

        def meant() -> Answer:
            found = self.model.mutate(statements, branch=branch)
            return {
                "affected_nodes": found.affected_nodes,
                "affected_edges": found.affected_edges,
                "commit": found.commit,
            }

        args = {"statements": list(statements), "branch": branch}
        return self._judge(
            "mutate", args, lambda: handle.mutate(*statements, branch=branch, actor=actor), meant, branch, actor
        )

    def merge(
        self, source: str, target: str = MAIN, *, actor: str | None = None, through: Handle | None = None
    ) -> Answer:
        handle = through or self.handle

        def meant() -> Answer:
            found = self.model.merge(source, target)
            return {"outcome": found.outcome, "commit": found.commit}

        args = {"source": source, "target": target}
        return self._judge("merge", args, lambda: handle.merge(source, target, actor=actor), meant, target, actor)

    # -- branches and the schema -------------------------------------------------------------------------------------

    def branch_create(self, name: str, source: str = MAIN, *, through: Handle | None = None) -> None:
        handle, made = through or self.handle, []

        def did() -> Answer:
            handle.branch_create(name, source)
            made.append(name)
            return {}

        # A name inside another branch may be refused, or be made and do no harm [BRA-16]: the engine decides.
        meant = _nothing(lambda: self.model.branch_create(name, source, anywhere=bool(made)))
        self._judge("branch_create", {"name": name, "source": source}, did, meant)

    def branch_delete(self, name: str, *, through: Handle | None = None) -> None:
        handle = through or self.handle
        self._judge(
            "branch_delete",
            {"name": name},
            _nothing(lambda: handle.branch_delete(name)),
            _nothing(lambda: self.model.branch_delete(name)),
        )

    def schema_apply(self, source: str, *, allow_data_loss: bool = False, through: Handle | None = None) -> Answer:
        handle = through or self.handle

        def did() -> Answer:
            answer = handle.schema_apply(source, allow_data_loss=allow_data_loss)
            return {"applied": answer["applied"], "steps": plan_of(answer["steps"]), "commit": answer.get("commit")}

        def meant() -> Answer:
            found = self.model.schema_apply(source, allow_data_loss=allow_data_loss)
            return {"applied": found.applied, "steps": plan_of(found.steps), "commit": found.commit}

        args = {"source": source, "allow_data_loss": allow_data_loss}
        return self._judge("schema_apply", args, did, meant, MAIN)

    # -- what changes no row -----------------------------------------------------------------------------------------

    def maintain(self, op: str, work: Callable[[], Any]) -> Any:
        """Run what must leave every row of every branch as it was: optimize, indexes, cleanup, repair, a reopen."""
        try:
            answer = work()
        except EngineError as error:
            raise RequirementBroken((blame.operation_of(op, {}),), f"{op} was refused: {error}") from error
        self.follow()
        self.compare(op, blame.operation_of(op, {}))
        return answer

    def optimize(self, *, through: Handle | None = None) -> list[Answer]:
        found: list[Answer] = self.maintain("optimize", (through or self.handle).optimize)
        return found

    def ensure_indices(self, branch: str | None = None, *, through: Handle | None = None) -> list[Answer]:
        handle = through or self.handle
        found: list[Answer] = self.maintain("ensure_indices", lambda: handle.ensure_indices(branch))
        return found

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_seconds: int | None = None,
        through: Handle | None = None,
    ) -> list[Answer]:
        handle = through or self.handle
        found: list[Answer] = self.maintain(
            "cleanup",
            lambda: handle.cleanup(keep_versions=keep_versions, older_than_seconds=older_than_seconds),
        )
        return found

    def reopen(self, *, engine: Engine | None = None, read_only: bool | None = None) -> Handle:
        """Go on with a new handle; what an open recovers, the model learns as commits that change no row."""
        self.handle = (engine or self.engine).open(self.uri, read_only=read_only)
        self.follow()
        self.compare("open", blame.OPERATIONS["open"])
        return self.handle

    def follow(self) -> None:
        """Tell the model of commits that the engine made by itself: maintenance and recovery."""
        for branch in self.model.branch_list():
            known = len(self.model.commits(branch))
            for commit in self.handle.commits(branch)[known:]:
                self._identify(self.model.maintain(branch), commit)

    # -- comparing ---------------------------------------------------------------------------------------------------

    def compare(self, what: str, requirement: str, *, written: str | None = None, exported: str | None = None) -> None:
        """Hold the branches and the rows of each against the model; another branch than the written one is BRA-08.

        `exported` is the export of the written branch, where somebody has asked for it a moment ago.
        """
        if self.engine.supports("branch_list"):
            found, meant = sorted(self.handle.branch_list()), self.model.branch_list()
            if found != meant:
                because = f"after {what} the engine lists the branches {found}, and there should be {meant}"
                raise RequirementBroken((blame.OPERATIONS["branch_list"],), because)
        self._once_read &= set(self.model.branch_list())
        for branch in sorted(self.model.branch_list(), key=lambda name: name != written):
            ids = (requirement,) if written in (None, branch) else ("BRA-08",)
            found_rows = exported if exported and branch == written else self._export(branch, what, requirement)
            meant_rows = self.model.export(branch)
            difference = first_difference(found_rows, meant_rows)
            if difference is not None:
                value = misread(found_rows, meant_rows)
                ids = ids if value is None else (value,)
                raise RequirementBroken(ids, f"after {what} the branch '{branch}' is not what it means: {difference}")

    def _export(self, branch: str, what: str, requirement: str) -> str:
        try:
            exported = self.handle.export(branch)
        except EngineError as error:
            because = f"after {what} the branch '{branch}' cannot be exported: {error}"
            lost = (requirement, *(["BRA-18"] if branch in self._once_read else []))
            raise RequirementBroken(("LAY-16",) if self._has_references(branch) else lost, because) from error
        self._once_read.add(branch)
        return exported

    def _has_references(self, branch: str) -> bool:
        """Whether a blob of a branch is a URI, which an export has to show as it is and not to follow."""
        state, types = self.model.state(branch), self.model.schema.types
        blobs = [(key, prop.name) for key in state for prop in types[key].properties if prop.scalar == "Blob"]
        return any(isinstance(row[name], str) for key, name in blobs for row in state[key].values())

    def audit(self, *, data: bool = True, but: str | None = None) -> None:
        """Let the auditor read what is on disk; its errors, `but` those of one code, break what they name."""
        try:
            report = audit(self.uri, dict(self.env), data=data)
        except GraphUnreadable as error:
            raise RequirementBroken(("LAY-01",), f"the auditor can read no graph there: {error}") from error
        errors = [finding for finding in report.of("error") if finding.code != but]
        if errors:
            ids = tuple(sorted({finding.requirement for finding in errors}))
            words = "; ".join(f"{finding.where}: {finding.message}" for finding in errors[:5])
            raise RequirementBroken(ids, f"the auditor finds in the bytes: {words}")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _judge(
        self,
        op: str,
        args: Mapping[str, Any],
        did: Callable[[], Answer],
        meant: Callable[[], Answer],
        branch: str | None = None,
        actor: str | None = None,
    ) -> Answer:
        subject, before = subject_of(self.model, op, args), self.model.copy()
        try:
            answer = did()
        except EngineError as error:
            _, refusal = _meaning(meant)
            if refusal is None and not subject.is_open(error.kind):
                because = f"{op} was refused, and should be done: {error}"
                raise RequirementBroken((subject.when_refused(error.kind),), because) from error
            if refusal is None:
                self.model = before  # What is a known gap may be refused: then nothing has happened.
            else:
                self._same_refusal(op, subject, error, refusal)
            self.compare(f"a refused {op}", "PUB-23")
            raise
        # Only now: what an engine does not have, it leaves as it is, and so does the model.
        expected, refusal = _meaning(meant)
        if refusal is not None:
            because = f"{op} was done, and should be refused as {refusal.kind}: {refusal.message}"
            raise RequirementBroken((subject.when_done(refusal.code),), because)
        exported = self._same_answer(op, subject, answer, expected, branch, actor)
        self.compare(op, subject.otherwise, written=branch, exported=exported)
        return answer

    def _same_refusal(self, op: str, subject: Subject, error: EngineError, refusal: Refusal) -> None:
        if error.kind not in DEFINITE:
            because = f"{op} was refused as {error.kind} ({error}), and should be as {refusal.kind}: {refusal.message}"
            raise RequirementBroken((subject.when_done(refusal.code),), because)
        # A request with two faults may be refused for either; which kind it must be, a test says that has only one.
        if refusal.conflicts and conflicts_of(error.details) != (meant := conflicts_of(refusal.conflicts)):
            because = f"the merge reports the conflicts {conflicts_of(error.details)}, and there are {meant}"
            raise RequirementBroken(("MRG-02", "MRG-03"), because)

    def _same_answer(
        self,
        op: str,
        subject: Subject,
        answer: Answer,
        expected: Answer,
        branch: str | None,
        actor: str | None,
    ) -> str | None:
        """Compare what was answered; the export from which the model learned new ids, if there was a commit."""
        for name, value in expected.items():
            if name != "commit" and answer.get(name) != value:
                because = f"{op} answered {name} {answer.get(name)!r}, and it is {value!r}"
                raise RequirementBroken((subject.otherwise,), because)
        if "commit" not in expected:
            return None
        made, commit = expected["commit"], answer.get("commit")
        if (made is None) != (commit is None):
            because = f"{op} {'made' if commit else 'made no'} commit, and it should {'have' if made else 'not'}"
            raise RequirementBroken(("LIN-02", "LIN-03"), because)
        if made is None or commit is None or branch is None:
            return None
        if actor is not None and commit.get("actor_id") != actor:
            raise RequirementBroken(("LIN-14",), f"the commit of {actor!r} names the actor {commit.get('actor_id')!r}")
        self._identify(made, commit)
        exported = self._export(branch, op, subject.otherwise)
        self.model.learn_ids(branch, exported)
        return exported

    def _identify(self, commit: Commit, engines: Mapping[str, Any]) -> None:
        parents = [parent.commit_id for parent in self.model.parents(commit)]
        recorded = [engines.get("parent_commit_id"), engines.get("merged_parent_commit_id")]
        if [each for each in recorded if each is not None] != parents:
            because = f"the parents of commit {engines['graph_commit_id']} are {recorded}, and should be {parents}"
            raise RequirementBroken(("LIN-09",) if len(parents) > 1 else ("LIN-06",), because)
        self.model.identify(commit, engines["graph_commit_id"], engines["manifest_version"], engines["created_at"])


def _meaning(meant: Callable[[], Answer]) -> tuple[Answer, Refusal | None]:
    try:
        return meant(), None
    except Refusal as refusal:
        return {}, refusal


def _nothing(operation: Callable[[], None]) -> Callable[[], Answer]:
    """An operation that answers nothing, as one that does."""

    def answer() -> Answer:
        operation()
        return {}

    return answer
