"""Benchmarks as ratios: an engine's operations against bare pylance doing the part that cannot be saved.

    run = bench("reference", store)
    differences(run, usual(history, run))

Seconds mean nothing on another machine, and little on this one an hour later. So each operation is timed in turns with
the same work done by Lance alone, at the same store, and what counts is the ratio. How far two such ratios may differ
without meaning anything is measured too: the engine's operation is timed twice in the same turns, once against itself.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import lance
import pyarrow as pa

from conformance.adapters import TIMEOUT_SECONDS
from conformance.judge import Engine, Handle
from conformance.runner.redaction import without_secrets
from failpoints.workshop import SweepBroken
from fixtures.forge import Forge, NothingThere
from fixtures.stores.catalog import S3, Store

FORMAT: Final = 1
ROUNDS: Final = 20
TIMED: Final = ("insert one row", "read a table", "ask for a snapshot", "open the graph")
# How many earlier runs a new one is held against.
RUNS_COMPARED: Final = 10
_CPU_INFO: Final = Path("/proc/cpuinfo")
_SCHEMA: Final = "node Person {\n  name: String @key\n  age: I32?\n}\n"
_ROWS: Final = 2_000
# Beyond what was measured as noise, so much more is still none: a median of few rounds has noise of its own.
_MARGIN: Final = 0.10
_HALF_A_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "a truth value",
    int: "a whole number",
    float: "a number",
}
# What differs from itself tenfold says nothing, and more than that is nothing that was measured.
_NOISE_MAX: Final = 10.0
Done = TypeVar("Done")
_INSTEAD: Final = "; remove that line, or give another file with --history"


class NotTimed(Exception):
    """An engine that has nothing which could be held against bare Lance: why."""


class HistoryError(ValueError):
    """A file of earlier runs that cannot be read: which line, and why."""


@dataclass(frozen=True)
class Ratio:
    """One operation: how much longer than bare Lance it took, and how much it differed from itself."""

    name: str
    ratio: float
    noise: float


@dataclass(frozen=True)
class BenchRun:
    """All ratios of one run, and where they were measured."""

    engine: str
    store: str
    rounds: int
    at: str
    environment: Mapping[str, Any]
    ratios: tuple[Ratio, ...]
    # How the engine was reached: in this process, or over a driver's pipe, which takes time of its own.
    adapter: str = ""
    format: int = FORMAT

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """One ratio then and now. `allowed` is how far it may rise before that means anything."""

    name: str
    then: float | None
    now: float
    allowed: float
    slower: bool = field(default=False)


def bench(
    engine: str,
    store: Store,
    *,
    rounds: int = ROUNDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
    told: Callable[[str], object] = lambda name: None,
) -> BenchRun:
    """Time every operation in turns with its bare counterpart and with itself. `told` hears of each before that."""
    with closing(Engine.connect(engine, env=store.env, timeout_seconds=timeout_seconds)) as connected:
        name = f"{connected.hello.name} {connected.hello.version}"
        if S3 in store.capabilities and not connected.supports(S3):
            # It would take the address for that of a directory, and write wherever it was started.
            raise NotTimed("the engine does not declare s3")
        place, ratios = Place(connected, store), []
        for title, ours, bare in place.pairs():
            told(title)
            ratios.append(ratio_of(title, *in_turns(rounds, ours, ours, bare)))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return BenchRun(name, store.name, rounds, now, environment(), tuple(ratios), without_secrets(engine))


def ratio_of(title: str, first: Sequence[float], again: Sequence[float], bare: Sequence[float]) -> Ratio:
    """The ratio, round by round, and its noise: how far off the operation is from itself, or how uncertain a median of
    such scattered rounds is, whichever is more."""
    ratios = [ours / theirs for ours, theirs in zip([*first, *again], [*bare, *bare], strict=True)]
    median = statistics.median(ratios)
    off = abs(statistics.median(one / other for one, other in zip(first, again, strict=True)) - 1)
    quarters = statistics.quantiles(ratios, n=4)
    scattered = (quarters[2] - quarters[0]) / median / math.sqrt(len(ratios))
    return Ratio(title, round(median, 3), round(min(max(off, scattered), _NOISE_MAX), 3))


def in_turns(rounds: int, *actions: Callable[[], object]) -> list[list[float]]:
    """The seconds of each action, taken in turns, so that a noisy neighbour disturbs all of them alike."""
    seconds: list[list[float]] = [[] for _ in actions]
    for action in actions:
        action()  # The first time is never like the others.
    for _ in range(rounds):
        for action, taken in zip(actions, seconds, strict=True):
            began = time.perf_counter()
            action()
            taken.append(time.perf_counter() - began)
    return seconds


class Place:
    """A graph, and beside it a bare table with the same rows."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._uri = store.fresh_root()
        self._numbers = iter(range(10**9))
        engine.init(self._uri, _SCHEMA)
        self._handle: Handle = engine.open(self._uri)
        rows = ({"type": "Person", "data": {"name": f"p{n:05}", "age": n % 90}} for n in range(_ROWS))
        self._handle.load("\n".join(map(json.dumps, rows)), "append")
        forge = Forge(self._uri, dict(store.env))
        try:
            copy = _bare(lambda: forge.storage("node:Person").to_table())()
        except NothingThere as error:
            raise NotTimed(f"the engine keeps no Lance tables at {self._uri} to be held against bare Lance") from error
        missing = sorted({"id", "name", "age"} - set(copy.schema.names))
        if missing:
            raise NotTimed(f"the engine's table of persons at {self._uri} has no column '{missing[0]}'")
        self._options = forge.storage_options
        self._bare_uri = f"{store.fresh_root()}/bare.lance"
        self._bare = lance.write_dataset(
            copy, self._bare_uri, enable_stable_row_ids=True, storage_options=self._options
        )

    def pairs(self) -> Sequence[tuple[str, Callable[[], object], Callable[[], object]]]:
        insert, read, ask, open_ = TIMED
        return (
            (insert, self._insert, _bare(self._bare_insert)),
            (read, lambda: self._handle.read("node:Person"), _bare(lambda: self._bare.to_table().to_pylist())),
            (ask, self._handle.snapshot, _bare(lambda: self._bare.latest_version)),
            (open_, lambda: self._engine.open(self._uri).close(), _bare(self._bare_open)),
        )

    def _insert(self) -> object:
        data = {"name": f"new{next(self._numbers)}", "age": 7}
        return self._handle.mutate({"op": "insert", "type": "Person", "data": data})

    def _bare_insert(self) -> object:
        name = f"new{next(self._numbers)}"
        row = {**dict.fromkeys(self._bare.schema.names), "id": name, "name": name, "age": 7}
        rows = pa.Table.from_pylist([row], schema=self._bare.schema)
        return self._bare.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def _bare_open(self) -> object:
        return lance.dataset(self._bare_uri, storage_options=self._options)


