"""The jobs of the pipeline without Spark, one task after the other in this process, with everything counted.

Processor time, exchanged bytes and requests to the store do not depend on how busy the machine is. They are what a
cluster has to provide, whatever its size; what Spark adds is in the ratios of `test_spark_jobs.py`.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from cost_budgets.counters.lance_metrics import LanceCounts, lance_counts
from reference.graph import Graph
from reference.pipeline import load
from reference.pipeline.scan import CommittedItem, ScanTask
from reference.pipeline.tests import in_process


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
    spent.reads = _reads(counts)


def _reads(counts: LanceCounts) -> int:
    return sum(counts.operations[name] for name in ("get", "head", "list"))


@dataclass
class SpentOnLoad:
    """What a load took: for its own rows, and for the keys of the rows that were there, which is what may grow."""

    processor_seconds: float = 0.0
    reads: int = 0
    key_seconds: float = 0.0
    key_reads: int = 0
    key_rows: int = 0
    key_columns: set[str] = field(default_factory=set)


def loaded_serially(graph: Graph, source: Path) -> SpentOnLoad:
    """Append an input to a graph here, and count."""
    spent = SpentOnLoad()

    class Scan(in_process.KeyedScan):
        """As without Spark, with what is done for committed keys counted apart."""

        def __init__(self, session: Any, items: Sequence[Any], *rest: Any) -> None:
            committed = [item for item in items if isinstance(item, CommittedItem)]
            super().__init__(session, [item for item in items if item not in committed], *rest)
            with _apart(spent):
                for item in committed:
                    rows = 0
                    for bucket, block in ScanTask(1)(item):
                        self.kept[bucket].append(block)
                        rows += pa.ipc.open_stream(block.data).read_all().num_rows
                    spent.key_rows += rows
                    spent.key_columns |= set(item.needs.columns(item.catalog.type_of(item.table.table_key)))

        def findings(self, touched: Iterable[str], most: int) -> list[Any]:
            with _apart(spent):
                return super().findings(touched, most)

    with pytest.MonkeyPatch.context() as patch, lance_counts() as counts:
        patch.setattr(load, "run_tasks", in_process.run_tasks)
        patch.setattr(load, "KeyedScan", Scan)
        began = time.process_time()
        load.pipeline_load(graph, str(source), mode="append", spark=in_process.SESSION)
        spent.processor_seconds = time.process_time() - began - spent.key_seconds
    spent.reads = _reads(counts) - spent.key_reads
    return spent


@contextmanager
def _apart(spent: SpentOnLoad) -> Iterator[None]:
    began = time.process_time()
    with lance_counts() as counts:
        yield
    spent.key_seconds += time.process_time() - began
    spent.key_reads += _reads(counts)
