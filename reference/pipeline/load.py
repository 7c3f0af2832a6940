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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from ulid import ULID

from reference.errors import BadRequest, Conflict, NotFound, OmniError, StorageError
from reference.format.manifest import GraphCommit
from reference.format.names import branch_label, table_path
from reference.format.values import shown
from reference.operations.branches import ensure_fork, refuse_internal
from reference.operations.load import LoadMode
from reference.pipeline.found_input import Guess, found_input
from reference.pipeline.fragments import Fragments
from reference.pipeline.inputs import Piece, Place
from reference.pipeline.keyed_scan import KeyedScan
from reference.pipeline.keys import committed_needs, is_limited
from reference.pipeline.load_commit import LoadCommit, only_tables
from reference.pipeline.look_up import Fetched, FetchItem, Wanted, fetch_rows, joined
from reference.pipeline.pinned import picklable, pin_snapshot
from reference.pipeline.rejected import Rejected, beside
from reference.pipeline.rejections import one_each, share
from reference.pipeline.scan import CommittedItem, PieceItem, PieceReport, write_piece
from reference.pipeline.staging import Target, Workplace, announce, data_files, settle
from reference.pipeline.tasks import Progress, run_tasks
from reference.pipeline.verdict import Judge, Verdict, former_sources
from reference.protocol.commit import CONTENTION, with_retries
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.schema.types import Catalog, EdgeType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reference.graph import Graph

COMMIT_ATTEMPTS_MAX = 5
FRAGMENTS_PER_TASK = 8
KEYS_PER_BUCKET = 2_000_000
# How many times as much is told when nothing of what was told has decided anything.
MORE_TOLD = 16