def _bare(work: Callable[[], Done]) -> Callable[[], Done]:
    """What Lance does alone; where it cannot, that is said in words and is nobody's ratio."""

    def done() -> Done:
        try:
            return work()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise SweepBroken(f"bare Lance broke down: {error}") from error

    return done


def environment() -> dict[str, Any]:
    """Where this runs, as far as it changes a ratio."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "pylance": version("pylance"),
        "touchstone": version("omnigraph-touchstone"),
    }


def _processor() -> str:
    """The processor's own name, where it can be had: two machines with as many cores may be very different ones."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


# -- history -----------------------------------------------------------------------------------------------------------


def save(path: Path, run: BenchRun) -> None:
    """Add a run to a history, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        # The last line may have lost its end, and is to stay a line of its own.
        between = b"" if file.read(1) in (b"", b"\n") else b"\n"
        file.write(between + json.dumps(run.as_json()).encode() + b"\n")


def read_history(path: Path) -> list[BenchRun]:
    """All runs of a history, the oldest first; none where there is no file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except IsADirectoryError as error:
        raise HistoryError(f"{path} is a folder, not a file") from error
    except UnicodeDecodeError as error:
        raise HistoryError(f"{path}: is no text in UTF-8: {error.reason} at byte {error.start}{_INSTEAD}") from error
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_run_of(json.loads(line)))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise HistoryError(f"{path}:{number}: is no run of a benchmark: {_in_words(error)}{_INSTEAD}") from error
    return found


def _in_words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON: {error.msg}, column {error.colno}"
    if isinstance(error, RecursionError):
        return "it is nested deeper than any run is"
    return str(error)


def usual(history: Sequence[BenchRun], now: BenchRun) -> BenchRun | None:
    """What runs like this one usually gave: the median of the last few of the same engine, in whichever version, that
    were reached and timed alike, in the same place. None without one.

    Against the last run alone an engine could get slower for ever, a little within the noise each time.
    """
    alike = [run for run in _timed_alike(history, now) if _place(run) == _place(now)][-RUNS_COMPARED:]
    if not alike:
        return None
    names = dict.fromkeys(ratio.name for run in alike for ratio in run.ratios)
    return replace(alike[-1], ratios=tuple(_median(name, alike) for name in names))


