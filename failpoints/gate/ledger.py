"""What the gate knows: one record per exchange, and the rules that are armed.

The relays write here from the loop's thread, everybody else reads from theirs: one lock, and one condition that tells
who waits. Records change while they are in flight and never leave; `Exchange` values do.
"""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

from failpoints.gate.errors import GateBusy, GateError, GateTimeout
from failpoints.gate.exchange import Exchange
from failpoints.gate.heads import RequestHead
from failpoints.gate.roles import DURABLE_VERBS, common_place, page_of, place_of, role_of, split_target, verb_of
from failpoints.gate.rules import Rule

_KEY_IN_XML: Final = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_DROP_TIMEOUT_SECONDS: Final = 30.0


@dataclass(slots=True)
class Record:
    """An exchange while it happens. Its fields are those of `Exchange`."""

    number: int
    owner: str
    method: str
    verb: str
    bucket: str
    key: str
    prefix: str
    role: str
    table: str
    branch: str
    version: int | None
    conditions: tuple[tuple[str, str], ...]
    started: float
    keys: tuple[str, ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0
    status: int | None = None
    answered: int | None = None
    outcome: str = "in_flight"
    ended: float | None = None
    listed: int = 0
    portion: str = ""

    @property
    def durable(self) -> bool:
        return self.verb in DURABLE_VERBS

    @property
    def is_bulk_delete(self) -> bool:
        return self.verb == "DELETE" and not self.key

    def snapshot(self) -> Exchange:
        return Exchange(**{name: getattr(self, name) for name in _FIELDS})


_FIELDS: Final = tuple(field.name for field in fields(Exchange))


class Armed:
    """A rule that is armed. Made by `Gate.arm`."""

    def __init__(self, rule: Rule, ledger: Ledger) -> None:
        self.rule = rule
        self.hits = 0
        self._ledger = ledger
        self._matched = 0
        self._acted: list[Record] = []
        self._held: dict[int, tuple[Record, Callable[[], None]]] = {}
        # What becomes of held requests: None while they are held, then "go" or "drop", for later ones too.
        self.verdict: str | None = None

    def __repr__(self) -> str:
        return f"Armed({self.rule.as_json()}, hits={self.hits})"

    def wait(self, timeout_seconds: float) -> Exchange:
        """Block until the rule has acted on a request, and return the first one that it acted on.

        A hold has acted when the request is held, a delay, a throttle and ignored conditions when they begin, and the
        others when the exchange is over.
        """
        with self._ledger.changed:
            self._ledger.wait_for(
                lambda: bool(self._acted), timeout_seconds, lambda: f"no request met the rule {self.rule.as_json()}"
            )
            return self._acted[0].snapshot()

    def release(self) -> None:
        """Let everything that is held go on: it is forwarded, or answered. Later matches pass too."""
        self._decide("go")

    def drop(self) -> None:
        """Close the client connections that are held, and those of later matches. Returns when they are closed."""
        records = self._decide("drop")
        with self._ledger.changed:
            self._ledger.wait_for(
                lambda: all(record.ended is not None for record in records),
                _DROP_TIMEOUT_SECONDS,
                lambda: "held requests were not closed",
            )

    def disarm(self) -> None:
        """Release, and forget the rule."""
        with self._ledger.changed:
            self._ledger.forget(self)
        self._decide("go")

    def _decide(self, verdict: str) -> list[Record]:
        with self._ledger.changed:
            self.verdict = verdict
            held, self._held = list(self._held.values()), {}
            for record, _ in held:
                # From here on it is at the store, or on its way: `settle` must wait for it.
                record.outcome = "in_flight"
            self._ledger.changed.notify_all()
        for _, wake in held:
            self._ledger.call_in_loop(wake)
        return [record for record, _ in held]

    # -- called by the ledger, under its lock -------------------------------------------------------------------------

    def _matches(self, record: Record) -> bool:
        """Whether it acts on this request. Each rule counts all that it fits, whichever rule acts."""
        rule = self.rule
        if (
            (rule.owner is not None and rule.owner != record.owner)
            or (rule.verbs and record.verb not in rule.verbs)
            or (rule.roles and record.role not in rule.roles)
            or (rule.tables and record.table not in rule.tables)
            or (rule.durable is not None and rule.durable != record.durable)
        ):
            return False
        self._matched += 1
        return self._matched >= rule.nth and (rule.times is None or self._matched < rule.nth + rule.times)


class Ledger:
    """Records and rules of one gate."""

    def __init__(self, call_in_loop: Callable[[Callable[[], None]], None]) -> None:
        self.changed = threading.Condition()
        self.call_in_loop = call_in_loop
        self.closed = False
        self._zero = time.monotonic()
        self._records: list[Record] = []
        self._armed: list[Armed] = []
        self._open: dict[int, Record] = {}

    # -- from the loop -----------------------------------------------------------------------------------------------

    def begin(self, owner: str, head: RequestHead) -> Record:
        """A request has arrived."""
        bucket, key, query = split_target(head.target)
        verb = verb_of(head.method, key, query, copies=head.copies)
        prefix = query.get("prefix", "") if verb == "LIST" else ""
        portion = page_of(query) if verb == "LIST" else head.range
        place = place_of(key or prefix)
        with self.changed:
            record = Record(
                len(self._records) + 1,
                owner,
                head.method,
                verb,
                bucket,
                key,
                prefix,
                role_of(verb, key),
                place.table,
                place.branch,
                place.version,
                head.conditions,
                time.monotonic() - self._zero,
                portion=portion,
            )
            self._records.append(record)
            self._open[record.number] = record
        return record

    def learn_keys(self, record: Record, body: bytes) -> None:
        """What a bulk delete names."""
        keys = tuple(_unescaped(key.decode("utf-8", "replace")) for key in _KEY_IN_XML.findall(body))
        place = common_place(keys)
        with self.changed:
            record.keys, record.table, record.branch, record.version = keys, place.table, place.branch, place.version
            record.role = role_of(record.verb, record.key, keys)

    def act(self, record: Record) -> Armed | None:
        """The rule that acts on a request, if any."""
        with self.changed:
            chosen = None
            for armed in self._armed:
                if armed._matches(record) and chosen is None:
                    chosen = armed
            if chosen is not None:
                chosen.hits += 1
            return chosen

    def acted(self, armed: Armed, record: Record) -> None:
        """Tell who waits for the rule."""
        with self.changed:
            armed._acted.append(record)
            self.changed.notify_all()

    def hold(self, armed: Armed, record: Record, wake: Callable[[], None]) -> None:
        """The request is held, unless the rule has been decided already."""
        with self.changed:
            if armed.verdict is None:
                record.outcome = "held"
                armed._held[record.number] = (record, wake)
            armed._acted.append(record)
            self.changed.notify_all()

    def unhold(self, armed: Armed, record: Record) -> None:
        """It goes on, whoever said so."""
        with self.changed:
            armed._held.pop(record.number, None)
            record.outcome = "in_flight"

    def finish(self, record: Record, outcome: str, answered: int | None = None, armed: Armed | None = None) -> None:
        """An exchange is over. The first outcome stays."""
        with self.changed:
            if record.ended is None:
                record.outcome, record.answered = outcome, answered
                record.ended = time.monotonic() - self._zero
                del self._open[record.number]
            if armed is not None:
                armed._acted.append(record)
            self.changed.notify_all()

    # -- from anywhere -----------------------------------------------------------------------------------------------

    def arm(self, rule: Rule) -> Armed:
        with self.changed:
            self._armed.append(Armed(rule, self))
            return self._armed[-1]

    def forget(self, armed: Armed) -> None:
        with self.changed:
            if armed in self._armed:
                self._armed.remove(armed)

    def exchanges(self, owner: str | None, since: int) -> tuple[Exchange, ...]:
        with self.changed:
            chosen = self._records[max(since, 0) :]
            return tuple(record.snapshot() for record in chosen if owner is None or record.owner == owner)

    def mark(self) -> int:
        with self.changed:
            return len(self._records)

    def in_flight(self, owner: str | None) -> int:
        with self.changed:
            return sum(owner is None or record.owner == owner for record in self._open.values())

    def moving(self, owner: str | None) -> list[Record]:
        """What is in flight and not held. Call it under the lock."""
        return [
            record
            for record in self._open.values()
            if record.outcome != "held" and (owner is None or record.owner == owner)
        ]

    def reset(self) -> None:
        with self.changed:
            if self._open:
                raise GateBusy(
                    f"{len(self._open)} requests are in flight: settle them, or release what is held, before a reset"
                )
            self._records.clear()
            self._armed.clear()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_seconds: float, missing: Callable[[], str]) -> None:
        """Wait, under the lock, for a condition; say what was missing when it does not come true."""
        self.changed.wait_for(lambda: self.closed or condition(), timeout_seconds)
        if condition():
            return
        if self.closed:
            raise GateError("the gate is closed")
        raise GateTimeout(f"{missing()} within {timeout_seconds:g} seconds")


def _unescaped(key: str) -> str:
    """A key without the escapes of XML. A number of thousands of digits names no character, and such a key stays."""
    try:
        return html.unescape(key)
    except ValueError:
        return key
