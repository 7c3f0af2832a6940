"""One cell: on the graph as it was, let a driver run its step, kill it at the cut, and have another one recover.

Between the two a third one reads, and only reads. A second cut stops the one that recovers as well, inside of its
recovery, and yet another recovers. Whatever an engine does in all this, a cell ends with a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.adapters import AdapterFault, EngineError
from conformance.judge import RequirementBroken
from failpoints.audit_rows import FORWARD
from failpoints.baseline import Baseline
from failpoints.cuts.cut import LISTING, LIVING, Cut, described, parts_of
from failpoints.drivers import Driver, killed_when_held, until_over
from failpoints.gate import WRITE_VERBS, Armed, Exchange, Gate, incomplete_uploads
from failpoints.gate.roles import MANIFEST, place_of
from failpoints.oracle import Before, Outcome, Scene, judge, judge_reader
from failpoints.steps import MAINTENANCE
from failpoints.workshop import Bench
from failpoints.world import (
    ACKNOWLEDGED,
    COMMITTING,
    UNKNOWN,
    UPKEEP,
    Ending,
    attempt,
    difference_of_rows,
    exports_of,
    worlds_after,
)
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
    def accuses(self) -> bool:
        return self.wrong is not None

    @property
    def direction(self) -> str:
        """Where recovery went: forward, back, or nowhere because there was nothing to do."""
        if "RolledForward" in self.kinds:
            return "forward"
        return "back" if self.kinds else "-"


@dataclass(frozen=True)
class Crashed:
    """What a driver did that was cut: how its call ended for whoever asked, and its requests.

    `shown` is every branch as the handle of a writer shows it that lives, right after its call; None where nobody
    asked, or where it answers no more.
    """

    ending: Ending
    killed: bool
    reached: bool
    durable: tuple[Exchange, ...]
    exchanges: tuple[Exchange, ...]
    shown: dict[str, str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Recovery:
    """The requests of an open that recovered."""

    exchanges: tuple[Exchange, ...] = ()

    @property
    def durable(self) -> tuple[Exchange, ...]:
        return tuple(each for each in self.exchanges if each.durable)


def crash(
    bench: Bench,
    work: Callable[[Driver], Ending],
    ready: Callable[[Driver], None],
    cut: Cut | None,
    *,
    peer: bool = False,
) -> Crashed:
    """Have a new driver get ready, then work, and kill it at the cut; without one it comes to its end and is ended."""
    drivers = bench.peers if peer else bench.drivers
    driver = drivers.take()
    armed: Armed | None = None
    try:
        ready(driver)
        mark = bench.gate.mark()
        armed = _armed(bench.gate, driver, cut)
        ending, killed = _run(bench.gate, driver, work, armed, cut)
    finally:
        drivers.done(driver)
        if armed is not None:
            armed.disarm()
    bench.gate.settle(driver.owner)
    exchanges = bench.gate.exchanges(driver.owner, since=mark)
    reached = armed is None or (armed.hits > 0 and (cut is None or cut.request != LISTING or _unlisted(exchanges)))
    durable = tuple(each for each in exchanges if each.durable)
    return Crashed(ending, killed, reached, durable, exchanges)


def _unlisted(exchanges: tuple[Exchange, ...]) -> bool:
    """Whether it was the listing of the sidecars that was refused, and was not asked for again at once."""
    asked = [each.verb == "LIST" and place_of(each.prefix).role == "sidecar" for each in exchanges]
    refused = [number for number, each in enumerate(exchanges) if each.outcome == "injected" and asked[number]]
    return bool(refused) and not any(asked[refused[0] + 1 : refused[0] + 2])


def _armed(gate: Gate, driver: Driver, cut: Cut | None) -> Armed | None:
    if cut is None or cut.moment == "ack" or cut.nth == 0:
        return None
    if cut.moment in LIVING:
        return gate.arm(cut.rule(driver.owner, "cut" if cut.moment == "lost" else "answer"))
    return gate.arm(cut.rule(driver.owner, "hold", "before" if cut.moment == "before" else "after"))


def _run(
    gate: Gate, driver: Driver, work: Callable[[Driver], Ending], armed: Armed | None, cut: Cut | None
) -> tuple[Ending, bool]:
    """How the work ended for whoever asked, and whether the driver was killed in it, or after its answer."""
    if armed is None or cut is None or cut.moment in LIVING:
        return work(driver), cut is not None and cut.moment not in LIVING

    def hear() -> None:
        if cut.moment == "pre_ack":
            armed.release()
            until_over(gate, driver.owner)

    return killed_when_held(driver, armed, lambda: work(driver), first=hear)


def crash_writer(bench: Bench, baseline: Baseline, writer: Writer, cut: Cut | None) -> tuple[Crashed, Before]:
    """Have a driver die in the writer's step; the baseline is as it was."""
    found: list[Any] = []

    def ready(driver: Driver) -> None:
        try:
            handle = driver.engine.open(baseline.uri)
            found.append((handle, Before.of(handle, baseline.uri, baseline.env, baseline.model, writer.step)))
        except (EngineError, AdapterFault) as error:
            because = f"the graph of {writer.name}, which is at rest, could not be opened and looked at: {error}"
            raise RequirementBroken(("PUB-21",), because) from error

    shown: list[dict[str, str]] = []

    def work(driver: Driver) -> Ending:
        ending = attempt(found[0][0], writer.step)
        if cut is not None and cut.moment in LIVING and not ending.broke:
            with suppress(EngineError, AdapterFault):  # Whether it still answers is not what is asked here.
                shown.append(exports_of(found[0][0]))
        return ending

    crashed = crash(bench, work, ready, cut)
    before: Before = found[0][1]
    return replace(crashed, shown=shown[0] if shown else None), before


