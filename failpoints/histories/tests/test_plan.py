"""Plans: the same seed gives the same plan, and everything that can happen is in it."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from conformance.model import Model, Refusal
from failpoints.histories.plan import PROFILES, SCHEMA, Plan, PlanError, closing, make_plan
from failpoints.histories.record import MAIN
from failpoints.histories.steps import mean


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_plan_and_another_seed_another(profile: str) -> None:
    one, again, other = (make_plan(processes=3, writes=20, seed=seed, profile=profile) for seed in (7, 7, 8))
    assert one == again
    assert one.calls != other.calls


def test_a_plan_is_a_plain_value() -> None:
    plan = make_plan(processes=3, writes=20, seed=7, profile="mixed", kill_every=4)
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_a_process_asks_the_same_however_many_others_there_are() -> None:
    few, many = (make_plan(processes=processes, writes=9, seed=3, profile="mixed") for processes in (2, 6))
    assert few.of(1) == many.of(1)


def test_kills_change_nothing_of_what_is_asked() -> None:
    without, killed = (make_plan(processes=3, writes=10, seed=3, kill_every=kills) for kills in (None, 5))
    assert [call.step for call in without.calls] == [call.step for call in killed.calls]
    assert [sum(call.kill_at is not None for call in killed.of(process)) for process in range(3)] == [2, 2, 2]
    assert all(call.kill_at is None for call in without.calls)


def test_every_call_has_an_actor_of_its_own() -> None:
    plan = make_plan(processes=20, writes=50, seed=1, profile="mixed")
    calls = [*plan.opening, *plan.calls, *closing([MAIN, "side"])]
    assert len({call.actor for call in calls}) == len(calls) == 2 + 1000 + 2


def test_writes_only_writes_to_main_and_mixed_does_the_rest_as_well() -> None:
    writes = make_plan(processes=4, writes=50, seed=1)
    assert {call.step["do"] for call in writes.calls} == {"mutate", "load"}
    assert all("branch" not in call.step for call in writes.calls)
    mixed = Counter(call.step["do"] for call in make_plan(processes=4, writes=50, seed=1, profile="mixed").calls)
    assert mixed.keys() == {"mutate", "load", "merge", "branch_create", "optimize", "ensure_indices"}


def test_most_of_a_plan_can_be_done() -> None:
    """One process alone, in the model: a plan of refusals would show nothing."""
    plan = make_plan(processes=1, writes=200, seed=1)
    model = Model.from_source(SCHEMA)
    done = Counter(_does(model, call.step) for call in (*plan.opening, *plan.calls))
    assert done["commit"] > 120
    assert done["nothing"] > 0 and done["refused"] > 0, "refusals and calls that match nothing belong to it too"


def _does(model: Model, step: dict[str, object]) -> str:
    try:
        return "nothing" if mean(model, step, MAIN).commit is None else "commit"
    except Refusal:
        return "refused"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"profile": "wild"}, "there is no profile 'wild' of histories; there are writes, hot, mixed"),
        ({"processes": 0}, "processes is 0, and has to be at least 1"),
        ({"kill_every": 0}, "kill_every is 0, and has to be at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(wrong: dict[str, object], said: str) -> None:
    arguments: dict[str, object] = {"processes": 1, "writes": 1, "seed": 1, **wrong}
    with pytest.raises(PlanError) as refused:
        make_plan(**arguments)  # type: ignore[arg-type]
    assert str(refused.value) == said


def test_a_trace_that_holds_no_plan_is_refused_in_words() -> None:
    with pytest.raises(PlanError, match="this is no plan of a history"):
        Plan.from_json({"seed": 1})
