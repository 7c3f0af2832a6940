"""audit: the auditor's verdict on a graph that is too large for one process.

What the format demands is checked by the auditor itself, on the driver, without a row. The rows are read by tasks:
every table of every branch once per pinned version, every pair of tables once per pair of versions, with the
auditor's own rules and the same codes. Hashes cross between tasks, never rows, and whatever they make suspicious is
looked at again by value. An end of an edge that no node has is missed only if it shares 64 bits with an id: of a
billion nodes, one such end in twenty billion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from conformance.audit import AuditReport, GraphUnreadable, InvalidUri
from conformance.audit import audit as audit_format
from conformance.audit.datasets import Datasets
from conformance.audit.findings import Findings
from conformance.audit.manifest import Entry, Manifest
from conformance.audit.names import storage_path
from conformance.audit.pins import Pins, Storage
from conformance.audit.render import verdict
from conformance.audit.rows import has_cardinality
from conformance.audit.rules import can_be_unique, merged
from conformance.audit.schema import Catalog, TableType, is_blob
from reference.errors import BadRequest, NotFound
from reference.pipeline.audit_rows import (
    Dangling,
    Look,
    OutOfBounds,
    Rule,
    Seen,
    Stream,
    Suspects,
    TablePiece,
    Twice,
    look,
    suspects,
)
from reference.pipeline.audit_suspects import SecondLook, Suspicion, gathered, look_again, report
from reference.pipeline.exchange import exchange
from reference.pipeline.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ROWS: Final = 500_000
BUCKET_ROWS: Final = 1_000_000
BUCKETS_MIN: Final = 2


def audit(
    spark: SparkSession, uri: str, *, env: Mapping[str, str] | None = None, progress: Progress | None = None
) -> AuditReport:
    """Audit every branch of a graph, rows included."""
    try:
        return audit_format(uri, env, rows=partial(_check_rows, spark, progress))
    except InvalidUri as error:
        raise BadRequest(str(error), code="invalid_uri") from error
    except GraphUnreadable as error:
        raise NotFound(str(error), code="graph_unreadable") from error


def _check_rows(
    spark: SparkSession,
    progress: Progress | None,
    found: Findings,
    datasets: Datasets,
    pins: Pins,
    catalog: Catalog,
    manifests: Iterable[Manifest],
) -> None:
    """Everything that the rows of all branches have to fulfil, in one pass over all of their tables."""
    plan = _Plan(datasets, pins, catalog, list(manifests))
    tasks = list(plan.looks())
    answers = exchange(
        spark,
        "reading rows",
        tasks,
        look,
        partial(suspects, tuple(plan.rules)),
        buckets=plan.buckets + 1,
        progress=progress,
    )
    seen: dict[Storage, list[Seen]] = {storage: [] for storage in plan.tables}
    raised: list[Suspects] = []
    for each in (item for answer in answers for item in answer):
        if isinstance(each, Seen):
            seen[each.storage].append(each)
        else:
            raised.append(each)
    for parts in seen.values():
        parts.sort(key=lambda part: part.fragment_ids)
    unread = {storage for storage, parts in seen.items() if any(part.unreadable is not None for part in parts)}
    _report_rows(found, plan, seen)
    _report_suspicions(spark, progress, found, plan, [each for each in gathered(raised) if not _needs(each, unread)])
    for pair, rule in plan.pairs.items():
        if not {rule.ends.storage, rule.nodes.storage} & unread:
            found.checked["edge_ends"] += sum(part.rows for part in seen[pair[0]])


def _report_rows(found: Findings, plan: _Plan, seen: Mapping[Storage, list[Seen]]) -> None:
    for storage, parts in seen.items():
        table = plan.tables[storage]
        broken = next((part.unreadable for part in parts if part.unreadable is not None), None)
        if broken is not None:
            why = f"the rows of {storage[0]}: {plan.datasets.root.redact(broken)}"
            found.add("table-unreadable", table.where, f"the rows of version {storage[2]} cannot be read: {why}")
            continue
        found.checked["rows"] += sum(part.rows for part in parts)
        for problem in merged(problem for part in parts for problem in part.problems):
            found.add(problem.code, table.where, problem.message, version=storage[2], **problem.details)


def _report_suspicions(
    spark: SparkSession, progress: Progress | None, found: Findings, plan: _Plan, suspicions: list[Suspicion]
) -> None:
    tasks = [SecondLook(piece, each) for each in suspicions for piece in plan.pieces(each.stream.storage)]
    answers = run_tasks(spark, "looking again", tasks, look_again, progress=progress)
    for suspicion in suspicions:
        pairs = zip(tasks, answers, strict=True)
        rows = [answer for task, answer in pairs if task.suspicion is suspicion and answer is not None]
        table = plan.tables[suspicion.stream.storage]
        rule = suspicion.rule
        where = plan.wheres.get(rule, table.where) if isinstance(rule, Dangling) else table.where
        end = suspicion.stream.columns[0]
        node_type = table.owner.source if end == "src" else table.owner.target
        report(found, suspicion, table.owner, node_type, where, [each for each in rows if each.num_rows])


def _needs(suspicion: Suspicion, unread: set[Storage]) -> bool:
    """Whether a suspicion rests on a table that could not be read."""
    rule = suspicion.rule
    used = {suspicion.stream.storage, rule.nodes.storage} if isinstance(rule, Dangling) else {suspicion.stream.storage}
    return bool(used & unread)


@dataclass(frozen=True)
class _Table:
    """A table at a version, and the branch that it is reported for: the first that reads it."""

    entry: Entry
    owner: TableType
    where: str


@dataclass
class _Plan:
    """Which tables are read, and which rules are held against them."""

    datasets: Datasets
    pins: Pins
    catalog: Catalog
    manifests: list[Manifest]
    tables: dict[Storage, _Table] = field(default_factory=dict)
    rules: dict[Rule, None] = field(default_factory=dict)
    pairs: dict[tuple[Storage, Storage, str], Dangling] = field(default_factory=dict)
    wheres: dict[Rule, str] = field(default_factory=dict)
    buckets: int = BUCKETS_MIN

    def __post_init__(self) -> None:
        for manifest in self.manifests:
            entries = manifest.entries()
            for key, owner in self.catalog.types.items():
                if key in entries:
                    self._add_table(manifest, entries[key], owner)
            for key, owner in self.catalog.types.items():
                if owner.kind == "edge" and key in entries:
                    self._add_pairs(manifest, entries, owner)
        rows = sum(table.entry.row_count for table in self.tables.values())
        self.buckets = max(BUCKETS_MIN, -(-rows // BUCKET_ROWS))

    def _add_table(self, manifest: Manifest, entry: Entry, owner: TableType) -> None:
        storage = (entry.path, entry.branch, entry.version)
        if storage in self.tables or storage not in self.pins.fit_for_rules:
            return
        self.tables[storage] = _Table(entry, owner, f"{manifest.where}/{entry.table_key}")
        self._add(Twice(Stream(storage, ("id",))))
        for group in owner.unique:
            if can_be_unique(group, self.pins.readable[storage].schema):
                self._add(Twice(Stream(storage, group)))
        if owner.kind == "edge" and has_cardinality(owner):
            self._add(OutOfBounds(Stream(storage, ("src",), counted=True), owner.minimum, owner.maximum))

    def _add_pairs(self, manifest: Manifest, entries: Mapping[str, Entry], owner: TableType) -> None:
        edges = entries[owner.table_key]
        for end, type_name in (("src", owner.source), ("dst", owner.target)):
            nodes = entries.get(f"node:{type_name}")
            if nodes is None:
                continue  # The tables are not those of the schema, which was reported.
            pair = ((edges.path, edges.branch, edges.version), (nodes.path, nodes.branch, nodes.version), end)
            if pair in self.pairs or pair[0] not in self.tables or pair[1] not in self.tables:
                continue
            rule = Dangling(Stream(pair[0], (end,), counted=True), Stream(pair[1], ("id",)))
            self.pairs[pair] = rule
            self.wheres[rule] = f"{manifest.where}/{owner.table_key}"
            self._add(rule)

    def _add(self, rule: Rule) -> None:
        self.rules[rule] = None

    def looks(self) -> Iterator[Look]:
        """One task for each piece of each table."""
        streams: dict[Storage, dict[Stream, None]] = {storage: {} for storage in self.tables}
        for rule in self.rules:
            if isinstance(rule, Twice):
                streams[rule.stream.storage][rule.stream] = None
            elif isinstance(rule, OutOfBounds):
                streams[rule.sources.storage][rule.sources] = None
            else:
                streams[rule.ends.storage][rule.ends] = None
                streams[rule.nodes.storage][rule.nodes] = None
        for storage, table in self.tables.items():
            for piece in self.pieces(storage):
                yield Look(piece, table.owner, tuple(streams[storage]), self.buckets)

    def pieces(self, storage: Storage) -> list[TablePiece]:
        """A table cut into pieces of about the same size; a fragment is never cut."""
        handle, root = self.pins.readable[storage], self.datasets.root
        numbers = [int(fragment.fragment_id) for fragment in handle.get_fragments()]
        at_once = max(1, TASK_ROWS * len(numbers) // max(1, self.tables[storage].entry.row_count))
        columns = tuple(column.name for column in handle.schema if not is_blob(column))
        uri = root.join(storage_path(storage[0], storage[1]))
        return [
            TablePiece(storage, uri, tuple(numbers[start : start + at_once]), columns, root.storage_options)
            for start in range(0, len(numbers), at_once)
        ]


def report_json(report: AuditReport) -> dict[str, Any]:
    """A report as `touchstone audit --json` prints it."""
    body: dict[str, Any] = json.loads(json.dumps(report.to_json(), ensure_ascii=False, default=str))
    return body


def report_lines(report: AuditReport) -> list[str]:
    """A report for people, after its findings: the verdict, and what was looked at."""
    checked = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report.checked.items())
    return [verdict(report), f"checked: {checked}"]
