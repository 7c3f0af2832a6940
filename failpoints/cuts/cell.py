"""One cell: put the baseline back, let a driver run its step, kill it at the cut, and have another one recover.

A second cut kills that other one as well, inside its recovery, and a third driver recovers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import RequirementBroken
from failpoints.baseline import Baseline
from failpoints.cuts.cut import Cut
from failpoints.drivers import Driver, killed_when_held, until_over
from failpoints.gate import Armed, Exchange, Gate, incomplete_uploads
from failpoints.oracle import Before, Scene, judge, look
from failpoints.workshop import Bench
from failpoints.world import ACKNOWLEDGED, UNKNOWN, Ending, attempt
from failpoints.writers import Writer
from fixtures.forge import Forge, Photo


@dataclass(frozen=True)
class CellResult:
    """What became of one cell. `wrong` is None, or the requirements that it broke and because of what."""

    writer: str
    cut: Cut
    second: Cut | None = None
    killed: bool = False
    # Whether the request that was to be cut came at all; of a double crash, the one of the recovery.
    reached: bool = True
    scene: str = ""
    world: str = ""
    kinds: tuple[str, ...] = ()
    uploads_left: int = 0
    wrong: tuple[tuple[str, ...], str] | None = None
    requests: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    seconds: float = 0.0

    @property
    def direction(self) -> str:
        """Where recovery went: forward, back, or nowhere because there was nothing to do."""
        if "RolledForward" in self.kinds:
            return "forward"
        return "back" if self.kinds else "-"


@dataclass
class Crashed:
    """A killed driver's graph: how its call ended, what is there, and how to get back to it."""

    ending: Ending
    killed: bool
    reached: bool
    durable: tuple[Exchange, ...]
    exchanges: tuple[Exchange, ...]
    photo: Photo | None = None
    scene: Scene | None = None


def crash(bench: Bench, work: Callable[[Driver], Ending], ready: Callable[[Driver], None], cut: Cut | None) -> Crashed:
    """Have a new driver get ready, then work, and kill it at the cut; without one it comes to its end and is ended."""
    driver = bench.drivers.take()
    armed: Armed | None = None
    try:
        ready(driver)
        mark = bench.gate.mark()
        armed = _armed(bench.gate, driver, cut)
        ending, killed = _run(bench.gate, driver, work, armed, cut)
    finally:
        bench.drivers.done(driver)
        if armed is not None:
            armed.disarm()
    bench.gate.settle(driver.owner)
    exchanges = bench.gate.exchanges(driver.owner, since=mark)
    reached = armed is None or armed.hits > 0
    durable = tuple(each for each in exchanges if each.durable)
    return Crashed(ending, killed, reached, durable, exchanges)


def _armed(gate: Gate, driver: Driver, cut: Cut | None) -> Armed | None:
    if cut is None or cut.moment == "ack" or cut.nth == 0:
        return None
    if cut.moment == "lost":
        return gate.arm(cut.rule(driver.owner, "cut"))
    return gate.arm(cut.rule(driver.owner, "hold", "before" if cut.moment == "before" else "after"))


def _run(
    gate: Gate, driver: Driver, work: Callable[[Driver], Ending], armed: Armed | None, cut: Cut | None
) -> tuple[Ending, bool]:
    """How the work ended for whoever asked, and whether the driver was killed in it, or after its answer."""
    if armed is None or cut is None or cut.moment == "lost":
        return work(driver), cut is not None and cut.moment != "lost"

    def hear() -> None:
        if cut.moment == "pre_ack":
            armed.release()
            until_over(gate, driver.owner)

    return killed_when_held(driver, armed, lambda: work(driver), first=hear)


def crash_writer(bench: Bench, baseline: Baseline, writer: Writer, cut: Cut | None) -> tuple[Crashed, Before]:
    """Put the baseline back, and have a driver die in the writer's step."""
    baseline.restore()
    found: list[Any] = []

    def ready(driver: Driver) -> None:
        handle = driver.engine.open(baseline.uri)
        found.append((handle, Before.of(handle, baseline.uri, baseline.env, baseline.model, writer.step)))

    def work(driver: Driver) -> Ending:
        return attempt(found[0][0], writer.step)

    crashed = crash(bench, work, ready, cut)
    before: Before = found[0][1]
    return crashed, before


def crash_recovery(bench: Bench, before: Before, photo: Photo, cut: Cut) -> Crashed:
    """Put a crashed graph back, and have the driver die that opens it."""
    Forge(before.uri, dict(before.env)).restore(photo)
    return crash(bench, lambda driver: _open(driver, before.uri), lambda driver: None, cut)


def _open(driver: Driver, uri: str) -> Ending:
    try:
        driver.engine.open(uri)
    except EngineError as error:
        return Ending(UNKNOWN, error=str(error))
    except AdapterFault as fault:
        return Ending(UNKNOWN, error=fault.message, broke=True)
    return Ending(ACKNOWLEDGED)


def judged(
    bench: Bench, writer: Writer, before: Before, crashed: Crashed, cut: Cut, began: float
) -> tuple[CellResult, tuple[Exchange, ...]]:
    """Have a new driver recover, and judge; also the durable requests of the recovery."""
    driver = bench.drivers.take()
    left = len(incomplete_uploads(crashed.exchanges))
    result = CellResult(writer.name, cut, killed=crashed.killed, reached=crashed.reached, uploads_left=left)
    recovery: tuple[Exchange, ...] = ()
    try:
        scene = crashed.scene or look(before)
        mark = bench.gate.mark()
        result = replace(result, scene=str(scene))
        what = f"{writer.name} was killed {cut}"
        if not crashed.killed:
            what = f"{writer.name} ended {crashed.ending} {cut}"
        if crashed.ending.broke and not crashed.killed:
            because = f"nobody killed {writer.name}, and it broke down {cut}: {crashed.ending.error}"
            raise RequirementBroken(("PUB-21",), because)
        opened: list[int] = []
        outcome = judge(
            driver.engine, before, scene, crashed.ending, what, opened=lambda: opened.append(bench.gate.mark())
        )
        recovery = _durable_until(bench.gate.exchanges(driver.owner, since=mark), opened)
        result = replace(result, world=outcome.world.name, kinds=outcome.kinds)
    except RequirementBroken as broken:
        result = replace(result, wrong=(broken.ids, broken.because))
    except AdapterFault as fault:
        because = f"the driver that recovers broke down: {fault.message}"
        result = replace(result, wrong=(("REC-18",), because))
    finally:
        bench.drivers.done(driver)
    if result.wrong is not None:
        requests = (*crashed.exchanges, *bench.gate.exchanges(driver.owner))
        result = replace(result, requests=tuple(each.as_json() for each in requests))
    return replace(result, seconds=time.monotonic() - began), recovery


def _durable_until(exchanges: tuple[Exchange, ...], opened: list[int]) -> tuple[Exchange, ...]:
    end = opened[0] if opened else 0
    return tuple(each for each in exchanges if each.durable and each.number <= end)
