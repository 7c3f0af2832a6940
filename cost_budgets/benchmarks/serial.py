"""The jobs of the pipeline without Spark, one task after the other in this process, with everything counted.

Processor time, exchanged bytes and requests to the store do not depend on how busy the machine is. They are what a
cluster has to provide, whatever its size; what Spark adds is in the ratios of `test_spark_jobs.py`.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from cost_budgets.counters.lance_metrics import lance_counts


@dataclass
class Spent:
    """What one job took."""

    processor_seconds: float = 0.0
    exchanged_bytes: int = 0
    tasks: int = 0
    reads: int = 0


@contextmanager
def serially(*modules: ModuleType) -> Iterator[Spent]:
    """Run the jobs of some modules here, and count."""
    spent = Spent()

    def run_tasks(
        _: Any, __: str, items: Sequence[Any], function: Callable[[Any], Any], *, progress: Any = None
    ) -> list[Any]:
        spent.tasks += len(items)
        return [function(item) for item in items]

    def exchange(
        _: Any,
        __: str,
        items: Sequence[Any],
        scatter: Callable[[Any], Iterable[tuple[int, Any]]],
        gather: Callable[[int, Iterable[Any]], Any],
        *,
        buckets: int,
        progress: Any = None,
    ) -> list[Any]:
        blocks: dict[int, list[bytes]] = {bucket: [] for bucket in range(buckets)}
        for item in items:
            for bucket, block in scatter(item):
                blocks[bucket].append(pickle.dumps(block))
        spent.tasks += len(items) + buckets
        spent.exchanged_bytes += sum(len(block) for each in blocks.values() for block in each)
        return [gather(bucket, map(pickle.loads, blocks[bucket])) for bucket in range(buckets)]

    with pytest.MonkeyPatch.context() as patch, lance_counts() as counts:
        for module in modules:
            patch.setattr(module, "exchange", exchange)
            patch.setattr(module, "run_tasks", run_tasks)
        began = time.process_time()
        yield spent
        spent.processor_seconds = time.process_time() - began
    spent.reads = sum(counts.operations[name] for name in ("get", "head", "list"))
