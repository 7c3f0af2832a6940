"""Pins against HEADs, and forks against the manifests that place them [MAN-11, PUB-19, PUB-21, BRA].

A manifest pins each table at a version of some branch's storage. That version must open and have the rows that the
manifest counts. Where the branch owns the storage, its HEAD must be the pin: ahead of it lies work that a sidecar has
to account for, and behind it lies nothing that could be read. The manifests alone say which forks are in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lance import LanceDataset

from conformance.audit.datasets import (
    DatasetMissing,
    DatasetMoved,
    Datasets,
    DatasetUnreadable,
    Fork,
    check_settings,
)
from conformance.audit.findings import Findings
from conformance.audit.manifest import Entry, Manifest
from conformance.audit.names import label, storage_path
from conformance.audit.schema import Catalog, check_columns
from conformance.audit.sidecars import Sidecars

Storage = tuple[str, str | None, int]


@dataclass
class Pins:
    """Checks the entries of every branch; each pinned version is opened and looked at once."""

    found: Findings
    datasets: Datasets
    catalog: Catalog | None
    readable: dict[Storage, LanceDataset] = field(default_factory=dict)
    fit_for_rules: set[Storage] = field(default_factory=set)
    _rows: dict[Storage, int] = field(default_factory=dict)
    _compared: set[Storage] = field(default_factory=set)
    _heads: dict[tuple[str, str | None], int] = field(default_factory=dict)

    def open(self, manifest: Manifest) -> None:
        """Open what a branch pins, and read the HEADs of what it owns. Sidecars are read after this, so that a writer
        who came meanwhile is seen."""
        entries = manifest.entries().values()
        self.datasets.warm((entry.path, entry.branch) for entry in entries if entry.branch == manifest.branch)
        for entry in entries:
            if entry.branch == manifest.branch:
                self._read_head(entry)
            self._check_pin(manifest, entry)

    def _read_head(self, entry: Entry) -> None:
        try:
            self._heads[entry.path, entry.branch] = int(self.datasets.head(entry.path, entry.branch).version)
        except (DatasetMissing, DatasetUnreadable, DatasetMoved):
            return  # The pin cannot be opened either, and that is what is reported.

    def _check_pin(self, manifest: Manifest, entry: Entry) -> None:
        """What is missing is said of every branch that reads it."""
        found, where = self.found, f"{manifest.where}/{entry.table_key}"
        place = f"version {entry.version} of {storage_path(entry.path, entry.branch)}"
        has_ref = self._has_ref(entry)
        if not has_ref:
            code = "fork-missing" if entry.branch == manifest.branch else "storage-missing"
            message = f"the manifest reads branch '{entry.branch}' of {entry.path}, which has no such branch"
            found.add(code, where, message, branch=entry.branch)
        try:
            rows = self._row_count(entry, where, place)
        except DatasetMissing:
            head = self._heads.get((entry.path, entry.branch), entry.version)
            if has_ref and head >= entry.version:  # A HEAD that is behind is reported as that.
                code = "pin-missing" if entry.branch in (None, manifest.branch) else "storage-missing"
                found.add(code, where, f"the manifest pins {place}, which is not there", version=entry.version)
        except DatasetMoved as error:
            found.add("table-moved", where, f"its data is not audited: {error}")
        except DatasetUnreadable as error:
            found.add("table-unreadable", where, f"{place} cannot be read: {error}")
        else:
            if rows != entry.row_count:
                message = f"the manifest counts {entry.row_count} rows, and {place} has {rows}"
                found.add("row-count", where, message, manifest=entry.row_count, actual=rows)

    def _row_count(self, entry: Entry, where: str, place: str) -> int:
        """The live rows of a pinned version; its settings are checked when it is met first."""
        storage = (entry.path, entry.branch, entry.version)
        if storage not in self._rows:
            handle = self.datasets.at(*storage)
            with self.datasets.reading(place):
                self._rows[storage] = handle.count_rows()
                check_settings(self.found, handle, where)
            self.readable[storage] = handle
            self.found.checked["pins"] += 1
        return self._rows[storage]

    def _has_ref(self, entry: Entry) -> bool:
        if entry.branch is None:
            return True
        try:
            return entry.branch in self.datasets.forks(entry.path)
        except (DatasetMissing, DatasetMoved, DatasetUnreadable):
            return True  # Nobody can tell; opening the pin says what is wrong.

    def check_columns(self, manifest: Manifest, *, pending: bool) -> None:
        """Hold what was opened against the accepted schema, as far as that can be read [LAY-13]."""
        for entry in manifest.entries().values():
            storage = (entry.path, entry.branch, entry.version)
            owner = None if self.catalog is None else self.catalog.types.get(entry.table_key)
            if owner is not None and storage in self.readable and storage not in self._compared:
                self._compared.add(storage)
                where = f"{manifest.where}/{entry.table_key}"
                if check_columns(self.found, owner, self.readable[storage].schema, where, pending=pending):
                    self.fit_for_rules.add(storage)

    def check_heads(self, manifest: Manifest, sidecars: Sidecars) -> None:
        """Hold the HEADs of the storage that a branch owns against its pins [PUB-19, PUB-21]."""
        for entry in manifest.entries().values():
            head = self._heads.get((entry.path, entry.branch)) if entry.branch == manifest.branch else None
            if head is None or head == entry.version:
                continue
            where = f"{manifest.where}/{entry.table_key}"
            versions: Any = {"head": head, "pin": entry.version}
            if head < entry.version:
                message = f"the HEAD is version {head}, behind the pin {entry.version}"
                self.found.add("head-behind", where, message, **versions)
                continue
            message = f"the HEAD is version {head}, ahead of the pin {entry.version}"
            covering = sidecars.covering(entry.table_key, entry.branch)
            if covering is None:
                self.found.add("drift-uncovered", where, f"{message}, and no sidecar covers it", **versions)
            else:
                self.found.add("drift-covered", where, f"{message}; {covering} covers it", **versions)


def check_forks(
    found: Findings, datasets: Datasets, manifests: Mapping[str | None, Manifest], sidecars: Sidecars, complete: bool
) -> None:
    """Forks of tables that no manifest places. With a branch unread nobody can say which those are."""
    if not complete:
        return
    placed: dict[tuple[str, str], set[str | None]] = {}
    keys: dict[str, str] = {}
    for manifest in manifests.values():
        for entry in manifest.entries().values():
            keys[entry.path] = entry.table_key
            if entry.branch is not None:
                placed.setdefault((entry.path, entry.branch), set()).add(manifest.branch)
    for path, key in sorted(keys.items()):
        for fork in _forks(datasets, path):
            found.checked["forks"] += 1
            where = f"{key}/tree/{fork.name}"
            readers = placed.get((path, fork.name), set())
            if not readers and sidecars.covering(key, fork.name) is None:
                gone = "" if fork.name in manifests else ", which does not exist"
                message = f"no manifest places the fork of branch '{fork.name}'{gone}: cleanup may remove it"
                found.add("fork-orphan", where, message, parent_version=fork.parent_version)
            elif readers and fork.name not in manifests:
                names = sorted(map(label, readers))
                message = f"branch '{fork.name}' is gone, and '{names[0]}' still reads its storage"
                found.add("fork-owner-gone", where, message, readers=names)


def _forks(datasets: Datasets, path: str) -> Iterable[Fork]:
    try:
        return datasets.forks(path).values()
    except (DatasetMissing, DatasetMoved, DatasetUnreadable):
        return ()
