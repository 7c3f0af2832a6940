"""The model: a graph as what it means, with nothing of how it is stored.

A state is every table's rows by id. A commit is a state, its schema and its parents; a branch is a line of commits.
Every operation either makes one commit, or is refused and changes nothing. Nothing here ever changes a state: a new one
is made. So a commit is also a point in time, which `at` finds, and at which everything can be read as it was.

What an engine decides by itself, the model is told: the ids of its commits (`identify`), the ids that it gave to new
rows (`learn_ids`), its commits that change no row, as of optimize or of a recovery (`maintain`), and manifest versions
that are no commit (`reach`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self

from conformance.model.branch_names import branch_name, refuse_internal
from conformance.model.diff import Change, changes
from conformance.model.errors import Refusal, bad_request
from conformance.model.evolution import Plan, evolve, plan_evolution
from conformance.model.merge import Commit, fewest_steps, merge_base, merge_states
from conformance.model.mutation import Mutation, check_shape
from conformance.model.records import read_records
from conformance.model.results import Applied, Loaded, Merged, Mutated
from conformance.model.schema import Schema, schema_from_ir
from conformance.model.schema_text import compile_schema
from conformance.model.validate import Rows, State, violations
from conformance.model.values import export_line, shown_row

MAIN: Final = "main"
NEW_ID: Final = "new row "
# A new graph is written at version 1; two more versions of its manifest only configure it [MAN-07].
INITIAL_VERSION: Final = 3
LoadMode = Literal["append", "merge", "overwrite"]


@dataclass(frozen=True)
class Branch:
    """The branch it was made from, and its commits by number: those of its source up to then, and its own.

    Its manifest has the versions from `first`, which its source had then, to `last` at least.
    """

    source: str | None
    history: tuple[int, ...]
    first: int
    last: int


class Model:
    """A graph in memory."""

    def __init__(self, ir: Mapping[str, Any]) -> None:
        """An empty graph, for a schema as its compiled IR."""
        schema = schema_from_ir(ir)
        self._commits: dict[int, Commit] = {}
        self._branches: dict[str, Branch] = {MAIN: Branch(None, (), 1, INITIAL_VERSION)}
        self._new_ids = 0
        self._commit(MAIN, (), {key: {} for key in schema.types}, schema)

    @classmethod
    def from_source(cls, text: str) -> Self:
        """An empty graph, for a schema as its text."""
        return cls(compile_schema(text))

    def copy(self) -> Self:
        """The same graph once more: what happens to one of them does not happen to the other."""
        twin = type(self).__new__(type(self))
        twin._commits = dict(self._commits)
        twin._branches = dict(self._branches)
        twin._new_ids = self._new_ids
        return twin

    @property
    def schema(self) -> Schema:
        """The accepted schema. No branch outlives a change of it, so all branches have the one of main [SCH-02]."""
        return self.head().schema

    # -- points in time ------------------------------------------------------------------------------------------

    def head(self, branch: str = MAIN) -> Commit:
        return self._commits[self._branch(branch).history[-1]]

    def source(self, branch: str) -> str | None:
        """The branch that a branch was made from; none for main, and for what is no branch."""
        return self._branches[branch].source if branch in self._branches else None

    def commits(self, branch: str = MAIN) -> list[Commit]:
        """The lineage of a branch, oldest first [LIN-10]."""
        return [self._commits[number] for number in self._branch(branch).history]

    def commit(self, commit_id: str) -> Commit:
        """A commit that some branch still has [LIN-10]."""
        for commit in self._known().values():
            if commit.commit_id == commit_id:
                return commit
        raise Refusal("not_found", "commit_not_found", f"no branch has a commit {commit_id!r}")

    def parents(self, commit: Commit) -> list[Commit]:
        """What a commit was made from: for a merge the target's head, then the source's [LIN-09]."""
        return [self._commits[number] for number in commit.parents]

    def at(self, branch: str | None = None, version: int | None = None, commit: str | None = None) -> Commit:
        """The point that is meant: the head of a branch, a version of its manifest, or a commit [SNP-03, SNP-04].

        At a version that is no commit, the graph is as the last commit before it left it.
        """
        if commit is not None:
            if version is not None:
                raise bad_request("ambiguous_point", "a point is a version or a commit, and not both")
            return self.commit(commit)
        name = MAIN if branch is None else branch
        if version is None:
            return self.head(name)
        first, last = self._branch(name).first, self.last_version(name)
        if not first <= version <= last:
            raise Refusal("not_found", "version_not_found", f"{name!r} has the versions {first} to {last}")
        return max((each for each in self.commits(name) if each.manifest_version <= version), key=lambda one: one.order)

    def last_version(self, branch: str = MAIN) -> int:
        """The last version of a branch's manifest that is known."""
        return max(self._branch(branch).last, self.head(branch).manifest_version)

    # -- reading -------------------------------------------------------------------------------------------------

    def state(self, branch: str | None = None, *, version: int | None = None, commit: str | None = None) -> State:
        """The rows of a branch now, or at another point [SNP-07]."""
        return self.at(branch, version, commit).state

    def read(
        self, table_key: str, branch: str | None = None, *, version: int | None = None, commit: str | None = None
    ) -> list[dict[str, Any]]:
        """All rows of a table by id, as JSON."""
        point = self.at(branch, version, commit)
        rows = self._table(point, table_key)
        return [shown_row(point.schema.types[table_key], row) for _, row in sorted(rows.items())]

    def entity_at(
        self,
        table_key: str,
        row_id: str,
        branch: str | None = None,
        *,
        version: int | None = None,
        commit: str | None = None,
    ) -> dict[str, Any] | None:
        """One row as JSON; None where the table or the row is not there [SNP-06]."""
        point = self.at(branch, version, commit)
        row = self._table(point, table_key).get(row_id) if table_key in point.state else None
        return None if row is None else shown_row(point.schema.types[table_key], row)

    def export(
        self,
        branch: str | None = None,
        *,
        version: int | None = None,
        commit: str | None = None,
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
    ) -> str:
        """The rows as JSON lines, tables by key and rows by id [EXP-01, EXP-02, EXP-04]."""
        point = self.at(branch, version, commit)
        owners = point.schema.types
        wanted = {f"{kind}:{name}" for name in types for kind in ("node", "edge")} | set(tables)
        unknown = set(tables) - owners.keys() | {
            name for name in types if not {f"node:{name}", f"edge:{name}"} & owners.keys()
        }
        if unknown:
            raise bad_request("unknown_export", f"there is nothing to export called {sorted(unknown)[0]!r}")
        keys = [key for key in owners if key in wanted or not (types or tables)]
        lines = (export_line(owners[key], row) for key in keys for _, row in sorted(self._table(point, key).items()))
        return "".join(f"{line}\n" for line in lines)

    def diff(self, older: Commit | State, newer: Commit | State) -> list[Change]:
        """The rows that differ between two points, by table and id; a missing table is empty [CHG-01, CHG-03]."""
        before, after = (point.state if isinstance(point, Commit) else point for point in (older, newer))
        keys = sorted(before.keys() | after.keys())
        return [change for key in keys for change in changes(key, before.get(key, {}), after.get(key, {}))]

    # -- writing -------------------------------------------------------------------------------------------------

    def load(self, data: str, *, mode: LoadMode, branch: str = MAIN, base: str | None = None) -> Loaded:
        """Load records. A missing branch is made from `base` first, and stays if the load is refused [LOD-12]."""
        refuse_internal(branch)
        if mode not in ("append", "merge", "overwrite"):
            raise bad_request("invalid_mode", f"{mode!r} is not a mode")
        created = base is not None and branch not in self._branches
        if created:
            self.branch_create(branch, base or MAIN)
        records = read_records(self.schema, data, self._new_id)
        loaded: dict[str, dict[str, Any]] = {owner.table_key: {} for owner, _ in records}
        for owner, row in records:
            if row["id"] in loaded[owner.table_key]:
                raise bad_request("duplicate_id", f"{owner.table_key} {row['id']!r} is given twice")
            loaded[owner.table_key][str(row["id"])] = row
        before = self.head(branch).state
        after = dict(before)
        for key, rows in loaded.items():
            if mode == "append" and rows.keys() & before[key].keys():
                raise bad_request("row_exists", f"{key} has some of these rows already")
            after[key] = rows if mode == "overwrite" else {**before[key], **rows}
        self._refuse_violations(before, after)
        commit = self._commit(branch, (self.head(branch).number,), after)
        kinds = [owner.kind for owner, _ in records]
        return Loaded(created, kinds.count("node"), kinds.count("edge"), commit)

    def mutate(self, statements: Sequence[Any], *, branch: str = MAIN, now_millis: int = 0) -> Mutated:
        """Run statements one after the other and commit what they made of the branch [MUT]."""
        check_shape(statements)
        refuse_internal(branch)
        head = self.head(branch)
        mutation = Mutation(self.schema, head.state, self._new_id, now_millis)
        for statement in statements:
            mutation.run(statement)
        self._refuse_violations(head.state, mutation.tables)
        nodes, edges = mutation.affected["node"], mutation.affected["edge"]
        commit = self._commit(branch, (head.number,), mutation.tables) if nodes or edges else None
        return Mutated(nodes, edges, commit)

    def met(self, source: str, target: str) -> Commit | None:
        """Where two branches last met [LIN-13]."""
        return merge_base(self._known(), self.head(source).number, self.head(target).number)

    def nearest(self, source: str, target: str) -> list[Commit]:
        """The commits of both branches that the fewest steps lead to, which need not be where they last met."""
        return fewest_steps(self._known(), self.head(source).number, self.head(target).number)

    def merge(self, source: str, target: str) -> Merged:
        """Apply to the target what the source has changed since the two last met [MRG]."""
        refuse_internal(source, target)
        if source == target:
            raise bad_request("same_branch", "a branch cannot be merged into itself")
        theirs, ours = self.head(source), self.head(target)
        base = self.met(source, target)
        if base is None:
            raise bad_request("no_common_ancestor", "the two branches have no commit in common")
        if base.number == theirs.number:
            return Merged("already_up_to_date", None)
        after, conflicts = merge_states(base.state, theirs.state, ours.state)
        conflicts = conflicts or violations(self.schema, ours.state, after)
        if conflicts:
            raise Refusal("conflict", "merge_conflicts", "the branches conflict", tuple(sorted(set(conflicts))))
        commit = self._commit(target, (ours.number, theirs.number), after)
        return Merged("fast_forward" if base.number == ours.number else "merged", commit)

    # -- schema ----------------------------------------------------------------------------------------------------

    def schema_plan(self, source: str, *, allow_data_loss: bool = False) -> Plan:
        """What it would take to get to another schema [SCH-03]."""
        return plan_evolution(self.schema.ir, compile_schema(source), allow_data_loss=allow_data_loss)

    def schema_apply(self, source: str, *, allow_data_loss: bool = False) -> Applied:
        """Change the schema, and the rows with it [SCH-04 … SCH-08]."""
        ir = compile_schema(source)
        others = [name for name in self.branch_list() if name != MAIN]
        if others:
            raise Refusal("conflict", "schema_apply_has_branches", f"there are branches beside main: {others}")
        plan = plan_evolution(self.schema.ir, ir, allow_data_loss=allow_data_loss)
        if not plan.supported:
            raise bad_request("schema_change_unsupported", "existing rows cannot follow all steps of the plan")
        if not plan.steps:
            return Applied(False, (), None)
        self._lose(plan.lost_tables())
        head, schema = self.head(), schema_from_ir(ir)
        return Applied(True, plan.steps, self._commit(MAIN, (head.number,), evolve(head.state, schema, plan), schema))

    # -- branches ------------------------------------------------------------------------------------------------

    def branch_list(self) -> list[str]:
        return sorted(self._branches)

    def branch_create(self, name: str, source: str = MAIN, *, anywhere: bool = False) -> None:
        """A branch at the head of another [BRA-01]; `anywhere`, also in the storage of another one [BRA-16]."""
        branch = branch_name(name, anywhere=anywhere)
        refuse_internal(source)
        if branch in self._branches:
            raise Refusal("conflict", "branch_exists", f"there is a branch {branch!r} already")
        version = self.last_version(source)
        self._branches[branch] = Branch(source, self._branch(source).history, version, version)

    def branch_delete(self, name: str) -> None:
        """Remove a branch that no other was made from; commits that only it had are gone [BRA-12]."""
        refuse_internal(name)
        if name.strip() == MAIN:
            raise bad_request("invalid_branch_name", "main cannot be deleted")
        self._branch(name.strip())
        children = [child for child, branch in self._branches.items() if branch.source == name.strip()]
        if children:
            raise Refusal("conflict", "branch_in_use", f"{children[0]!r} depends on {name!r}")
        del self._branches[name.strip()]

    # -- what the engine decides -----------------------------------------------------------------------------------

    def identify(self, commit: Commit, commit_id: str, manifest_version: int, created_at: int = 0) -> None:
        """What the engine calls a commit: time travel finds it by that, and the order of commits follows it."""
        self._commits[commit.number] = replace(
            self._commits[commit.number],
            commit_id=commit_id,
            manifest_version=manifest_version,
            created_at=created_at,
        )

    def reach(self, branch: str, manifest_version: int) -> None:
        """A version that the engine's manifest of a branch has come to without a commit: it was compacted [OPT-07]."""
        before = self._branch(branch)
        self._branches[branch] = replace(before, last=max(before.last, manifest_version))

    def maintain(self, branch: str = MAIN) -> Commit:
        """A commit of the engine that changes no row: optimize, indexes, repair, recovery."""
        head = self.head(branch)
        return self._commit(branch, (head.number,), head.state)

    def learn_ids(self, branch: str, export: str) -> None:
        """Take over the ids that the engine gave to the new rows of the last commit, from its export of the branch.

        A new row and one of the engine's that the model does not know are the same when all else of them is. Rows
        that find no partner keep their names, and the exports will differ.
        """
        head = self.head(branch)
        state = {key: dict(rows) for key, rows in head.state.items()}
        named = _ids_by_content(export)
        for key, rows in state.items():
            for old in [row_id for row_id in rows if row_id.startswith(NEW_ID)]:
                content = _without_id(json.loads(export_line(self.schema.types[key], rows[old])))
                partners = [row_id for row_id in named.get((key, content), []) if row_id not in rows]
                if partners:
                    rows[partners[0]] = MappingProxyType({**rows.pop(old), "id": partners[0]})
        self._commits[head.number] = replace(head, state=_frozen(state))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _branch(self, name: str) -> Branch:
        if name not in self._branches:
            raise Refusal("not_found", "branch_not_found", f"there is no branch {name!r}")
        return self._branches[name]

    def _table(self, point: Commit, table_key: str) -> Rows:
        if not table_key.startswith(("node:", "edge:")) or table_key.endswith(":"):
            raise bad_request("invalid_table_key", f"{table_key!r} cannot be the key of a table")
        if table_key not in point.state:
            raise Refusal("not_found", "table_not_found", f"there is no table {table_key!r}")
        if table_key in point.lost:
            raise Refusal(
                "not_found", "rows_removed", f"a hard drop has removed the rows of {table_key!r} at this point"
            )
        return point.state[table_key]

    def _lose(self, tables: frozenset[str]) -> None:
        """After a hard drop, nobody is asked any more what the tables held before."""
        for number, commit in self._commits.items():
            self._commits[number] = replace(commit, lost=commit.lost | (tables & commit.state.keys()))

    def _known(self) -> dict[int, Commit]:
        """The commits of all branches. Those of a deleted branch that no other was made from are not known."""
        return {number: self._commits[number] for branch in self._branches.values() for number in branch.history}

    def _commit(self, branch: str, parents: tuple[int, ...], state: State, schema: Schema | None = None) -> Commit:
        number = len(self._commits)
        version = self.last_version(branch) + 1 if parents else 1
        made_under = self.schema if schema is None else schema
        commit = Commit(number, branch, parents, _frozen(state), made_under, f"commit {number}", version)
        self._commits[number] = commit
        before = self._branches[branch]
        self._branches[branch] = replace(before, history=(*before.history, number))
        return commit

    def _refuse_violations(self, before: State, after: State) -> None:
        for violation in violations(self.schema, before, after):
            raise bad_request(violation.kind, f"{violation.table_key} {violation.row_id!r} breaks a rule")

    def _new_id(self) -> str:
        self._new_ids += 1
        return f"{NEW_ID}{self._new_ids}"


def _frozen(state: State) -> State:
    return MappingProxyType({key: MappingProxyType(dict(rows)) for key, rows in state.items()})


def _ids_by_content(export: str) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for line in filter(None, export.split("\n")):  # Text in a line may hold other line ends.
        record = json.loads(line)
        key = f"node:{record['type']}" if "type" in record else f"edge:{record['edge']}"
        found.setdefault((key, _without_id(record)), []).append(record["data"]["id"])
    return found


def _without_id(record: dict[str, Any]) -> str:
    data = {name: value for name, value in record["data"].items() if name != "id"}
    return json.dumps({**record, "data": data})
