"""Branches of a graph: one ref in `__manifest`; tables follow lazily, on the first write [BRA].

The manifest is the only authority on which branch owns which table. A table's own Lance branch that the manifest does
not place is an orphan: a first write that needs the name takes it over, cleanup removes it, and nobody else is hurt.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import Any

from ulid import ULID

from reference.errors import BadRequest, Conflict, NotFound, OmniError
from reference.failpoint import fire
from reference.format.manifest import TableEntry
from reference.format.names import (
    MAIN_BRANCH,
    MANIFEST_DIR,
    SCHEMA_LOCK_BRANCH,
    branch_label,
    branch_ref_file,
    table_path,
)
from reference.format.sidecar import Pin, Sidecar
from reference.protocol.commit import refuse_moved, with_retries
from reference.protocol.manifests import branch_key, remove_branch_files
from reference.protocol.recovery import heal, pause
from reference.protocol.schema_lock import refuse_during_schema_apply
from reference.protocol.sidecars import LEASE_SECONDS, busy
from reference.protocol.store import GraphStore
from reference.storage.tables import manifest_file

BRANCH_REF_LENGTH_MAX = 240
_SEGMENT = re.compile(r"[\w.\-]+")
# Directories that Lance keeps inside a dataset: a branch `x/data` would lie in the data of branch `x` [BRA-16].
_RESERVED_SEGMENTS = frozenset({"data", "tree", "_versions", "_transactions", "_deletions", "_indices", "_refs"})


def check_branch_name(name: str, *, operation: str = "branch_create") -> str:
    """A public branch name, trimmed, or a refusal. Nothing on disk is touched by a name that fails [BRA-02, BRA-03]."""
    trimmed = name.strip()
    refuse_internal(trimmed, operation)
    segments = trimmed.split("/")
    if not trimmed:
        raise _invalid_name(name, "it is empty")
    if len(branch_ref_file("", trimmed)) > BRANCH_REF_LENGTH_MAX:
        raise _invalid_name(name, "it is too long for the name of a file")
    if segments[0] == MAIN_BRANCH and len(segments) > 1:
        raise _invalid_name(name, "below 'main' there are no branches")
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or not all(c.isalnum() or c in "._-" for c in segment):
            raise _invalid_name(name, "each part between slashes is letters, digits, '.', '-' and '_', and not empty")
        if ".." in segment or segment.startswith(".") or segment.endswith((".lock", ".")):
            raise _invalid_name(name, "no part begins or ends with '.', holds '..', or ends in '.lock'")
    if any(segment in _RESERVED_SEGMENTS for segment in segments[1:]):
        raise _invalid_name(name, "a part after the first is the name of one of Lance's own directories")
    return trimmed


def refuse_internal(name: str, operation: str) -> None:
    """The lock branch is nobody's to use [MUT-15, BRA-03]."""
    if name.strip().lstrip("/") == SCHEMA_LOCK_BRANCH:
        raise BadRequest(f"{operation} may not touch the internal branch '{name}'", code="internal_branch")


def _invalid_name(name: str, why: str) -> BadRequest:
    return BadRequest(f"{name!r} is not a branch name: {why}", code="invalid_branch_name", details={"branch": name})


def list_branches(store: GraphStore) -> list[str]:
    """Main and every public branch, sorted."""
    return sorted([MAIN_BRANCH, *store.manifests.public_branches()])


def create_branch(store: GraphStore, name: str, source: str | None = None) -> None:
    """A branch at the source's current version: one write to `__manifest`, no table touched [BRA-01]."""
    branch = check_branch_name(name)
    if branch == MAIN_BRANCH:
        raise Conflict("a branch cannot be called 'main'", code="branch_exists", details={"branch": branch})
    if source is not None and source.startswith("snapshot:"):
        raise BadRequest("a branch starts at the head of a branch, not at a snapshot", code="pinned_snapshot")
    if source is not None:
        refuse_internal(source, "branch_create")
    refuse_during_schema_apply(store.manifests, "branch_create")
    if store.manifests.has_branch(branch):
        raise _exists(branch)
    schema = store.schema.current()
    origin = store.manifests.fresh(branch_key(source))
    if not _fork(store, MANIFEST_DIR, origin.branch, origin.version, branch):
        raise _exists(branch)
    store.manifests.forget(branch)
    try:
        # An apply that took its lock before this branch was there has not seen it, and may be done by now.
        refuse_during_schema_apply(store.manifests, "branch_create")
        if store.schema.current() != schema:
            raise Conflict("another schema was accepted meanwhile", code="schema_changed", hint="retry")
    except Conflict:
        drop_fork(store, MANIFEST_DIR, branch)
        raise
    if store.objects.probe(manifest_file(MANIFEST_DIR, branch, origin.version)) is None:
        # Suspended between the files of the branch and its ref, this process was taken for dead (`_fork`).
        raise Conflict(f"branch '{branch}' was made anew meanwhile", code="branch_replaced", hint="retry")


