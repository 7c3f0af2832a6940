"""Ctrl-C and SIGTERM: whoever ends a run gets what was found until then, and blames nobody.

Both arrive in the main thread as a `KeyboardInterrupt`, which pytest knows: what it has started ends with it. Some code
catches even that, and workers that die of the same signal look like a breakdown of the engine; so a run also remembers
that it was told to end.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# `timeout` and others signal a process and then its group, so that it is told twice at once.
ONE_WORD_SECONDS: Final = 1.0


@dataclass
class Interruption:
    """Whether this process was told to end."""

    told_at: float | None = None

    @property
    def came(self) -> bool:
        return self.told_at is not None

    def hear(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End what is done now; said again a while later, end what is done about that."""
        before, self.told_at = self.told_at, time.monotonic()
        if before is None or self.told_at - before > ONE_WORD_SECONDS:
            raise KeyboardInterrupt


@contextmanager
def heard() -> Iterator[Interruption]:
    """Listen to both signals; only a process's main thread can."""
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    before = {each: signal.signal(each, interruption.hear) for each in SIGNALS}
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
