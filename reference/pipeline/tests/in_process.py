"""The pipeline without Spark: the same tasks on the same items, one after the other in this process.

Everything that Spark would carry is pickled and unpickled on its way, so what cannot travel fails here too. This is
what lets a property be tried on hundreds of inputs; that Spark itself carries it is shown by tests that use a session.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reference.pipeline import inputs, load
from reference.pipeline.buckets import Bucket
from reference.pipeline.findings import Finding
from reference.pipeline.scan import PieceReport, ScanTask
from reference.pipeline.tasks import Progress, opened


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def run_tasks(
    _spark: Any, _stage: str, items: Sequence[Any], function: Callable[[Any], Any], *, progress: Progress | None
) -> list[Any]:
    return [travelled(function(travelled(item))) for item in items]


class KeyedScan:
    """As `keyed_scan.KeyedScan`."""

    def __init__(
        self, _spark: Any, items: Sequence[Any], buckets: int, catalog: Any, mode: Any, _progress: Any
    ) -> None:
        self.buckets, self.catalog, self.mode = buckets, catalog, mode
        self.kept: dict[int, list[Any]] = defaultdict(list)
        for item in items:
            for bucket, value in ScanTask(1)(travelled(item)):
                self.kept[bucket].append(travelled(value))

    def reports(self) -> list[PieceReport]:
        return sorted((opened(each) for each in self.kept[self.buckets]), key=lambda report: report.index)

    def findings(self, touched: Iterable[str], most: int) -> list[Finding]:
        return [travelled(each) for bucket in self._checked(touched, most) for each in bucket.findings()]

    def counted(self, touched: Iterable[str], most: int, former: Any) -> list[Finding]:
        return [travelled(each) for bucket in self._checked(touched, most) for each in bucket.counted(former)]

    def _checked(self, touched: Iterable[str], most: int) -> Iterator[Bucket]:
        for number in range(self.buckets):
            yield Bucket.of(self.catalog, self.mode, touched, self.kept[number], most)


# As much of a session as the driver asks for: three buckets, so that keys really are apart.
SESSION: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A session that is none; pieces are so small that every input has several."""
    monkeypatch.setattr(load, "run_tasks", run_tasks)
    monkeypatch.setattr(load, "KeyedScan", KeyedScan)
    monkeypatch.setattr(inputs, "PIECE_BYTES", 200)
    monkeypatch.setattr(inputs, "PIECE_ROWS", 3)
    yield SESSION
