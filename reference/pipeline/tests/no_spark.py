"""Jobs that read, without Spark: the same tasks, one after the other in this process, with everything pickled on its
way. That Spark itself carries them is shown by the tests that use a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from reference.pipeline import audit, diff, export
from reference.pipeline.tests.in_process import travelled


class Nobody:
    """In place of a session. It says which jobs were run, and how many blocks were exchanged."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.blocks = 0


def run_tasks(
    nobody: Nobody, stage: str, items: Sequence[Any], function: Callable[[Any], Any], *, progress: Any = None
) -> list[Any]:
    if items:
        nobody.jobs.append(stage)
    function = travelled(function)
    return [travelled(function(travelled(item))) for item in items]


def exchange(
    nobody: Nobody,
    stage: str,
    items: Sequence[Any],
    scatter: Callable[[Any], Iterable[tuple[int, Any]]],
    gather: Callable[[int, Iterable[Any]], Any],
    *,
    buckets: int,
    progress: Any = None,
) -> list[Any]:
    nobody.jobs.append(stage)
    scatter, gather = travelled(scatter), travelled(gather)
    blocks: dict[int, list[Any]] = {bucket: [] for bucket in range(buckets)}
    for item in items:
        for bucket, block in scatter(travelled(item)):
            blocks[bucket].append(travelled(block))
            nobody.blocks += isinstance(block, bytes)
    # In no order that means anything: a gathering task must not rely on one.
    return [travelled(gather(bucket, iter(reversed(blocks[bucket])))) for bucket in range(buckets)]


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for module in (audit, diff, export):
        monkeypatch.setattr(module, "run_tasks", run_tasks)
        monkeypatch.setattr(module, "exchange", exchange)
    yield Nobody()