def crash_recovery(bench: Bench, before: Before, photo: Photo, cut: Cut) -> Crashed:
    """Put a crashed graph back, and have the driver die that opens it."""
    Forge(before.uri, dict(before.env)).restore(photo)
    return crash(bench, lambda driver: _open(driver, before.uri), lambda driver: None, cut, peer=True)


def _open(driver: Driver, uri: str) -> Ending:
    try:
        driver.engine.open(uri)
    except EngineError as error:
        return Ending(UNKNOWN, error=str(error))
    except AdapterFault as fault:
        return Ending(UNKNOWN, error=fault.message, broke=True)
    return Ending(ACKNOWLEDGED)


def judged(
    bench: Bench,
    writer: Writer,
    before: Before,
    crashed: Crashed,
    scene: Scene,
    cut: Cut,
    began: float,
    *,
    second: Cut | None = None,
) -> tuple[CellResult, Recovery]:
    """Have one driver read and a new one recover, and judge; also the requests of the recovery.

    `second` is where a recovery was cut that was at the graph before.
    """
    left = len(incomplete_uploads(crashed.exchanges))
    result = CellResult(writer.name, cut, killed=crashed.killed, reached=crashed.reached, uploads_left=left)
    result = replace(result, scene=str(scene))
    what = f"{writer.name} was killed {cut}" if crashed.killed else f"{writer.name} ended {crashed.ending} {cut}"
    recovery = Recovery()
    owners: list[str] = []
    try:
        if crashed.ending.broke and not crashed.killed:
            because = f"nobody killed {writer.name}, and it broke down {cut}: {crashed.ending.error}"
            raise RequirementBroken(("PUB-21",), because)
        _judge_refused_request(before, scene, crashed, cut, what)
        is_refused = "failed" in (cut.moment, second and second.moment)
        allowed = {"recovering": second is not None, "may_be_locked": is_refused}
        if _seen_by_a_reader(bench, before, scene, crashed.ending, what, owners, **allowed):
            scene = replace(scene, published=True)  # What somebody has seen must stay.
        outcome, recovery = _recovered(bench, before, scene, crashed.ending, what, owners)
        result = replace(result, world=outcome.world.name, kinds=outcome.kinds)
        # What nobody finds right is not the fault of the handle through which it was seen first.
        _judge_own_view(before, scene, crashed, what)
    except RequirementBroken as broken:
        result = replace(result, wrong=(broken.ids, broken.because))
    if result.wrong is not None:
        requests = (*crashed.exchanges, *(each for owner in owners for each in bench.gate.exchanges(owner)))
        result = replace(result, requests=tuple(each.as_json() for each in requests))
    return replace(result, seconds=time.monotonic() - began), recovery


def _judge_refused_request(before: Before, scene: Scene, crashed: Crashed, cut: Cut, what: str) -> None:
    """What a writer that lives makes of a request that was refused, beyond what any ending has to keep.

    A listing of the sidecars that fails is not an empty one [REC-12]. No table moves without a sidecar [REC-03]. What
    is published is acknowledged, also where its sidecar cannot be removed [REC-13], or the forks of a branch [BRA-13].
    """
    if cut.moment != "failed" or not crashed.reached:
        return
    verb, role, table = parts_of(cut.request)
    is_acknowledged = crashed.ending.kind == ACKNOWLEDGED
    if before.step["do"] == "branch_delete" and table not in ("", MANIFEST) and scene.published and not is_acknowledged:
        because = f"{what}: the branch is gone, and only the removal of a table's fork was refused"
        raise RequirementBroken(("BRA-13",), because)
    if before.step["do"] not in (*COMMITTING, *UPKEEP):
        return
    if verb == "LIST" and is_acknowledged:
        raise RequirementBroken(
            ("REC-12",), f"{what}: it could not list the sidecars, and went on as if there were none"
        )
    if role == "sidecar" and verb in WRITE_VERBS and _moves_uncovered(crashed.exchanges):
        raise RequirementBroken(
            ("REC-03", "REC-01"), f"{what}: its sidecar was refused, and it moved a table without one"
        )
    if role == "sidecar" and verb == "DELETE" and scene.published and not is_acknowledged:
        because = f"{what}: it is published, and only the removal of its sidecar was refused"
        raise RequirementBroken(("REC-13", "PUB-23"), because)


