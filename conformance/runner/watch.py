"""A store that hangs instead of dying: nobody may wait for it for ever.

What talks to a store waits for it somewhere: an engine in this process, the auditor, a fixture. So every phase of a
test is watched from a second thread. When it takes longer than an answer may take, the store is asked directly; if it
does not answer, it is given up (a server of our own is killed, so that everybody who waits for it hears of its end),
and `StoreIsSilent` is raised where the main thread waits. A call that no signal interrupts is left waiting: then the
process is ended, by way of `last_resort`, which says what happened before.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from fixtures.stores.catalog import Store

PATIENCE_SECONDS_MIN: Final = 1.0
GRACE_SECONDS: Final = 10.0
_SIGNAL: Final = signal.SIGUSR1

LastResort = Callable[[str, str], None]


class StoreIsSilent(BaseException):
    """What waits for a store is ended. No `Exception`: an engine in this process must not take it for an answer."""


@dataclass
class _Watch:
    stores: Callable[[], Sequence[Store]]
    patience_seconds: float
    last_resort: LastResort
    over: threading.Event = field(default_factory=threading.Event)
    words: str | None = None

    def keep(self) -> None:
        """In a thread: ask each time when the patience is at its end, until the phase is over or a store silent."""
        while not self.over.wait(self.patience_seconds):
            for store in self.stores():
                words = store.silence()
                if words is not None and not self.over.is_set():
                    self._end(store, words)
                    return

    def _end(self, store: Store, words: str) -> None:
        store.give_up(words)
        self.words = words
        signal.pthread_kill(threading.main_thread().ident or 0, _SIGNAL)
        if not self.over.wait(GRACE_SECONDS):
            self.last_resort(store.name, words)


_watches: Final[list[_Watch]] = []


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """In the main thread, where also a watch is begun and ended: what came too late finds none."""
    for watch in _watches:
        if watch.words is not None:
            raise StoreIsSilent(watch.words)


@contextmanager
def watched(stores: Callable[[], Sequence[Store]], patience_seconds: float, last_resort: LastResort) -> Iterator[None]:
    """End what is done in here when one of the stores has stopped answering."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(_SIGNAL, _interrupt)  # For good: the signal may come when nothing is watched any more.
    watch = _Watch(stores, max(patience_seconds, PATIENCE_SECONDS_MIN), last_resort)
    _watches.append(watch)
    threading.Thread(target=watch.keep, daemon=True).start()
    try:
        yield
    finally:
        _watches.remove(watch)
        watch.over.set()