def _exists(branch: str) -> Conflict:
    return Conflict(f"branch '{branch}' exists already", code="branch_exists", details={"branch": branch})


def delete_branch(store: GraphStore, name: str, *, bound: str | None = None) -> None:
    """Remove a branch: first its ref in `__manifest`, then, best effort, the table forks it owned [BRA-12, BRA-13]."""
    branch = name.strip()
    refuse_internal(branch, "branch_delete")
    if branch == MAIN_BRANCH:
        raise BadRequest("'main' cannot be deleted", code="invalid_branch_name")
    refuse_during_schema_apply(store.manifests, "branch_delete")
    heal(store)
    with_retries(store, lambda: _delete(store, branch, bound), strict=True)


def _delete(store: GraphStore, branch: str, bound: str | None) -> None:
    every = store.manifests.public_branches()
    others = [other for other in every if other != branch]
    if branch not in every:
        raise NotFound(f"branch '{branch}' does not exist", code="branch_not_found", details={"branch": branch})
    if bound == branch:
        raise Conflict(f"this handle is bound to branch '{branch}'", code="branch_is_current", hint="bind another")
    _refuse_if_in_use(store, branch, others)
    for sidecar in store.sidecars.pending():
        if sidecar.branch == branch and store.sidecars.presumed_alive(sidecar):
            raise busy(sidecar, alive=True)  # Let a live writer of this branch finish first.
    owned = [entry for entry in store.manifests.fresh(branch).state.entries().values() if entry.branch == branch]
    # The ref goes first. From then on the branch is gone, and whoever makes it anew waits for the files to go.
    store.manifests.forget(branch)
    store.manifests.remove_branch_files(branch)
    for entry in owned:
        try:
            fire("branch_delete.before_table_cleanup")
            if store.manifests.has_branch(branch):
                return  # It was made anew meanwhile, and its first writes take over what is left of the old one.
            drop_fork(store, entry.path, branch)
        except OmniError:
            continue  # The branch is gone; a fork left behind is removed by cleanup or by the next write.


def _refuse_if_in_use(store: GraphStore, branch: str, others: list[str]) -> None:
    children = [other for other, ref in store.tables.branches(MANIFEST_DIR).items() if ref["parent_branch"] == branch]
    read = {other: store.manifests.fresh(other).state.entries().values() for other in [None, *others]}
    readers = [other for other, entries in read.items() if any(entry.branch == branch for entry in entries)]
    for other in [*children, *(branch_label(reader) for reader in readers)]:
        raise Conflict(
            f"branch '{branch}' cannot be deleted: branch '{other}' still depends on it",
            code="branch_in_use",
            details={"branch": branch, "dependent": other},
            hint=f"delete '{other}' first",
        )


# -- forks of tables -------------------------------------------------------------------------------------------


def ensure_fork(store: GraphStore, branch: str | None, entry: TableEntry) -> None:
    """Give a branch its own storage of a table, forked from where its snapshot reads it, if it has none [BRA-07].

    The fork is not placed until the write is published. One that is there already and stands exactly where ours would
    is simply used; any other is an orphan, removed and forked anew [BRA-10].
    """
    if branch is None:
        return
    refuse_moved(store, store.manifests.fresh(branch), entry, branch)
    if entry.branch == branch:
        return
    for _ in range(2):
        forks = store.tables.branches(entry.path)
        if branch not in forks:
            if _fork(store, entry.path, entry.branch, entry.version, branch):
                return
            forks = store.tables.branches(entry.path)
        fire("fork.before_classify")
        _refuse_if_placed(store, entry, branch)
        if branch in forks and _stands_where_ours_would(store, entry, forks[branch], branch):
            return
        fire("fork.before_reclaim")
        with claimed_fork(store, entry, branch) as still_claimed:
            _refuse_if_placed(store, entry, branch)
            still_claimed()
            _reclaim(store, entry.path, branch, forks)
    raise Conflict(f"branch '{branch}' of '{entry.table_key}' is being forked by others", code="table_commit_conflict")


