"""The records that runs leave: `report.json` of a run, `cost.json` of a measurement, lines of `benchmarks.jsonl`.

They come from many engines, nights and versions of the kit, so nothing is taken for granted: what is no such record is
named with its file and the reason, and the rest is used. Each fact carries the moment of its run; a `cost.json` knows
none, and gets that of its file.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from reference.errors import BadRequest, NotFound

# What a directory is searched for. A file that is named, or that a pattern finds, may have any name.
RECORD_NAMES: Final = ("report.json", "cost.json", "benchmarks.jsonl")
FORMAT: Final = 1
COST_MEASURES: Final = ("requests", "bytes_read", "bytes_written")
BENCH_MEASURE: Final = "times bare Lance"


@dataclass(frozen=True)
class Verdict:
    """What became of a requirement in one run, on one store."""

    engine: str
    version: str | None
    store: str
    requirement: str
    at: str
    outcome: str


@dataclass(frozen=True)
class Cost:
    """What an operation cost in one run."""

    engine: str
    store: str
    operation: str
    measure: str
    at: str
    value: float


@dataclass(frozen=True)
class Malformed:
    """A record that cannot be used, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Facts:
    """What one file says."""

    records: int = 0
    verdicts: tuple[Verdict, ...] = ()
    costs: tuple[Cost, ...] = ()
    malformed: tuple[Malformed, ...] = ()


class _NotARecord(Exception):
    """Why something is no record."""


def find_records(sources: Sequence[str]) -> list[str]:
    """The files that some directories, files and patterns name; each once."""
    found: dict[str, None] = {}
    for source in sources:
        path = Path(source)
        if path.is_dir():
            matched = [str(each) for name in RECORD_NAMES for each in path.rglob(name) if each.is_file()]
        elif path.is_file():
            matched = [source]
        else:
            matched = [each for each in glob.glob(source, recursive=True) if os.path.isfile(each)]
        if not matched:
            hint = f"a directory is searched for {', '.join(RECORD_NAMES)}"
            raise NotFound(f"there are no run records at {source}", code="no_records", hint=hint)
        found |= dict.fromkeys(os.path.abspath(each) for each in sorted(matched))
    if not found:
        raise BadRequest("name a directory, a file or a pattern", code="no_records")
    return list(found)


def read_records(file: str) -> Facts:
    """Everything that a file says. Whatever is wrong with it is part of the answer."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        changed_at = datetime.fromtimestamp(os.path.getmtime(file), UTC)
    except (OSError, UnicodeDecodeError) as error:
        return Facts(malformed=(Malformed(file, f"it cannot be read: {error}"),))
    if file.endswith(".jsonl"):
        lines = [(f"{file}:{number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    else:
        lines = [(file, text)]
    return _together([_one(place, line, changed_at) for place, line in lines])


def _together(parts: Sequence[Facts]) -> Facts:
    return Facts(
        sum(part.records for part in parts),
        tuple(each for part in parts for each in part.verdicts),
        tuple(each for part in parts for each in part.costs),
        tuple(each for part in parts for each in part.malformed),
    )


def _one(place: str, text: str, changed_at: datetime) -> Facts:
    try:
        body = json.loads(text)
        if not isinstance(body, dict):
            raise _NotARecord("it is not a JSON object")
        return _decoded(body, changed_at)
    except _NotARecord as reason:
        why = str(reason)
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:
        why = f"it is not JSON: {error}"
    return Facts(malformed=(Malformed(place, why),))


def _decoded(body: Mapping[str, Any], changed_at: datetime) -> Facts:
    kinds: Sequence[tuple[str, Callable[[Mapping[str, Any], datetime], Facts]]] = (
        ("requirements", _report),
        ("measurements", _cost),
        ("ratios", _bench),
    )
    for name, decode in kinds:
        if name in body:
            if body.get("format") != FORMAT:
                raise _NotARecord(f"its format is {body.get('format')!r}, and this reads {FORMAT}")
            try:
                return decode(body, changed_at)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise _NotARecord(f"it lacks what such a record has: {type(error).__name__}: {error}") from None
    raise _NotARecord("it is neither a report, nor a cost measurement, nor a run of benchmarks")


def _report(body: Mapping[str, Any], _: datetime) -> Facts:
    engine, at = body["engine"], _moment(body["run"]["started_at"])
    name, version = _text(engine["name"] or engine["spec"]), engine["version"]
    found = [
        Verdict(name, version, _text(store), _text(entry["id"]), at, _text(result["outcome"]))
        for entry in body["requirements"]
        for store, result in entry["stores"].items()
    ]
    return Facts(1, tuple(found))


def _cost(body: Mapping[str, Any], changed_at: datetime) -> Facts:
    """Of each operation the point with the longest history counts: growth shows there first."""
    deepest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for point in body["measurements"]:
        # A file may have several stores; then each point says which is its own.
        store = _text(point.get("store", body["store"]))
        key = (store, _text(point["operation"]), _text(point["ground"]))
        if key not in deepest or point["variables"]["H"] >= deepest[key]["variables"]["H"]:
            deepest[key] = point
    engine, at = _text(body["engine"]), _written(changed_at)
    found = [
        Cost(engine, store, f"{operation} ({ground})", measure, at, float(point[measure]))
        for (store, operation, ground), point in deepest.items()
        for measure in COST_MEASURES
    ]
    return Facts(1, (), tuple(found))


def _bench(body: Mapping[str, Any], _: datetime) -> Facts:
    engine, store, at = _text(body["engine"]).rpartition(" ")[0], _text(body["store"]), _moment(body["at"])
    found = [
        Cost(engine or body["engine"], store, _text(each["name"]), BENCH_MEASURE, at, float(each["ratio"]))
        for each in body["ratios"]
    ]
    return Facts(1, (), tuple(found))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{value!r} is no name")
    return value


def _moment(text: str) -> str:
    found = datetime.fromisoformat(_text(text))
    return _written(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def _written(moment: datetime) -> str:
    """A moment in UTC, always spelled alike, so that texts sort as moments do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def columns_of(kind: type[Verdict] | type[Cost]) -> Iterator[str]:
    """The names and types of a fact's columns, as Spark takes them."""
    for name in kind.__dataclass_fields__:
        yield f"{name} {'double' if name == 'value' else 'string'}"
