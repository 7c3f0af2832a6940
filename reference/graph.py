"""A graph, opened: the engine as one object.

Every method is one operation; each does its work in the module of its name in `operations`. A handle is bound to a
branch and reads the latest committed state of it, unless it is told a version or a commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from reference.errors import BadRequest, NotFound
from reference.format.manifest import GraphCommit
from reference.operations import branches, export, reading
from reference.operations.init import init_graph
from reference.operations.open import open_graph
from reference.protocol.audit import AuditRow, read_audit
from reference.protocol.manifests import Snapshot, branch_key
from reference.protocol.recovery import heal
from reference.protocol.store import GraphStore, open_store
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
        self.store.schema.reload()
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

    def entity_at(self, table_key: str, entity_id: str, snapshot: Snapshot | None = None) -> dict[str, Any] | None:
        """One row as JSON, or null [SNP-06]."""
        self.store.schema.current()
        return reading.entity_at(self.store, snapshot or self.snapshot(), table_key, entity_id)

    def export(
        self, branch: str | None = None, *, types: Sequence[str] = (), tables: Sequence[str] = ()
    ) -> Iterator[bytes]:
        """A branch as JSON lines [EXP]."""
        return export.export_snapshot(self.store, self.snapshot(branch), self.catalog, types=types, tables=tables)

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

    # -- branches ----------------------------------------------------------------------------------------------------

    def branch_list(self) -> list[str]:
        """Every branch, main first."""
        return branches.list_branches(self.store)
