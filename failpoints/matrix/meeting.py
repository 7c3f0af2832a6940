"""A meeting with a process at a named point: it arrives and stands still, the harness looks, and lets it go.

The two sides tell each other by two files, as `failpoints.registry` describes. Whoever is asked for the work waits in a
thread of its own, because a driver that stands still does not answer.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ARRIVAL_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.01


class Meeting:
    """The place of a meeting, and the thread in which somebody comes to it."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, "meeting")
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def action(self) -> str:
        """What to arm a name with."""
        return f"pause:{self._path}*1"

    def begin(self, work: Callable[[], None]) -> bool:
        """Start the work; True when it stands still at the point, False if it was done without coming to it."""

        def run() -> None:
            try:
                work()
            except BaseException as failure:  # Raised again in `end`, where somebody can see it.
                self._failure = failure

        self._thread = threading.Thread(target=run)
        self._thread.start()
        arrived, never = Path(f"{self._path}.arrived"), threading.Event()
        for _ in range(int(ARRIVAL_SECONDS_MAX / _POLL_SECONDS)):
            if arrived.exists():
                return True
            if not self._thread.is_alive():
                return arrived.exists()
            never.wait(_POLL_SECONDS)
        return False

    def end(self) -> None:
        """Let it go, and wait until it is done."""
        Path(f"{self._path}.release").touch()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure


@contextmanager
def meeting() -> Iterator[Meeting]:
    """A place to meet. Whoever still stands there at the end is let go."""
    with tempfile.TemporaryDirectory(prefix="touchstone-") as directory:
        place = Meeting(directory)
        try:
            yield place
        finally:
            place.end()
