"""What the audit must say after a recovery: of each operation one row, of the right kind, for whom it was and by whom.

Pending at the scene are the sidecars that recovery has to decide on: each has one row afterwards [REC-05, REC-14],
whose commit is recovery's, on the branch of the sidecar [REC-27]. Settled are operations that had their row when the
scene was looked at: a writer that lives may take its own move back and try again [PUB-21], so such a row may say that
something was rolled back while the step, by a later operation, is there. A row of anything else is made up [REC-20].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from conformance.audit.names import RECOVERY_ACTOR
from conformance.judge import Handle, RequirementBroken
from failpoints.scene import Before, Scene, rows_of
from failpoints.steps import MAIN, MAINTENANCE
from failpoints.world import World
from fixtures.forge import Forge

FORWARD: Final = "RolledForward"
BACK: Final = "RolledBack"
DISCARDED: Final = "OrphanedBranchDiscarded"

Row = Mapping[str, Any]


def judge_rows(handle: Handle, before: Before, scene: Scene, world: World, what: str) -> tuple[str, ...]:
    """Hold the new audit rows against the scene; the kinds of those that tell of what was pending."""
    left = list(Forge(before.uri, dict(before.env)).sidecars())
    if left:
        raise RequirementBroken(("REC-05",), f"after {what} and a read-write open there still is {left[0]}")
    _judge_other_branches(handle, before, scene, what)
    if not handle.engine.supports("recoveries"):
        return ()
    new = [row for row in rows_of(handle) if row["operation_id"] not in before.recoveries]
    for operation, times in Counter(row["operation_id"] for row in new).items():
        if times > 1:
            raise RequirementBroken(("REC-14", "REC-18"), f"after {what} {times} audit rows tell of {operation}")
    told = {row["operation_id"]: row for row in new}
    for operation, row in told.items():
        _judge_origin(scene, operation, what)
        _judge_actor(before, scene, row, what)
        is_decided = world.name == "old" and before.step["do"] not in MAINTENANCE
        if operation not in scene.sidecars and row["recovery_kind"] == FORWARD and is_decided:
            _contradicted(scene, world, row, (BACK,), what)
    for operation, body in scene.sidecars.items():
        _judge_unconfirmed(before, scene, world, operation, told.get(operation), what)
        wanted = _kinds_allowed(before, scene, world, operation)
        found = told.get(operation)
        if (None if found is None else found["recovery_kind"]) not in wanted:
            _contradicted(scene, world, found, wanted, what)
        if found is not None and operation not in scene.settled:
            _judge_commit(handle, before, scene, found, body, what)
    return tuple(row["recovery_kind"] for operation, row in told.items() if operation in scene.sidecars)


def _judge_origin(scene: Scene, operation: str, what: str) -> None:
    if operation in scene.sidecars:
        return
    if operation not in scene.settled:
        because = f"after {what} an audit row tells of {operation}, of which there was no sidecar"
        raise RequirementBroken(("REC-20",), because)
    if scene.armed is not None and operation not in scene.armed:
        because = f"after {what} an audit row tells of {operation}, of which no sidecar was ever written"
        raise RequirementBroken(("REC-20",), because)


def _judge_unconfirmed(before: Before, scene: Scene, world: World, operation: str, row: Row | None, what: str) -> None:
    """A merge that died before it had confirmed how far its tables are goes back, also where all of them are there."""
    if operation not in scene.unconfirmed or scene.published or operation in scene.orphaned:
        return
    kind = None if row is None else row["recovery_kind"]
    is_there = before.step["do"] == "merge" and world.name == "new" and operation not in scene.settled
    if is_there or kind == FORWARD:
        because = f"after {what} ({scene}) a merge that was not confirmed is in the graph, and the audit says {kind!r}"
        raise RequirementBroken(("REC-08",), because)


def _judge_actor(before: Before, scene: Scene, row: Row, what: str) -> None:
    """The row says for whom it was and what kind of writer, as the sidecar does, and as the step does."""
    operation, told = row["operation_id"], row["recovery_for_actor"]
    body = scene.sidecars.get(operation, {})
    if body and before.step.get("actor") is not None and "actor_id" not in body:
        because = f"after {what} the sidecar does not say for whom it was, and it was for {before.step['actor']!r}"
        raise RequirementBroken(("REC-05",), because)
    wanted = {body["actor_id"]} if "actor_id" in body else set()
    if before.step.get("actor") is not None and operation in (scene.armed or ()):
        wanted.add(before.step["actor"])  # Nobody but the step's writer can have been at it.
    if any(told != actor for actor in wanted):
        because = f"after {what} the audit row says that it was for {told!r}, and it was for "
        raise RequirementBroken(("REC-05",), because + " and ".join(repr(actor) for actor in wanted))
    kind = body.get("writer_kind", row["sidecar_writer_kind"])
    if row["sidecar_writer_kind"] != kind:
        because = f"after {what} the audit row says {row['sidecar_writer_kind']!r}, and the sidecar was of a {kind!r}"
        raise RequirementBroken(("REC-05",), because)


def _judge_commit(handle: Handle, before: Before, scene: Scene, row: Row, body: Row, what: str) -> None:
    """The commit that a row names is recovery's, on the branch of the sidecar; of an orphan, on main.

    Where the writer had published, its own commit is as good.
    """
    branch = MAIN if row["operation_id"] in scene.orphaned else body.get("branch") or MAIN
    commits = {commit["graph_commit_id"]: commit for commit in handle.commits(branch)}
    commit = commits.get(row["graph_commit_id"])
    if commit is None:
        because = f"after {what} the audit row names the commit {row['graph_commit_id']}, which is not on '{branch}'"
        raise RequirementBroken(("REC-27",), because)
    allowed = {RECOVERY_ACTOR, before.step.get("actor")} if scene.published else {RECOVERY_ACTOR}
    if commit.get("actor_id") not in allowed:
        because = f"after {what} the commit of the recovery names the actor {commit.get('actor_id')!r}, and not "
        raise RequirementBroken(("REC-05",), f"{because}{RECOVERY_ACTOR!r}")


def _judge_other_branches(handle: Handle, before: Before, scene: Scene, what: str) -> None:
    """No recovery commits on a branch that neither the step nor a sidecar is about."""
    concerned = {before.branch, *(str(body.get("branch") or MAIN) for body in scene.sidecars.values())}
    if scene.orphaned or any(row["recovery_kind"] == DISCARDED for row in scene.settled.values()):
        concerned.add(MAIN)
    there = handle.branch_list() if handle.engine.supports("branch_list") else [MAIN]
    for branch in sorted(set(before.model.branch_list()) & set(there) - concerned):
        known = {commit.commit_id for commit in before.model.commits(branch)}
        for commit in handle.commits(branch):
            if commit.get("actor_id") == RECOVERY_ACTOR and commit["graph_commit_id"] not in known:
                because = f"after {what} recovery has added a commit to '{branch}', which had no part in it"
                raise RequirementBroken(("REC-27",), because)


def _kinds_allowed(before: Before, scene: Scene, world: World, operation: str) -> tuple[str | None, ...]:
    if operation in scene.orphaned:
        return (DISCARDED,)
    if before.step["do"] in MAINTENANCE:
        if scene.published:
            return (FORWARD,)
        return (FORWARD, BACK) if operation in scene.moved else (FORWARD, BACK, None)
    if world.name == "new":
        return (FORWARD, BACK) if operation in scene.settled else (FORWARD,)
    return (BACK,) if operation in scene.moved else (BACK, None)


def _contradicted(scene: Scene, world: World, row: Row | None, wanted: tuple[str | None, ...], what: str) -> None:
    words = " or ".join("no audit row" if each is None else each for each in wanted)
    found = None if row is None else row["recovery_kind"]
    because = f"after {what} ({scene}; the graph is in its {world.name} state) the audit says {found!r}, and should: "
    raise RequirementBroken(("REC-05", "REC-14"), f"{because}{words}")
