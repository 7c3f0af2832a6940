"""The audit of a graph: what is on disk, judged by the specification alone.

The order matters on a graph that is in use: manifests first, then the HEADs, then the sidecars. A writer puts its
sidecar before it moves a HEAD, so drift that is seen without one means that the writer has published meanwhile. Then
the manifest has moved, and the audit is run again. Nothing is ever written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from conformance.audit.datasets import (
    DatasetMissing,
    DatasetMoved,
    Datasets,
    DatasetUnreadable,
    Fork,
    check_settings,
)
from conformance.audit.findings import AuditReport, Findings, GraphUnreadable
from conformance.audit.layout import check_branch_residue, check_root, check_table_directories
from conformance.audit.lineage import check_lineage
from conformance.audit.manifest import Manifest, check_manifest_dataset, read_manifest
from conformance.audit.names import AUDIT_DIR, LOCK_BRANCH, MANIFEST_DIR, label
from conformance.audit.pins import Pins, check_forks
from conformance.audit.places import Objects, ReadFailed, Root, parse_root
from conformance.audit.recoveries import check_recoveries
from conformance.audit.rows import check_rows
from conformance.audit.schema import Catalog, read_schema
from conformance.audit.sidecars import Sidecars, check_sidecars, read_sidecars

ATTEMPTS_MAX: Final = 3
CheckRows = Callable[[Findings, Datasets, Pins, Catalog, Iterable[Manifest]], None]


def audit(
    uri: str, env: Mapping[str, str] | None = None, *, data: bool = True, rows: CheckRows = check_rows
) -> AuditReport:
    """Audit every branch of a graph; `data=False` leaves the rows of its tables unread, `rows` is who reads them.

    `env` holds the AWS variables of an S3 store; by default they are the process's own. Raises `InvalidUri` for a URI
    that names no place, and `GraphUnreadable` where no graph can be read at all.
    """
    root = parse_root(uri, env)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        run = _Audit(root)
        try:
            run.all(rows if data else None)
            moved = run.moved()
        except ReadFailed as error:
            raise GraphUnreadable(f"{root.uri} cannot be read: {error}") from error
        if not moved or not any(finding.severity == "error" for finding in run.found.items):
            break
        if attempt == ATTEMPTS_MAX:
            message = f"the graph was written to during each of {attempt} audits: what is found may be on its way"
            run.found.add("graph-moved", moved[0], message, branches=moved)
    return run.found.report(root.uri)


@dataclass
class _Audit:
    """One pass over a graph."""

    root: Root
    found: Findings = field(default_factory=Findings)
    manifests: dict[str | None, Manifest] = field(default_factory=dict)
    branches: dict[str, Fork] = field(default_factory=dict)
    complete: bool = True

    def __post_init__(self) -> None:
        self.datasets = Datasets(self.root)
        self.objects: Objects = self.root.objects()

    def all(self, check: CheckRows | None) -> None:
        top = self.objects.children("")
        if MANIFEST_DIR not in top.dirs:
            raise GraphUnreadable(f"there is no graph at {self.root.uri}: it has no {MANIFEST_DIR}")
        self._read_manifests()
        catalog = read_schema(self.found, self.objects)
        pins = Pins(self.found, self.datasets, catalog)
        for manifest in self.manifests.values():
            pins.open(manifest)
        sidecars = read_sidecars(self.found, self.objects)
        self._check_layout(sidecars)
        check_root(self.found, self.objects, top, sidecars)
        check_lineage(self.found, self.manifests.values(), self.branches, complete=self.complete)
        for manifest in self.manifests.values():
            pins.check_heads(manifest, sidecars)
            pins.check_columns(manifest, pending=sidecars.schema_apply)
            self._check_tables(manifest, catalog, sidecars)
        check_forks(self.found, self.datasets, self.manifests, sidecars, self.complete)
        self._check_sidecars(sidecars)
        if AUDIT_DIR in top.dirs and self.objects.holds(AUDIT_DIR):
            check_recoveries(self.found, self.datasets)
        if check is not None and catalog is not None:
            check(self.found, self.datasets, pins, catalog, self.manifests.values())

    # -- manifests -----------------------------------------------------------------------------------------------------

    def _read_manifests(self) -> None:
        try:
            self._read_manifest(None)
        except (DatasetMissing, DatasetMoved, DatasetUnreadable) as error:
            raise GraphUnreadable(f"the manifest of {self.root.uri} cannot be read: {error}") from error
        try:
            self.branches = dict(self.datasets.forks(MANIFEST_DIR))
        except (DatasetMissing, DatasetMoved, DatasetUnreadable) as error:
            self.complete = False
            self.found.add("branch-unreadable", MANIFEST_DIR, f"the branches cannot be listed: {error}")
        for name in self.branches:
            if name == LOCK_BRANCH:
                continue
            try:
                self._read_manifest(name)
            except DatasetMoved as error:
                self.complete = False
                self.found.add("branch-moved", name, f"the graph was copied, and the branch is not audited: {error}")
            except (DatasetMissing, DatasetUnreadable) as error:
                self.complete = False
                self.found.add("branch-unreadable", name, f"the manifest of the branch cannot be read: {error}")

    def _read_manifest(self, branch: str | None) -> None:
        handle = self.datasets.head(MANIFEST_DIR, branch)
        with self.datasets.reading(f"the manifest of '{label(branch)}'"):
            check_settings(self.found, handle, label(branch))
            check_manifest_dataset(self.found, handle, branch)
            self.manifests[branch] = read_manifest(self.found, handle, branch)
        self.found.checked["branches"] += 1

    def moved(self) -> list[str]:
        """The branches that somebody has written to since this audit read them."""
        found = []
        for branch, manifest in self.manifests.items():
            try:
                latest = self.datasets.latest_version(MANIFEST_DIR, branch)
            except (DatasetMissing, DatasetMoved, DatasetUnreadable):
                latest = -1
            if latest != manifest.version:
                found.append(label(branch))
        return found

    # -- what several rooms know together ------------------------------------------------------------------------------

    def _check_layout(self, sidecars: Sidecars) -> None:
        locations = {path for manifest in self.manifests.values() for path in manifest.locations.values()}
        check_table_directories(self.found, self.objects, locations, sidecars)
        for path in [MANIFEST_DIR, *sorted(locations)]:
            try:
                forks = self.datasets.forks(path)
            except (DatasetMissing, DatasetMoved, DatasetUnreadable):
                continue
            check_branch_residue(self.found, self.objects, path, forks)

    def _check_tables(self, manifest: Manifest, catalog: Catalog | None, sidecars: Sidecars) -> None:
        """A branch has the tables of the accepted schema, and no others [SCH-13]."""
        if catalog is None:
            return
        visible = manifest.entries().keys()
        missing, extra = sorted(catalog.types.keys() - visible), sorted(visible - catalog.types.keys())
        if missing or extra:
            said = "; ".join(
                f"{what}: {', '.join(keys)}" for what, keys in (("missing", missing), ("extra", extra)) if keys
            )
            self.found.add(
                "schema-tables",
                manifest.where,
                f"the tables are not those of the accepted schema ({said})",
                severity="warning" if sidecars.schema_apply else None,
                missing=missing,
                extra=extra,
            )

    def _check_sidecars(self, sidecars: Sidecars) -> None:
        branches = {None, *(name for name in self.branches if name != LOCK_BRANCH)}
        check_sidecars(self.found, self.root, sidecars, self.manifests, branches)
        if LOCK_BRANCH not in self.branches:
            return
        if sidecars.schema_apply:
            message = "a schema apply holds its lock: until it ends, or recovery ends it, every write is refused"
            self.found.add("schema-lock", LOCK_BRANCH, message)
        else:
            message = "the lock of a schema apply is held and no sidecar tells whose: every write is refused for ever"
            self.found.add("schema-lock-orphan", LOCK_BRANCH, message)
