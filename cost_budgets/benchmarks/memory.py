"""How much memory a job has at once, with everything that it started."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PEAK_BYTES_MAX: Final = 6 * 2**30


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most memory that this process and all below it have had at once, in bytes: shared pages count once each."""
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            peak[0] = max(peak[0], sum(map(_resident, _family(os.getpid()))))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def _family(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended meanwhile.
            parents.setdefault(int(fields[1]), []).append(int(each.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def _resident(pid: int) -> int:
    """The proportional set size where the kernel tells it, so that what forked workers share is not counted twice."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
