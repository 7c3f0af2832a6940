"""Storms: the weather is a plain value drawn from a seed, and whoever misbehaves in it is found."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conformance.judge import RequirementBroken
from conformance.replay import replay
from conformance.runner.verdict import CONFORMS, FAILS
from conformance.traces import make_trace, read_trace
from failpoints.gate import Rule, RuleError
from failpoints.storms.player import StormPlayer
from failpoints.storms.storm import run_storm
from failpoints.storms.weather import CONTENDED_REQUESTS, OUTAGE_REQUESTS, Weather, WeatherError, drawn
from failpoints.workshop import bench_at
from failpoints.writers import CREATE, PEOPLE, SCHEMA, insert, insert_edge, mutate
from fixtures.mutants.lawful import lawful
from fixtures.stores.catalog import Store

LOST_ACK = Path(__file__).parents[3] / "fixtures" / "traces" / "lost-ack-on-publish.json"


def test_a_seed_draws_the_same_weather_every_time_and_all_kinds_in_the_long_run() -> None:
    first = [drawn(random.Random(f"7/{number}")) for number in range(1000)]

    assert first == [drawn(random.Random(f"7/{number}")) for number in range(1000)]
    kinds = {rule.action for weather in first for rule in weather.rules}
    assert kinds == {"cut", "refuse", "answer", "delay"}
    assert any(weather.kill for weather in first) and any(weather.is_calm for weather in first)
    assert any(len(weather.rules) > 1 for weather in first) and any(each.rules and each.kill for each in first)
    assert {status_and_end(rule) for weather in first for rule in weather.rules} >= {
        (403, "for good"), (403, "once"), (412, "for long"), (412, "once"), (503, "for long"), (503, "once")
    }  # fmt: skip
    forbidden = {(rule.verbs, rule.roles) for weather in first for rule in weather.rules if rule.status == 403}
    assert {verbs[0] for verbs, _ in forbidden} == {"PUT", "DELETE", "LIST", "GET"}
    recoveries = [weather.recovery for weather in first if weather.recovery is not None]
    assert any(each.kill for each in recoveries) and any(each.rules for each in recoveries)


def status_and_end(rule: Rule) -> tuple[int, str]:
    lasts = {None: "for good", OUTAGE_REQUESTS: "for long", CONTENDED_REQUESTS: "for long"}.get(rule.times, "once")
    return (rule.status if rule.action == "answer" else 0, lasts)


def test_a_weather_is_the_same_after_json() -> None:
    for number in range(100):
        weather = drawn(random.Random(number))
        assert Weather.from_json(weather.as_json()) == weather


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        ([], WeatherError, "weather: is no object"),
        ({"rain": 1}, WeatherError, "weather.rain: there is no such field"),
        ({"rules": {}}, WeatherError, "weather.rules: is no list"),
        ({"rules": [{"action": "explode"}]}, RuleError, "action"),
        ({"kill": {"moment": "before", "nth": 0}}, ValueError, "weather.kill.nth"),
        ({"recovery": {"rules": {}}}, WeatherError, "weather.recovery.rules: is no list"),
        ({"recovery": {"recovery": {}}}, WeatherError, "weather.recovery.recovery: a recovery that failed"),
    ],
)
def test_what_is_no_weather_is_refused_by_its_field(body: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Weather.from_json(body)


@pytest.mark.s3
def test_the_reference_holds_in_a_short_storm(place: Store) -> None:
    with bench_at(place, "reference") as bench:
        result = run_storm(bench, place, seed=1, operations=8)

    assert result.failure is None, result.failure
    assert result.operations >= 8 and result.weathers


# Mutant -> the steps, the last of them in its weather.
STORMS: dict[str, list[dict[str, Any]]] = {
    "lost-publish-is-a-conflict": [
        {
            **mutate(insert("Person", name="dan"), insert_edge("Knows", "ann", "bob")),
            "weather": {
                "rules": [
                    {"action": "cut", "roles": ["manifest version"], "verbs": ["PUT"]},
                    {"action": "answer", "status": 403, "roles": ["manifest version"], "verbs": ["HEAD"], "times": 5},
                ]
            },
        }
    ],
    "branch-create-lost-answer-is-an-error": [
        {**CREATE, "weather": {"rules": [{"action": "cut", "roles": ["manifest ref"], "verbs": ["PUT"]}]}}
    ],
    "recovery-breaks-down": [
        {
            **mutate(insert("Person", name="dan")),
            "weather": {"kill": {"moment": "before", "nth": 1, "request": "PUT manifest version", "occurrence": 1}},
        }
    ],
    "recovery-keeps-the-sidecar": [
        {
            **mutate(insert("Person", name="dan")),
            "weather": {"kill": {"moment": "before", "nth": 1, "request": "PUT manifest version", "occurrence": 1}},
        }
    ],
    "sidecar-failure-is-ignored": [
        {
            **mutate(insert("Person", name="dan")),
            "weather": {
                "rules": [{"action": "answer", "status": 403, "verbs": ["PUT"], "roles": ["sidecar"]}],
                "kill": {"moment": "before", "nth": 1, "request": "PUT manifest version", "occurrence": 1},
            },
        }
    ],
}


_BEFORE_PUBLISH: dict[str, Any] = {
    "moment": "before", "nth": 1, "request": "PUT manifest version", "occurrence": 1
}  # fmt: skip
_BEFORE_DISARM: dict[str, Any] = {"moment": "before", "nth": 1, "request": "DELETE sidecar", "occurrence": 1}
# What shows only in the audit rows, or in a recovery that dies: the weather of a mutation, and what it breaks.
RECOVERIES: dict[str, tuple[dict[str, Any], str]] = {
    "recovery-without-audit": ({"kill": _BEFORE_PUBLISH}, "REC-14"),
    "recovery-not-idempotent": ({"kill": _BEFORE_PUBLISH, "recovery": {"kill": _BEFORE_DISARM}}, "REC-05"),
    "finished-write-counts-as-rolled-back": ({"kill": {**_BEFORE_PUBLISH, "moment": "applied"}}, "REC-05"),
}
OPENS_LEAVE_A_NOTE = """
import os
from reference import driver
from reference.graph import Graph

