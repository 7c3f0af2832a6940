"""The manifest of each branch, held warm.

A held manifest is one handle and one folded state. Before it is used it is compared with the store by one probe; what
others have published since is read as the rows that changed, not as the whole table again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lance import LanceDataset, LanceFragment

from reference.errors import Internal, NotFound, OmniError, RowLevelCasContention, StorageError
from reference.format.manifest import MANIFEST_SCHEMA, ManifestState, Row, TableEntry, rows_to_table
from reference.format.names import (
    MAIN_BRANCH,
    MANIFEST_DIR,
    SCHEMA_LOCK_BRANCH,
    branch_label,
    branch_location,
    branch_ref_file,
    parse_table_key,
)
from reference.format.stamp import read_stamp
from reference.storage.objects import TextObjects
from reference.storage.tables import Tables

FRAGMENTS_MAX = 8
# What Lance keeps in the directory of a dataset or of one of its branches.
BRANCH_DIRECTORIES = ("_versions", "_transactions", "_deletions", "_indices", "data")


@dataclass(frozen=True)
class Snapshot:
    """All tables of a branch at one manifest version. It never changes, whatever is committed meanwhile [SNP-01]."""

    branch: str | None
    version: int
    stamp: int
    entries: dict[str, TableEntry]
    incarnation: str | None = None

    def entry(self, table_key: str) -> TableEntry:
        found = self.entries.get(table_key)
        if found is None:
            parse_table_key(table_key)  # What no table can be called is a bad request [LAY-03].
            where = f"branch '{branch_label(self.branch)}' at version {self.version}"
            raise NotFound(f"'{table_key}' is not a table of {where}", code="table_not_found")
        return found

    def to_json(self) -> dict[str, Any]:
        tables = [entry.to_json() for entry in self.entries.values()]
        manifest = {"manifest_version": self.version, "internal_schema_version": self.stamp}
        return {"branch": branch_label(self.branch), **manifest, "tables": tables}


@dataclass
class Held:
    """One branch's manifest as this process knows it. It moves on, under its lock, when any thread publishes."""

    branch: str | None
    incarnation: str | None
    handle: LanceDataset
    state: ManifestState
    lock: threading.RLock

    @property
    def version(self) -> int:
        return int(self.handle.version)

    @property
    def stamp(self) -> int:
        return stamp_of(self.handle)

    def snapshot(self) -> Snapshot:
        with self.lock:
            return Snapshot(self.branch, self.version, self.stamp, self.state.entries(), self.incarnation)


def stamp_of(handle: LanceDataset) -> int:
    """The stamp that a manifest carries."""
    metadata = handle.schema.metadata or {}
    return read_stamp({key.decode(): value.decode(errors="replace") for key, value in metadata.items()})


