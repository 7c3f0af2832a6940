"""What the auditor suspects by hash, looked at by value: only the columns concerned are read again.

A value that merely shares its hash with another one is let go here. Of a rule that very many rows break, a bounded
number of values is looked at, and the rest is counted by hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.audit.findings import Findings
from conformance.audit.rows import add_cardinality, add_dangling
from conformance.audit.rules import SAMPLES_MAX, duplicate_ids, shared_values
from conformance.audit.schema import TableType
from reference.pipeline.audit_rows import (
    READ_ERRORS,
    SUSPECTS_MAX,
    Dangling,
    OutOfBounds,
    Rule,
    Stream,
    Suspects,
    TablePiece,
    Twice,
    stream_hashes,
)
from reference.pipeline.hashing import Hashes


@dataclass(frozen=True)
class Suspicion:
    """What all buckets together suspect of one rule."""

    rule: Rule
    hashes: Hashes
    values: int
    rows: int

    @property
    def stream(self) -> Stream:
        rule = self.rule
        return rule.stream if isinstance(rule, Twice) else rule.ends if isinstance(rule, Dangling) else rule.sources

    @property
    def is_complete(self) -> bool:
        """Whether every value that is suspected is among those that are looked at."""
        return len(self.hashes) == self.values


@dataclass(frozen=True)
class SecondLook:
    """A piece of a table that suspects are to be found in."""

    piece: TablePiece
    suspicion: Suspicion


def gathered(found: Iterable[Suspects]) -> list[Suspicion]:
    """The suspicions of all buckets, rule by rule."""
    by_rule: dict[Rule, list[Suspects]] = {}
    for each in found:
        by_rule.setdefault(each.rule, []).append(each)
    return [
        Suspicion(
            rule,
            np.sort(np.concatenate([part.hashes for part in parts]))[:SUSPECTS_MAX],
            sum(part.values for part in parts),
            sum(part.rows for part in parts),
        )
        for rule, parts in by_rule.items()
    ]


def look_again(task: SecondLook) -> pa.Table | None:
    """What a piece holds of the suspects, by value. None where it cannot be read any more.

    Rows are counted before anything is left out: a value of very many rows comes back as one row with their number, one
    that must not come twice as at most two, and of edges without an end some.
    """
    stream = task.suspicion.stream
    columns = list(dict.fromkeys(["id", *stream.columns]))
    try:
        rows = task.piece.read(columns)
    except READ_ERRORS:
        return None
    if stream.columns[0] not in ("id", "src", "dst"):
        whole = np.ones(rows.num_rows, dtype=np.bool_)
        for name in stream.columns:
            whole &= rows[name].is_valid().to_numpy()
        rows = rows.filter(pa.array(whole))
    wanted = np.isin(stream_hashes(stream, rows), task.suspicion.hashes)
    rows = rows.filter(pa.array(wanted))
    if isinstance(task.suspicion.rule, Dangling):
        return rows.slice(0, SAMPLES_MAX)
    counted = rows.group_by(list(stream.columns), use_threads=False).aggregate([([], "count_all")])
    if isinstance(task.suspicion.rule, OutOfBounds):
        return counted
    times = np.minimum(counted["count_all"].to_numpy(), 2)
    return counted.select(list(stream.columns)).take(np.repeat(np.arange(counted.num_rows), times))


def report(
    found: Findings, suspicion: Suspicion, owner: TableType, node_type: str, where: str, rows: Sequence[pa.Table]
) -> None:
    """Turn a suspicion into a finding, if the values say so too."""
    if not rows:
        return
    table, rule = pa.concat_tables(rows), suspicion.rule
    if isinstance(rule, Twice):
        _report_twice(found, suspicion, where, table)
    elif isinstance(rule, OutOfBounds):
        _report_bounds(found, suspicion, rule, owner, where, table)
    else:
        end = suspicion.stream.columns[0]
        first = table.slice(0, SAMPLES_MAX)
        samples = list(zip(first["id"].to_pylist(), first[end].to_pylist(), strict=True))
        add_dangling(found, end, node_type, where, suspicion.rows, samples)


def _report_twice(found: Findings, suspicion: Suspicion, where: str, table: pa.Table) -> None:
    group, version = suspicion.stream.columns, suspicion.stream.storage[2]
    problems = duplicate_ids(table["id"]) if group == ("id",) else shared_values(group, table)
    for problem in problems:
        details, message = dict(problem.details), problem.message
        if not suspicion.is_complete:
            message = message.replace(f"{details['count']} ", f"{suspicion.values} ", 1)
            details["count"] = suspicion.values
        found.add(problem.code, where, message, version=version, **details)


def _report_bounds(
    found: Findings, suspicion: Suspicion, rule: OutOfBounds, owner: TableType, where: str, table: pa.Table
) -> None:
    counts: Counter[Any] = Counter()
    for source, count in zip(
        table[suspicion.stream.columns[0]].to_pylist(), table["count_all"].to_pylist(), strict=True
    ):
        if source is not None:
            counts[source] += count
    most = float("inf") if rule.maximum is None else rule.maximum
    wrong = [(source, count) for source, count in counts.items() if not rule.minimum <= count <= most]
    if wrong:
        count = len(wrong) if suspicion.is_complete else suspicion.values
        add_cardinality(found, owner, where, count, wrong[:SAMPLES_MAX])