def elsewhere(history: Sequence[BenchRun], now: BenchRun) -> list[str]:
    """How the place of the newest run that was timed alike differs from this one, in words; nothing without one."""
    alike = _timed_alike(history, now)
    if not alike:
        return []
    then, here = _place(alike[-1]), _place(now)
    return [f"{name} {then.get(name)} then, {here.get(name)} now" for name in here if then.get(name) != here[name]]


def timed_otherwise(history: Sequence[BenchRun], now: BenchRun) -> list[str]:
    """How the newest run of this engine on this store was timed otherwise, in words; nothing without one."""
    same = [run for run in history if (run.store, _name(run.engine)) == (now.store, _name(now.engine))]
    if not same:
        return []
    then = same[-1]
    rounds = [f"{then.rounds} rounds, and this one {now.rounds}"] if then.rounds != now.rounds else []
    adapter = [f"the engine '{then.adapter}', and this one '{now.adapter}'"] if then.adapter != now.adapter else []
    return rounds + adapter


def _timed_alike(history: Sequence[BenchRun], now: BenchRun) -> list[BenchRun]:
    def timed(run: BenchRun) -> tuple[object, ...]:
        return run.store, run.rounds, run.adapter, _name(run.engine)

    return [run for run in history if timed(run) == timed(now)]


def _place(run: BenchRun) -> dict[str, Any]:
    """Where a run was measured. The version of this project says nothing about that: it is what changes."""
    return {name: value for name, value in run.environment.items() if name != "touchstone"}


def _median(name: str, runs: Sequence[BenchRun]) -> Ratio:
    found = [ratio for run in runs for ratio in run.ratios if ratio.name == name]
    ratio, noise = (
        statistics.median(values) for values in ([each.ratio for each in found], [each.noise for each in found])
    )
    return Ratio(name, round(ratio, 3), round(noise, 3))


def _name(engine: str) -> str:
    return engine.rpartition(" ")[0]


def _run_of(body: Any) -> BenchRun:
    if _typed(body, "format", int) != FORMAT:
        raise ValueError(f"it has another format than {FORMAT}")
    run = BenchRun(**{**body, "ratios": tuple(map(_ratio_of, _typed(body, "ratios", list)))})
    for name in ("engine", "store", "at", *(("adapter",) if "adapter" in body else ())):
        _typed(body, name, str)
    _typed(body, "rounds", int)
    _typed(body, "environment", dict)
    if _HALF_A_CHARACTER.search(json.dumps(body, ensure_ascii=False)):
        raise ValueError("it has half of a character, which can be written nowhere")
    return run


def _ratio_of(body: Any) -> Ratio:
    name = _typed(body, "name", str)
    ratio, noise = (float(_typed(body, number, int, float)) for number in ("ratio", "noise"))
    if not (math.isfinite(ratio) and ratio > 0 and 0 <= noise <= _NOISE_MAX):
        raise ValueError(f"'{name}' has the ratio {ratio} with the noise {noise}")
    return Ratio(name, ratio, noise)


def _typed(body: Any, name: str, *kinds: type) -> Any:
    """A field of a kind. What is true or false is no number here, although Python counts it as one."""
    if not isinstance(body, dict):
        raise TypeError(f"an object with a '{name}' is expected, not {_kind(body)}")
    if name not in body:
        raise TypeError(f"it has no '{name}'")
    value = body[name]
    if type(value) not in kinds:
        raise TypeError(f"'{name}' is {_kind(value)}, not {' or '.join(_KINDS[kind] for kind in kinds)}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")


def differences(now: BenchRun, then: BenchRun) -> list[Difference]:
    """Every ratio of a run against a saved one. It is slower only beyond the noise of both."""
    known = {ratio.name: ratio for ratio in then.ratios}
    found = []
    for ratio in now.ratios:
        before = known.get(ratio.name)
        if before is None:
            found.append(Difference(ratio.name, None, ratio.ratio, 0.0))
            continue
        allowed = _MARGIN + 2 * max(ratio.noise, before.noise)
        slower = ratio.ratio > before.ratio * (1 + allowed)
        found.append(Difference(ratio.name, before.ratio, ratio.ratio, round(allowed, 3), slower))
    return found