class Manifests:
    """The manifests of all branches of one graph."""

    def __init__(self, objects: TextObjects, tables: Tables) -> None:
        self._objects = objects
        self._tables = tables
        self._held: dict[str | None, Held] = {}
        self._lock = threading.RLock()

    def fresh(self, branch: str | None) -> Held:
        """The manifest of a branch as it is now: one probe, and a read only of what changed [SNP-02].

        A branch that is made anew while it is read has other files under the same names: then it is read again.
        """
        with self._lock:
            incarnation = self._incarnation(branch)
            try:
                return self._read(branch, incarnation)
            except (NotFound, StorageError):
                self.forget(branch)
                if self._incarnation(branch) == incarnation:
                    raise
                return self.fresh(branch)

    def _read(self, branch: str | None, incarnation: str | None) -> Held:
        held = self._held.get(branch)
        if held is None or held.incarnation != incarnation:
            self._tables.forget(branch)
            return self._load(branch, incarnation)
        latest = self._tables.run("__manifest", lambda: int(held.handle.latest_version))
        if latest < held.version:
            return self._load(branch, incarnation)
        if latest > held.version:
            self._catch_up(held)
        return held

    def _incarnation(self, branch: str | None) -> str | None:
        """What tells a branch from another of the same name: its ref file. Main cannot be re-created [SNP-08]."""
        if branch is None:
            return None
        token = self._objects.probe(branch_ref_file(MANIFEST_DIR, branch))
        if token is None:
            raise NotFound(f"branch '{branch}' does not exist", code="branch_not_found", details={"branch": branch})
        return token

    def _load(self, branch: str | None, incarnation: str | None) -> Held:
        handle = self._tables.open_latest(MANIFEST_DIR, branch)
        held = Held(branch, incarnation, handle, self._read_state(handle), self._lock)
        self._held[branch] = held
        return held

    def _catch_up(self, held: Held) -> None:
        """Rows that are new since a version lie in fragments that are new since then: no other is read."""
        since = held.version
        known = {fragment.fragment_id for fragment in held.handle.get_fragments()}
        handle = self._tables.run("__manifest", lambda: held.handle.checkout_version(held.handle.latest_version))
        new = [fragment for fragment in handle.get_fragments() if fragment.fragment_id not in known]
        held.state.fold(self._read_rows(handle, f"_row_last_updated_at_version > {since}", new) if new else [])
        held.handle = handle

    def _read_state(self, handle: LanceDataset) -> ManifestState:
        state = ManifestState()
        state.fold(self._read_rows(handle))
        return state

    def _read_rows(
        self, handle: LanceDataset, condition: str | None = None, fragments: list[LanceFragment] | None = None
    ) -> list[Row]:
        missing = set(MANIFEST_SCHEMA.names) - set(handle.schema.names)
        if missing:
            raise Internal(f"__manifest has no column '{min(missing)}'", code="manifest_corrupt")
        columns = [name for name in MANIFEST_SCHEMA.names if name != "base_objects"]
        source = handle if fragments else self._tables.readable(MANIFEST_DIR, handle)
        scan = source.scanner(columns=columns, filter=condition, fragments=fragments)
        return [dict(row) for row in self._tables.run("__manifest", scan.to_table).to_pylist()]

    def at_version(self, branch: str | None, version: int) -> Snapshot:
        """A branch's snapshot as of one manifest version [SNP-03]."""
        held = self.fresh(branch)
        if held.version == version:
            return held.snapshot()
        try:
            handle = self._tables.open(MANIFEST_DIR, branch, version)
        except (NotFound, OverflowError) as error:
            raise NotFound(
                f"branch '{branch_label(branch)}' has no manifest version {version}", code="version_not_found"
            ) from error
        return Snapshot(branch, version, stamp_of(handle), self._read_state(handle).entries())

    def write(self, held: Held, rows: list[Row], base: int) -> int:
        """Land rows in one manifest version and fold them in; nothing is folded when it fails [PUB-14, PUB-15].

        `base` is the version that the rows were made for. The store refuses them if another process has moved on from
        there; if another thread has, this very handle has moved with it, and must be refused here.
        """
        with self._lock:
            if held.version != base:
                raise RowLevelCasContention("another thread of this process was faster")
            if self._tables.stop_cleaning(held.handle):
                raise RowLevelCasContention("__manifest was told to clean itself up, and is told otherwise first")
            landed = self._tables.publish_rows(held.handle, rows_to_table(rows))
            held.state.fold(rows)
            return landed

    def shorten(self, held: Held) -> None:
        """Compact a manifest of many fragments, so that the cost of a publish has a bound. Best effort [OPT-07]."""
        with self._lock:
            try:
                if len(held.handle.get_fragments()) > FRAGMENTS_MAX:
                    self._tables.compact(held.handle)
            except OmniError:
                self.forget(held.branch)  # Another publish came first; the state is read anew when it is needed.

    def forget(self, branch: str | None) -> None:
        """Stop holding a branch's manifest."""
        with self._lock:
            self._held.pop(branch, None)
            self._tables.forget(branch)

    # -- branches ------------------------------------------------------------------------------------------------------

    def branch_names(self) -> list[str]:
        """Every branch but main, the schema lock included."""
        suffix = ".json"
        names = self._objects.list_dir(f"{MANIFEST_DIR}/_refs/branches")
        return sorted(unquote(name.removesuffix(suffix)) for name in names if name.endswith(suffix))

    def public_branches(self) -> list[str]:
        """Every branch but main and the schema lock."""
        return [name for name in self.branch_names() if name != SCHEMA_LOCK_BRANCH]

    def all_branches(self) -> list[str | None]:
        """Main and every public branch, as keys of this class."""
        return [None, *self.public_branches()]

    def remove_branch_files(self, branch: str) -> None:
        """Remove what a cut or refused branch operation left in `__manifest`, and nothing of branches below it."""
        remove_branch_files(self._objects, MANIFEST_DIR, branch)

    def has_branch(self, branch: str | None) -> bool:
        return branch is None or self._objects.probe(branch_ref_file(MANIFEST_DIR, branch)) is not None

    def schema_lock_is_held(self) -> bool:
        """Whether a schema apply is under way, by one probe of its lock branch."""
        return self.has_branch(SCHEMA_LOCK_BRANCH)

    def schema_lock_token(self) -> str | None:
        """What tells one lock from the next: its ref is a new one each time it is taken."""
        return self._objects.probe(branch_ref_file(MANIFEST_DIR, SCHEMA_LOCK_BRANCH))


def remove_branch_files(objects: TextObjects, path: str, branch: str) -> None:
    """The force delete that Lance lacks: the ref, then the branch's own directories, and not those of `branch/other`
    inside them."""
    objects.delete(branch_ref_file(path, branch))
    location = branch_location(path, branch)
    for directory in BRANCH_DIRECTORIES:
        objects.delete_prefix(f"{location}/{directory}")


def branch_key(name: str | None) -> str | None:
    """A branch as callers name it to a branch as the format stores it: main is null."""
    return None if name is None or name == MAIN_BRANCH else name
