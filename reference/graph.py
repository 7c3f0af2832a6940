"""A graph, opened: the engine as one object.

Every method is one operation; each does its work in the module of its name in `operations`. A handle is bound to a
branch and reads the latest committed state of it, unless it is told a version or a commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa

from reference.errors import BadRequest, NotFound
from reference.format.manifest import GraphCommit
from reference.format.names import branch_label
from reference.operations import branches, export, reading
from reference.operations.cleanup import CleanupStats, cleanup
from reference.operations.diff import Diff, diff
from reference.operations.indexes import PendingIndex, ensure_indices
from reference.operations.init import init_graph
from reference.operations.load import LoadMode, LoadResult, load
from reference.operations.merge import MergeResult, merge
from reference.operations.mutate import MutationResult, mutate
from reference.operations.open import open_graph, read_schema
from reference.operations.optimize import OptimizeStats, optimize
from reference.operations.repair import RepairResult, repair
from reference.operations.schema_apply import ApplyResult, schema_apply, schema_plan
from reference.protocol.audit import AuditRow, read_audit
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.protocol.store import GraphStore, open_store
from reference.schema.plan import MigrationPlan
from reference.schema.types import Catalog


class Graph:
    """A handle on a graph, bound to a branch."""

    def __init__(self, store: GraphStore, branch: str | None, *, read_only: bool, recovered: list[AuditRow]) -> None:
        self.store = store
        self.branch = branch
        self.read_only = read_only
        self.recovered = recovered

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    def init(cls, uri: str, schema: str, *, force: bool = False, env: Mapping[str, str] | None = None) -> Self:
        """Create a graph and open it."""
        init_graph(open_store(uri, env), schema, force=force)
        return cls.open(uri, env=env)

    @classmethod
    def open(
        cls, uri: str, *, branch: str | None = None, read_only: bool = False, env: Mapping[str, str] | None = None
    ) -> Self:
        """Open a graph. For writing, whatever a dead writer left is rolled forward or back first."""
        store = open_store(uri, env)
        recovered = open_graph(store, read_only=read_only)
        graph = cls(store, None, read_only=read_only, recovered=recovered)
        if branch is not None:
            graph.sync_branch(branch)
        return graph

    def refresh(self) -> list[AuditRow]:
        """Catch up with the store, and roll forward what a dead writer left [REC-06]."""
        healed = [] if self.read_only else heal(self.store)
        self.store.manifests.fresh(self.branch)
        read_schema(self.store)
        return healed

    def sync_branch(self, branch: str) -> None:
        """Bind this handle to the head of another branch [SNP-11]."""
        key = branch_key(branch)
        self.store.manifests.fresh(key)
        self.branch = key

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The accepted schema, checked against the store [SNP-10]."""
        return self.store.schema.current().catalog

    def snapshot(self, branch: str | None = None, *, version: int | None = None, commit: str | None = None) -> Snapshot:
        """The tables of a branch now, at a manifest version, or as of a commit [SNP-02…SNP-04]."""
        key = self.branch if branch is None else branch_key(branch)
        if commit is not None:
            if version is not None:
                raise BadRequest("name a version or a commit, not both", code="ambiguous_snapshot")
            found = self.commit(commit)
            return self.store.manifests.at_version(found.manifest_branch, found.manifest_version)
        if version is not None:
            return self.store.manifests.at_version(key, version)
        return self.store.manifests.fresh(key).snapshot()

    def snapshot_id(self, snapshot: Snapshot) -> str:
        """A name for a live snapshot [SNP-05]."""
        return f"manifest:{snapshot.branch or 'main'}:v{snapshot.version}"

    def read(self, table_key: str, snapshot: Snapshot | None = None) -> list[dict[str, Any]]:
        """All rows of a table, by id, as JSON."""
        self.store.schema.current()
        return reading.read_rows(self.store, snapshot or self.snapshot(), table_key).to_json()

    def table(self, table_key: str, snapshot: Snapshot | None = None) -> pa.Table:
        """All rows of a table as Arrow, in no order; blobs are descriptors."""
        self.store.schema.current()
        entry = (snapshot or self.snapshot()).entry(table_key)
        rows: pa.Table = self.store.tables.run(table_key, reading.open_entry(self.store, entry).to_table)
        return rows

    def entity_at(self, table_key: str, entity_id: str, snapshot: Snapshot | None = None) -> dict[str, Any] | None:
        """One row as JSON, or null [SNP-06]."""
        self.store.schema.current()
        return reading.entity_at(self.store, snapshot or self.snapshot(), table_key, entity_id)

    def export(
        self, branch: str | None = None, *, types: Sequence[str] = (), tables: Sequence[str] = ()
    ) -> Iterator[bytes]:
        """A branch as JSON lines [EXP]."""
        catalog, snapshot = self.catalog, self.snapshot(branch)
        if self.store.schema.state_is_staged() or not snapshot.entries.keys() <= set(catalog.table_keys()):
            read_schema(self.store)  # A schema apply is at it, or died: what is published may be newer [C22].
            catalog = self.catalog
        return export.export_snapshot(self.store, snapshot, catalog, types=types, tables=tables)

    def commits(self, branch: str | None = None) -> list[GraphCommit]:
        """The lineage of a branch, oldest first [LIN-10]."""
        key = self.branch if branch is None else branch_key(branch)
        return self.store.manifests.fresh(key).state.commits()

    def commit(self, commit_id: str) -> GraphCommit:
        """One commit, from this branch or from any other [LIN-10]."""
        for key in [self.branch, *self.store.manifests.all_branches()]:
            found = self.store.manifests.fresh(key).state.commit_map().get(commit_id)
            if found is not None:
                return found
        raise NotFound(f"there is no commit '{commit_id}'", code="commit_not_found", details={"commit": commit_id})

    def recoveries(self) -> list[AuditRow]:
        """Every recovery that this graph has seen."""
        return read_audit(self.store.tables)

    # -- writing -----------------------------------------------------------------------------------------------------

    def load(
        self,
        data: bytes | str,
        *,
        mode: LoadMode,
        branch: str | None = None,
        base: str | None = None,
        actor: str | None = None,
    ) -> LoadResult:
        """Load records [LOD]."""
        self._refuse_read_only("load")
        return load(
            self.store, data, mode=mode, branch=self.branch if branch is None else branch, base=base, actor=actor
        )

    def mutate(
        self, statements: Sequence[Any], *, branch: str | None = None, actor: str | None = None, name: str = "mutation"
    ) -> MutationResult:
        """Insert and update, or delete [MUT, DEL]."""
        self._refuse_read_only("mutate")
        return mutate(self.store, self.branch if branch is None else branch, statements, actor=actor, name=name)

    def _refuse_read_only(self, operation: str) -> None:
        if self.read_only:
            raise BadRequest(f"{operation}: this handle was opened to read only", code="read_only_handle")

    # -- branches ----------------------------------------------------------------------------------------------------

    def branch_list(self) -> list[str]:
        """Every branch, main among them, sorted."""
        return branches.list_branches(self.store)

    def branch_create(self, name: str, source: str | None = None) -> None:
        """A new branch at the head of another: of the one this handle is bound to, unless it is named [BRA-01]."""
        self._refuse_read_only("branch_create")
        branches.create_branch(self.store, name, branch_label(self.branch) if source is None else source)

    def branch_delete(self, name: str) -> None:
        """Remove a branch that nothing depends on [BRA-12]."""
        self._refuse_read_only("branch_delete")
        branches.delete_branch(self.store, name, bound=self.branch)

    def merge(self, source: str, target: str | None = None, *, actor: str | None = None) -> MergeResult:
        """Merge a branch into another: into the one this handle is bound to, unless it is named [MRG]."""
        self._refuse_read_only("branch_merge")
        into = branch_label(self.branch) if target is None else target
        return merge(self.store, self.catalog, source, into, actor)

    def diff(self, older: Snapshot, newer: Snapshot, *, types: Sequence[str] = (), ops: Sequence[str] = ()) -> Diff:
        """What changed between two snapshots, which `snapshot` gives by version or by commit [CHG]."""
        self.store.schema.current()
        return diff(self.store, older, newer, types=types, ops=ops)

    # -- schema and maintenance --------------------------------------------------------------------------------------

    def schema_plan(self, source: str, *, allow_data_loss: bool = False) -> MigrationPlan:
        """What it would take to get to another schema [SCH-03]."""
        return schema_plan(self.store, source, allow_data_loss=allow_data_loss)

    def schema_apply(self, source: str, *, allow_data_loss: bool = False) -> ApplyResult:
        """Change the schema, and the tables with it [SCH]."""
        self._refuse_read_only("schema_apply")
        return schema_apply(self.store, source, allow_data_loss=allow_data_loss)

    def ensure_indices(self, branch: str | None = None) -> list[PendingIndex]:
        """Build the indexes that the schema asks for; returns those that cannot be built yet [IDX]."""
        self._refuse_read_only("ensure_indices")
        return ensure_indices(self.store, self.catalog, self.branch if branch is None else branch_key(branch))

    def optimize(self) -> list[OptimizeStats]:
        """Compact the tables of main and complete their indexes [OPT]."""
        self._refuse_read_only("optimize")
        return optimize(self.store, self.catalog)

    def cleanup(
        self, *, keep_versions: int | None = None, older_than: timedelta | None = None, confirm: bool = False
    ) -> list[CleanupStats]:
        """Remove orphaned forks and old versions; without `confirm`, only say what would go [CLN]."""
        self._refuse_read_only("cleanup")
        return cleanup(self.store, keep_versions=keep_versions, older_than=older_than, confirm=confirm)

    def repair(self, branch: str | None = None, *, confirm: bool = False, force: bool = False) -> RepairResult:
        """Say what has drifted without a sidecar, and publish what may be [RPR-01]."""
        self._refuse_read_only("repair")
        key = self.branch if branch is None else branch_key(branch)
        return repair(self.store, key, confirm=confirm, force=force)
