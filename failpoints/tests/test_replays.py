"""Traces of faults: what the kit writes can be read again, and what nobody can run is refused by its field.

Refused means before anything is started, as a mistake of whoever gave the trace. A trace that breaks down on its way
says nothing of an engine, and must not look as if a requirement were broken.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conformance.cli import app
from conformance.runner.verdict import COULD_NOT_RUN
from conformance.traces import TraceError, make_trace, read_trace, write_trace
from failpoints import replays
from failpoints.cuts.cut import Cut
from failpoints.gate import GateTimeout
from failpoints.histories.plan import PROFILES, make_plan
from failpoints.pairs.pairs import PAIRS
from failpoints.pairs.schedule import Hold
from failpoints.storms.weather import drawn
from failpoints.writers import SCHEMA, WRITERS, insert, mutate
from fixtures.forge import ForgeError

USAGE = 2
PLAN = make_plan(processes=2, writes=1, seed=0).as_json()
CALL = {"process": 0, "number": 0, "actor": "a", "step": {"do": "optimize"}}
CUT = {"moment": "before", "nth": 1, "request": "PUT sidecar", "occurrence": 1}
HOLD = {"ordinal": 1, "verb": "PUT", "role": "sidecar", "nth": 1}
LANES = {"first": [{"do": "open"}], "second": [{"do": "open"}], "both": True, "follow": []}
PAIR = {"name": "x", "sentence": "x", **LANES, "held": "first", "hold": HOLD}
INSERT = {"do": "mutate", "statements": [{"op": "insert", "type": "Person", "data": {"name": "zoe"}}]}


def trace(kind: str, fault: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    body = {"test": "t", "broke": [], "operations": [], "schema": SCHEMA, "steps": [INSERT], "kind": kind, **fields}
    return {**body, "fault": fault} if fault is not None else body


def read(tmp_path: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    """What is read of a trace that the kit writes."""
    path = tmp_path / "trace.json"
    write_trace(path, found, engine="reference", store="moto", seed=0)
    return read_trace(path)


# -- sound -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_cut_of_every_writer_can_be_read(tmp_path: Path, name: str) -> None:
    writer = WRITERS[name]
    for cut in (Cut.from_json(CUT), Cut("ack"), Cut("pre_ack", 3, "PUT sidecar", 1)):
        read(tmp_path, trace("cut", {"cut": cut.as_json(), "second": CUT}, steps=[*writer.setup, writer.step]))


@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_can_be_read(tmp_path: Path, name: str) -> None:
    lanes = PAIRS[name].as_json()
    schema, setup = lanes.pop("schema"), lanes.pop("setup")
    hold = Hold(3, "PUT", "table version", 1, "after", "nodes/40d76f1f51639ec0").as_json()
    fault = {**lanes, "held": "second", "hold": hold, "endings": {"first": ["acknowledged"]}, "gap": None}
    read(tmp_path, trace("pair", fault, schema=schema, steps=setup))


@pytest.mark.parametrize(
    "crash", [INSERT, [INSERT, {"do": "branch_delete", "name": "feature"}]], ids=["one", "several"]
)
def test_somebody_may_have_died_in_one_step_or_in_the_last_of_several(tmp_path: Path, crash: Any) -> None:
    read(tmp_path, trace("pair", {**PAIR, "crash": crash, "crash_before": ["manifest version", 1]}))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_history_of_every_profile_can_be_read(tmp_path: Path, profile: str) -> None:
    plan = make_plan(processes=3, writes=30, seed=1, profile=profile, kill_every=3)
    steps = [dict(call.step) for call in plan.opening]
    fault = {"plan": plan.as_json(), "reopen": False, "history": {}}
    read(tmp_path, trace("history", fault, schema=plan.schema, steps=steps))


def test_every_weather_can_be_read(tmp_path: Path) -> None:
    weathers = [drawn(random.Random(number)).as_json() for number in range(100)]
    read(tmp_path, trace("storm", steps=[{**INSERT, "weather": weather} for weather in weathers]))


# -- spoilt ------------------------------------------------------------------------------------------------------------


def weather(**fields: Any) -> dict[str, Any]:
    return trace("storm", steps=[{**INSERT, "weather": fields}])


def call(**fields: Any) -> dict[str, Any]:
    return {**PLAN, "calls": [{**CALL, **fields}]}


def asked_twice() -> dict[str, Any]:
    return {**PLAN, "calls": [CALL, {**CALL, "process": 1}]}


SPOILT: dict[str, tuple[dict[str, Any], str]] = {
    # The lanes of a pair, and who died before them.
    "first[0]": (trace("pair", {**PAIR, "first": [5]}), "5 does not fit"),
    "first": (trace("pair", {**PAIR, "first": []}), "minItems is 1"),
    "first[0].do": (trace("pair", {**PAIR, "first": [{"do": "mutte"}]}), '"mutte" is none of load, '),
    "second[0].do": (trace("pair", {**PAIR, "second": [{}]}), "is missing"),
    "second[0].schema": (trace("pair", {**PAIR, "second": [{"do": "init"}]}), "is missing"),
    "follow[0].do": (trace("pair", {**PAIR, "follow": [{"do": "open"}]}), '"open" is none of load, '),
    "crash": (trace("pair", {**PAIR, "crash": 5}), "5 does not fit"),
    "crash_before[1]": (trace("pair", {**PAIR, "crash_before": ["sidecar", 0]}), "minimum is 1"),
    "crash_before.role": (trace("pair", {**PAIR, "crash_before": ["nonsense", 1]}), "there is no 'nonsense'"),
    "held": (trace("pair", {**PAIR, "held": "third"}), "is none of first, second"),
    "hold.verb": (trace("pair", {**PAIR, "hold": {**HOLD, "verb": "GRAB"}}), "there is no 'GRAB'"),
    "hold.role": (trace("pair", {**PAIR, "hold": {**HOLD, "role": "banana"}}), "there is no 'banana'"),
    "hold.when": (trace("pair", {**PAIR, "hold": {**HOLD, "when": "later"}}), "is none of before, after"),
    "hold.nth": (trace("pair", {**PAIR, "hold": {**HOLD, "nth": True}}), "true does not fit"),
    "hold.speed": (trace("pair", {**PAIR, "hold": {**HOLD, "speed": 1}}), "there is no such field"),
    # The plan of a history.
    "plan": (trace("history", {}, steps=[]), "is missing"),
    "plan.seed": (trace("history", {"plan": {**PLAN, "seed": None}}, steps=[]), "null does not fit"),
    "plan.processes": (trace("history", {"plan": {**PLAN, "processes": 0}}, steps=[]), "minimum is 1"),
    "plan.schema": (trace("history", {"plan": {**PLAN, "schema": "node {"}}, steps=[]), "is no schema"),
    "plan.calls[0].step": (trace("history", {"plan": call(step=5)}, steps=[]), "5 does not fit"),
    "plan.calls[0].step.do": (trace("history", {"plan": call(step={"do": "open"})}, steps=[]), "is none of load, "),
    "plan.calls[0].step.target": (
        trace("history", {"plan": call(step={"do": "merge", "source": "x"})}, steps=[]),
        "is missing",
    ),
    "plan.calls[0].kill_at": (trace("history", {"plan": call(kill_at="soon")}, steps=[]), '"soon" does not fit'),
    "plan.calls[0].process": (trace("history", {"plan": call(process=2)}, steps=[]), "there are 2 processes"),
    "plan.calls[1].actor": (trace("history", {"plan": asked_twice()}, steps=[]), "'a' asks a second time"),
    # Cuts.
    "cut": (trace("cut", {}), "is missing"),
    "cut.moment": (trace("cut", {"cut": {**CUT, "moment": "soon"}}), "is none of before, applied, "),
    "cut.nth": (trace("cut", {"cut": {**CUT, "nth": 0}}), "is not the number of a request"),
    "cut.request": (trace("cut", {"cut": {**CUT, "request": "gibberish"}}), "there is no 'gibberish'"),
    "second.request": (trace("cut", {"cut": CUT, "second": {**CUT, "request": "PUT banana"}}), "no 'banana'"),
    # Numbers that nothing can count to, and ones that are not whole.
    "hold.ordinal": (trace("pair", {**PAIR, "hold": {**HOLD, "ordinal": 10**400}}), "type is"),
    "plan.processes ": (trace("history", {"plan": {**PLAN, "processes": 10**400}}, steps=[]), "type is"),
    "plan.writes": (trace("history", {"plan": {**PLAN, "writes": 2.0}}, steps=[]), "type is"),
    "plan.calls[0].kill_at ": (trace("history", {"plan": call(kill_at=10**400)}, steps=[]), "type is"),
    "plan.calls[0].number": (trace("history", {"plan": call(number=math.inf)}, steps=[]), "type is"),
    "cut.occurrence": (trace("cut", {"cut": {**CUT, "occurrence": 10**400}}), "type is"),
    "thrid": (trace("cut", {"cut": CUT, "thrid": {}}), "there is no such field"),
}
SPOILT_STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "steps": (trace("cut", {"cut": CUT}, steps=[]), "minItems is 1"),
    "steps[0].do": (trace("cut", {"cut": CUT}, steps=[{"do": "time_travel"}]), "is none of load, "),
    "steps[0].statements": (trace("cut", {"cut": CUT}, steps=[{"do": "mutate"}]), "is missing"),
    "steps[0].source": (trace("storm", steps=[{"do": "merge"}]), "is missing"),
    "steps[0].weather": (trace("cut", {"cut": CUT}, steps=[{**INSERT, "weather": {}}]), "no such field in a trace of"),
    "steps[0].weather.rules[0].action": (weather(rules=[{"action": "hold"}]), "nobody would release"),
    "steps[0].weather.rules[0].nth": (weather(rules=[{"action": "cut", "nth": 0}]), "must be at least 1"),
    "steps[0].weather.rules[0].nth ": (weather(rules=[{"action": "cut", "nth": 10**400}]), "must be at most"),
    "steps[0].weather.rules[0].seconds": (
        weather(rules=[{"action": "delay", "seconds": 10**400}]),
        "must be a time of at most 3600 seconds",
    ),
    "steps[0].weather.rules[0].seconds ": (weather(rules=[{"action": "delay", "seconds": math.inf}]), "must be a time"),
    "steps[0].handle": (trace("storm", steps=[{**INSERT, "handle": 10**400}]), "type is"),
    "steps[0].weather.kill.request": (weather(kill={**CUT, "request": "gibberish"}), "there is no 'gibberish'"),
    "steps[0].weather.kill.moment": (weather(kill={**CUT, "moment": "lost"}), "killed before or applied"),
    "schema": (trace("storm", schema="node {"), "is no schema"),
    "schema ": (trace("storm", schema=""), "is empty"),
    "fault": (trace("storm", {}), "no such field in a trace of this kind"),
}
ALL_SPOILT = {**{f"fault.{field}": found for field, found in SPOILT.items()}, **SPOILT_STEPS}


@pytest.mark.parametrize("field", ALL_SPOILT)
def test_what_cannot_be_run_is_refused_by_its_field(tmp_path: Path, field: str) -> None:
    spoilt, words = ALL_SPOILT[field]
    path = tmp_path / "trace.json"
    sound = make_trace(trace("storm"), engine="reference", store="moto", seed=0)
    path.write_text(json.dumps({**sound, **spoilt}), encoding="utf-8")

    with pytest.raises(TraceError) as refused:
        read_trace(path)

    assert f"trace.{field.strip()}: " in str(refused.value) and words in str(refused.value), str(refused.value)
    assert "trace.json: " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"seed": ' + "9" * 5000 + "}", "is not JSON"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 100 levels"),
        ("[" * 500 + "]" * 500, "nested deeper than 100 levels"),
        ('{"operations": ' + '{"a": ' * 200 + "1" + "}" * 201, "nested deeper than 100 levels"),
    ],
    ids=["digits", "lists", "some lists", "objects"],
)
def test_what_no_reader_of_json_can_read_is_refused_by_its_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)

    for command in (["replay", str(path)], ["pin", str(path), "--into", str(tmp_path)]):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "250"})
        assert done.exit_code == USAGE and words in " ".join(done.stderr.split()), done.output
        assert "trace.json" in done.stderr


def test_a_spoilt_trace_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    body = make_trace(trace("pair", PAIR), engine="reference", store="moto", seed=0)
    path.write_text(json.dumps({**body, "fault": {**PAIR, "hold": {**HOLD, "role": "banana"}}}), encoding="utf-8")

    for command in (["replay", str(path)], ["pin", str(path), "--into", str(tmp_path)]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == USAGE and "trace.fault.hold.role" in done.stderr, done.output


@pytest.mark.parametrize("error", [GateTimeout("a request was waited for"), ForgeError("the store did not answer")])
def test_what_breaks_down_on_its_way_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def breaks_down(*_: Any, **__: Any) -> str:
        raise error

    path = tmp_path / "trace.json"
    body = make_trace(trace("pair", PAIR), engine="reference", store="moto", seed=0)
    path.write_text(json.dumps(body), encoding="utf-8")
    monkeypatch.setattr(replays, "replay_fault", breaks_down)

    done = CliRunner().invoke(app, ["replay", str(path)])

    assert done.exit_code == COULD_NOT_RUN and str(error) in done.output


def test_a_store_without_requests_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(make_trace(trace("pair", PAIR), engine="reference", store="moto", seed=0)))

    done = CliRunner().invoke(app, ["replay", str(path), "--store", "local"])

    assert done.exit_code == USAGE and "give --store moto" in done.stderr


def test_an_engines_words_lose_their_secrets_on_the_way_into_a_trace_and_steps_stay(tmp_path: Path) -> None:
    said = "GET http://ann:hush@h/b?X-Amz-Credential=hush&X-Amz-Signature=hush&x=1 failed; Authorization: AWS4 hush"
    step = mutate(insert("Person", name="token=mine"))
    plan = {**PLAN, "opening": [], "calls": []}
    history = {"outcomes": [{"message": said}]}
    found = trace("history", {"plan": plan, "history": history}, steps=[step], because=said)
    found["operations"] = [{"op": "call", "args": {}, "answered": said}]

    body = read(tmp_path, found)

    assert "hush" not in (tmp_path / "trace.json").read_text()
    assert body["steps"] == [step] and "x=1 failed" in body["because"]
