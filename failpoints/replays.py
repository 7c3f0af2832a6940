"""`touchstone replay` of a fault: the same steps, with the same thing going wrong between the engine and its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from conformance.judge import RequirementBroken
from conformance.sequences.story import line_of
from conformance.traces import TraceError
from failpoints.baseline import SetupFailed
from failpoints.cuts.cut import Cut
from failpoints.cuts.show import show_cell
from failpoints.cuts.traces import replay_cut
from failpoints.histories.history import rerun
from failpoints.histories.plan import Plan
from failpoints.histories.show import lines_of
from failpoints.pairs.sweep import check_pair, replay_pair
from failpoints.steps import StepError
from failpoints.storms.player import STORMY, StormPlayer
from failpoints.storms.weather import Weather
from failpoints.workshop import Bench, SweepBroken, workshop
from fixtures.stores.catalog import Store, running

# The steps of a storm, and of everything else.
STEPS = (*STORMY, "init", "open", "refresh", "repair", "time_travel", "diff", "import")


def replay_fault(trace: Mapping[str, Any], *, engine: str, store: str, timeout_seconds: float, console: Console) -> str:
    """Run a trace of a fault. Returns in words how it went where nothing was wrong; else `RequirementBroken`."""
    check_fault(trace)
    try:
        if trace["kind"] == "history":
            with running(store) as place:
                return _history(trace, engine, place, timeout_seconds, console)
        with workshop(engine, store, timeout_seconds=timeout_seconds) as (bench, place):
            return _REPLAYS[trace["kind"]](trace, bench, place, console)
    except SetupFailed as failed:
        raise SweepBroken(str(failed)) from failed


def check_fault(trace: Mapping[str, Any]) -> None:
    """Refuse what cannot be run, with the field named, before anything is started."""
    try:
        for number, step in enumerate(trace["steps"]):
            if step["do"] not in STEPS:
                raise StepError(f"trace.steps[{number}].do: there is no step {step['do']!r}")
        fault = trace.get("fault", {})
        match trace["kind"]:
            case "cut":
                if not trace["steps"]:
                    raise StepError("trace.steps: is empty; the last step of a cut is the one that is cut")
                Cut.from_json(fault.get("cut"), "trace.fault.cut")
                if fault.get("second") is not None:
                    Cut.from_json(fault["second"], "trace.fault.second")
            case "pair":
                check_pair(fault)
            case "storm":
                for number, step in enumerate(trace["steps"]):
                    Weather.from_json(step.get("weather", {}), f"trace.steps[{number}].weather")
            case "history":
                Plan.from_json(fault.get("plan"))
    except ValueError as error:
        raise TraceError(f"this trace cannot be replayed: {error}") from error


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


_REPLAYS: Mapping[str, Callable[[Mapping[str, Any], Bench, Store, Console], str]] = {
    "cut": _cut,
    "pair": _pair,
    "storm": _storm,
}
