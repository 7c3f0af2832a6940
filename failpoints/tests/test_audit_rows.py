"""What the audit must say: of what was pending one right row, of what a writer took back its own, of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from conformance.judge import Handle, RequirementBroken
from conformance.model import Model
from failpoints.audit_rows import judge_rows
from failpoints.scene import Before, Scene
from failpoints.steps import Step
from failpoints.world import World
from failpoints.writers import CREATE, SCHEMA, insert, mutate

RECOVERY = "omnigraph:recovery"
STEP = mutate(insert("Person", name="dan"), actor="ann")
ON_BRANCH = mutate(insert("Person", name="dan"), branch="feature", actor="ann")
SIDECAR: dict[str, Any] = {"writer_kind": "Mutation", "actor_id": "ann", "branch": None, "tables": []}
ROW = {
    "graph_commit_id": "back",
    "recovery_kind": "RolledBack",
    "recovery_for_actor": "ann",
    "operation_id": "one",
    "sidecar_writer_kind": "Mutation",
    "outcomes": [],
}
LEFT = Scene(published=False, sidecars={"one": SIDECAR}, moved=frozenset({"one"}), locked=False)
TAKEN_BACK = Scene(
    published=True,
    sidecars={},
    moved=frozenset(),
    locked=False,
    settled={"one": ROW},
    armed=frozenset({"one", "two"}),
    commits=1,
)


class Told:
    """An engine that tells these audit rows and these commits, by branch."""

    def __init__(self, rows: list[dict[str, Any]], commits: dict[str, list[dict[str, Any]]]) -> None:
        self.engine = self
        self._rows = rows
        self._commits = commits

    def supports(self, *operations: str) -> bool:
        return True

    def branch_list(self) -> list[str]:
        return list(self._commits)

    def recoveries(self) -> list[dict[str, Any]]:
        return self._rows

    def commits(self, branch: str) -> list[dict[str, Any]]:
        return self._commits[branch]


def commit(name: str, actor: str | None) -> dict[str, Any]:
    return {"graph_commit_id": name, "actor_id": actor}


@pytest.fixture
def empty(tmp_path: Path) -> str:
    return str(tmp_path)


def judged(
    uri: str,
    scene: Scene,
    *rows: dict[str, Any],
    world: str = "old",
    step: Step = STEP,
    on_main: tuple[dict[str, Any], ...] = (commit("back", RECOVERY),),
    on_branch: tuple[dict[str, Any], ...] = (),
) -> tuple[str, ...]:
    model = Model.from_source(SCHEMA)
    model.branch_create(CREATE["name"])
    before = Before(uri, {}, model, step, {"main": 1}, frozenset({"long-ago"}))
    handle = Told([{**ROW, "operation_id": "long-ago"}, *rows], {"main": [*on_main], "feature": [*on_branch]})
    return judge_rows(cast(Handle, handle), before, scene, World(world, model), "it")


def test_what_was_pending_has_one_row_of_the_right_kind(empty: str) -> None:
    assert judged(empty, LEFT, ROW) == ("RolledBack",)


def test_a_writer_may_have_taken_back_what_it_did_later(empty: str) -> None:
    assert judged(empty, TAKEN_BACK, ROW, world="new") == ()


def test_a_finished_writer_may_be_named_by_its_own_commit(empty: str) -> None:
    stale = Scene(published=True, sidecars={"one": SIDECAR}, moved=frozenset(), locked=False, commits=1)
    forward = {**ROW, "recovery_kind": "RolledForward", "graph_commit_id": "mine"}

    assert judged(empty, stale, forward, world="new", on_main=(commit("mine", "ann"),)) == ("RolledForward",)


@pytest.mark.parametrize(
    ("scene", "row", "world", "requirement", "words"),
    [
        (LEFT, {}, "new", "REC-05", "and should: RolledForward"),
        (LEFT, {"operation_id": "other"}, "old", "REC-20", "of which there was no sidecar"),
        (LEFT, {"recovery_for_actor": None}, "old", "REC-05", "for None, and it was for 'ann'"),
        (LEFT, {"sidecar_writer_kind": "Load"}, "old", "REC-05", "says 'Load'"),
        (LEFT, {"graph_commit_id": "elsewhere"}, "old", "REC-27", "which is not on 'main'"),
        (TAKEN_BACK, {"recovery_for_actor": "bob"}, "new", "REC-05", "for 'bob'"),
        (TAKEN_BACK, {"recovery_kind": "RolledForward"}, "old", "REC-05", "and should: RolledBack"),
    ],
)
def test_a_row_that_contradicts_what_is_there_is_wrong(
    empty: str, scene: Scene, row: dict[str, Any], world: str, requirement: str, words: str
) -> None:
    with pytest.raises(RequirementBroken, match=words) as broken:
        judged(empty, scene, {**ROW, **row}, world=world)
    assert requirement in broken.value.ids


def test_a_row_of_an_operation_that_never_had_a_sidecar_is_made_up(empty: str) -> None:
    made_up = Scene(True, {}, frozenset(), locked=False, settled={"one": ROW}, armed=frozenset({"two"}), commits=1)

    with pytest.raises(RequirementBroken, match="no sidecar was ever written"):
        judged(empty, made_up, ROW, world="new")


def test_two_rows_of_one_operation_are_one_too_many(empty: str) -> None:
    with pytest.raises(RequirementBroken, match="2 audit rows tell of one"):
        judged(empty, LEFT, ROW, ROW)


def test_the_commit_of_a_recovery_names_recovery(empty: str) -> None:
    with pytest.raises(RequirementBroken, match="names the actor None"):
        judged(empty, LEFT, ROW, on_main=(commit("back", None),))


def test_the_recovery_of_a_branch_leaves_main_alone(empty: str) -> None:
    left = Scene(False, {"one": {**SIDECAR, "branch": "feature"}}, frozenset({"one"}), locked=False)
    on_branch = (commit("back", RECOVERY),)

    assert judged(empty, left, ROW, step=ON_BRANCH, on_main=(), on_branch=on_branch) == ("RolledBack",)
    with pytest.raises(RequirementBroken, match="added a commit to 'main'"):
        judged(empty, left, ROW, step=ON_BRANCH, on_main=(commit("more", RECOVERY),), on_branch=on_branch)


MERGE = {"do": "merge", "source": "feature", "target": "main", "actor": "ann"}
MERGING = {**SIDECAR, "writer_kind": "BranchMerge", "schema_version": 2}


@pytest.mark.parametrize("world", ["old", "new"])
def test_a_merge_that_was_not_confirmed_goes_back_and_never_forward(empty: str, world: str) -> None:
    """Also where every table has moved, so that nothing but the confirmation is missing [REC-08]."""
    left = Scene(False, {"one": MERGING}, frozenset({"one"}), locked=False, unconfirmed=frozenset({"one"}))
    back = {**ROW, "sidecar_writer_kind": "BranchMerge"}
    forward = {**back, "recovery_kind": "RolledForward"}

    assert judged(empty, left, back, step=MERGE) == ("RolledBack",)
    with pytest.raises(RequirementBroken, match="was not confirmed") as broken:
        judged(empty, left, forward, step=MERGE, world=world)
    assert broken.value.ids == ("REC-08",)
    confirmed = Scene(False, {"one": MERGING}, frozenset({"one"}), locked=False)
    assert judged(empty, confirmed, forward, step=MERGE, world="new") == ("RolledForward",)


def test_a_sidecar_says_for_whom_it_is(empty: str) -> None:
    nameless = {name: value for name, value in SIDECAR.items() if name != "actor_id"}
    left = Scene(False, {"one": nameless}, frozenset({"one"}), locked=False)

    with pytest.raises(RequirementBroken, match="does not say for whom"):
        judged(empty, left, ROW)
