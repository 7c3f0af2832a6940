"""Which world a graph is in: what was acknowledged is there once, what was refused is not, what is open is whole."""

from __future__ import annotations

from typing import Any, cast

import pytest

from conformance.judge import Handle, RequirementBroken
from conformance.model import Model
from failpoints.steps import Step, mean
from failpoints.world import ACKNOWLEDGED, REFUSED, UNKNOWN, Ending, the_one, worlds_after
from failpoints.writers import CREATE, PEOPLE, SCHEMA, insert, load, mutate

STEP = mutate(insert("Person", name="dan"), actor="ann")


class Shown:
    """An engine that shows the graph of a model, with the commits that it is told to show."""

    def __init__(self, model: Model, commits: list[dict[str, Any]]) -> None:
        self.engine = self
        self._model = model
        parents = [None, *(each["graph_commit_id"] for each in commits)]
        self._commits = [{"parent_commit_id": parent, **each} for parent, each in zip(parents, commits, strict=False)]

    def supports(self, *operations: str) -> bool:
        return True

    def branch_list(self) -> list[str]:
        return self._model.branch_list()

    def export(self, branch: str) -> str:
        return self._model.export(branch)

    def commits(self, branch: str) -> list[dict[str, Any]]:
        return self._commits

    def read(self, table_key: str, *, commit: str) -> list[dict[str, Any]]:
        return []


def commit(name: str, version: int, actor: str | None = None, **parents: str | None) -> dict[str, Any]:
    return {"graph_commit_id": name, "manifest_version": version, "created_at": version, "actor_id": actor, **parents}


FIRST = [commit("genesis", 1), commit("people", 4)]


def graph() -> Model:
    model = mean(Model.from_source(SCHEMA), PEOPLE).model
    for mine, engines in zip(model.commits(), FIRST, strict=True):
        model.identify(mine, engines["graph_commit_id"], engines["manifest_version"], engines["created_at"])
    return model


ANSWERED = Ending(ACKNOWLEDGED, {"commit": {"graph_commit_id": "mine"}})


def judged(
    step: Step, ending: Ending, after: Model, commits: list[dict[str, Any]], recoveries_max: int | None = None
) -> str:
    handle = cast(Handle, Shown(after, [*FIRST, *commits]))
    worlds = worlds_after(graph(), step, ending)
    return the_one(handle, worlds, "it", ("PUB-01",), recoveries_max=recoveries_max).name


def test_what_was_acknowledged_is_there_with_its_commit() -> None:
    assert judged(STEP, ANSWERED, mean(graph(), STEP).model, [commit("mine", 5, "ann")]) == "new"


def test_what_was_left_open_has_happened_or_not() -> None:
    assert judged(STEP, Ending(UNKNOWN), graph(), []) == "old"
    assert judged(STEP, Ending(UNKNOWN), mean(graph(), STEP).model, [commit("any", 5, "ann")]) == "new"


def test_a_recovery_may_add_commits_that_change_no_row() -> None:
    back = [commit("recovery", 5, "omnigraph:recovery")]

    assert judged(STEP, Ending(UNKNOWN), graph(), back) == "old"
    done = [commit("mine", 5, "ann"), commit("recovery", 6, "omnigraph:recovery")]
    assert judged(STEP, ANSWERED, mean(graph(), STEP).model, done) == "new"


