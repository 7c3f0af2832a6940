"""Lance tables: the only place that speaks pylance, and the only place that knows its traps.

A table is named by its path below the graph's root and by the branch that owns its data (None is main). Handles are
held by (path, branch, version) and share one `lance.Session`, so that what was read once is not read again. Writes
are staged first (files on disk, HEAD where it was) and committed later; every commit reports the version on which it
really landed, because Lance silently rebases appends and updates over the commits of others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments
from lance.lance import _Session as Session

from reference.errors import CommitConflict, Conflict, NotFound, OmniError, RowLevelCasContention, StorageError
from reference.format.names import MAIN_BRANCH, branch_location
from reference.storage.relocated import moved_bases, view_of
from reference.storage.uris import GraphRoot

OPERATION_PROPERTY = "omnigraph.operation_id"
HANDLES_HELD_MAX = 256
U64_MAX = 2**64 - 1


@contextmanager
def translated(what: str) -> Iterator[None]:
    """The one place that turns what pylance raises into typed errors [lance-facts, trap 9]."""
    try:
        yield
    except OmniError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        text = str(error)
        lowered = text.lower()
        if "too many concurrent writers" in lowered or "retryable commit conflict" in lowered:
            raise CommitConflict(what, _first_sentence(text), retryable=True) from error
        if getattr(error, "retryable", None) is not None or "incompatible transaction" in lowered:
            retryable = bool(getattr(error, "retryable", False))
            raise CommitConflict(what, _first_sentence(text), retryable=retryable) from error
        if "already exists" in lowered:
            raise Conflict(f"{what} already exists", code="already_exists") from error
        if "not found" in lowered:
            raise NotFound(f"{what} was not found: {_first_sentence(text)}", code="table_not_found") from error
        if "referenced by" in lowered and "can not delete" in lowered:
            raise Conflict(f"{what} is still used by another branch", code="branch_in_use") from error
        raise StorageError(f"{what}: {_first_sentence(text)}", code="lance_error") from error


def _first_sentence(text: str) -> str:
    """Lance appends the file and line of its own source; people do not need that."""
    return text.split(", /home/", 1)[0].split(", rust/", 1)[0].strip()[:400]


def _has_external_blobs(rows: pa.Table) -> bool:
    """Whether a blob of these rows is a reference to an object elsewhere."""
    for column in rows.columns:
        if isinstance(column.type, pa.BaseExtensionType) and "blob" in column.type.extension_name:
            for chunk in column.chunks:
                references = chunk.storage.field("uri")
                if references.null_count < len(references):
                    return True
    return False


def manifest_file(path: str, branch: str | None, version: int) -> str:
    """The file of one version of a table: names count down, so that the newest sorts first."""
    return f"{branch_location(path, branch)}/_versions/{U64_MAX - version:020d}.manifest"


@dataclass(frozen=True)
class Staged:
    """A transaction whose files are written and which nobody sees."""

    handle: Any
    transaction: Transaction


class Tables:
    """The Lance datasets of one graph."""

    def __init__(self, root: GraphRoot, storage_options: Mapping[str, str]) -> None:
        self._root = root
        self._storage_options = dict(storage_options) or None
        self._session = Session()
        self._held: OrderedDict[tuple[str, str | None, int], LanceDataset] = OrderedDict()
        self._lock = threading.Lock()

    # -- opening -------------------------------------------------------------------------------------------------

    def uri(self, path: str, branch: str | None = None) -> str:
        """The full address of a table's data on a branch."""
        return self._root.join(branch_location(path, branch))

    def open(self, path: str, branch: str | None, version: int) -> LanceDataset:
        """A table at one version. The handle is held, so opening it again costs nothing."""
        key = (path, branch, version)
        with self._lock:
            handle = self._held.get(key)
            if handle is not None:
                self._held.move_to_end(key)
                return handle
        with translated(f"version {version} of {branch_location(path, branch)}"):
            handle = self._open(path, branch, version)
        return self._hold(path, branch, handle)

    def open_latest(self, path: str, branch: str | None) -> LanceDataset:
        """A table at its HEAD, opened anew."""
        with translated(branch_location(path, branch)):
            return self._open(path, branch, None)

    def _open(self, path: str, branch: str | None, version: int | None) -> LanceDataset:
        return lance.dataset(
            self.uri(path, branch), version=version, storage_options=self._storage_options, session=self._session
        )

    def readable(self, path: str, handle: LanceDataset) -> LanceDataset:
        """What to scan in place of a handle: itself, or a view of it where the graph was moved since it was written."""
        with translated(path):
            bases = moved_bases(handle, path, self.uri(path))
            return view_of(handle, bases) if bases else handle

    def is_moved(self, path: str, handle: LanceDataset) -> bool:
        """Whether a version was written where the graph is not any more."""
        return bool(moved_bases(handle, path, self.uri(path)))

    def _hold(self, path: str, branch: str | None, handle: LanceDataset) -> LanceDataset:
        with self._lock:
            self._held[(path, branch, handle.version)] = handle
            while len(self._held) > HANDLES_HELD_MAX:
                self._held.popitem(last=False)
        return handle

    def forget(self, branch: str | None, path: str | None = None) -> None:
        """Drop held handles of a branch: its name may mean another branch from now on."""
        with self._lock:
            for key in [key for key in self._held if key[1] == branch and path in (None, key[0])]:
                del self._held[key]

    def head_version(self, path: str, branch: str | None, near: int | None = None) -> int:
        """The latest version, by one probe where a handle at or near it is held."""
        with self._lock:
            handle = self._held.get((path, branch, near)) if near is not None else None
        with translated(branch_location(path, branch)):
            if handle is None:
                return int(self._hold(path, branch, self._open(path, branch, None)).version)
            return int(handle.latest_version)

    def exists(self, path: str, branch: str | None = None) -> bool:
        """Whether a dataset is there."""
        try:
            self.open_latest(path, branch)
        except NotFound:
            return False
        return True

    # -- creating ------------------------------------------------------------------------------------------------

    def create(self, path: str, schema: pa.Schema, rows: pa.Table | None = None) -> LanceDataset:
        """A new table with stable row ids."""
        self.commit_new(path, self.stage_new(path, schema, rows), "create")
        return self.open(path, None, 1)

    def stage_new(self, path: str, schema: pa.Schema, rows: pa.Table | None = None) -> Staged:
        """The files of a table that does not exist yet."""
        uri = self.uri(path)
        fragments = []
        if rows is not None and rows.num_rows:
            with translated(path):
                fragments = write_fragments(
                    rows, uri, schema=schema, data_storage_version="2.2", storage_options=self._storage_options
                )
        return Staged(uri, Transaction(0, LanceOperation.Overwrite(schema, fragments)))

    def commit_new(self, path: str, staged: Staged, operation_id: str) -> LanceDataset:
        """Make a staged table exist. Of several that create one table, exactly one wins (trap 4)."""
        staged.transaction.transaction_properties = {OPERATION_PROPERTY: operation_id}
        with translated(path):
            try:
                landed = LanceDataset.commit(
                    staged.handle,
                    staged.transaction,
                    max_retries=0,
                    enable_stable_row_ids=True,
                    storage_options=self._storage_options,
                )
            except OSError as error:
                if "0.manifest was not found" in str(error) or "already exists" in str(error):
                    raise Conflict(f"a table already exists at {path}", code="already_exists") from error
                raise
        return self._hold(path, None, landed)

    # -- staging: files are written, HEAD does not move -------------------------------------------------------------

    def stage_append(self, handle: LanceDataset, rows: pa.Table) -> Staged:
        """New rows, not compared with what is there."""
        with translated("staging rows"):
            return Staged(handle, self._write(handle, rows, "append"))

    def stage_overwrite(self, handle: LanceDataset, rows: pa.Table) -> Staged:
        """A whole new content, of a new schema if need be. An empty one is valid [LOD-09]."""
        with translated("staging rows"):
            if rows.num_rows == 0:
                return Staged(handle, Transaction(handle.version, LanceOperation.Overwrite(rows.schema, [])))
            return Staged(handle, self._write(handle, rows, "overwrite"))

    def _write(self, handle: LanceDataset, rows: pa.Table, mode: str) -> Transaction:
        return write_fragments(
            rows,
            handle,
            schema=rows.schema,
            mode=mode,
            return_transaction=True,
            storage_options=self._storage_options,
            allow_external_blob_outside_bases=True,
        )

    def stage_merge(self, handle: LanceDataset, rows: pa.Table) -> Staged:
        """Upsert by `id`: rows that exist are replaced whole."""
        with translated("staging an upsert"):
            if _has_external_blobs(rows):
                return self._stage_merge_by_parts(handle, rows)
            merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            return Staged(handle, merge.execute_uncommitted(rows)[0])

    def _stage_merge_by_parts(self, handle: LanceDataset, rows: pa.Table) -> Staged:
        """Lance's merge refuses references to blobs elsewhere. Its two halves, as one transaction, do not."""
        deletion: Any = self.stage_delete(handle, rows.column("id")).transaction.operation
        added: Any = self._write(handle, rows, "append").operation
        update = LanceOperation.Update(
            removed_fragment_ids=deletion.removed_fragment_ids,
            updated_fragments=deletion.updated_fragments,
            new_fragments=added.fragments,
            fields_modified=[],
            fields_for_preserving_frag_bitmap=deletion.fields_for_preserving_frag_bitmap,
            update_mode="rewrite_rows",
        )
        return Staged(handle, Transaction(handle.version, update))

    def stage_delete(self, handle: LanceDataset, ids: pa.Array) -> Staged:
        """Remove rows by `id`, as deletion vectors."""
        with translated("staging a delete"):
            merge = handle.merge_insert("id").when_matched_delete()
            return Staged(handle, merge.execute_uncommitted(pa.table({"id": ids}))[0])

    # -- committing: HEAD moves ------------------------------------------------------------------------------------

    def commit(self, path: str, branch: str | None, staged: Staged, operation_id: str) -> LanceDataset:
        """Commit a staged transaction. The caller compares the landed version with the one it expects (trap 3)."""
        staged.transaction.transaction_properties = {OPERATION_PROPERTY: operation_id}
        return self._commit(path, branch, staged.handle, staged.transaction)

    def restore(self, path: str, branch: str | None, version: int, operation_id: str) -> LanceDataset:
        """Make the content of an old version the HEAD again. Never conflicts: the caller re-reads (trap 7)."""
        handle = self.open_latest(path, branch)
        transaction = Transaction(handle.version, LanceOperation.Restore(version))
        transaction.transaction_properties = {OPERATION_PROPERTY: operation_id}
        return self._commit(path, branch, handle, transaction)

    def _commit(self, path: str, branch: str | None, handle: Any, transaction: Transaction) -> LanceDataset:
        with translated(branch_location(path, branch)):
            landed = LanceDataset.commit(handle, transaction, max_retries=0, storage_options=self._storage_options)
        return self._hold(path, branch, landed)

    def self_cleaning(self, handle: LanceDataset) -> list[str]:
        """The settings with which Lance would remove versions on commits, whoever reads them."""
        with translated("the config of a table"):
            return [name for name in handle.config() if name.startswith("lance.auto_cleanup.")]

    def stop_cleaning(self, handle: LanceDataset) -> bool:
        """Take such settings away; pylance cannot commit past them [OPT-03, PUB-05]."""
        if names := self.self_cleaning(handle):
            self.run("the config of a table", lambda: handle.delete_config_keys(names))
        return bool(names)

    def publish_rows(self, handle: LanceDataset, rows: pa.Table) -> int:
        """The one write that makes a graph commit visible: a keyed merge into `__manifest`, at most once.

        Only `execute` keeps the filter on the key (trap 2), and an index on the key would switch it off (trap 1). The
        handle moves to the landed version, which is returned.
        """
        try:
            with translated("__manifest"):
                merge = handle.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all()
                merge.conflict_retries(0).use_index(False).execute(rows)
        except CommitConflict as error:
            raise RowLevelCasContention(error.message) from error
        return int(handle.version)

    def maker_of(self, path: str, branch: str | None, version: int) -> str | None:
        """Which operation of this engine made a version: "restore" for a rollback, None where another engine did."""
        with translated(branch_location(path, branch)):
            try:
                transaction = self.open(path, branch, version).read_transaction(version)
            except TypeError:
                return None  # pylance cannot represent a compaction that moved indexes.
        if transaction is None:
            return None
        if isinstance(transaction.operation, LanceOperation.Restore):
            return "restore"
        return (transaction.transaction_properties or {}).get(OPERATION_PROPERTY)

    def is_ours(self, path: str, branch: str | None, version: int) -> bool:
        """Whether this engine wrote a version. What a fork inherited is asked for where it was written. One that is
        cleaned up cannot be asked: the oldest that is left speaks for it, because cleanup removes nothing of a table
        with blobs in which another engine has written."""
        forks = self.branches(path) if branch is not None else {}
        while branch in forks and version <= forks[branch]["parent_version"]:
            branch = forks[branch]["parent_branch"]
        try:
            return self.maker_of(path, branch, version) is not None
        except (NotFound, StorageError):
            oldest = self.run(path, self.open_latest(path, None).versions)[0]["version"]
            return self.maker_of(path, None, int(oldest)) is not None

    # -- branches ----------------------------------------------------------------------------------------------------

    def branches(self, path: str) -> dict[str, Any]:
        """The branches of one table, by name, with what Lance knows of each."""
        with translated(path):
            return dict(self.open_latest(path, None).branches.list())

    def fork(self, path: str, source: str | None, version: int, branch: str) -> None:
        """A branch of a table, from a version of another branch. Its versions go on from that number."""
        try:
            with translated(f"branch '{branch}' of {path}"):
                main = self.open_latest(path, None)
                main.create_branch(branch, (source, version), storage_options=self._storage_options)
        except Conflict as error:
            # Lance puts the ref last, over files that only one process can have made. Who comes so far and finds a ref
            # of the same origin has put it, and the answer got lost.
            origin = [self.branches(path).get(branch, {}).get(name) for name in ("parent_branch", "parent_version")]
            if error.code != "already_exists" or origin != [source, version]:
                raise
        self.forget(branch, path)

    def drop_branch(self, path: str, branch: str) -> None:
        """Delete a branch as Lance does: refused while another branch was forked from it."""
        self.forget(branch, path)
        if branch.split("/")[0] == MAIN_BRANCH:
            # Lance takes `main/x` for the dataset itself, and would delete all of it.
            raise NotFound(f"branch '{branch}' of {path} is not deleted through Lance", code="table_not_found")
        with translated(f"branch '{branch}' of {path}"):
            self.open_latest(path, None).branches.delete(branch)

    # -- maintenance -------------------------------------------------------------------------------------------------

    def compact(self, handle: LanceDataset) -> Any:
        """Rewrite small fragments in place; the handle moves. Content, row ids and row versions stay."""
        with translated("compaction"):
            return handle.optimize.compact_files()

    def run(self, what: str, action: Callable[[], Any]) -> Any:
        """Any other call into Lance, with its errors translated."""
        with translated(what):
            return action()
