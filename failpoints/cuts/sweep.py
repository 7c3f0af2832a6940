"""All cells of a writer, and the writers of a sweep over several processes.

First the writer runs once with nobody in its way: that shows its durable requests, and how many commits it makes. Then
each of them is cut. A recovery that makes durable requests, whatever the writer left, is cut in turn at each of those,
once for every shape that a recovery of this writer has: two recoveries that make the same requests of the same roles
have the same shape, whichever tables of nodes or of edges they are about.

A sweep of several writers takes less of each (`every` is false): of files in a row the first and the last, and of
recoveries one of each mixture of requests for all writers of a family, killed anywhere, and otherwise cut where they
decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from conformance.adapters import AdapterFault, EngineError, Unsupported
from conformance.judge import RequirementBroken
from failpoints.baseline import Baseline, SetupFailed, build
from failpoints.cuts.cell import (
    CellResult,
    Crashed,
    Recovery,
    armed_in,
    crash,
    crash_recovery,
    crash_writer,
    judged,
    refuse_writes,
)
from failpoints.cuts.cut import (
    LISTING,
    Cut,
    again_cuts_of,
    cuts_of,
    listing_cuts_of,
    some_again_cuts_of,
    some_cuts_of,
)
from failpoints.drivers import Driver
from failpoints.gate import Exchange, incomplete_uploads
from failpoints.oracle import Before, Scene, commits_since, judge_init, look
from failpoints.steps import MAINTENANCE, Step
from failpoints.workshop import Bench, Refused, lacking, swept_in_processes
from failpoints.world import ACKNOWLEDGED, COMMITTING, UPKEEP, Ending, attempt_init
from failpoints.writers import SCHEMA, WRITERS, Writer, families
from fixtures.forge import Forge
from fixtures.stores.catalog import Store

DOUBLES = ("shapes", "all", "none")
PAST_THE_GATE = (
    "the driver wrote, and not one request of it came through the gate: it has to reach its store by the variable "
    "AWS_ENDPOINT_URL_S3 that it is started with"
)
# What a recovery is of, and the requests that it makes.
Shape = tuple[str, tuple[tuple[str, str, str], ...]]


@dataclass(frozen=True)
class SweepOptions:
    """What is swept: an engine on a store, who recovers it if that is another one, and how far.

    `double` is "shapes" for double crashes of each shape of a recovery, "all" for those of every cell, "none" for none.
    `every` is false where not each cut is tried, but one of those that are much alike.
    `cells` is (k, n): of every n cells of a writer the k-th, so that several processes can share them.
    """

    engine: str = "reference"
    peer: str | None = None
    store: str = "moto"
    double: str = "shapes"
    every: bool = True
    timeout_seconds: float = 120.0
    cells: tuple[int, int] = (0, 1)


def sweep_writer(
    bench: Bench, store: Store, writer: Writer, options: SweepOptions, shapes: set[Shape] | None = None
) -> Iterator[CellResult | Refused]:
    """The cells of one writer, one after the other. `shapes` are those of recoveries that were cut already."""
    number, of = options.cells
    chosen = cuts_of if options.every else some_cuts_of
    if writer.step["do"] == "init":
        yield from sweep_init(bench, store, writer, lambda durable: chosen(durable)[number::of])
        return
    missing = lacking(bench, writer.needs)
    if missing:
        yield Refused(writer.name, f"the engine does not declare {', '.join(missing)}", unsupported=True)
        return
    swept = SweptWriter.prepared(bench, store, writer, double=options.double)
    if not options.every:
        swept.again_cuts, swept.shape_of = some_again_cuts_of, kinds_of
    if shapes is not None:
        swept.shapes = shapes
    for cut in [*chosen(swept.count()), *swept.listings][number::of]:
        yield from swept.cell(cut)


class SweptWriter:
    """The sweep of one writer: its baseline, and the shapes of recovery that were seen."""

    def __init__(self, bench: Bench, made: Callable[[], Baseline], writer: Writer, double: str) -> None:
        self.bench = bench
        self.writer = writer
        self._made = made
        self._is_new = True
        self.baseline = made()
        self.double = double
        self.commits = 1
        # The cuts at requests that are not durable; known once the requests are counted.
        self.listings: list[Cut] = []
        self.shapes: set[Shape] = set()
        self.shape_of: Callable[[Step, Sequence[Exchange]], Shape] = shape_of
        self.again_cuts: Callable[[Sequence[Exchange]], list[Cut]] = again_cuts_of

    @classmethod
    def prepared(
        cls, bench: Bench, store: Store, writer: Writer, *, schema: str = SCHEMA, double: str = "shapes"
    ) -> SweptWriter:
        """Have a driver build the graph."""

        def made() -> Baseline:
            driver = bench.drivers.take()
            try:
                return build(driver.engine, store.fresh_root(), store.env, writer.setup, schema=schema)
            finally:
                bench.drivers.done(driver)

        return cls(bench, made, writer, double)

    def count(self) -> tuple[Exchange, ...]:
        """Run the step with nobody in its way: its durable requests."""
        crashed, before = crash_writer(self.bench, self._put_back(), self.writer, None)
        if crashed.ending.kind != ACKNOWLEDGED:
            raise SetupFailed(f"{self.writer.name} itself ended {crashed.ending}, with nobody in its way")
        self.commits = _commits_made(before)
        if not crashed.durable and self.writer.step["do"] not in MAINTENANCE:
            raise SetupFailed(PAST_THE_GATE)
        if self.writer.step["do"] in (*COMMITTING, *UPKEEP):
            self.listings = listing_cuts_of(crashed.exchanges)
        return crashed.durable

    def cell(self, cut: Cut) -> Iterator[CellResult]:
        """One cut, and if its recovery has a new shape, every cut of that."""
        result, recovery = self._single(cut)
        yield result
        shape = self.shape_of(self.writer.step, recovery.durable)
        if recovery.durable and (self.double == "all" or (self.double == "shapes" and shape not in self.shapes)):
            self.shapes.add(shape)
            yield from self._doubles(cut, [*self.again_cuts(recovery.durable), *listing_cuts_of(recovery.exchanges)])

    def double_at(self, cut: Cut, second: Callable[[tuple[Exchange, ...]], Cut]) -> CellResult:
        """One double crash: `second` chooses where, of the requests that the recovery makes."""
        return next(self.doubles_at(cut, lambda recovery: [second(recovery)]))

    def doubles_at(self, cut: Cut, seconds: Callable[[tuple[Exchange, ...]], Sequence[Cut]]) -> Iterator[CellResult]:
        """Double crashes: `seconds` chooses where, of the requests that the recovery makes.

        Where the single one is wrong already, or its recovery makes no request that could be cut, that is the result.
        """
        first, recovery = self._single(cut)
        if first.wrong is not None or not recovery.durable:
            yield first
            return
        yield from self._doubles(cut, seconds(recovery.durable))

    def listing_again(self, cut: Cut) -> Iterator[CellResult]:
        """The double crash in which the open that would recover is refused the listing of the sidecars."""
        first, recovery = self._single(cut)
        if first.wrong is not None:
            yield first
            return
        yield from self._doubles(cut, listing_cuts_of(recovery.exchanges))

    def _single(self, cut: Cut) -> tuple[CellResult, Recovery]:
        began = time.monotonic()
        try:
            crashed, before, scene = self._crashed(cut)
        except RequirementBroken as broken:
            return self._wrong(cut, broken, began), Recovery()
        return judged(self.bench, self.writer, before, crashed, scene, cut, began)

    def _doubles(self, cut: Cut, seconds: Sequence[Cut]) -> Iterator[CellResult]:
        """Crash once more, photograph what is there, and have each recovery of it cut in turn."""
        began = time.monotonic()
        try:
            crashed, before, scene = self._crashed(cut)
        except RequirementBroken as broken:
            yield self._wrong(cut, broken, began)
            return
        photo = Forge(before.uri, dict(before.env)).photograph("")
        for second in seconds:
            began = time.monotonic()
            recovery = crash_recovery(self.bench, before, photo, second)
            # What is judged is the first crash: its sidecars are what the audit rows must tell of. But what a reader
            # can see after the second one must stay.
            again = replace(recovery, ending=crashed.ending, killed=crashed.killed)
            result, _ = judged(self.bench, self.writer, before, again, scene, cut, began, second=second)
            if result.wrong is None:
                result = replace(result, wrong=self._wrong_recovery(recovery, second))
            yield replace(result, second=second)

    def _wrong_recovery(self, recovery: Crashed, second: Cut) -> tuple[tuple[str, ...], str] | None:
        """What is wrong with the way in which a recovery ended that was cut, whatever it has left."""
        if recovery.ending.broke and not recovery.killed:
            because = f"nobody killed the recovery of {self.writer.name}, and it broke down {second}: "
            return ("REC-18",), because + str(recovery.ending.error)
        if second.request == LISTING and recovery.reached and recovery.ending.kind == ACKNOWLEDGED:
            because = f"after {self.writer.name} an open could not list the sidecars, and went on as if there were none"
            return ("REC-12",), because
        return None

    def _crashed(self, cut: Cut) -> tuple[Crashed, Before, Scene]:
        """Have the writer cut, and look at what it left."""
        crashed, before = crash_writer(self.bench, self._put_back(), self.writer, cut)
        before = replace(before, commits=self.commits)
        return crashed, before, replace(look(before), armed=armed_in(crashed.exchanges))

    def _put_back(self) -> Baseline:
        """The graph as it was. A cleanup goes by age, and what is put back is young: that graph is made anew."""
        if not self._is_new and self.writer.step["do"] == "cleanup":
            self.baseline = self._made()
        else:
            self.baseline.restore()
        self._is_new = False
        return self.baseline

    def _wrong(self, cut: Cut, broken: RequirementBroken, began: float) -> CellResult:
        seconds = time.monotonic() - began
        return CellResult(self.writer.name, cut, wrong=(broken.ids, broken.because), seconds=seconds)


def shape_of(step: Step, recovery: Sequence[Exchange]) -> Shape:
    """The requests of the recovery of a step, with tables by their kind and by which of that kind came first."""
    met: dict[str, list[str]] = {}
    shape = []
    for each in recovery:
        kind = each.table.partition("/")[0]
        known = met.setdefault(kind, [])
        if each.table not in known:
            known.append(each.table)
        shape.append((each.verb, each.role, f"{kind} {known.index(each.table)}"))
    return step["do"], tuple(shape)


def kinds_of(step: Step, recovery: Sequence[Exchange]) -> Shape:
    """The kinds of requests that the recovery of a step makes, in whatever number and order."""
    return step["do"], tuple(sorted({(each.verb, each.role, each.table.partition("/")[0]) for each in recovery}))


def _commits_made(before: Before) -> int:
    """How many commits a step has made that ran to its end, from the bytes."""
    if before.step["do"] == "branch_delete":
        return 0
    return commits_since(Forge(before.uri, dict(before.env)), before)


def sweep_init(
    bench: Bench, store: Store, writer: Writer, chosen: Callable[[tuple[Exchange, ...]], Sequence[Cut]]
) -> Iterator[CellResult]:
    """An init has no baseline: every cell makes a graph of its own. `chosen` are the cuts of its durable requests."""

    def run(cut: Cut | None) -> tuple[Crashed, str]:
        uri = store.fresh_root()

        def init(driver: Driver) -> Ending:
            return attempt_init(driver.engine, uri, SCHEMA)

        return crash(bench, init, lambda driver: None, cut), uri

    undisturbed = run(None)[0]
    if undisturbed.ending.kind != ACKNOWLEDGED:
        raise SetupFailed(f"init itself ended {undisturbed.ending}, with nobody in its way")
    if not undisturbed.durable:
        raise SetupFailed(PAST_THE_GATE)
    for cut in chosen(undisturbed.durable):
        began = time.monotonic()
        crashed, uri = run(cut)
        what = f"init was killed {cut}" if crashed.killed else f"init ended {crashed.ending} {cut}"
        left = len(incomplete_uploads(crashed.exchanges))
        result = CellResult(writer.name, cut, killed=crashed.killed, reached=crashed.reached, uploads_left=left)
        driver = bench.drivers.take()
        try:
            _read_init(bench, uri, crashed.ending, what)
            world = judge_init(driver.engine, uri, store.env, SCHEMA, crashed.ending, what)
            result = replace(result, world=world.name)
        except RequirementBroken as broken:
            result = replace(result, wrong=(broken.ids, broken.because))
        except (AdapterFault, EngineError) as fault:
            result = replace(result, wrong=(("SCH-16",), f"after {what} a driver broke down: {fault}"))
        finally:
            bench.drivers.done(driver)
        if result.wrong is not None:
            result = replace(result, requests=tuple(each.as_json() for each in crashed.exchanges))
        yield replace(result, seconds=time.monotonic() - began)


def _read_init(bench: Bench, uri: str, ending: Ending, what: str) -> None:
    """Somebody who only reads may find no graph yet, and changes nothing about it [SNP-09]."""
    driver = bench.drivers.take()
    try:
        text = driver.engine.open(uri, read_only=True).export()
        if text.strip():
            raise RequirementBroken(("SCH-16", "SNP-09"), f"after {what} a graph that is new has rows: {text[:80]}")
    except Unsupported:
        return  # It opens to write and not otherwise.
    except EngineError as error:
        if ending.kind == ACKNOWLEDGED:
            because = f"after {what} somebody who only reads is refused: {error}"
            raise RequirementBroken(("SCH-16", "SNP-09"), because) from error
    finally:
        bench.drivers.done(driver)
    refuse_writes(bench.gate, driver, what)


@dataclass(frozen=True)
class Task:
    """The writers that one process takes, one after the other, or a part of the cells of one."""

    writers: tuple[str, ...]
    options: SweepOptions


def tasks_of(writers: Sequence[Writer], options: SweepOptions, jobs: int) -> list[Task]:
    """The work of a sweep, the long tasks first.

    Where every cut is tried, a writer is a task, or several where there are few of them. Otherwise a family is one: its
    writers share the shapes of their recoveries.
    """
    if not options.every:
        return [Task(family, options) for family in reversed(families(writers))]
    parts = 1 if len(writers) >= 2 * jobs else jobs
    return [
        Task((writer.name,), replace(options, cells=(part, parts)))
        for writer in reversed(writers)
        for part in range(parts)
    ]


def run_task(bench: Bench, store: Store, task: Task) -> Generator[CellResult | Refused, None, None]:
    """A task, in whatever process."""
    shapes: set[Shape] = set()
    for name in task.writers:
        cells = 0
        try:
            for result in sweep_writer(bench, store, WRITERS[name], task.options, shapes):
                yield result
                cells += 1
        except (SetupFailed, EngineError) as failed:
            yield Refused(name, str(failed), unsupported=False)
        except Unsupported as missing:
            # In the middle of its cells: the others were not tried, and that is no success.
            yield Refused(name, str(missing), unsupported=not cells)
        except RequirementBroken as broken:
            # Wrong before anything was cut: the step itself, or one that leads to it.
            yield CellResult(name, Cut("ack"), scene="undisturbed", wrong=(broken.ids, broken.because))


def sweep(
    writers: Sequence[Writer], options: SweepOptions, *, jobs: int = 1
) -> Generator[CellResult | Refused, None, None]:
    """All cells of all writers, as they are done."""
    return swept_in_processes(
        run_task,
        tasks_of(writers, options, jobs),
        engine=options.engine,
        peer=options.peer,
        store=options.store,
        jobs=jobs,
        timeout_seconds=options.timeout_seconds,
    )
