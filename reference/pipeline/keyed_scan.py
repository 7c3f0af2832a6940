"""One shuffle of keys: tasks on pieces and on committed tables on one side, buckets on the other.

The tasks run once. First only the bucket of reports is asked for, which tells the driver what the pieces hold; then
the other buckets, which Spark serves from the same shuffle. The driver gets findings, never keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reference.operations.changeset import HowToStage
from reference.pipeline.buckets import Bucket
from reference.pipeline.findings import Finding
from reference.pipeline.scan import CommittedItem, PieceItem, PieceReport, ScanTask
from reference.pipeline.tasks import Progress, Refused, attempts_max, opened, watched
from reference.schema.types import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeyedScan:
    """The scan of an input, against committed tables."""

    def __init__(
        self,
        spark: SparkSession,
        items: Sequence[PieceItem | CommittedItem],
        buckets: int,
        catalog: Catalog,
        mode: HowToStage,
        progress: Progress | None,
    ) -> None:
        self._context = spark.sparkContext
        self._items = len(items)
        self._buckets = buckets
        self._catalog = catalog
        self._mode = mode
        self._progress = progress
        self._keyed: Any = None
        if items:
            scanned = self._context.parallelize(list(items), len(items)).flatMap(ScanTask(attempts_max(self._context)))
            self._keyed = scanned.partitionBy(buckets + 1, _bucket)

    def reports(self) -> list[PieceReport]:
        """Run the tasks; what they report of each piece, in the order of the pieces."""
        found = [opened(each) for each in self._ask("scan the input", self._items, _second, [self._buckets])]
        return sorted(found, key=lambda report: report.index)

    def findings(self, touched: Iterable[str], most: int) -> list[Finding]:
        """What the buckets find, when the input touches these tables: of each rule the first, and a count."""
        return self._check(_Check(self._catalog, self._mode, frozenset(touched), most))

    def counted(self, touched: Iterable[str], most: int, former: Mapping[str, pa.Table]) -> list[Finding]:
        """The sources with too few or too many edges, once it is known which of them lose edges."""
        return self._check(_Check(self._catalog, self._mode, frozenset(touched), most, former))

    def _check(self, check: _Check) -> list[Finding]:
        return [opened(each) for each in self._ask("check keys", self._buckets, check, list(range(self._buckets)))]

    def _ask(self, stage: str, tasks: int, function: Any, partitions: list[int]) -> list[Any]:
        if self._keyed is None:
            return []
        context, keyed = self._context, self._keyed
        return watched(context, stage, tasks, lambda: context.runJob(keyed, function, partitions), self._progress)


def _bucket(number: int) -> int:
    return number


def _second(pairs: Iterator[tuple[int, Any]]) -> list[Any]:
    return [value for _, value in pairs]


@dataclass(frozen=True)
class _Check:
    """The task on a bucket."""

    catalog: Catalog
    mode: HowToStage
    touched: frozenset[str]
    most: int
    former: Mapping[str, pa.Table] | None = None

    def __call__(self, pairs: Iterator[tuple[int, Any]]) -> list[Finding | Refused]:
        blocks = [block for _, block in pairs]
        bucket = Bucket.of(self.catalog, self.mode, self.touched, blocks, self.most)
        return list(bucket.findings() if self.former is None else bucket.counted(self.former))