def _judge_own_view(before: Before, scene: Scene, crashed: Crashed, what: str) -> None:
    """What a writer that lives shows itself: the new state where that is published, and otherwise the old [PUB-15].

    To look may be to recover: whoever opens the graph anew for each call may have taken its own move forward by then.
    """
    if crashed.shown is None or before.step["do"] in MAINTENANCE:
        return
    worlds = worlds_after(before.model, before.step, Ending(UNKNOWN))
    names = ("new",) if scene.published else ("old", "half") if scene.commits == 0 else ("old", "half", "new")
    if any(row["recovery_kind"] == FORWARD for row in scene.settled.values()):
        names = ("old", "half", "new")
    differences = [(world.name, difference_of_rows(world, crashed.shown)) for world in worlds if world.name in names]
    if differences and all(difference is not None for _, difference in differences):
        name, difference = differences[0]
        because = f"{what}: through its own handle it is not the {name} state that others find: {difference}"
        raise RequirementBroken(("PUB-14" if scene.published else "PUB-15", "SNP-02"), because)


def _moves_uncovered(exchanges: tuple[Exchange, ...]) -> bool:
    """Whether a table got a version while no sidecar was there. Some writers have one for each of their tables."""
    standing: set[str] = set()
    for each in exchanges:
        if not each.applied:
            continue
        if each.role == "sidecar" and each.verb == "DELETE":
            standing -= set(each.keys or (each.key,))
        elif each.role == "sidecar" and each.verb in WRITE_VERBS:
            standing.add(each.key)
        elif each.role == "table version" and each.verb in WRITE_VERBS and not _is_fork(each) and not standing:
            return True
    return False


def _is_fork(each: Exchange) -> bool:
    """A version on a branch of a table may be where that begins, which needs no sidecar [REC-01]: none counts."""
    return bool(each.branch)


def _seen_by_a_reader(
    bench: Bench,
    before: Before,
    scene: Scene,
    ending: Ending,
    what: str,
    owners: list[str],
    **allowed: bool,
) -> bool:
    """Whether somebody who only reads finds the step done. Whoever only reads writes nothing [SNP-09, REC-21]."""
    driver = bench.peers.take()
    owners.append(driver.owner)
    try:
        found = judge_reader(driver.engine, before, scene, ending, what, **allowed)
    except AdapterFault as fault:
        because = f"after {what} the driver that only reads broke down: {fault.message}"
        raise RequirementBroken(("SNP-09",), because) from fault
    finally:
        bench.peers.done(driver)
    refuse_writes(bench.gate, driver, what)
    return found


def refuse_writes(gate: Gate, reader: Driver, what: str) -> None:
    """Somebody who opened read-only has sent no request that could change the store."""
    wrote = [each for each in gate.exchanges(reader.owner) if each.durable]
    if wrote:
        because = f"after {what} somebody who opened it read-only sends {described(wrote[0])} ({wrote[0].key})"
        raise RequirementBroken(("SNP-09", "REC-21"), because)


def _recovered(
    bench: Bench, before: Before, scene: Scene, ending: Ending, what: str, owners: list[str]
) -> tuple[Outcome, Recovery]:
    """Have a new driver recover, and the oracle judge; also the requests of the recovery."""
    driver = bench.peers.take()
    owners.append(driver.owner)
    opened: list[int] = []
    mark = bench.gate.mark()
    try:
        outcome = judge(driver.engine, before, scene, ending, what, opened=lambda: opened.append(bench.gate.mark()))
    except AdapterFault as fault:
        because = f"after {what} the driver that recovers broke down: {fault.message}"
        raise RequirementBroken(("REC-18",), because) from fault
    except EngineError as error:
        because = f"after {what} and a recovery the graph cannot be looked at: {error}"
        raise RequirementBroken(("REC-18",), because) from error
    finally:
        bench.peers.done(driver)
    end = opened[0] if opened else 0
    return outcome, Recovery(
        tuple(each for each in bench.gate.exchanges(driver.owner, since=mark) if each.number <= end)
    )


def armed_in(exchanges: tuple[Exchange, ...]) -> frozenset[str]:
    """The operations whose sidecar somebody has written, by the requests."""
    names = [each.key.rpartition("/")[2] for each in exchanges if each.durable and each.role == "sidecar"]
    return frozenset(name.removesuffix(".json") for name in names if name.endswith(".json"))