right = Graph.open.__func__

def noting(cls, *given, **named):
    graph = right(cls, *given, **named)
    graph.store.objects.write("note.txt", os.urandom(4).hex())
    return graph

Graph.open = classmethod(noting)
driver.main()
"""


def play(engine: str, place: Store, steps: list[dict[str, Any]]) -> StormPlayer:
    with bench_at(place, engine) as bench:
        player = StormPlayer(bench, place, SCHEMA, seed=None)
        try:
            for step in [dict(PEOPLE), *steps]:
                player.play(step)
        finally:
            player.close()
    return player


@pytest.mark.s3
@pytest.mark.parametrize("mutant", STORMS)
def test_a_broken_engine_is_found_in_its_weather(place: Store, mutant: str) -> None:
    with pytest.raises(RequirementBroken):
        play(f"mutant:{mutant}", place, STORMS[mutant])


@pytest.mark.s3
@pytest.mark.parametrize("mutant", STORMS)
def test_the_reference_is_sound_in_the_same_weather(place: Store, mutant: str) -> None:
    player = play("reference", place, STORMS[mutant])

    assert sum(player.weathers.values()) >= 1


@pytest.mark.s3
@pytest.mark.parametrize("mutant", RECOVERIES)
def test_a_broken_recovery_is_found_by_what_it_leaves_and_says(place: Store, mutant: str) -> None:
    weather, broken = RECOVERIES[mutant]
    with pytest.raises(RequirementBroken) as found:
        play(f"mutant:{mutant}", place, [{**mutate(insert("Person", name="dan")), "weather": weather}])

    assert broken in found.value.ids


@pytest.mark.s3
def test_an_engine_that_writes_at_every_open_is_found_after_a_recovery(place: Store, tmp_path: Path) -> None:
    program = tmp_path / "engine.py"
    program.write_text(OPENS_LEAVE_A_NOTE, encoding="utf-8")
    weather = {"kill": _BEFORE_PUBLISH}
    with pytest.raises(RequirementBroken, match="a second open changes") as found:
        play(f"cmd:{sys.executable} {program}", place, [{**mutate(insert("Person", name="dan")), "weather": weather}])

    assert found.value.ids == ("REC-18", "REC-20")


@pytest.mark.s3
@pytest.mark.parametrize(
    "recovery",
    [
        {"kill": _BEFORE_DISARM},
        {"rules": [{"action": "answer", "status": 403, "verbs": ["PUT"], "roles": ["audit version"], "times": None}]},
        {"rules": [{"action": "answer", "status": 403, "verbs": ["LIST"], "times": None}]},
    ],
    ids=["killed before it disarms", "no audit row", "no listing"],
)
def test_a_recovery_that_fails_in_bad_weather_is_completed_in_calm_weather(place: Store, recovery: Any) -> None:
    weather = {"kill": _BEFORE_PUBLISH, "recovery": recovery}
    player = play("reference", place, [{**mutate(insert("Person", name="dan")), "weather": weather}])

    assert "the recovery ended unknown" in player.told


@pytest.mark.s3
def test_a_manifest_that_is_contended_for_long_is_no_hang(place: Store) -> None:
    taken = {"action": "answer", "status": 412, "verbs": ["PUT"], "roles": ["manifest version"]}
    weather = {"rules": [{**taken, "times": CONTENDED_REQUESTS}]}
    player = play("reference", place, [{**mutate(insert("Person", name="dan")), "weather": weather}])

    assert sum(player.endings.values()) == 1


@pytest.mark.s3
def test_a_load_that_must_be_refused_may_have_made_its_branch(place: Store) -> None:
    records = [{"type": "Person", "data": {"name": "dan", "nobody": 1}}]
    load = {"do": "load", "mode": "merge", "branch": "feature", "base": "main", "records": records}
    player = play("reference", place, [{**load, "weather": {"rules": [{"action": "delay", "seconds": 0.01}]}}])

    assert player.endings == {"refused": 1} and player.graph.model.branch_list() == ["feature", "main"]


@pytest.mark.s3
def test_opens_and_refreshes_have_weather_too(place: Store) -> None:
    lost = {"rules": [{"action": "refuse", "nth": 2}]}
    steps = [{"do": "open", "number": 1, "weather": lost}, {"do": "refresh", "handle": 1, "weather": lost}]
    player = play("reference", place, steps)

    assert sum(player.endings.values()) == 2


@pytest.mark.s3
def test_who_leaves_a_rollback_to_the_next_open_is_given_one(place: Store) -> None:
    """A conflict between two tables: a sidecar stays, and until a read-write open further writes are conflicts too."""
    between_tables = {"action": "answer", "status": 412, "verbs": ["PUT"], "roles": ["table version"], "nth": 2}
    player = play(
        lawful("leaves-rollback-to-the-next-open"),
        place,
        [
            {
                **mutate(insert("Person", name="dan"), insert("Company", name="dyno")),
                "weather": {"rules": [between_tables]},
            },
            dict(mutate(insert("Person", name="eli"), insert("Company", name="elks"))),
        ],
    )

    assert player.endings == {"refused": 1}, "the conflict that this is about did not happen"
    assert player.done["mutate"] == 1


@pytest.mark.s3
def test_an_engine_that_dies_in_a_recovery_leaves_a_failed_storm_and_not_a_broken_one(place: Store) -> None:
    with bench_at(place, "mutant:recovery-breaks-down") as bench:
        result = run_storm(bench, place, seed=1, operations=25, replays=1)

    assert result.failure is not None
    assert result.failure.ids == ("REC-18",) and "broke down" in result.failure.because
    assert make_trace(result.trace(), engine="mutant:recovery-breaks-down", store="moto", seed=1)["steps"]


@pytest.mark.s3
def test_a_lost_acknowledgement_of_a_publish_replays_from_its_trace() -> None:
    trace = read_trace(LOST_ACK)

    def run(engine: str) -> int:
        return replay(trace, engine=engine, store=None, timeout_seconds=120.0, console=Console(quiet=True))

    assert run("reference") == CONFORMS
    assert run(trace["engine"]) == FAILS, "and the engine that it was found on still breaks it"
