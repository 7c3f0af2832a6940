"""`touchstone replay` of a fault: the same steps, with the same thing going wrong between the engine and its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from conformance.judge import RequirementBroken
from conformance.model import Model, Refusal
from conformance.sequences.story import line_of
from conformance.traces import TraceError, check_trace
from failpoints.baseline import SetupFailed
from failpoints.cuts.cut import Cut, check_place
from failpoints.cuts.show import show_cell
from failpoints.cuts.traces import replay_cut
from failpoints.gate import Rule, RuleError
from failpoints.histories.history import rerun
from failpoints.histories.plan import Plan
from failpoints.histories.show import lines_of
from failpoints.pairs.pairs import Pair
from failpoints.pairs.schedule import Hold
from failpoints.pairs.sweep import check_pair, replay_pair
from failpoints.storms.player import StormPlayer
from failpoints.storms.weather import Weather
from failpoints.workshop import Bench, SweepBroken, workshop
from fixtures.stores.catalog import Store, running


def replay_fault(
    trace: Mapping[str, Any],
    *,
    engine: str,
    store: str,
    timeout_seconds: float,
    console: Console,
    peer: str | None = None,
) -> str:
    """Run a trace of a fault. Returns in words how it went where nothing was wrong; else `RequirementBroken`."""
    check_fault(trace)
    try:
        if trace["kind"] == "history":
            with running(store) as place:
                return _history(trace, engine, place, timeout_seconds, console)
        with workshop(engine, store, peer=peer, timeout_seconds=timeout_seconds) as (bench, place):
            return _REPLAYS[trace["kind"]](trace, bench, place, console)
    except SetupFailed as failed:
        raise SweepBroken(str(failed)) from failed


def check_fault(trace: Mapping[str, Any], where: str = "this trace") -> None:
    """Refuse what cannot be run, with the field named, before anything is started.

    The schema of traces knows the fields; whether their values are requests, weather or plans that there can be is
    found out by making them.
    """
    check_trace(trace, where)
    try:
        _compiled(trace["schema"], "trace.schema")
        _CHECKS[trace["kind"]](trace)
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from error


def _compiled(schema: str, field: str) -> None:
    if not schema.strip():
        raise ValueError(f"{field}: is empty, and a graph has at least one type")
    try:
        Model.from_source(schema)
    except Refusal as refusal:
        raise ValueError(f"{field}: is no schema: {refusal.message}") from refusal


def _check_cut(trace: Mapping[str, Any]) -> None:
    for name, body in trace["fault"].items():
        cut = Cut.from_json(body, f"trace.fault.{name}")
        check_place(cut, f"trace.fault.{name}")
    if any(step["do"] == "init" for step in trace["steps"]) and len(trace["steps"]) > 1:
        raise ValueError("trace.steps: a cut of an init has no other step")


def _check_pair(trace: Mapping[str, Any]) -> None:
    fault = trace["fault"]
    check_pair(fault)
    Pair.from_json({**fault, "schema": trace["schema"], "setup": trace["steps"]})
    _check_rule(Hold(**fault["hold"]).rule, "trace.fault.hold")
    if "crash_before" in fault:
        role, nth = fault["crash_before"]
        _check_rule(lambda owner: Rule("hold", owner=owner, roles=(role,), nth=nth), "trace.fault.crash_before")


def _check_rule(rule: Callable[[str], Rule], field: str) -> None:
    """A rule is made of the fields of something else: what it objects to is named as that calls it."""
    try:
        rule("anybody")
    except RuleError as error:
        raise ValueError(f"{field}.{error.field.removesuffix('s')}: {error.why}") from error


def _check_storm(trace: Mapping[str, Any]) -> None:
    for number, step in enumerate(trace["steps"]):
        Weather.from_json(step.get("weather", {}), f"trace.steps[{number}].weather")


def _check_history(trace: Mapping[str, Any]) -> None:
    plan = Plan.from_json(trace["fault"]["plan"])
    _compiled(plan.schema, "trace.fault.plan.schema")
    asked: set[str] = set()
    for name, calls in (("opening", plan.opening), ("calls", plan.calls)):
        for number, call in enumerate(calls):
            if call.actor in asked:
                because = f"'{call.actor}' asks a second time, and a commit says by its actor which call made it"
                raise ValueError(f"trace.fault.plan.{name}[{number}].actor: {because}")
            asked.add(call.actor)
    for number, call in enumerate(plan.calls):
        if not 0 <= call.process < plan.processes:
            raise ValueError(f"trace.fault.plan.calls[{number}].process: there are {plan.processes} processes, from 0")


def _cut(trace: Mapping[str, Any], bench: Bench, store: Store, console: Console) -> str:
    result = replay_cut(trace, bench, store)
    if result.wrong is not None:
        raise RequirementBroken(*result.wrong)
    show_cell(result, console)
    if not result.reached:
        raise SweepBroken(f"the request never came that the trace cuts: {result.cut}")
    return f"cut {result.cut}, the graph is in its {result.world} state"


def _pair(trace: Mapping[str, Any], bench: Bench, store: Store, console: Console) -> str:
    result = replay_pair(trace, bench, store)
    if not result.reached:
        raise SweepBroken(f"the request never came that the trace holds: {result.hold}")
    if result.verdict == "wrong":
        raise RequirementBroken(result.ids, result.because)
    return f"held {result.hold}: {result.outcome}" + (f", a known gap: {result.gap}" if result.gap else "")


def _storm(trace: Mapping[str, Any], bench: Bench, store: Store, console: Console) -> str:
    player = StormPlayer(bench, store, trace["schema"], seed=None)
    try:
        for number, step in enumerate(trace["steps"], 1):
            console.print(f"{number:>3}. {escape(line_of(step))}", highlight=False, soft_wrap=True)
            player.play(step)
    finally:
        player.close()
    endings = ", ".join(f"{kind} {number}" for kind, number in sorted(player.endings.items()))
    return f"{len(trace['steps'])} steps, and nothing was broken" + (f"; in bad weather: {endings}" if endings else "")


def _history(trace: Mapping[str, Any], engine: str, store: Store, timeout_seconds: float, console: Console) -> str:
    result = rerun(trace, engine, store, console=console, timeout=timeout_seconds)
    if not result.holds:
        usual = "who comes first is not part of a plan, so another run may break something else"
        raise RequirementBroken(result.ids, "\n".join([*lines_of(result)[1:], f"({usual})"]))
    return "; ".join(lines_of(result))


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "cut": _check_cut,
    "pair": _check_pair,
    "storm": _check_storm,
    "history": _check_history,
}
_REPLAYS: Mapping[str, Callable[[Mapping[str, Any], Bench, Store, Console], str]] = {
    "cut": _cut,
    "pair": _pair,
    "storm": _storm,
}
