"""The scene of a fault: what the graph was before, and what a dead writer left, read from the bytes alone.

    before = Before.of(handle, uri, env, model, step)      # while the writer lives
    …                                                      # it dies
    scene = look(before)

Nobody says what a broken engine writes. A sidecar that makes no sense is a sidecar without a body, and a manifest of
main that cannot be read breaks a requirement; neither may end a sweep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.audit.datasets import DatasetMissing, DatasetMoved, Datasets, DatasetUnreadable
from conformance.audit.names import AUDIT_DIR, LOCK_BRANCH, RECOVERY_ACTOR, RECOVERY_DIR
from conformance.judge import Handle, RequirementBroken
from conformance.model import Model
from failpoints.steps import MAIN, Step, branch_of
from fixtures.forge import Forge, ForgeError, NothingThere

_UNREADABLE: Final = (DatasetMissing, DatasetMoved, DatasetUnreadable, NothingThere)
# The version of sidecars from which on a merge confirms [REC-08, REC-09].
CONFIRMING_VERSION: Final = 2
_ROW: Final = ("graph_commit_id", "recovery_kind", "recovery_for_actor", "operation_id", "sidecar_writer_kind")


@dataclass(frozen=True)
class Before:
    """A graph at rest, and the step that somebody is about to die in.

    `heads` is how many commits each branch has that are no recovery's, and `commits` how many the step makes when
    nobody dies.
    """

    uri: str
    env: Mapping[str, str] = field(repr=False)
    model: Model = field(repr=False)
    step: Step
    heads: Mapping[str, int]
    recoveries: frozenset[str]
    commits: int = 1

    @classmethod
    def of(cls, handle: Handle, uri: str, env: Mapping[str, str], model: Model, step: Step) -> Before:
        heads = {
            branch: sum(commit.get("actor_id") != RECOVERY_ACTOR for commit in handle.commits(branch))
            for branch in model.branch_list()
        }
        known = frozenset(row["operation_id"] for row in rows_of(handle))
        return cls(uri, env, model, step, heads, known)

    @property
    def branch(self) -> str:
        return branch_of(self.step)

    @property
    def is_schema_apply(self) -> bool:
        return bool(self.step["do"] == "schema_apply")


@dataclass(frozen=True)
class Scene:
    """What a writer left, dead or alive.

    published   whether its publish is there
    commits     how many commits its branch has got since, those of recoveries aside
    sidecars    those that are pending, by operation id; one that makes no sense has no body
    moved       of these, the ones that had moved a HEAD
    unconfirmed of these, the merges that had moved a HEAD and not said yet how far: nobody may publish that [REC-08]
    orphaned    of these, the ones of a branch that does not exist
    locked      whether the lock of a schema apply is taken
    settled     the new audit rows that were there already: a writer that lives may take its own move back, say so
                in a row and try again [PUB-21]
    armed       the operations whose sidecar was written at any time, where somebody has watched the requests
    """

    published: bool
    sidecars: Mapping[str, Mapping[str, Any]]
    moved: frozenset[str]
    locked: bool
    orphaned: frozenset[str] = frozenset()
    settled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    armed: frozenset[str] | None = None
    commits: int = 0
    unconfirmed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = ["published" if self.published else "not published"]
        for operation, body in self.sidecars.items():
            state = "HEADs moved" if operation in self.moved else "no HEAD moved"
            parts.append(f"a {body.get('writer_kind')} sidecar, {state}")
        for row in self.settled.values():
            parts.append(f"an operation that says {row['recovery_kind']}")
        if self.locked:
            parts.append("the schema lock taken")
        return ", ".join(parts)


def rows_of(handle: Handle) -> list[dict[str, Any]]:
    """The audit rows, where an engine can list them."""
    return handle.recoveries() if handle.engine.supports("recoveries") else []


def look(before: Before) -> Scene:
    """Read what is there, without an engine."""
    forge = Forge(before.uri, dict(before.env))
    sidecars = {
        name.removeprefix(f"{RECOVERY_DIR}/").removesuffix(".json"): _body_of(content)
        for name, content in forge.sidecars().items()
    }
    try:
        branches = forge.branches()
    except _UNREADABLE as error:
        raise _unreadable(error) from error
    moved = frozenset(
        operation for operation, body in sidecars.items() if any(_has_moved(forge, pin) for pin in _pins_of(body))
    )
    unconfirmed = frozenset(
        operation
        for operation, body in sidecars.items()
        if _confirms(body)
        and any(pin.get("confirmed_version") is None and _has_moved(forge, pin) for pin in _pins_of(body))
    )
    orphaned = frozenset(
        operation for operation, body in sidecars.items() if body.get("branch") not in (None, MAIN, *branches)
    )
    commits = commits_since(forge, before) if before.branch in (MAIN, *branches) else 0
    return Scene(
        published=_published(before, branches, commits),
        sidecars=sidecars,
        moved=moved,
        locked=LOCK_BRANCH in branches,
        orphaned=orphaned,
        settled=_settled(forge, before),
        commits=commits,
        unconfirmed=unconfirmed,
    )


def _body_of(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _confirms(body: Mapping[str, Any]) -> bool:
    """Whether a sidecar is rewritten with the versions that its tables have reached; older ones are not."""
    version = body.get("schema_version")
    return body.get("writer_kind") == "BranchMerge" and type(version) is int and version >= CONFIRMING_VERSION


def _pins_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of a sidecar, as far as they make sense."""
    tables = body.get("tables")
    if not isinstance(tables, list):
        return []
    return [
        pin
        for pin in tables
        if isinstance(pin, dict)
        and isinstance(pin.get("table_key"), str)
        and type(pin.get("expected_version")) is int
        and isinstance(pin.get("table_branch"), str | None)
    ]


