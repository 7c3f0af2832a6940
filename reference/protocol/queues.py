"""Queues: inside one process, writes to one (table, branch) take turns, and recovery takes its turn too [REC-24].

The locks belong to the process, not to a handle: two handles on one graph share them. Locks are always taken in
sorted order, so two writers over the same tables cannot wait for each other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

QueueKey = tuple[str, str | None]
SCHEMA_APPLY_QUEUE: QueueKey = ("__schema_apply__", None)
ENDED_REMEMBERED_MAX = 10_000


class Queues:
    """The locks of one graph, and the operations that hold them now."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[QueueKey, threading.RLock] = {}
        self._in_flight: set[str] = set()
        self._ended: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def hold(self, keys: Iterable[QueueKey]) -> Iterator[None]:
        """Take every queue, in order; give them back at the end."""
        held: list[threading.RLock] = []
        try:
            for key in sorted(set(keys), key=lambda key: (key[0], key[1] or "")):
                with self._guard:
                    lock = self._locks.setdefault(key, threading.RLock())
                lock.acquire()
                held.append(lock)
            yield
        finally:
            for lock in reversed(held):
                lock.release()

    @contextmanager
    def in_flight(self, operation_id: str) -> Iterator[None]:
        """Mark an operation as alive in this process, and as ended afterwards whatever became of it."""
        with self._guard:
            self._in_flight.add(operation_id)
        try:
            yield
        finally:
            with self._guard:
                self._in_flight.discard(operation_id)
                self._ended[operation_id] = None
                while len(self._ended) > ENDED_REMEMBERED_MAX:
                    self._ended.popitem(last=False)  # Its sidecar, if it left one, counts as a stranger's then.

    def is_alive(self, operation_id: str) -> bool | None:
        """True or False for operations of this process; None for those of others: nobody here can know."""
        with self._guard:
            if operation_id in self._in_flight:
                return True
            return False if operation_id in self._ended else None


_queues_by_graph: dict[str, Queues] = {}
_registry_guard = threading.Lock()


def queues_of(graph_uri: str) -> Queues:
    """The queues that all handles of this process on one graph share."""
    with _registry_guard:
        return _queues_by_graph.setdefault(graph_uri, Queues())
