"""Load on Spark: any number of records into a branch, checked as the engine checks them, as one graph commit [LOD].

    find      the files of the input, cut into pieces; the records of JSON files are counted, so each has its number
    scan      tasks type their records, check values, write fragments and exchange keys; buckets of keys check the rest
    reject    what is wrong, in the engine's words and order; unless all of it may be left out, nothing is published
    write     what the scan could not write yet: pieces without their rejected records, tables that had no fork
    commit    each table once, under one sidecar, published once, as any other writer does

The snapshot is pinned once. If other writers publish meanwhile, the keys of an append or a merge are checked again on
what is there now, and the fragments that are written stay; an overwrite was decided on what it saw, and is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from ulid import ULID

from reference.errors import BadRequest, CommitConflict, Conflict, ExpectedVersionMismatch, OmniError
from reference.format.manifest import GraphCommit, TableEntry
from reference.format.names import branch_label, branch_location, table_path
from reference.format.records import TableRecords
from reference.format.values import shown
from reference.operations.branches import ensure_fork, refuse_internal
from reference.operations.changeset import ChangeSet, TableChange
from reference.operations.load import LoadMode
from reference.pipeline.found_input import found_input
from reference.pipeline.inputs import Piece, Place
from reference.pipeline.keyed_scan import KeyedScan
from reference.pipeline.keys import committed_needs
from reference.pipeline.pinned import picklable, pin_snapshot
from reference.pipeline.rejections import Rejection, one_each, piece_of, write_quarantine
from reference.pipeline.scan import (
    CommittedItem,
    FetchItem,
    PieceItem,
    PieceReport,
    TextItem,
    Wanted,
    fetch_rows,
    fetch_texts,
    write_piece,
)
from reference.pipeline.staging import Target, Workplace, announce, data_files, refuse_if_forgotten, settle, stage
from reference.pipeline.tasks import Progress, run_tasks
from reference.pipeline.verdict import Judge, Verdict, joined_records
from reference.protocol.commit import _CONTENTION, Intent, TableWork, commit_graph, committing, with_retries
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.schema.types import Catalog, EdgeType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.graph import Graph

COMMIT_ATTEMPTS_MAX = 5
FRAGMENTS_PER_TASK = 8
KEYS_PER_BUCKET = 2_000_000


@dataclass(frozen=True)
class LoadReport:
    """What a load did."""

    branch: str
    mode: LoadMode
    nodes_loaded: int
    edges_loaded: int
    commit: GraphCommit
    tables: tuple[dict[str, Any], ...]
    rejected: int = 0
    quarantine: str | None = None
    files_removed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "commit": self.commit.to_json(), "tables": list(self.tables)}


def pipeline_load(
    graph: Graph,
    source: str,
    *,
    mode: LoadMode,
    spark: SparkSession,
    branch: str | None = None,
    actor: str | None = None,
    max_rejected: int = 0,
    quarantine: str | None = None,
    progress: Progress | None = None,
) -> LoadReport:
    """Load the records of `source` into a branch. Up to `max_rejected` records may be left out."""
    if mode not in get_args(LoadMode):
        raise BadRequest(f"{shown(mode)} is not a mode: there are append, merge and overwrite", code="invalid_mode")
    store = graph.store
    target = branch_key(graph.branch if branch is None else branch.strip())
    refuse_internal(branch_label(target), "load")
    heal(store)
    env = {name: value for name, value in store.env.items() if name.startswith("AWS_")}
    job = _Load(
        graph=graph,
        spark=spark,
        progress=progress,
        place=Place.of(source, env),
        mode=mode,
        branch=target,
        actor=actor,
        max_rejected=max_rejected,
        quarantine=Place.of(quarantine or _beside(source), env),
        work=Workplace(store.root.uri, str(ULID()), mode, env),
    )
    return job.run()


def _beside(source: str) -> str:
    """Where rejected records go if nobody says: next to the input, and never into it."""
    plain = source.rstrip("/")
    for mark in "*?[":
        plain = plain.partition(mark)[0]
    return f"{plain.rstrip('/')}.rejected"


@dataclass(frozen=True)
class _Written:
    """The fragments of one piece and table, and the records that they leave out."""

    parts: tuple[str, ...]
    excluded: tuple[int, ...]


@dataclass
class _Load:
    """One load under way."""

    graph: Graph
    spark: SparkSession
    progress: Progress | None
    place: Place
    mode: LoadMode
    branch: str | None
    actor: str | None
    max_rejected: int
    quarantine: Place
    work: Workplace
    pieces: list[Piece] = field(default_factory=list)
    guess: frozenset[str] = frozenset()
    excluded: dict[int, Rejection] = field(default_factory=dict)
    reports: dict[int, PieceReport] = field(default_factory=dict)
    fragments: dict[tuple[int, str], _Written] = field(default_factory=dict)
    kept_in: str | None = None

    def __post_init__(self) -> None:
        self.store = self.graph.store
        self.catalog: Catalog = self.graph.catalog
        self.shipped = picklable(self.catalog)
        self.paths = [table_path(key) for key in self.catalog.table_keys()]

    def run(self) -> LoadReport:
        self.pieces, self.guess = found_input(self.place, self.catalog, self._tasks)
        snapshot = self.store.manifests.fresh(self.branch).snapshot()
        announce(self.store.objects, self.paths[:1], self.work.job)
        try:
            verdict = self._validated(snapshot, write=True)
            self._write_the_rest(snapshot)
            commit = self._commit(snapshot, verdict)
        except OmniError as error:
            if error.kind in ("bad_request", "not_found", "conflict"):
                self._settle(())  # What was refused for good leaves nothing; what is pending keeps its files.
            raise
        removed = self._settle(data_files(each for parts in self._by_table().values() for each in parts))
        return self._report(commit, removed)

    def _tasks(self, stage: str, items: Sequence[Any], function: Any) -> list[Any]:
        return run_tasks(self.spark, stage, items, function, progress=self.progress)

    # -- scan and reject --------------------------------------------------------------------------------------------

    def _validated(self, snapshot: Snapshot, *, write: bool) -> Verdict:
        """Check everything against a snapshot, and leave out what may be left out, until nothing more is wrong."""
        while True:
            scan, verdict = self._checked(snapshot, write=write)
            found = one_each([*(each for report in scan for each in report.rejected), *verdict.rejections])
            if not found:
                return verdict
            write = False
            self._reject(found, sum(report.rejected_count - len(report.rejected) for report in scan))

    def _checked(self, snapshot: Snapshot, *, write: bool) -> tuple[list[PieceReport], Verdict]:
        while True:
            scan = self._scan(snapshot, write=write)
            reports = scan.reports()
            self._keep(reports)
            malformed = frozenset(self.pieces[each.index].file.path for each in reports if each.is_malformed)
            if malformed:
                again = found_input(self.place, self.catalog, self._tasks, self.pieces, malformed)
                self.pieces, self.guess = again[0], self.guess | again[1]
                self.fragments.clear()
                continue
            touched = frozenset(self._rows())
            # An overwritten table must be known as such; for the others, to have read more than is needed does no harm.
            if touched <= self.guess and (self.mode != "overwrite" or touched == self.guess):
                break
            self.guess = touched
            write = False
        findings = scan.findings(touched)
        firsts: dict[str, int] = {}
        for report in reports:
            for key, first in report.firsts.items():
                firsts[key] = min(first, firsts.get(key, first))
        judge = Judge(self.store, snapshot, self.shipped, self.mode, firsts, self._fetch)
        return reports, judge.verdict(findings)

    def _scan(self, snapshot: Snapshot, *, write: bool) -> KeyedScan:
        needs = committed_needs(self.shipped, self.mode, self.guess, self.guess)
        pinned = pin_snapshot(self.store, replace_entries(snapshot, needs), self.shipped)
        committed = sum(pinned.tables[key].row_count for key in needs if key in pinned.tables)
        keys = committed + sum(piece.records for piece in self.pieces)
        buckets = max(self.spark.sparkContext.defaultParallelism, keys // KEYS_PER_BUCKET + 1)
        targets = self._targets(snapshot, owned_only=True) if write else {}
        items: list[PieceItem | CommittedItem] = [
            PieceItem(index, piece, self.place, self.shipped, self.work, targets, self._excluded(piece), buckets)
            for index, piece in enumerate(self.pieces)
            if piece.records
        ]
        for key, need in needs.items():
            table = pinned.tables.get(key)
            if table is None or not table.row_count:
                continue
            for start in range(0, len(table.fragment_ids), FRAGMENTS_PER_TASK):
                some = tuple(range(start, min(start + FRAGMENTS_PER_TASK, len(table.fragment_ids))))
                items.append(CommittedItem(table, some, self.shipped, need, buckets, pinned.storage_options))
        return KeyedScan(self.spark, items, buckets, self.shipped, self.mode, self.progress)

    def _targets(self, snapshot: Snapshot, *, owned_only: bool) -> dict[str, Target]:
        """The tables that can be written: on a branch, those that it owns already, or all once they are forked."""
        return {
            key: Target(entry.path, self.branch, entry.version)
            for key, entry in snapshot.entries.items()
            if entry.branch == self.branch or not owned_only
        }

    def _excluded(self, piece: Piece) -> tuple[int, ...]:
        return tuple(number for number in self.excluded if piece.first <= number < piece.first + piece.records)

    def _keep(self, reports: Sequence[PieceReport]) -> None:
        self.reports = {report.index: report for report in reports}
        self._keep_fragments(reports)

    def _keep_fragments(self, reports: Sequence[PieceReport]) -> None:
        for report in reports:
            excluded = self._excluded(self.pieces[report.index])
            for key, parts in report.fragments.items():
                self.fragments[report.index, key] = _Written(parts, excluded)

    def _fetch(self, wanted: Mapping[str, Wanted]) -> dict[str, TableRecords]:
        """Some records of some tables, from all pieces that have any of these tables."""
        items = [
            FetchItem(self.pieces[index], self.place, self.shipped, wanted, self._excluded(self.pieces[index]))
            for index, report in self.reports.items()
            if report.rows.keys() & wanted.keys()
        ]
        parts: dict[str, list[TableRecords]] = defaultdict(list)
        for found in self._tasks("look up records", items, fetch_rows):
            for key, records in found.items():
                parts[key].append(records)
        return {key: joined_records(each) for key, each in parts.items()}

    def _reject(self, found: Sequence[Rejection], unseen: int) -> None:
        """Leave these records out, or refuse the load because of the first of them. `unseen` are beyond those."""
        everything = [*self.excluded.values(), *found]
        self.excluded |= {each.record: each for each in found if each.record is not None}
        count = len(self.excluded) + unseen
        if count > self.max_rejected or unseen or any(each.record is None for each in found):
            self._quarantine(everything)
            error = min(everything, key=lambda each: each.order).to_error()
            error.hint = f"all that is rejected, {count} in number, is in {self.kept_in}"
            raise error

    def _quarantine(self, rejected: Sequence[Rejection]) -> None:
        by_piece: dict[Piece, list[int]] = defaultdict(list)
        for each in rejected:
            if each.record is not None:
                by_piece[piece_of(self.pieces, each.record)].append(each.record)
        items = [
            TextItem(piece, self.place, self.shipped, tuple(sorted(set(numbers))))
            for piece, numbers in by_piece.items()
        ]
        found = {
            number: each for part in self._tasks("quarantine", items, fetch_texts) for number, each in part.items()
        }
        self.kept_in = write_quarantine(self.quarantine, f"rejected-{self.work.job}", rejected, found)

    # -- write ------------------------------------------------------------------------------------------------------

    def _write_the_rest(self, snapshot: Snapshot) -> None:
        """Fork what is touched, and write what the scan has not: forked tables, and pieces with rejected records."""
        if self.excluded:
            self._quarantine(list(self.excluded.values()))
        for key in sorted(self._rows()):
            ensure_fork(self.store, self.branch, snapshot.entry(key))
        targets = self._targets(snapshot, owned_only=False)
        items = []
        for index, report in self.reports.items():
            piece = self.pieces[index]
            excluded = self._excluded(piece)
            missing = {}
            for key, rows in report.rows.items():
                written = self.fragments.get((index, key))
                if written is not None and (not rows or written.excluded != excluded):
                    del self.fragments[index, key]
                    written = None
                if rows and written is None:
                    missing[key] = targets[key]
            if missing:
                items.append(PieceItem(index, piece, self.place, self.shipped, self.work, missing, excluded))
        self._keep_fragments(self._tasks("write the rest", items, write_piece))

    def _rows(self) -> dict[str, int]:
        """The rows that go into each table; a table whose every record was rejected is not touched."""
        rows: dict[str, int] = defaultdict(int)
        for report in self.reports.values():
            for key, count in report.rows.items():
                rows[key] += count
        return {key: count for key, count in rows.items() if count}

    def _by_table(self) -> dict[str, list[str]]:
        """The fragments of each table, in the order of the records."""
        found: dict[str, list[str]] = defaultdict(list)
        for (_, key), written in sorted(self.fragments.items(), key=lambda each: each[0]):
            found[key] += written.parts
        return found

    # -- commit -----------------------------------------------------------------------------------------------------

    def _commit(self, snapshot: Snapshot, verdict: Verdict) -> GraphCommit:
        for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
            try:
                return with_retries(self.store, partial(self._commit_once, snapshot, verdict), strict=True)
            except Conflict as error:
                if self.mode == "overwrite" or error.code not in _CONTENTION or attempt == COMMIT_ATTEMPTS_MAX:
                    raise
            heal(self.store)
            if self.branch is not None:
                self.fragments.clear()  # A fork may have been made anew, and what was written in it went with it.
            snapshot = self.store.manifests.fresh(self.branch).snapshot()
            verdict = self._validated(snapshot, write=False)
            self._write_the_rest(snapshot)
        raise AssertionError("the last attempt returns or raises")

    def _commit_once(self, snapshot: Snapshot, verdict: Verdict) -> GraphCommit:
        if self.store.schema.current().catalog is not self.catalog:
            raise Conflict("another schema was accepted while records were read", code="schema_changed", hint="retry")
        refuse_if_forgotten(self.store.objects, self.paths[:1], self.work.job)
        works = []
        for key, fragments in sorted(self._by_table().items()):
            entry, schema = snapshot.entry(key), self.catalog.arrow_schema(key)
            self._refuse_lost_files(entry, fragments)
            replaced = verdict.replaced.get(key)
            staged = stage(self.store, entry, self.branch, self.mode, schema, fragments, replaced)
            move = committing(self.store, staged, entry.path, self.branch)
            works.append(TableWork(entry, self.branch, (move,)))
        empty = {work.table_key: TableChange(work.table_key, pa.table({}), how=self.mode) for work in works}
        reads = ChangeSet(snapshot, empty).reads(self.catalog)
        intent = Intent(
            kind="Load",
            branch=self.branch,
            incarnation=snapshot.incarnation,
            actor=self.actor,
            works=tuple(works),
            reads=reads,
            recheck=lambda later: _refuse_moved_reads(later, reads),
            watch=frozenset(reads),
        )
        return commit_graph(self.store, intent)

    def _refuse_lost_files(self, entry: TableEntry, fragments: Sequence[str]) -> None:
        """A fork that is not placed yet may be removed by whoever finds it: Lance would commit what is gone."""
        if self.branch is None:
            return
        there = set(self.store.objects.list_dir(f"{branch_location(entry.path, self.branch)}/data"))
        if not there.issuperset(data_files(fragments)):
            raise CommitConflict(f"the fork of '{entry.table_key}'", "it was made anew", retryable=True)

    def _settle(self, kept: Any) -> int:
        return settle(self.store.objects, self.paths, self.work.job, kept)

    def _report(self, commit: GraphCommit, removed: int) -> LoadReport:
        rows, fragments = self._rows(), self._by_table()
        tables = tuple({"table": key, "rows": rows[key], "fragments": len(fragments[key])} for key in sorted(rows))
        edges = sum(count for key, count in rows.items() if isinstance(self.catalog.type_of(key), EdgeType))
        return LoadReport(
            branch=branch_label(self.branch),
            mode=self.mode,
            nodes_loaded=sum(rows.values()) - edges,
            edges_loaded=edges,
            commit=commit,
            tables=tables,
            rejected=len(self.excluded),
            quarantine=self.kept_in,
            files_removed=removed,
        )


def replace_entries(snapshot: Snapshot, keys: Any) -> Snapshot:
    """The snapshot with only some of its tables: the others are not even opened."""
    return replace(snapshot, entries={key: snapshot.entries[key] for key in keys if key in snapshot.entries})


def _refuse_moved_reads(later: Snapshot, reads: Mapping[str, int]) -> None:
    """Tables that were only looked at must be what they were: whoever moved them may have removed an endpoint."""
    for key, version in reads.items():
        entry = later.entries.get(key)
        if entry is None or entry.version != version:
            raise ExpectedVersionMismatch(key, version, 0 if entry is None else entry.version)
