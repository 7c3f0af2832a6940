"""The one shuffle of the pipeline's jobs: tasks scatter blocks over buckets, and each bucket is gathered by one task.

A block is a few numpy arrays, or some rows as Arrow bytes: thousands of rows are one value to Spark. The JVM moves,
spills and retries blocks, and never looks at a row. Both sides of an exchange may refuse with a typed error, which
comes back as such, like that of any other task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from reference.pipeline.tasks import Attempt, Progress, Refused, attempts_max, collected, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Block = TypeVar("Block")
Result = TypeVar("Result")


def exchange(
    spark: SparkSession,
    stage: str,
    items: Sequence[Item],
    scatter: Callable[[Item], Iterable[tuple[int, Block]]],
    gather: Callable[[int, Iterable[Block]], Result],
    *,
    buckets: int,
    progress: Progress | None = None,
) -> list[Result]:
    """One task per item, then one per bucket; the results in the order of the buckets.

    `gather` gets the blocks of its bucket in no order, and is called for a bucket that nothing was scattered to as
    well.
    """
    if not items or not buckets:
        return []
    context = spark.sparkContext
    attempts = attempts_max(context)
    blocks = context.parallelize(list(items), len(items)).flatMap(_Scatter(Attempt(_Listed(scatter), attempts)))
    gathered = blocks.partitionBy(buckets, int).mapPartitionsWithIndex(_Gather(gather, attempts))
    return [opened(each) for each in collected(gathered, stage, len(items) + buckets, progress)]


@dataclass(frozen=True)
class _Listed(Generic[Item, Block]):
    """All blocks of an item, so that a refusal in the middle of them is one of the whole item."""

    scatter: Callable[[Item], Iterable[tuple[int, Block]]]

    def __call__(self, item: Item) -> list[tuple[int, Block]]:
        return list(self.scatter(item))


@dataclass(frozen=True)
class _Scatter:
    """The blocks of an item; in place of them a refusal, which goes to the first bucket."""

    attempt: Attempt[Any, Any]

    def __call__(self, item: Any) -> list[tuple[int, Any]]:
        found = self.attempt(item)
        return [(0, found)] if isinstance(found, Refused) else found


@dataclass(frozen=True)
class _Gather(Generic[Block, Result]):
    """What becomes of one bucket."""

    gather: Callable[[int, Iterable[Block]], Result]
    attempts: int

    def __call__(self, bucket: int, keyed: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        attempt: Attempt[Iterator[Block], Result] = Attempt(lambda blocks: self.gather(bucket, blocks), self.attempts)
        try:
            yield attempt(_unrefused(keyed))
        except _Refusal as refusal:
            yield refusal.refused


class _Refusal(Exception):
    """A scattering task refused: its bucket has nothing to gather."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


def _unrefused(keyed: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    for _, block in keyed:
        if isinstance(block, Refused):
            raise _Refusal(block)
        yield block
