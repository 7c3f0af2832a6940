"""The pair sweep: every pair, in both directions, at every request that can be held.

    for result in sweep("reference", store="moto", pairs=["all"], jobs=2):
        ...
    console.print(table_of(results))

The unit of work is a pair in one direction: its graph is built once and put back for each schedule. `limit` bounds the
schedules of a unit; then those come first in which most is decided, and of the others each kind of request is held once
before any is held twice, and writes before reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from rich.table import Table

from conformance.adapters import EngineError, Unsupported
from conformance.judge import RequirementBroken
from failpoints.baseline import SetupFailed
from failpoints.gate import WRITE_VERBS, Exchange
from failpoints.pairs.pairs import SIDES, Pair, Side, pairs_called
from failpoints.pairs.schedule import (
    PATIENCE_SECONDS,
    Hold,
    Moment,
    ScheduleResult,
    alone,
    broken_before,
    holds_of,
    patience,
    run,
)
from failpoints.pairs.stage import NoSuchMeeting, Stage, prepare
from failpoints.workshop import Bench, Refused, lacking, swept_in_processes
from fixtures.stores.catalog import Store

TIMEOUT_SECONDS = 120.0
# What is held first where not everything is: the role of a write, the first or the last of them, and when. Before the
# publish is written nobody may have come in between; before the sidecar all is planned and nothing has moved; after
# the first table somebody else's move is in the way.
DECISIVE: Final[tuple[tuple[str, int, Moment], ...]] = (
    ("manifest data", -1, "before"),
    ("sidecar", 0, "before"),
    ("table version", 0, "after"),
)
PAST_THE_GATE: Final = "no request of it came through the gate: the driver has to reach its store by the AWS variables"
# More than this share of a pair's schedules not reached is said aloud.
NOT_REACHED_MAX: Final = 0.2


@dataclass(frozen=True)
class Unit:
    """A pair in one direction: which lane is held, and at how many requests at most."""

    pair: Pair
    held: Side
    limit: int | None = None


def sweep(
    engine: str,
    *,
    store: str = "moto",
    pairs: Sequence[str] = ("all",),
    limit: int | None = None,
    jobs: int = 1,
    timeout_seconds: float = TIMEOUT_SECONDS,
    peer: str | None = None,
) -> Generator[ScheduleResult | Refused, None, None]:
    """Run the schedules of pairs, in `jobs` processes; results as they come."""
    units = [Unit(pair, held, limit) for pair in pairs_called(pairs) for held in SIDES]
    yield from swept_in_processes(
        run_unit, units, engine=engine, peer=peer, store=store, jobs=jobs, timeout_seconds=timeout_seconds
    )


def distinct(holds: Sequence[Hold], requests: Sequence[Exchange], *, nothing_goes: bool = True) -> list[Hold]:
    """Of all holds those that can end differently.

    After a request whose answer the lane waited for, the store and everybody else are where they are before the next
    one. And it does not matter when a lane sends what meets nobody, unless something may be removed: that request is
    passed, and the next one held.
    """
    waited_for = {ordinal for ordinal, (earlier, later) in enumerate(pairwise(requests), 1) if later.follows(earlier)}
    passed = {ordinal for ordinal, each in enumerate(requests[:-1], 1) if nothing_goes and each.met_by_nobody}
    return [
        hold
        for hold in holds
        if hold.ordinal not in passed and (hold.when == "before" or hold.ordinal not in waited_for)
    ]


def run_unit(bench: Bench, store: Store, unit: Unit) -> Generator[ScheduleResult | Refused, None, None]:
    """The schedules of one unit."""
    try:
        missing = lacking(bench, unit.pair.needs)
        if missing:
            yield Refused(unit.pair.name, f"the engine has no {', '.join(missing)}", True)
            return
        with Stage(bench, store, prepare(bench, store, unit.pair)) as stage:
            requests = alone(stage, unit.held)
            if not requests:
                raise SetupFailed(PAST_THE_GATE)
            _time_other(stage, unit.held)
            holds = holds_of(requests)
            if unit.limit is None:
                holds = distinct(holds, requests, nothing_goes=not unit.pair.removes)
            for hold in chosen(holds, unit.limit):
                yield run(stage, unit.held, hold)
    except (SetupFailed, EngineError) as error:
        yield Refused(unit.pair.name, str(error), False)
    except RequirementBroken as broken:
        yield broken_before(unit.pair, unit.held, broken)
    except (Unsupported, NoSuchMeeting) as error:
        yield Refused(unit.pair.name, str(error), True)


def _time_other(stage: Stage, held: Side) -> None:
    """Of an engine that takes its time, how long the lane takes that is not held: it is waited for no less."""
    if patience(stage) > PATIENCE_SECONDS:
        with suppress(SetupFailed, NoSuchMeeting, RequirementBroken):
            alone(stage, "second" if held == "first" else "first")


def chosen(holds: Sequence[Hold], limit: int | None) -> list[Hold]:
    """At most so many holds, in order: the decisive ones, and of the rest a third after a request."""
    if limit is None or len(holds) <= limit:
        return list(holds)
    first = decisive(holds)[:limit]
    rest, more = [hold for hold in holds if hold not in first], limit - len(first)
    after = _one_of_each_kind([hold for hold in rest if hold.when == "after"], more // 3)
    writes = {(hold.verb, hold.role) for hold in holds if hold.when == "after"}
    before = [hold for hold in rest if hold.when == "before"]
    taken = [*first, *_one_of_each_kind(before, more - len(after), writes), *after]
    return sorted(taken, key=lambda hold: (hold.ordinal, hold.when == "after"))


def decisive(holds: Sequence[Hold]) -> list[Hold]:
    """Of each role that decides something the first or the last hold, as far as they occur; the most telling first."""
    found = []
    for role, place, when in DECISIVE:
        fitting = [hold for hold in holds if (hold.role, hold.when) == (role, when) and hold.verb in WRITE_VERBS]
        found += fitting[place:][:1]
    return found


def _one_of_each_kind(
    holds: Sequence[Hold], limit: int, first: Collection[tuple[str, str]] = frozenset()
) -> list[Hold]:
    """Each kind of request once before any of them twice; some verbs and roles come before all others."""
    met: Counter[tuple[str, str, str]] = Counter()
    ranked = []
    for place, hold in enumerate(holds):
        kind = hold.verb, hold.role, hold.table
        met[kind] += 1
        ranked.append((met[kind], (hold.verb, hold.role) not in first, place))
    return [holds[place] for *_, place in sorted(ranked)[:limit]]


def check_pair(fault: Mapping[str, Any]) -> None:
    """Refuse the `fault` of a trace that is no schedule: a ValueError that names the field."""
    for name, kind in (("name", str), ("sentence", str), ("first", list), ("second", list), ("both", bool),
                       ("follow", list), ("held", str), ("hold", dict)):  # fmt: skip
        if not isinstance(fault.get(name), kind):
            raise ValueError(f"trace.fault.{name}: {fault.get(name)!r} is no {kind.__name__}")
    if fault["held"] not in SIDES:
        raise ValueError(f"trace.fault.held: {fault['held']!r} is none of {', '.join(SIDES)}")
    fields = {"ordinal": int, "verb": str, "role": str, "nth": int, "when": str, "table": str}
    for name, value in fault["hold"].items():
        if not isinstance(value, fields.get(name, ())):
            raise ValueError(f"trace.fault.hold.{name}: {value!r} does not fit; there are {', '.join(fields)}")
    for name in ("ordinal", "verb", "role", "nth"):
        if name not in fault["hold"]:
            raise ValueError(f"trace.fault.hold.{name}: is missing")


def replay_pair(trace: Mapping[str, Any], bench: Bench, store: Store) -> ScheduleResult:
    """Run the one schedule of a trace again, on whatever engine the bench has."""
    fault = trace["fault"]
    pair = Pair.from_json({**fault, "schema": trace["schema"], "setup": trace["steps"]})
    with Stage(bench, store, prepare(bench, store, pair)) as stage:
        with suppress(SetupFailed, NoSuchMeeting, RequirementBroken):
            alone(stage, fault["held"])
        _time_other(stage, fault["held"])
        return run(stage, fault["held"], Hold(**fault["hold"]))


# -- in numbers --------------------------------------------------------------------------------------------------------

# A schedule is in exactly one of the columns from `serial AB` to `wrong`. Counted as well: those that waited for the
# held lane, and those in which the request that was to be held never came.
COLUMNS = (
    "schedules",
    "serial AB",
    "serial BA",
    "conflicts",
    "both refused",
    "other",
    "gaps",
    "wrong",
    "waited",
    "not reached",
)


def counts_of(results: Iterable[ScheduleResult]) -> dict[str, dict[str, int]]:
    """How the schedules of each pair ended."""
    counts: dict[str, dict[str, int]] = {}
    for result in results:
        row = counts.setdefault(result.pair, dict.fromkeys(COLUMNS, 0))
        row["schedules"] += 1
        row["waited"] += result.waited
        row["not reached"] += not result.reached
        row[_column(result)] += 1
    return counts


def seldom_reached(results: Iterable[ScheduleResult]) -> list[str]:
    """In words, the pairs of which many schedules were not reached, or ended only when the held lane had gone on: what
    is said of them is said of little."""
    said = []
    for name, row in counts_of(results).items():
        for column, words in (
            ("not reached", "the request that was to be held never came in"),
            ("waited", "the other process waited for the held one, and nothing met, in"),
        ):
            if row[column] > NOT_REACHED_MAX * row["schedules"]:
                said.append(f"{name}: {words} {row[column]} of {row['schedules']} schedules")
    return said


def _column(result: ScheduleResult) -> str:
    if result.verdict != "ok":
        return "gaps" if result.verdict == "gap" else "wrong"
    if result.outcome == "both refused":
        return "both refused"
    if result.outcome == "one refused":
        return "conflicts"
    return f"serial {result.order}" if result.order in ("AB", "BA") else "other"


def table_of(results: Iterable[ScheduleResult]) -> Table:
    """The counts as a table, one row per pair and one for all of them."""
    counts = counts_of(results)
    table = Table(title="pairs", show_footer=True)
    table.add_column("pair", footer="all")
    for column in COLUMNS:
        table.add_column(column, justify="right", footer=str(sum(row[column] for row in counts.values())))
    for name, row in counts.items():
        table.add_row(name, *(str(row[column]) for column in COLUMNS))
    return table
