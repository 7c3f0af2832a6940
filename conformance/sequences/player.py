"""Performs steps on a judged graph: each is done by the engine and the model, and then everything is looked at.

After every step each branch is read through the handle that did it and through another one, and the auditor reads the
bytes. A step that both refuse is a good step. Handles are numbered; a step through a handle that is not open, or that
may not write, goes through the first one. Where two engines take turns, the odd handles are the second one's.

A step that breaks only what is known to be broken is taken back: the graph is put back byte for byte, the model too,
every handle is opened anew, and the sequence goes on as if nobody had asked. Otherwise the first known failure would
end every sequence, and hide all that comes after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from conformance.adapters import EngineError, Unsupported
from conformance.judge import Engine, Handle, JudgedGraph, RequirementBroken
from conformance.judge.compare import first_difference, misread
from conformance.model import Model
from conformance.model.diff import Change
from conformance.model.merge import Commit
from fixtures.forge import Forge, Photo

Step = dict[str, Any]
MAIN = "main"
# An engine that lacks one of these is not asked for it; the step is passed over.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "branch_create": ("branch_create", "branch_list"),
    "branch_delete": ("branch_delete", "branch_list"),
    "merge": ("merge",),
    "schema_apply": ("schema_apply",),
    "optimize": ("optimize",),
    "ensure_indices": ("ensure_indices",),
    "cleanup": ("cleanup",),
    "diff": ("diff",),
    "refresh": ("refresh",),
}


@dataclass(frozen=True)
class Met:
    """A known failure that a sequence has met: the steps that led to it, what it broke, and because of what."""

    steps: tuple[Step, ...]
    ids: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class _Kept:
    """Everything that a step may change, as it was before it."""

    photo: Photo
    model: Model
    schema: str
    handles: tuple[int, ...]
    read_only: frozenset[int]
    collected_before: int


class Player:
    """One graph, and the steps that are done to it."""

    def __init__(
        self,
        engine: Engine,
        fresh_root: Callable[[], str],
        env: Mapping[str, str],
        schema: str,
        *,
        peer: Engine | None = None,
        known: Collection[str] = (),
    ) -> None:
        self.engine = engine
        self._peer = peer
        self._known = frozenset(known)
        self.met: list[Met] = []
        self._photo: Photo | None = None
        self.schema = schema
        self.steps: list[Step] = []
        self._fresh_root = fresh_root
        self._env = env
        self.graph = JudgedGraph.init(engine, fresh_root(), env, schema)
        self._handles: dict[int, Handle] = {0: self.graph.handle}
        if peer is not None:
            self._handles[1] = peer.open(self.graph.uri)
        self._read_only: set[int] = set()
        self._turn = 0
        self._made: list[str] = []
        self.refused = False
        self.done: Counter[str] = Counter()
        # Commits before this one may be unreadable: a cleanup, or a drop with data loss, has been allowed to.
        self._collected_before = 0

    def play(self, step: Step) -> None:
        """Do one step, and judge; a step that breaks only what is known to be broken is taken back."""
        kept = self._keep_all() if self._known else None
        try:
            self._play(step)
        except RequirementBroken as broken:
            if kept is None or not self._known.issuperset(broken.ids):
                raise
            self.met.append(Met(tuple(self.steps), broken.ids, broken.because))
            self.steps.pop()
            self._put_back(kept)

    def _play(self, step: Step) -> None:
        self.steps.append(step)
        self.graph.handle = self._handles[self._writer(step.get("handle", 0))]
        if not self.graph.engine.supports(*NEEDS.get(step["do"], ())):
            return
        self.refused = False
        do: Callable[..., None] = getattr(self, f"_do_{step['do']}")
        do(**{name: value for name, value in step.items() if name not in ("do", "handle")})
        self._branches_made()
        self._look_through_other_handles()
        self.graph.audit()
        if not self.refused:
            self.done[step["do"]] += 1

    def _branches_made(self) -> None:
        """Remember the order in which the branches that are there were made."""
        there = self.graph.model.branch_list()
        self._made = [name for name in self._made if name in there]
        self._made += [name for name in there if name not in self._made and name != MAIN]

    def youngest_first(self) -> list[str]:
        """The branches in an order in which each can be deleted: none before those that were made from it."""
        return self._made[::-1]

    def _writer(self, number: int) -> int:
        return number if number in self._handles and number not in self._read_only else 0

    def _look_through_other_handles(self) -> None:
        """Look through each in turn; of two engines the other one looks as well, at every step."""
        self._turn += 1
        used, there = self.graph.handle, sorted(self._handles)
        foreign = [number for number in there if self._handles[number].engine is not used.engine]
        if foreign:
            self._look_through(foreign[self._turn % len(foreign)])
        own = [number for number in there if number not in foreign]
        self._look_through(own[self._turn % len(own)])

    def _look_through(self, number: int) -> None:
        used, self.graph.handle = self.graph.handle, self._handles[number]
        if self.graph.handle is not used:
            kind = "read-only handle" if number in self._read_only else "handle"
            self.graph.compare(f"a step, seen through another {kind},", "SNP-02")
        self.graph.handle = used

    def _keep_all(self) -> _Kept:
        self._photo = Forge(self.graph.uri, dict(self._env)).photograph("", since=self._photo)
        handles, read_only = tuple(self._handles), frozenset(self._read_only)
        return _Kept(self._photo, self.graph.model.copy(), self.schema, handles, read_only, self._collected_before)

    def _put_back(self, before: _Kept) -> None:
        """Make everything what it was. A handle may have kept something of what never happened: each is a new one."""
        for handle in self._handles.values():
            with suppress(EngineError, Unsupported):
                handle.close()
        Forge(self.graph.uri, dict(self._env)).restore(before.photo)
        self._photo = None  # What was written again has other times and tags now.
        self.graph.model, self.schema, self._read_only = before.model, before.schema, set(before.read_only)
        self._collected_before = before.collected_before
        self._handles = {
            number: self._engine_of(number).open(self.graph.uri, read_only=number in before.read_only or None)
            for number in before.handles
        }
        self.graph.handle = self._handles[0]
        self._branches_made()

    def _engine_of(self, number: int) -> Engine:
        return self._peer if self._peer is not None and number % 2 else self.engine

    # -- writing -------------------------------------------------------------------------------------------------------

    def _do_load(self, **args: Any) -> None:
        self._refusable(lambda: self.graph.load(**args))

    def _do_mutate(self, statements: list[Any], **args: Any) -> None:
        try:
            self._refusable(lambda: self.graph.mutate(*statements, **args))
        except Unsupported:
            self.refused = True  # A predicate that the engine cannot say: a suite tells of it, and this goes on.

    def _do_branch_create(self, **args: Any) -> None:
        self._refusable(lambda: self.graph.branch_create(**args))

    def _do_branch_delete(self, **args: Any) -> None:
        self._refusable(lambda: self.graph.branch_delete(**args))

    def _do_merge(self, **args: Any) -> None:
        self._refusable(lambda: self.graph.merge(**args))

    def _do_schema_apply(self, source: str, allow_data_loss: bool = False) -> None:
        def apply() -> None:
            if self.graph.schema_apply(source, allow_data_loss=allow_data_loss)["applied"]:
                self.schema = source
                if allow_data_loss:
                    self._collected_before = self.graph.model.head().number

        self._refusable(apply)

    # -- what changes no row -------------------------------------------------------------------------------------------

    def _do_optimize(self) -> None:
        self.graph.optimize()

    def _do_ensure_indices(self, branch: str = MAIN) -> None:
        if branch in self.graph.model.branch_list():
            self.graph.ensure_indices(branch)

    def _do_cleanup(self, keep_versions: int) -> None:
        self.graph.cleanup(keep_versions=keep_versions)
        self._collected_before = max(commit.number for commit in self._newest()) + 1

    def _do_open(self, number: int, read_only: bool = False) -> None:
        """Open a further handle, or this one again."""
        before = self.graph.handle
        try:
            handle = self.graph.reopen(engine=self._engine_of(number), read_only=read_only or None)
        except Unsupported:
            self.refused = True  # It opens to write and not otherwise: a suite tells of that, too.
            return
        self._handles[number] = handle
        self._read_only.discard(number)
        if read_only and number != 0:
            self._read_only.add(number)
        elif read_only:
            self._handles[0] = before
        self.graph.handle = self._handles[0]

    def _do_refresh(self) -> None:
        self.graph.maintain("refresh", self.graph.handle.refresh)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _do_time_travel(self, branch: str, back: int) -> None:
        """Read every table as of an older commit of a branch, by the commit and by the version."""
        commit = self._commit(branch, back)
        if commit is None:
            return
        handle, model = self.graph.handle, self.graph.model
        for table_key in sorted(commit.state.keys() - commit.lost):
            meant = model.read(table_key, commit=commit.commit_id)
            try:
                found = handle.read(table_key, commit=commit.commit_id)
                if commit.branch == branch:
                    at_version = handle.read(table_key, branch, version=commit.manifest_version)
                    if at_version != found:
                        because = f"'{table_key}' at version {commit.manifest_version} is not what its commit left"
                        raise RequirementBroken(("SNP-03",), because)
                one = meant[0] if meant else None
                if meant and handle.engine.supports("entity_at"):
                    one = handle.entity_at(table_key, meant[0]["id"], commit=commit.commit_id)
            except Unsupported:
                continue  # Not every engine shows every table as it was.
            except EngineError as error:
                if self._may_be_gone(commit):
                    return
                because = f"'{table_key}' cannot be read as of commit {commit.commit_id}: {error}"
                raise RequirementBroken(("SNP-07",), because) from error
            if found != meant:
                because = f"'{table_key}' as of commit {commit.commit_id} reads {found}, and was {meant}"
                raise RequirementBroken(("SNP-04",), because)
            if meant and one != meant[0]:
                raise RequirementBroken(("SNP-06",), f"the entity {meant[0]['id']!r} reads {one}, and was {meant[0]}")

    def _do_diff(self, older: Mapping[str, Any], newer: Mapping[str, Any]) -> None:
        before, after = self._commit(**older), self._commit(**newer)
        if before is None or after is None:
            return
        try:
            answer = self.graph.handle.diff({"commit": before.commit_id}, {"commit": after.commit_id})
        except EngineError as error:
            if self._may_be_gone(before) or self._may_be_gone(after):
                return
            because = f"{before.commit_id} and {after.commit_id} cannot be compared: {error}"
            raise RequirementBroken(("CHG-01",), because) from error
        found = {(each["table_key"], each["id"]): each["op"] for each in answer["changes"]}
        _judge_diff(found, self.graph.model.diff(before.state, after.state), before, after)

    def _do_import(self, branch: str) -> None:
        """Export a branch and load it into a new graph: the same bytes must come out of it."""
        if branch not in self.graph.model.branch_list():
            return
        exported = self.graph.handle.export(branch)
        uri = self._fresh_root()
        other = self.engine if self._peer is None or self.graph.engine is self._peer else self._peer
        other.init(uri, self.schema)
        handle = other.open(uri)
        try:
            handle.load(exported, "overwrite")
            again = handle.export()
            difference = first_difference(again, exported)
        except EngineError as error:
            raise RequirementBroken(("EXP-06",), f"an export cannot be loaded into a new graph: {error}") from error
        if difference is not None:
            raise RequirementBroken(
                (misread(again, exported) or "EXP-03",), f"an export that was loaded exports otherwise: {difference}"
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _refusable(self, operation: Callable[[], object]) -> None:
        """Do what both may refuse: a refusal that the model agrees with comes out as the engine's error."""
        try:
            operation()
        except EngineError:
            self.refused = True

    def _commit(self, branch: str, back: int) -> Commit | None:
        """The commit so many before the newest of a branch; the first if there are not so many."""
        if branch not in self.graph.model.branch_list():
            return None
        commits = self.graph.model.commits(branch)
        return commits[max(0, len(commits) - 1 - back)]

    def _newest(self) -> list[Commit]:
        return [self.graph.model.head(branch) for branch in self.graph.model.branch_list()]

    def _may_be_gone(self, commit: Commit) -> bool:
        return commit.number < self._collected_before and commit.number not in {each.number for each in self._newest()}


def _judge_diff(found: Mapping[tuple[str, str], str], meant: list[Change], before: Commit, after: Commit) -> None:
    """Rows that differ must be there, as what they are. A rewrite may report rows as updated that are the same."""
    # Whether a rewrite with another schema updates a row whose values stay is left open [CHG-04].
    same_schema = before.schema == after.schema
    expected = {
        (change.table_key, change.row_id): change.op for change in meant if same_schema or change.op != "update"
    }
    for row, op in expected.items():
        if found.get(row) != op:
            raise RequirementBroken(("CHG-02",), f"the diff says {found.get(row)!r} of {row}, which is an {op}")
    for row, said in found.items():
        table_key, row_id = row
        in_both = row_id in before.state.get(table_key, {}) and row_id in after.state.get(table_key, {})
        if row not in expected and not (said == "update" and in_both):
            raise RequirementBroken(("CHG-03",), f"the diff says {said!r} of {row}, of which nothing has changed")