def _has_moved(forge: Forge, pin: Mapping[str, Any]) -> bool:
    try:
        head = int(forge.storage(pin["table_key"], pin.get("table_branch")).version)
    except (*_UNREADABLE, ForgeError):  # No such table, or no name of a table.
        return False
    return head > int(pin["expected_version"])


def _settled(forge: Forge, before: Before) -> dict[str, Mapping[str, Any]]:
    """The audit rows that came since. What is wrong with their table is for the auditor to say, when it is at rest."""
    datasets = Datasets(forge.root)
    try:
        with datasets.reading(AUDIT_DIR):
            rows = datasets.head(AUDIT_DIR, None).to_table(columns=list(_ROW)).to_pylist()
    except _UNREADABLE:
        return {}
    return {row["operation_id"]: row for row in rows if row["operation_id"] not in before.recoveries}


def _published(before: Before, branches: Sequence[str], commits: int) -> bool:
    match before.step["do"]:
        case "branch_create":
            return before.step["name"] in branches
        case "branch_delete":
            return before.step["name"] not in branches
    return 0 < before.commits <= commits


def commits_since(forge: Forge, before: Before) -> int:
    """How many commits the branch of the step has got since, from the bytes.

    Those of a recovery do not count: one may be a roll-back, and does not say that the step is there.
    """
    branch = None if before.branch == MAIN else before.branch
    try:
        with Datasets(forge.root).reading("__manifest"):
            manifest = forge.decoded(branch)
    except _UNREADABLE as error:
        if branch is not None:
            return 0  # A branch that is being made: whether it can be read at last, the open that follows will show.
        raise _unreadable(error) from error
    commits = sum(commit.actor != RECOVERY_ACTOR for commit in manifest.commits.values())
    return commits - before.heads.get(before.branch, before.heads[MAIN])


def _unreadable(error: Exception) -> RequirementBroken:
    return RequirementBroken(("REC-18",), f"the manifest that is left can be read by nobody: {error}")
