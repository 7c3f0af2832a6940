"""SEQ: random sequences of every operation, over branches and handles, judged after each step.

A failure is cut down to the shortest sequence that still breaks the same requirement, and becomes a trace. With a list
of known failures, a step that breaks only what is listed is taken back, and the sequence goes on to what nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from conformance.judge import Engine, RequirementBroken, current_case, proving
from conformance.runner.plugin import known_failures, profile_of, short_name
from conformance.sequences.machine import SequenceMachine, run_sequences
from conformance.sequences.player import Player, Step
from conformance.sequences.shrinking import Failure, shrink
from conformance.sequences.story import script_of
from conformance.sequences.vocabulary import BASE
from fixtures.stores.catalog import Store

PARTS = 4
REPLAYS_TO_SHRINK = 60
# What a sequence shows is shown only by one in which these were done, and not refused.
SHOWN_BY = {
    "IDX-01": {"mutate", "optimize"},
    "BRA-17": {"branch_create", "mutate"},
    "BRA-18": {"branch_create", "branch_delete"},
    "MRG-12": {"merge"},
    "CLN-07": {"branch_create", "cleanup"},
}


@pytest.mark.requirement("IDX-01", "BRA-17", "BRA-18", "MRG-12", "CLN-07")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_sequences_mean_what_the_model_says(
    engine: Engine, peer: Engine | None, store: Store, request: pytest.FixtureRequest, part: int
) -> None:
    profile = profile_of(request.config)
    seed = int(request.config.getoption("--touchstone-seed"))
    known = [
        line.requirement
        for line in known_failures(request.config)
        if line.requirement is not None and line.is_about(store.name) and line.is_in(short_name(request.node.nodeid))
    ]

    def start(known: Sequence[str] = ()) -> Player:
        return Player(engine, store.fresh_root, store.env, BASE, peer=peer, known=known)

    try:
        machine = run_sequences(
            partial(start, known),
            number=seed * PARTS + part,
            sequences=-(-profile.sequences // PARTS),
            steps=profile.steps,
        )
    except RequirementBroken as broken:
        raise _shortest(start, broken) from None
    done = {kind for player in machine.players for kind in player.done}
    met = [each for player in machine.players for each in player.met]
    ids = tuple(sorted({id_ for each in met for id_ in each.ids}))
    for requirement, kinds in SHOWN_BY.items():
        if done >= kinds and requirement not in ids:
            with proving(requirement):
                assert machine.latest is not None and machine.latest.steps
    if met:
        _keep(met[0].steps, met[0].because)
        words = "; ".join(dict.fromkeys(f"{', '.join(each.ids)}: {each.because}" for each in met))
        raise RequirementBroken(ids, f"known failures were met {len(met)} times, and taken back: {words}")


def _shortest(start: Callable[[], Player], broken: RequirementBroken) -> RequirementBroken:
    """The same failure with as few steps as can be found; the trace goes to the report."""
    machine: type[SequenceMachine] = broken.machine  # type: ignore[attr-defined]
    assert machine.latest is not None
    found = shrink(start, Failure(tuple(machine.latest.steps), broken.ids, broken.because), replays=REPLAYS_TO_SHRINK)
    _keep(found.steps, found.because)
    return RequirementBroken(found.ids, f"{found.because}\nafter these steps:\n{script_of(found.steps)}")


def _keep(steps: Sequence[Step], because: str) -> None:
    case = current_case()
    if case is not None:
        case.sequence = {"schema": BASE, "steps": list(steps), "because": because}
