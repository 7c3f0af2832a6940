"""Running work on Spark, one task per item, with a bar per stage and errors that keep their type.

An item and its result travel pickled, so items may hold credentials: nothing of them is in a plan or a setting. What a
task refuses with a typed error comes back as that error. Only a failure of the store is worth another attempt, so only
that one is left to Spark's retries before it comes back typed as well.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ulid import ULID

from reference.errors import BadRequest, Conflict, Internal, NotFound, OmniError, OutcomePending, StorageError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
POLL_SECONDS = 0.1
_KINDS: dict[str, type[OmniError]] = {
    each.kind: each for each in (BadRequest, NotFound, Conflict, OutcomePending, Internal, StorageError)
}


@dataclass(frozen=True)
class StageSummary:
    """What a stage took."""

    stage: str
    tasks: int
    seconds: float


@dataclass
class Progress:
    """A bar per stage on stderr, if a person is watching, and in any case a summary of the stages."""

    stages: list[StageSummary] = field(default_factory=list)
    _bars: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
            self._bars = Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True, markup=False))
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    @contextmanager
    def stage(self, name: str, tasks: int) -> Iterator[Callable[[int], None]]:
        """One stage; yields a function that says how many of its tasks are done."""
        began = time.perf_counter()
        bar = None if self._bars is None else self._bars.add_task(name, total=tasks)

        def done(count: int) -> None:
            if bar is not None:
                self._bars.update(bar, completed=min(count, tasks))

        yield done
        done(tasks)
        self.stages.append(StageSummary(name, tasks, round(time.perf_counter() - began, 3)))


def run_tasks(
    spark: SparkSession,
    stage: str,
    items: Sequence[Item],
    function: Callable[[Item], Result],
    *,
    progress: Progress | None = None,
) -> list[Result]:
    """One Spark task per item; the results in the order of the items."""
    if not items:
        return []
    context = spark.sparkContext
    attempt = Attempt(function, attempts_max(context))
    rdd = context.parallelize(list(items), len(items)).map(attempt)
    return [opened(each) for each in collected(rdd, stage, len(items), progress)]


def collected(rdd: RDD[Any], stage: str, tasks: int, progress: Progress | None) -> list[Any]:
    """Everything that an RDD holds, with the stage's bar moving meanwhile."""
    return watched(rdd.context, stage, tasks, rdd.collect, progress)


def watched(
    context: SparkContext, stage: str, tasks: int, action: Callable[[], list[Any]], progress: Progress | None
) -> list[Any]:
    """What a Spark action returns, with the stage's bar moving meanwhile. An interruption cancels its jobs."""
    group = f"{stage} {ULID()}"
    found: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            context.setJobGroup(group, stage, interruptOnCancel=True)
            found.extend(action())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=stage, daemon=True)
    with (progress or Progress()).stage(stage, tasks) as done:
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                if progress is not None:
                    done(_completed(context, group))
        except BaseException:
            context.cancelJobGroup(group)
            raise
    for error in failures:
        raise failed_task(stage, error) from None
    return found


def _completed(context: SparkContext, group: str) -> int:
    tracker = context.statusTracker()
    count = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            count += found.numCompletedTasks if found is not None else 0
    return count


def attempts_max(context: SparkContext) -> int:
    """How often Spark tries a task before it gives up: once on a local master, unless it says otherwise."""
    master = str(context.master)
    if master.startswith("local"):
        inside = master.partition("[")[2].rstrip("]").split(",")
        return int(inside[1]) if len(inside) > 1 else 1
    return int(context.getConf().get("spark.task.maxFailures", "4") or 4)


@dataclass(frozen=True)
class Refused:
    """A typed error on its way home. Its parts are carried, because not every error can be built from its message."""

    kind: str
    message: str
    code: str
    details: dict[str, Any]
    hint: str | None

    @classmethod
    def of(cls, error: OmniError) -> Refused:
        return cls(error.kind, error.message, error.code, error.details, error.hint)

    def to_error(self) -> OmniError:
        return _KINDS[self.kind](self.message, code=self.code, details=self.details, hint=self.hint)


@dataclass(frozen=True)
class Attempt(Generic[Item, Result]):
    """One attempt at one item."""

    function: Callable[[Item], Result]
    attempts: int

    def __call__(self, item: Item) -> Result | Refused:
        try:
            return self.function(item)
        except OmniError as error:
            if isinstance(error, StorageError) and not self._is_last():
                raise
            return Refused.of(error)

    def _is_last(self) -> bool:
        if self.attempts == 1:
            return True
        from pyspark import TaskContext

        context = TaskContext.get()
        return context is None or context.attemptNumber() + 1 >= self.attempts


def opened(result: Any) -> Any:
    """A result as it is, or the refusal that came in its place, raised."""
    if isinstance(result, Refused):
        raise result.to_error()
    return result


def failed_task(stage: str, error: BaseException) -> BaseException:
    """What Spark raises for a task that it gave up on, in one sentence; anything else as it is."""
    from py4j.protocol import Py4JError

    if not isinstance(error, Py4JError) and not type(error).__module__.startswith("pyspark"):
        return error
    # The last line of the worker's traceback says what happened; everything around it is how Spark got there.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if ": " in line and not line.startswith(("at ", "File ", "Traceback"))]
    cause = next((line for line in causes if "Error" in line.partition(": ")[0].split()[-1:][0]), (causes or lines)[0])
    return StorageError(f"the stage '{stage}' failed: {cause[:300]}", code="spark_job_failed")
