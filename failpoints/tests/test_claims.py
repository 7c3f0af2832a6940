"""Every claim of the mutants is proved: an instrument that is said to catch one is given it, and does.

    pytest -m slow failpoints/tests/test_claims.py

These trials take long, so they run when they are asked for. That each claim has one is looked at every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from conformance.judge import RequirementBroken
from failpoints.cuts.sweep import sweep_init
from failpoints.cuts.tests.test_sensitivity import cell
from failpoints.histories import Contradiction
from failpoints.histories.history import run_plan
from failpoints.histories.tests.test_mutants import RACES_MAX
from failpoints.matrix import SUBJECTS, Crew, try_spots
from failpoints.pairs.pairs import PAIRS
from failpoints.pairs.schedule import run
from failpoints.pairs.stage import Stage, prepare
from failpoints.storms.tests.test_storms import play
from failpoints.tests.claims import CUTS, INSTRUMENTS, PLACES, PLANS, SCHEDULES, TRIALS, WEATHERS
from failpoints.workshop import bench_at
from failpoints.writers import WRITERS
from fixtures.mutants import MUTANTS
from fixtures.stores.catalog import Store, running

CLAIMS = [(name, each) for name, mutant in MUTANTS.items() for each in mutant.caught_by if each in INSTRUMENTS]


def caught_by_cuts(mutant: str, place: Store) -> bool:
    writer, cut, second = CUTS[mutant]
    if writer == "init":
        with bench_at(place, f"mutant:{mutant}") as bench:
            (result,) = sweep_init(bench, place, WRITERS[writer], chosen=lambda durable: [cut(durable)])
    else:
        result = cell(f"mutant:{mutant}", place, writer, cut, second)
    return result.wrong is not None


def caught_by_pairs(mutant: str, place: Store) -> bool:
    """The graph is built by the reference: what is found is the race, and nothing that came before it."""
    schedule = SCHEDULES[mutant]
    with bench_at(place, "reference") as sound:
        ground = prepare(sound, place, PAIRS[schedule.pair])
    with bench_at(place, f"mutant:{mutant}") as bench, Stage(bench, place, ground) as stage:
        result = run(stage, schedule.held, schedule.hold)
    assert result.reached, f"the request never came: {schedule.hold}"
    return result.verdict == "wrong"


def caught_by_histories(mutant: str, place: Store) -> bool:
    """Who comes first is chance, so there are a few races."""
    with running("local") as local:
        verdicts = (run_plan(f"mutant:{mutant}", local, PLANS[mutant]).verdict for _ in range(RACES_MAX))
        return any(isinstance(verdict, Contradiction) for verdict in verdicts)


def caught_by_storms(mutant: str, place: Store) -> bool:
    try:
        play(f"mutant:{mutant}", place, WEATHERS[mutant])
    except RequirementBroken:
        return True
    return False


def caught_by_matrix(mutant: str, place: Store) -> bool:
    spot = PLACES[mutant]
    with running("local") as local, Crew(f"mutant:{mutant}", {}, local.fresh_root) as crew:
        (result,) = try_spots(crew, SUBJECTS[spot.writer], [spot])
    return result.wrong is not None


CATCHES: Mapping[str, Callable[[str, Store], bool]] = {
    "cuts": caught_by_cuts,
    "pairs": caught_by_pairs,
    "histories": caught_by_histories,
    "storms": caught_by_storms,
    "matrix": caught_by_matrix,
}


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "instrument"), CLAIMS, ids=[f"{each}-{name}" for name, each in CLAIMS])
def test_an_instrument_catches_what_it_is_said_to_catch(place: Store, mutant: str, instrument: str) -> None:
    caught = CATCHES[instrument](mutant, place)

    assert caught, f"{MUTANTS[mutant].sentence} Nobody notices it at {TRIALS[instrument][mutant]}"


def test_every_claim_has_a_trial_and_every_trial_is_of_a_claim() -> None:
    tried = {(mutant, instrument) for instrument, trials in TRIALS.items() for mutant in trials}

    assert tried == set(CLAIMS)