@pytest.mark.parametrize(
    ("ending", "happened", "commits", "words"),
    [
        (ANSWERED, False, [], "not the new state"),
        (Ending(REFUSED), True, [commit("x", 5, "ann")], "not the old state"),
        (ANSWERED, True, [], "none of them is the step's"),
        (ANSWERED, True, [commit("other", 5, "ann")], "which was answered, is not on the branch"),
        (ANSWERED, True, [commit("mine", 5, "ann"), commit("again", 6, "ann")], "also has a commit by 'ann'"),
        (Ending(UNKNOWN), False, [commit("x", 5, "ann")], "that is not in its rows"),
        (ANSWERED, True, [commit("mine", 5)], "names the actor None"),
        (ANSWERED, True, [commit("mine", 5, "ann", parent_commit_id="genesis")], "the parents of commit mine are"),
        (ANSWERED, True, [commit("mine", 5, "ann", merged_parent_commit_id="genesis")], "the parents of commit mine"),
        (
            Ending(UNKNOWN),
            False,
            [commit("back", 5, "omnigraph:recovery", parent_commit_id="genesis")],
            "the parents of commit back are",
        ),
        (Ending(ACKNOWLEDGED, {"commit": None}), True, [commit("x", 5, "ann")], "answered no commit, and it makes one"),
    ],
)
def test_what_is_neither_is_wrong(ending: Ending, happened: bool, commits: list[Any], words: str) -> None:
    after = mean(graph(), STEP).model if happened else graph()

    with pytest.raises(RequirementBroken, match=words):
        judged(STEP, ending, after, commits)


@pytest.mark.parametrize(
    "step", [STEP, mutate(insert("Person", name="dan")), CREATE], ids=["named", "nameless", "branch"]
)
@pytest.mark.parametrize("ending", [ACKNOWLEDGED, UNKNOWN])
def test_a_step_that_changes_rows_or_branches_makes_no_commit_beside_its_own(step: Step, ending: str) -> None:
    """Whatever came of it, an empty commit in nobody's name was asked for by nobody [LIN-02]."""
    after = mean(graph(), step)
    own = [] if after.commit is None else [commit("mine", 5, step.get("actor"))]
    done = Ending(ending, {"commit": {"graph_commit_id": "mine"}} if own else None)

    with pytest.raises(RequirementBroken, match="a commit by None") as broken:
        judged(step, done, after.model, [*own, commit("empty", 6)])
    assert "LIN-02" in broken.value.ids


def test_maintenance_makes_one_commit_for_each_table_at_most() -> None:
    tables = [commit(f"table-{number}", 5 + number) for number in range(len(graph().schema.types))]
    step = {"do": "optimize"}

    assert judged(step, Ending(ACKNOWLEDGED), graph(), tables) == "new"
    assert judged(step, Ending(UNKNOWN), graph(), tables) == "old"
    with pytest.raises(RequirementBroken, match="5 such where there may be 4"):
        judged(step, Ending(ACKNOWLEDGED), graph(), [*tables, commit("again", 20)])
    with pytest.raises(RequirementBroken, match="a commit by None"):
        judged({"do": "cleanup"}, Ending(ACKNOWLEDGED), graph(), tables[:1])


@pytest.mark.parametrize(("recoveries_max", "words"), [(0, "there was nothing to recover"), (1, "not so much")])
def test_a_recovery_commits_no_more_than_there_was_to_recover(recoveries_max: int, words: str) -> None:
    back = [commit("recovery", 5, "omnigraph:recovery"), commit("another", 6, "omnigraph:recovery")]

    with pytest.raises(RequirementBroken, match=words) as broken:
        judged(STEP, Ending(UNKNOWN), graph(), back, recoveries_max)
    assert {"LIN-02", "REC-20"} <= set(broken.value.ids)
    assert judged(STEP, Ending(UNKNOWN), graph(), back, 2) == "old"


def test_a_load_that_makes_its_branch_may_stop_after_that_and_no_further() -> None:
    step = load(*PEOPLE["records"][:1], branch="feature", base="main")
    half = mean(graph(), CREATE).model

    assert judged(step, Ending(UNKNOWN), half, []) == "half"
    with pytest.raises(RequirementBroken):
        judged(step, Ending(ACKNOWLEDGED, {"commit": {"graph_commit_id": "mine"}}), half, [])


def test_what_must_be_refused_and_was_done_is_wrong() -> None:
    with pytest.raises(RequirementBroken, match="should be refused"):
        worlds_after(graph(), load(*PEOPLE["records"][:1], mode="append"), ANSWERED)