@contextlib.contextmanager
def claimed_fork(store: GraphStore, entry: TableEntry, fork: str) -> Iterator[Callable[[], None]]:
    """Keep writers of other processes off a table's fork while it is removed: their sidecars and ours exclude each
    other. What is asked about the fork must be asked inside, and then whether the claim is still young: one that others
    may take for dead is given up."""
    pin = Pin(entry.table_key, store.tables.uri(entry.path), entry.version, entry.version + 1, table_branch=fork)
    operation_id = str(ULID())
    with store.queues.in_flight(operation_id):
        claim = store.sidecars.arm(Sidecar(operation_id, 0, fork, None, "Mutation", (pin,)))

        def still_claimed() -> None:
            if store.sidecars.renew(claim) is not claim:
                raise busy(claim, alive=True)

        try:
            yield still_claimed
        finally:
            store.sidecars.disarm(operation_id)


def _fork(store: GraphStore, path: str, source: str | None, version: int, branch: str) -> bool:
    """Fork a dataset; False if another process has made the branch meanwhile.

    Files without a ref, which a cut deletion leaves, block the name for ever: they are removed. But files are there
    before the ref while another process forks, so that they are residue is believed only after a moment.
    """
    try:
        store.tables.fork(path, source, version, branch)
        return True
    except OmniError:
        for _ in range(10 * ceil(LEASE_SECONDS)):
            if branch in store.tables.branches(path):
                return False
            pause(0.1)
    remove_branch_files(store.objects, path, branch)
    store.tables.fork(path, source, version, branch)
    return True


def _stands_where_ours_would(store: GraphStore, entry: TableEntry, fork: dict[str, object], branch: str) -> bool:
    same_origin = fork["parent_branch"] == entry.branch and fork["parent_version"] == entry.version
    return same_origin and store.tables.head_version(entry.path, branch) == entry.version


def _refuse_if_placed(store: GraphStore, entry: TableEntry, branch: str) -> None:
    """Ask the live manifest, never the fork itself, who owns it [BRA-09, BRA-11]."""
    try:
        fire("classify.fresh_read")
        live = store.manifests.fresh(branch).state.latest(entry.table_key)
    except OmniError as error:
        raise Conflict(
            f"whether branch '{branch}' owns its copy of '{entry.table_key}' could not be read: {error.message}",
            code="authority_unavailable",
            hint="refresh and retry",
        ) from error
    if live is None or live != entry:
        raise Conflict(
            f"'{entry.table_key}' was written on branch '{branch}' meanwhile",
            code="expected_version_mismatch",
            details={
                "table_key": entry.table_key,
                "expected": entry.version,
                "actual": live.version if live is not None else 0,
            },
            hint="refresh and retry",
        )


def _reclaim(store: GraphStore, path: str, branch: str, forks: Mapping[str, Any]) -> None:
    """Remove an orphan, and before it the orphans that were forked from it: Lance keeps a branch that has children."""
    _refuse_if_needed_elsewhere(store, path, branch)
    for child in [name for name, fork in forks.items() if fork["parent_branch"] == branch]:
        _reclaim(store, path, child, forks)
    drop_fork(store, path, branch)


def _refuse_if_needed_elsewhere(store: GraphStore, path: str, branch: str) -> None:
    """An orphan that a sidecar covers, or that another branch's snapshot reads, is not ours to remove [BRA-18]."""
    for sidecar in store.sidecars.pending():
        if store.queues.is_alive(sidecar.operation_id):
            continue  # Of this process: it is the claim on this very fork, or waits for the queue that we hold.
        if any((pin.table_branch == branch and table_path(pin.table_key) == path) for pin in sidecar.tables):
            raise busy(sidecar, alive=store.sidecars.presumed_alive(sidecar))
    for other in store.manifests.all_branches():
        for entry in store.manifests.fresh(other).state.entries().values():
            if entry.path == path and entry.branch == branch:
                raise Conflict(
                    f"branch '{branch_label(other)}' reads the copy of '{entry.table_key}' that '{branch}' left",
                    code="branch_in_use",
                    hint="merge or delete that branch first",
                )


def drop_fork(store: GraphStore, path: str, branch: str) -> None:
    """The force delete of a table's branch: through Lance, or by hand where only files are left."""
    with contextlib.suppress(NotFound):
        store.tables.drop_branch(path, branch)
    remove_branch_files(store.objects, path, branch)
