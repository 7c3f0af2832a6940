"""Rules as values: what they refuse, and their way through JSON."""

from __future__ import annotations

from typing import Any

import pytest

from failpoints.gate import ACTIONS, GateError, Rule, RuleError


@pytest.mark.parametrize(
    "rule",
    [
        Rule("refuse"),
        Rule("hold", when="after", owner="a", durable=True, nth=3, times=None),
        Rule("answer", status=412, verbs=("PUT", "COPY"), roles=("manifest version",), tables=("__manifest",), times=2),
        Rule("delay", seconds=0.5, durable=False),
        Rule("throttle", bytes_per_second=1000),
        Rule("ignore_conditions", times=7),
    ],
)
def test_a_rule_survives_json(rule: Rule) -> None:
    assert Rule.from_json(rule.as_json()) == rule


def test_json_leaves_out_what_is_usual() -> None:
    assert Rule("cut").as_json() == {"action": "cut"}
    assert Rule("cut", verbs=("PUT",), times=None).as_json() == {"action": "cut", "verbs": ["PUT"], "times": None}


def test_there_is_a_rule_for_each_action() -> None:
    needs: dict[str, dict[str, Any]] = {"throttle": {"bytes_per_second": 1}, "delay": {"seconds": 1}}
    assert [Rule(action, **needs.get(action, {})).action for action in ACTIONS] == list(ACTIONS)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"action": "explode"}, "action", "there is no 'explode'"),
        ({"action": 7}, "action", "must be a name"),
        ({}, "action", "is missing"),
        ({"action": "hold", "when": "later"}, "when", "there is no 'later'"),
        ({"action": "cut", "when": "after"}, "when", "only a hold"),
        ({"action": "cut", "owner": 1}, "owner", "must be a name"),
        ({"action": "cut", "verbs": "PUT"}, "verbs", "must be a list"),
        ({"action": "cut", "verbs": ["PUSH"]}, "verbs", "there is no 'PUSH'"),
        ({"action": "cut", "verbs": [1]}, "verbs", "must hold names"),
        ({"action": "cut", "roles": ["manifest"]}, "roles", "there is no 'manifest'"),
        ({"action": "cut", "tables": [None]}, "tables", "must hold names, not null"),
        ({"action": "cut", "durable": 1}, "durable", "must be true or false"),
        ({"action": "cut", "nth": 0}, "nth", "must be at least 1"),
        ({"action": "cut", "nth": True}, "nth", "must be a whole number"),
        ({"action": "cut", "nth": 1.0}, "nth", "must be a whole number"),
        ({"action": "cut", "times": 0}, "times", "must be at least 1"),
        ({"action": "answer", "status": 99}, "status", "must be at least 200"),
        ({"action": "answer", "status": 600}, "status", "must be at most 599"),
        ({"action": "answer", "status": 199}, "status", "must be at least 200"),
        ({"action": "cut", "status": 503}, "status", "only an answer has it"),
        ({"action": "hold", "seconds": 1}, "seconds", "only a delay has it"),
        ({"action": "delay", "seconds": 1, "bytes_per_second": 1}, "bytes_per_second", "only a throttle has it"),
        ({"action": "delay"}, "seconds", "a delay needs more than 0"),
        ({"action": "answer", "status": "503"}, "status", "must be a whole number"),
        ({"action": "delay", "seconds": -1}, "seconds", "must be a time"),
        ({"action": "delay", "seconds": float("nan")}, "seconds", "must be a time"),
        ({"action": "delay", "seconds": "1"}, "seconds", "must be a number"),
        # Numbers that no float, no clock and no message could hold.
        ({"action": "delay", "seconds": 10**400}, "seconds", "must be a time of at most 3600 seconds"),
        ({"action": "delay", "seconds": float("inf")}, "seconds", "must be a time of at most 3600 seconds"),
        ({"action": "cut", "nth": 10**400}, "nth", "must be at most 1000000000"),
        ({"action": "cut", "nth": -(10**5000)}, "nth", "must be at least 1"),
        ({"action": "cut", "times": 10**400}, "times", "must be at most 1000000000"),
        ({"action": "answer", "status": 10**5000}, "status", "must be at most 599"),
        ({"action": "throttle", "bytes_per_second": 10**400}, "bytes_per_second", "must be at most 1000000000"),
        ({"action": "throttle"}, "bytes_per_second", "at least 1"),
        ({"action": "throttle", "bytes_per_second": -1}, "bytes_per_second", "must be at least 0"),
        ({"action": "cut", "nht": 2}, "nht", "is no field of a rule"),
        ("cut", "", "must be an object"),
        (None, "", "must be an object, not null"),
    ],
)
def test_a_bad_rule_is_refused_by_its_field(body: Any, field: str, words: str) -> None:
    with pytest.raises(RuleError) as refused:
        Rule.from_json(body, where="rules[2]")
    assert refused.value.field == field
    assert str(refused.value).startswith(f"rules[2].{field}" if field else "rules[2]:")
    assert words in str(refused.value)


def test_a_refused_rule_is_a_bad_value_and_an_error_of_the_gate() -> None:
    assert set(RuleError.__mro__) >= {ValueError, GateError}


def test_a_rule_made_in_code_is_checked_too() -> None:
    with pytest.raises(RuleError, match="rule.nth"):
        Rule("cut", nth=0)
    with pytest.raises(RuleError, match="rule.status: only an answer"):
        Rule("cut", status=404)
    with pytest.raises(RuleError, match="rule.verbs: must be a tuple"):
        Rule("cut", verbs=["PUT"])  # type: ignore[arg-type]