@dataclass(frozen=True)
class LoadReport:
    """What a load did. `left_behind` says why files that are not needed may still be there."""

    branch: str
    mode: LoadMode
    nodes_loaded: int
    edges_loaded: int
    commit: GraphCommit
    tables: tuple[dict[str, Any], ...]
    rejected: int = 0
    quarantine: str | None = None
    files_removed: int = 0
    left_behind: str | None = None

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
    place = Place.of(source, env)
    job = _Load(
        graph=graph,
        spark=spark,
        progress=progress,
        place=place,
        mode=mode,
        branch=target,
        actor=actor,
        max_rejected=max_rejected,
        quarantine=Place.of(quarantine or beside(place), env),
        work=Workplace(store.root.uri, str(ULID()), mode, env),
    )
    return job.run()


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
    guess: Guess = field(default_factory=Guess)
    reports: dict[int, PieceReport] = field(default_factory=dict)
    fragments: Fragments = field(default_factory=Fragments)

    def __post_init__(self) -> None:
        self.store = self.graph.store
        self.catalog: Catalog = self.graph.catalog
        self.shipped = picklable(self.catalog)
        self.paths = [table_path(key) for key in self.catalog.table_keys()]
        job = self.work.job
        self.rejected = Rejected(
            self.max_rejected, self.quarantine, f"rejected-{job}", self.place, self.shipped, self._tasks
        )
        self.commit = LoadCommit(self.store, self.catalog, self.branch, self.mode, self.actor, job, self.paths[0])

    def run(self) -> LoadReport:
        self.pieces, self.guess = found_input(self.place, self.catalog, self._tasks)
        announce(self.store.objects, self.paths[:1], self.work.job)
        try:
            commit = self._committed()
        except OmniError as error:
            if error.kind in ("bad_request", "not_found", "conflict"):
                self._settled(())  # What was refused for good leaves nothing; what is pending keeps its files.
            raise
        removed, failure = self._settled(
            data_files(each for parts in self.fragments.by_table().values() for each in parts)
        )
        return self._report(commit, removed, failure)

    def _tasks(self, stage: str, items: Sequence[Any], function: Any) -> list[Any]:
        return run_tasks(self.spark, stage, items, function, progress=self.progress)

    def _committed(self) -> GraphCommit:
        """Check, write and commit, again from the start where others were faster."""
        for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
            snapshot = self.store.manifests.fresh(self.branch).snapshot()
            try:
                verdict = self._ready(snapshot, is_first=attempt == 1)
                return self._commit(snapshot, verdict)
            except Conflict as error:
                if self.mode == "overwrite" or error.code not in CONTENTION or attempt == COMMIT_ATTEMPTS_MAX:
                    raise
            heal(self.store)
            if self.branch is not None:
                self.fragments.clear()  # A fork may have been made anew, and what was written in it went with it.
        raise AssertionError("the last attempt returns or raises")

    def _ready(self, snapshot: Snapshot, *, is_first: bool) -> Verdict:
        """Everything is checked against a snapshot, and written."""
        try:
            verdict = self._validated(snapshot, write=is_first)
            self._write_the_rest(snapshot)
        except (NotFound, StorageError) as error:
            raise self.commit.explained(snapshot, error) from None
        return verdict

    def _commit(self, snapshot: Snapshot, verdict: Verdict) -> GraphCommit:
        once = partial(self.commit.once, snapshot, self.fragments.by_table(), verdict.replaced)
        return with_retries(self.store, once, strict=True)

    # -- scan and reject --------------------------------------------------------------------------------------------

    def _validated(self, snapshot: Snapshot, *, write: bool) -> Verdict:
        """Check everything against a snapshot, and leave out what may be left out, until nothing more is wrong."""
        while True:
            scan, verdict = self._checked(snapshot, write=write)
            found = one_each([*(each for report in scan for each in report.rejected), *verdict.rejections])
            unseen = sum(report.rejected_count - len(report.rejected) for report in scan) + verdict.unseen
            if not found:
                assert not unseen, "where something is wrong, the first of it is told"
                return verdict
            write = False
            self.rejected.reject(found, unseen, self.pieces)

    def _checked(self, snapshot: Snapshot, *, write: bool) -> tuple[list[PieceReport], Verdict]:
        while True:
            scan, buckets = self._scan(snapshot, write=write)
            reports = scan.reports()
            self.reports = {report.index: report for report in reports}
            self._keep_fragments(reports)
            malformed = frozenset(self.pieces[each.index].file.path for each in reports if each.is_malformed)
            if malformed:
                again = found_input(self.place, self.catalog, self._tasks, self.pieces, malformed)
                self.pieces, self.guess = again[0], self.guess | again[1]
                self.fragments.clear()
                continue
            held = Guess(frozenset(self._rows()), frozenset(key for report in reports for key in report.fixed))
            # An overwritten table must be known as such; for the others, to have read more than is needed does no harm.
            is_enough = held.touched <= self.guess.touched and held.fixed <= self.guess.fixed
            if is_enough and (self.mode != "overwrite" or held.touched == self.guess.touched):
                return reports, self._judged(snapshot, scan, buckets, held.touched)
            self.guess = held
            write = False

    def _judged(self, snapshot: Snapshot, scan: KeyedScan, buckets: int, touched: frozenset[str]) -> Verdict:
        firsts: dict[str, int] = {}
        for report in self.reports.values():
            for key, first in report.firsts.items():
                firsts[key] = min(first, firsts.get(key, first))
        most = share(buckets, self.max_rejected)
        moves_edges = self.mode == "merge" and any(is_limited(self.catalog.type_of(key)) for key in touched)
        while True:
            findings = scan.findings(touched, most)
            if moves_edges:
                findings += scan.counted(touched, most, former_sources(findings))
            judge = Judge(self.store, snapshot, self.shipped, self.mode, firsts, self.max_rejected, self._fetch)
            verdict = judge.verdict(findings)
            if not verdict.is_undecided:
                return verdict
            most *= MORE_TOLD

    def _scan(self, snapshot: Snapshot, *, write: bool) -> tuple[KeyedScan, int]:
        needs = committed_needs(self.shipped, self.mode, self.guess.touched, self.guess.fixed)
        pinned = pin_snapshot(self.store, only_tables(snapshot, needs), self.shipped)
        committed = sum(pinned.tables[key].row_count for key in needs if key in pinned.tables)
        keys = committed + sum(piece.records for piece in self.pieces)
        buckets = max(self.spark.sparkContext.defaultParallelism, keys // KEYS_PER_BUCKET + 1)
        targets = self._targets(snapshot, owned_only=True) if write else {}
        most = share(len(self.pieces), self.max_rejected)
        items: list[PieceItem | CommittedItem] = [
            PieceItem(
                index, piece, self.place, self.shipped, self.work, targets, self.rejected.within(piece), buckets, most
            )
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
        return KeyedScan(self.spark, items, buckets, self.shipped, self.mode, self.progress), buckets

    def _targets(self, snapshot: Snapshot, *, owned_only: bool) -> dict[str, Target]:
        """The tables that can be written: on a branch, those that it owns already, or all once they are forked."""
        return {
            key: Target(entry.path, self.branch, entry.version)
            for key, entry in snapshot.entries.items()
            if entry.branch == self.branch or not owned_only
        }

    def _keep_fragments(self, reports: Sequence[PieceReport]) -> None:
        self.fragments.keep(
            reports, {report.index: self.rejected.within(self.pieces[report.index]) for report in reports}
        )

    def _fetch(self, wanted: Mapping[str, Wanted]) -> dict[str, Fetched]:
        """Some records of some tables, from all pieces that have any of these tables."""
        asked = [index for index, report in self.reports.items() if report.rows.keys() & wanted.keys()]
        most = share(len(asked), self.max_rejected)
        capped = {key: each if each.most is None else replace(each, most=most) for key, each in wanted.items()}
        items = [
            FetchItem(self.pieces[index], self.place, self.shipped, capped, self.rejected.within(self.pieces[index]))
            for index in asked
        ]
        parts: dict[str, list[Fetched]] = defaultdict(list)
        for found in self._tasks("look up records", items, fetch_rows):
            for key, fetched in found.items():
                parts[key].append(fetched)
        return {key: joined(each) for key, each in parts.items()}

    # -- write ------------------------------------------------------------------------------------------------------

    def _write_the_rest(self, snapshot: Snapshot) -> None:
        """Fork what is touched, and write what the scan has not: forked tables, and pieces with rejected records."""
        self.rejected.keep(self.pieces)
        for key in sorted(self._rows()):
            ensure_fork(self.store, self.branch, snapshot.entry(key))
        targets = self._targets(snapshot, owned_only=False)
        items = []
        for index, report in self.reports.items():
            piece = self.pieces[index]
            excluded = self.rejected.within(piece)
            missing = {key: targets[key] for key in self.fragments.missing(report, excluded)}
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

    # -- afterwards -------------------------------------------------------------------------------------------------

    def _settled(self, kept: Iterable[str]) -> tuple[int, str | None]:
        """Remove what is not needed; how many files, or why not. What the load came to stays what it is either way."""
        try:
            return settle(self.store.objects, self.paths, self.work.job, kept), None
        except OmniError as failure:
            return 0, failure.message

    def _report(self, commit: GraphCommit, removed: int, left_behind: str | None) -> LoadReport:
        rows, fragments = self._rows(), self.fragments.by_table()
        tables = tuple({"table": key, "rows": rows[key], "fragments": len(fragments[key])} for key in sorted(rows))
        edges = sum(count for key, count in rows.items() if isinstance(self.catalog.type_of(key), EdgeType))
        return LoadReport(
            branch=branch_label(self.branch),
            mode=self.mode,
            nodes_loaded=sum(rows.values()) - edges,
            edges_loaded=edges,
            commit=commit,
            tables=tables,
            rejected=len(self.rejected),
            quarantine=self.rejected.kept_in,
            files_removed=removed,
            left_behind=left_behind,
        )
