"""The rows of tables, looked at by tasks: what the auditor's rules say of single rows, and hashes for what they do not.

One pass over a table finds what single rows break, with the auditor's own rules, and sends the hashes of ids, unique
values and ends of edges to buckets. A bucket sees every hash that could be equal to one that it has, so it can tell
which values come twice, which ends no node has, and how many edges a source has. What it suspects is read again and
looked at by value (`audit_suspects`): no finding rests on a hash alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conformance.audit.pins import Storage
from conformance.audit.rules import Problem, row_problems
from conformance.audit.schema import TableType
from reference.pipeline.hashing import Hashes, column_hashes, row_hashes
from reference.pipeline.scans import chosen_fragments

Counts = npt.NDArray[np.int64]
# What Lance and Arrow raise for what cannot be read, as the auditor has it.
READ_ERRORS: Final = (pa.ArrowException, OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError)
# A bucket names so many suspects of a rule. There is a finding either way; only its count is then one of hashes.
SUSPECTS_MAX: Final = 10_000


@dataclass(frozen=True)
class Stream:
    """Hashes of one table: of some columns together. Ends of edges come with how often each occurs."""

    storage: Storage
    columns: tuple[str, ...]
    counted: bool = False


@dataclass(frozen=True)
class Twice:
    """No two rows of a table share these values."""

    stream: Stream


@dataclass(frozen=True)
class Dangling:
    """Every end of an edge is the id of a node."""

    ends: Stream
    nodes: Stream


@dataclass(frozen=True)
class OutOfBounds:
    """No source has more edges than this, or fewer than that."""

    sources: Stream
    minimum: int
    maximum: int | None


Rule = Twice | Dangling | OutOfBounds


@dataclass(frozen=True)
class TablePiece:
    """Some fragments of a table, opened without the engine's help."""

    storage: Storage
    uri: str
    fragment_ids: tuple[int, ...]
    columns: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False)

    def read(self, columns: Iterable[str] | None = None) -> pa.Table:
        import lance

        version = self.storage[2]
        handle = lance.dataset(self.uri, version=version, storage_options=dict(self.storage_options) or None)
        fragments = chosen_fragments(handle, self.fragment_ids)
        return handle.scanner(columns=list(columns or self.columns), fragments=fragments).to_table()


@dataclass(frozen=True)
class Look:
    """What one task looks at: a piece of a table, its rules, and the hashes that are wanted of it."""

    piece: TablePiece
    owner: TableType
    streams: tuple[Stream, ...]
    buckets: int


@dataclass(frozen=True)
class Seen:
    """What a task says of its piece: how many rows it has and what they break, or why it could not be read.

    Answers come in no order; by their fragments they are put into that of the table.
    """

    storage: Storage
    fragment_ids: tuple[int, ...]
    rows: int = 0
    problems: tuple[Problem, ...] = ()
    unreadable: str | None = None


@dataclass(frozen=True)
class Hashed:
    """Hashes of one stream that belong to one bucket."""

    stream: Stream
    hashes: Hashes
    counts: Counts | None


@dataclass(frozen=True)
class Suspects:
    """What a rule does not hold for, as far as hashes can tell: which, and how many of them, and of rows."""

    rule: Rule
    hashes: Hashes
    values: int
    rows: int


def look(task: Look) -> Iterator[tuple[int, Seen | Hashed]]:
    """Look at a piece; what is seen goes to the bucket after the last, which the driver reads."""
    storage, fragments = task.piece.storage, task.piece.fragment_ids
    try:
        rows = task.piece.read()
        problems = tuple(row_problems(task.owner, rows))
    except READ_ERRORS as error:
        yield task.buckets, Seen(storage, fragments, unreadable=f"{error}" or type(error).__name__)
        return
    for stream in task.streams:
        yield from _scattered(stream, rows, task.buckets)
    yield task.buckets, Seen(storage, fragments, rows.num_rows, problems)


def _scattered(stream: Stream, rows: pa.Table, buckets: int) -> Iterator[tuple[int, Hashed]]:
    hashes = stream_hashes(stream, rows)
    counts: Counts | None = None
    if stream.counted:
        hashes, counts = np.unique(hashes, return_counts=True)
    owners = (hashes % np.uint64(buckets)).astype(np.int64)
    for bucket in range(buckets):
        mine = np.flatnonzero(owners == bucket)
        if len(mine):
            yield bucket, Hashed(stream, hashes[mine], None if counts is None else counts[mine])


def stream_hashes(stream: Stream, rows: pa.Table) -> Hashes:
    """One hash per row: of ids and ends that of the text; of several columns those without a null among them."""
    if len(stream.columns) == 1 and stream.columns[0] in ("id", "src", "dst"):
        return column_hashes(rows[stream.columns[0]])
    filled = rows.select(list(stream.columns)).drop_null()
    return row_hashes(filled.columns)


def suspects(rules: tuple[Rule, ...], bucket: int, blocks: Iterable[Any]) -> list[Suspects] | list[Seen]:
    """What a bucket suspects; the one after the last holds what tasks have seen."""
    received: dict[Stream, list[Hashed]] = {}
    seen: list[Seen] = []
    for block in blocks:
        if isinstance(block, Seen):
            seen.append(block)
        else:
            received.setdefault(block.stream, []).append(block)
    if seen:
        return seen
    streams = {stream: _combined(parts) for stream, parts in received.items()}
    return [found for rule in rules if (found := _suspected(rule, streams)) is not None]


def _combined(parts: list[Hashed]) -> tuple[Hashes, Counts]:
    """The distinct hashes of a stream, sorted, and how many rows have each."""
    hashes = np.concatenate([part.hashes for part in parts])
    if parts[0].counts is None:
        return np.unique(hashes, return_counts=True)
    counts = np.concatenate([part.counts for part in parts if part.counts is not None])
    distinct, places = np.unique(hashes, return_inverse=True)
    return distinct, np.bincount(places, weights=counts, minlength=len(distinct)).astype(np.int64)


def _suspected(rule: Rule, streams: Mapping[Stream, tuple[Hashes, Counts]]) -> Suspects | None:
    stream = rule.stream if isinstance(rule, Twice) else rule.ends if isinstance(rule, Dangling) else rule.sources
    if stream not in streams:
        return None
    hashes, counts = streams[stream]
    if isinstance(rule, Twice):
        wrong = counts > 1
    elif isinstance(rule, Dangling):
        known = streams[rule.nodes][0] if rule.nodes in streams else np.empty(0, np.uint64)
        wrong = ~_among(hashes, known)
    else:
        wrong = counts < rule.minimum
        if rule.maximum is not None:
            wrong |= counts > rule.maximum
    if not wrong.any():
        return None
    return Suspects(rule, hashes[wrong][:SUSPECTS_MAX], int(wrong.sum()), int(counts[wrong].sum()))


def _among(wanted: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Which of some hashes are among others; both are sorted."""
    if not len(known):
        return np.zeros(len(wanted), dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.equal(known[places], wanted)
