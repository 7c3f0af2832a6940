"""What an audit finds, and what it has looked at.

A finding names its code, the requirement that is broken, how bad it is, and where. Every code stands in `CODES`, with
its requirement and its severity, so that the table below is the list of everything the auditor can say.

    error     the graph breaks the format: some reader or writer will go wrong, or has gone wrong
    warning   the graph is in a state that an operation has to end: a pending sidecar, a lock, drift that is covered
    note      nothing is wrong; a person may want to know: residue, files that nobody refers to, a moved branch
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")

CODES: Final[Mapping[str, tuple[str, Severity]]] = {
    # The layout of the root.
    "legacy-table": ("LAY-08", "error"),
    "unknown-file": ("LAY-15", "note"),
    "unreferenced-table": ("LAY-02", "note"),
    "staging-residue": ("SCH-11", "warning"),
    "branch-residue": ("BRA-02", "note"),
    # `__manifest` as a dataset.
    "manifest-schema": ("MAN-01", "error"),
    "manifest-key": ("MAN-01", "error"),
    "manifest-config": ("MAN-01", "error"),
    "manifest-key-indexed": ("PUB-16", "warning"),
    "reserved-column": ("MAN-01", "warning"),
    "stamp": ("STM-01", "error"),
    "branch-stamp": ("STM-07", "error"),
    "branch-unreadable": ("LAY-12", "error"),
    "branch-moved": ("LAY-04", "note"),
    # Its rows.
    "object-id-duplicate": ("MAN-06", "error"),
    "object-id": ("MAN-02", "error"),
    "row-incomplete": ("MAN-03", "error"),
    "version-metadata": ("MAN-03", "error"),
    "version-without-table": ("MAN-03", "error"),
    "manifest-path": ("MAN-03", "warning"),
    "table-key": ("LAY-03", "error"),
    "location-absolute": ("LAY-04", "error"),
    "location": ("LAY-02", "error"),
    # Lineage.
    "lineage-metadata": ("MAN-05", "error"),
    "genesis": ("LIN-08", "error"),
    "commit-id": ("LIN-01", "error"),
    "commit-branch": ("LIN-01", "error"),
    "commit-version": ("PUB-17", "error"),
    "commit-version-shared": ("LIN-02", "error"),
    "commit-missing": ("LIN-11", "error"),
    "chain-forked": ("PUB-08", "error"),
    "parent-unknown": ("LIN-06", "error"),
    "parent-order": ("LIN-06", "error"),
    "merged-parent-unknown": ("LIN-09", "note"),
    "commit-time": ("LIN-15", "warning"),
    "head-missing": ("LIN-07", "warning"),
    "head-wrong": ("LIN-05", "error"),
    # Pins, HEADs and forks.
    "pin-missing": ("CLN-07", "error"),
    "table-unreadable": ("SNP-07", "error"),
    "table-moved": ("LAY-04", "note"),
    "row-count": ("MAN-11", "error"),
    "head-behind": ("PUB-19", "error"),
    "drift-uncovered": ("PUB-21", "error"),
    "drift-covered": ("REC-01", "warning"),
    "fork-missing": ("BRA-07", "error"),
    "storage-missing": ("BRA-18", "error"),
    "fork-orphan": ("BRA-15", "note"),
    "fork-owner-gone": ("BRA-12", "warning"),
    # Settings of every dataset.
    "stable-row-ids": ("LAY-06", "error"),
    "file-version": ("LAY-06", "error"),
    "auto-cleanup": ("LAY-06", "error"),
    # The schema contract.
    "schema-file-missing": ("SCH-13", "error"),
    "schema-state": ("LAY-11", "error"),
    "schema-hash": ("LAY-11", "error"),
    "schema-ir": ("SCH-14", "error"),
    "schema-tables": ("SCH-13", "error"),
    "columns": ("LAY-13", "error"),
    "schema-lock-orphan": ("SCH-17", "error"),
    "schema-lock": ("SCH-01", "warning"),
    # Sidecars and the recovery audit.
    "sidecar-pending": ("LAY-09", "warning"),
    "sidecar-unreadable": ("REC-11", "error"),
    "sidecar-future": ("REC-10", "error"),
    "sidecar-foreign": ("REC-16", "error"),
    "sidecar-implausible": ("REC-11", "warning"),
    "sidecar-branch-gone": ("REC-17", "warning"),
    "recovery-table": ("REC-05", "error"),
    "recovery-duplicate": ("REC-14", "error"),
    # Rows of tables.
    "id-null": ("LOD-06", "error"),
    "id-duplicate": ("LOD-06", "error"),
    "value-missing": ("VAL-01", "error"),
    "value-not-finite": ("EXP-06", "error"),
    "vector": ("LOD-14", "error"),
    "enum": ("VAL-03", "error"),
    "range": ("VAL-04", "error"),
    "check": ("VAL-04", "error"),
    "check-not-evaluated": ("VAL-15", "note"),
    "unique": ("VAL-05", "error"),
    "key": ("VAL-14", "error"),
    "edge-dangling": ("VAL-09", "error"),
    "cardinality": ("VAL-10", "error"),
    # The audit itself.
    "graph-moved": ("SNP-01", "note"),
}


class GraphUnreadable(Exception):
    """There is no graph there, or nothing of it can be read. The message is for people and holds no secret."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as the format says."""

    code: str
    requirement: str
    severity: Severity
    where: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "details": dict(self.details)}


@dataclass(frozen=True)
class AuditReport:
    """Everything that was found in a graph, the worst first, and how much was looked at."""

    uri: str
    findings: tuple[Finding, ...]
    checked: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def ok(self) -> bool:
        """Whether the graph is sound: warnings and notes are allowed."""
        return not self.of("error")

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "checked": dict(self.checked),
        }


@dataclass
class Findings:
    """The findings of one audit while it runs."""

    items: list[Finding] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)

    def add(self, code: str, where: str, message: str, *, severity: Severity | None = None, **details: Any) -> None:
        requirement, usual = CODES[code]
        self.items.append(Finding(code, requirement, severity or usual, where, message, details))

    def report(self, uri: str) -> AuditReport:
        items = sorted(self.items, key=lambda finding: SEVERITIES.index(finding.severity))
        return AuditReport(uri, tuple(items), dict(self.checked))
