"""FAULTS: answers that get lost, and random operations in bad weather."""

from __future__ import annotations

from typing import Any, Final

import pytest

from conformance.judge import RequirementBroken, current_case, proving
from conformance.sequences.story import script_of
from failpoints.storms.player import StormPlayer
from failpoints.storms.storm import run_storm
from failpoints.workshop import Bench
from failpoints.writers import PEOPLE, SCHEMA, insert, insert_edge, mutate
from fixtures.stores.catalog import Store

OPERATIONS: Final = 10
REPLAYS_TO_SHRINK: Final = 10
# Requests whose answer decides what a writer believes: the table, the publish, the sidecar.
LOST: Final = ("table version", "manifest version", "sidecar")
WRITE: Final = mutate(insert("Person", name="dan"), insert_edge("Knows", "ann", "bob"))


@pytest.mark.requirement("PUB-09", "PUB-23")
@pytest.mark.parametrize("role", LOST)
def test_an_answer_that_gets_lost_does_nothing_twice(bench: Bench, store: Store, role: str) -> None:
    """An edge has no key: whoever writes it a second time because nobody answered has two of them."""
    player = StormPlayer(bench, store, SCHEMA, seed=None)
    weather: dict[str, Any] = {"rules": [{"action": "cut", "roles": [role], "verbs": ["PUT"]}]}
    try:
        with proving("PUB-09", "PUB-23"):
            player.play(dict(PEOPLE))
            player.play({**WRITE, "weather": weather})
    except RequirementBroken as broken:
        _keep(SCHEMA, player.steps, broken)
        raise
    finally:
        player.close()


@pytest.mark.requirement("PUB-21", "PUB-23")
def test_operations_in_bad_weather_are_done_whole_or_not_at_all(
    bench: Bench, store: Store, request: pytest.FixtureRequest
) -> None:
    seed = int(request.config.getoption("--touchstone-seed"))
    with proving("PUB-21", "PUB-23"):
        result = run_storm(bench, store, seed=seed, operations=OPERATIONS, replays=REPLAYS_TO_SHRINK)
        if result.failure is not None:
            broken = RequirementBroken(result.failure.ids, result.failure.because)
            steps = [dict(step) for step in result.failure.steps]
            _keep(result.schema, steps, broken)
            because = f"{broken.because}\nafter these steps:\n{script_of(steps)}"
            raise RequirementBroken(broken.ids, because)


def _keep(schema: str, steps: list[dict[str, Any]], broken: RequirementBroken) -> None:
    """Leave a trace that can be replayed."""
    case = current_case()
    if case is not None:
        case.sequence = {"kind": "storm", "schema": schema, "steps": steps, "because": broken.because}
