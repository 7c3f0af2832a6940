"""Performs steps in bad weather: the engine is asked while the gate misbehaves, and judged when it is calm again.

A step that the weather leaves open is settled by the read-write open of whoever comes next: the same process, or a new
one if the weather killed it. So is one that was answered and has left a sidecar: a writer that fails after it moved a
table may leave that to the next read-write open [REC-07, PUB-21], and until then it refuses further writes. After that
open no sidecar is left, one audit row tells of each operation, and a second open finds nothing to do. Sometimes the
first open has weather of its own: then the recovery fails or dies, and the calm one after it completes it. Steps that
only read are done in calm weather, as in any sequence.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import Handle, RequirementBroken
from conformance.judge.blame import operation_of
from conformance.model import Model
from conformance.sequences.player import MAIN, NEEDS, Player, Step
from failpoints.audit_rows import judge_rows
from failpoints.drivers import DIED, Driver, killed_when_held
from failpoints.gate import Rule
from failpoints.oracle import judge_second_open
from failpoints.scene import Before, look
from failpoints.steps import MAINTENANCE, branch_of, meaning_or_none
from failpoints.storms.weather import Weather, drawn
from failpoints.workshop import Bench
from failpoints.world import ACKNOWLEDGED, REFUSED, UNKNOWN, Ending, World, attempt, the_one, worlds_after
from fixtures.forge import Forge
from fixtures.stores.catalog import Store

STORMY: Final = (
    "load", "mutate", "merge", "branch_create", "branch_delete", "schema_apply", "optimize", "ensure_indices",
    "cleanup", "open", "refresh",
)  # fmt: skip
# No step makes so many commits: how many one of these makes, the engine decides.
_UNCOUNTED: Final = 1 << 60


class StormPlayer(Player):
    """One graph in bad weather. A step that has its weather with it gets that, another what the seed draws."""

    def __init__(self, bench: Bench, store: Store, schema: str, *, seed: int | None) -> None:
        self._bench = bench
        self._seed = seed
        self._driver: Driver = bench.drivers.take()
        # What has met a request, and whether there was any that could have.
        self.weathers: Counter[str] = Counter()
        self._was_bad = self._was_met = False
        self.endings: Counter[str] = Counter()
        # The weather of the last step and how it ended, in words.
        self.told = ""
        super().__init__(self._driver.engine, store.fresh_root, store.env, schema)

    def close(self) -> None:
        """Give the driver back."""
        self._bench.drivers.done(self._driver)

    def play(self, step: Step) -> None:
        try:
            self._play_in_weather(step)
        except AdapterFault as fault:
            if fault.reason not in DIED or not self._was_bad:
                raise
            # The weather of an earlier step is over, and an engine that it left so that it dies has not survived it.
            because = f"after bad weather the engine broke down in {step['do']}: {fault.message}"
            raise RequirementBroken(("PUB-21",), because) from fault

    def _play_in_weather(self, step: Step) -> None:
        weather = self._weather_of(step)
        self.told = ""
        passes = weather.is_calm or step.get("read_only") or not self.engine.supports(*NEEDS.get(step["do"], ()))
        if step["do"] not in STORMY or passes:
            super().play({name: value for name, value in step.items() if name != "weather"})
            return
        self.steps.append({**step, "weather": weather.as_json()})
        asked = {name: value for name, value in step.items() if name not in ("handle", "weather")}
        if asked["do"] == "ensure_indices" and branch_of(asked) not in self.graph.model.branch_list():
            return
        handle = self._handles[self._writer(step.get("handle", 0))]
        if asked["do"] == "open":
            asked = {"do": "open", "uri": self.graph.uri}
        before = self._graph_before(handle, asked)
        ending, killed = self._in(weather, lambda: attempt(handle, asked))
        self.endings[ending.kind] += 1
        self.told = f"{weather}{'' if self._was_met else ' (met no request)'}: {ending}"
        self._settle(before, handle, ending, killed, weather.recovery)
        if step["do"] == "open":
            self._do_open(step["number"])

    def _graph_before(self, handle: Handle, step: Step) -> Before:
        """The graph before a step, for what the audit must say if the step leaves something to recover."""
        before = Before.of(handle, self.graph.uri, self._env, self.graph.model, step)
        if step["do"] in MAINTENANCE:
            return replace(before, commits=_UNCOUNTED)
        base = step.get("base")
        if base is not None and before.branch not in before.heads and base in before.heads:
            return replace(before, heads={**before.heads, before.branch: before.heads[base]})
        return before

    def _weather_of(self, step: Step) -> Weather:
        if "weather" in step:
            return Weather.from_json(step["weather"])
        if self._seed is None:
            return Weather()
        return drawn(random.Random(f"{self._seed}/{len(self.steps)}"))

    # -- bad weather ---------------------------------------------------------------------------------------------------

    def _in(self, weather: Weather, work: Callable[[], Ending]) -> tuple[Ending, bool]:
        """Work while the weather lasts; how it ended, and whether the process was killed."""
        gate, owner = self._bench.gate, self._driver.owner
        armed = [gate.arm(_owned(rule, owner)) for rule in weather.rules]
        self._was_bad = True
        try:
            if weather.kill is None:
                return work(), False
            held = gate.arm(weather.kill.rule(owner, "hold", "before" if weather.kill.moment == "before" else "after"))
            armed.append(held)
            ending, killed = killed_when_held(self._driver, held, work)
            self.weathers["kill"] += killed
            return ending, killed
        finally:
            for each in armed:
                each.disarm()
            for rule, each in zip(weather.rules, armed, strict=False):
                if each.hits:
                    self.weathers[f"{rule.action} {rule.status}" if rule.action == "answer" else rule.action] += 1
            self._was_met = any(each.hits for each in armed)

    # -- good weather again --------------------------------------------------------------------------------------------

    def _settle(self, before: Before, handle: Handle, ending: Ending, killed: bool, recovery: Weather | None) -> None:
        step, what = dict(before.step), f"{before.step['do']} in bad weather, which ended {ending}"
        if ending.broke and not killed:
            raise RequirementBroken(("PUB-21",), f"nobody killed the engine, and it broke down after {what}")
        self._ended(killed)
        scene = look(before) if killed or ending.kind == UNKNOWN or self._sidecars() else None
        if scene is not None:
            if recovery is not None:
                self._recover_in(recovery, what)
            handle = self._reopened(what)
        world = _world(handle, self.graph.model, step, ending, what)
        if scene is not None:
            judge_rows(handle, before, scene, world, what)
            handle = judge_second_open(self.engine, handle, self.graph.uri, self._env, f"after {what}")
            self._handles[0] = handle
        self.graph.model, self.graph.handle = world.model, handle
        self.refused = world.name != "new"
        if not self.refused:
            self.done[step["do"]] += 1
        self._remember(step)
        self._branches_made()
        self.graph.audit()

    def _ended(self, killed: bool) -> None:
        """When a step is over, so is everything that it has sent. A process that was killed has a successor."""
        self._bench.gate.settle(self._driver.owner)
        if killed:
            self._bench.drivers.done(self._driver)
            self._driver = self._bench.drivers.take()
            self.engine = self._driver.engine
            self._handles, self._read_only = {}, set()

    def _recover_in(self, weather: Weather, what: str) -> None:
        """An open that has something to recover, in bad weather: it may fail, and it may die, but not by itself."""
        ending, killed = self._in(weather, self._open_and_close)
        self.told = f"{self.told}; {weather}: the recovery ended {ending}"
        if ending.broke and not killed:
            because = f"nobody killed the engine, and it broke down in the recovery after {what}: {ending.error}"
            raise RequirementBroken(("REC-18",), because)
        self._ended(killed)

    def _open_and_close(self) -> Ending:
        try:
            self.engine.open(self.graph.uri).close()
        except EngineError as error:
            return Ending(UNKNOWN, error=str(error))
        except AdapterFault as fault:
            return Ending(UNKNOWN, error=fault.message, broke=True)
        return Ending(ACKNOWLEDGED)

    def _reopened(self, what: str) -> Handle:
        """A read-write open, which works and leaves nothing to recover."""
        try:
            handle = self.engine.open(self.graph.uri)
        except EngineError as error:
            raise RequirementBroken(("REC-18",), f"after {what} a read-write open is refused: {error}") from error
        except AdapterFault as fault:
            if fault.reason not in DIED:
                raise
            because = f"after {what} the engine broke down in a read-write open: {fault.message}"
            raise RequirementBroken(("REC-18",), because) from fault
        left = self._sidecars()
        if left:
            raise RequirementBroken(("REC-05",), f"after {what} and a read-write open there still is {left[0]}")
        return handle

    def _sidecars(self) -> list[str]:
        return list(Forge(self.graph.uri, dict(self._env)).sidecars())

    def _remember(self, step: dict[str, Any]) -> None:
        """What a step may have removed, nobody asks for any more."""
        if step["do"] == "schema_apply" and not self.refused:
            self.schema = step["source"]
            if step.get("allow_data_loss"):
                self._collected_before = self.graph.model.head(MAIN).number
        if step["do"] == "cleanup" or (step["do"] == "schema_apply" and step.get("allow_data_loss")):
            self._collected_before = max(commit.number for commit in self._newest()) + 1


def _world(handle: Handle, model: Model, step: Step, ending: Ending, what: str) -> World:
    """The world that the graph is in. A step that was refused and is there, whole, breaks PUB-23 and nothing else."""
    try:
        return the_one(handle, _worlds(model, step, ending), what, (operation_of(step["do"], step), "PUB-23"))
    except RequirementBroken as broken:
        if ending.kind == REFUSED and _is_one_of(handle, worlds_after(model, step, Ending(UNKNOWN)), what):
            raise RequirementBroken(("PUB-23",), broken.because) from broken
        raise


def _worlds(model: Model, step: Step, ending: Ending) -> list[World]:
    """The worlds after a step. A load whose records must be refused may have made its branch before [LOD-12]."""
    worlds = worlds_after(model, step, ending)
    there, branch, base = model.branch_list(), branch_of(step), step.get("base")
    if step["do"] == "load" and [each.name for each in worlds] == ["old"] and base in there and branch not in there:
        made = {"do": "branch_create", "name": branch, "source": base}
        return worlds if meaning_or_none(model, made) is None else [*worlds, World("half", model, made)]
    return worlds


def _is_one_of(handle: Handle, worlds: list[World], what: str) -> bool:
    try:
        the_one(handle, worlds, what, ("PUB-23",))
    except RequirementBroken:
        return False
    return True


def _owned(rule: Rule, owner: str) -> Rule:
    return Rule.from_json({**rule.as_json(), "owner": owner})
