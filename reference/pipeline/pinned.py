"""One snapshot for a whole job: pinned on the driver, opened by every task at exactly the same versions.

Everything here is plain data that pickles. Credentials travel inside the pickled values and nowhere else: they are in
no repr, so in no plan, log or error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reference.schema.types import Catalog

if TYPE_CHECKING:
    from lance import LanceDataset

    from reference.format.manifest import TableEntry
    from reference.graph import Graph
    from reference.protocol.manifests import Snapshot
    from reference.protocol.store import GraphStore


@dataclass(frozen=True)
class PinnedTable:
    """One table at one version. `uri` is the dataset of the branch that owns the data, `location` that of main."""

    table_key: str
    uri: str
    version: int
    row_count: int
    fragment_ids: tuple[int, ...]
    path: str
    location: str
    branch: str | None


@dataclass(frozen=True)
class PinnedGraph:
    """All tables of a branch at one manifest version."""

    uri: str
    branch: str | None
    manifest_version: int
    catalog: Catalog
    tables: Mapping[str, PinnedTable]
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)


def pin(
    graph: Graph, branch: str | None = None, *, version: int | None = None, commit: str | None = None
) -> PinnedGraph:
    """Pin a branch as it is now, at a manifest version, or as of a commit."""
    snapshot = graph.snapshot(branch, version=version, commit=commit)
    return pin_snapshot(graph.store, snapshot, graph.catalog)


def pin_snapshot(store: GraphStore, snapshot: Snapshot, catalog: Catalog) -> PinnedGraph:
    """Pin a snapshot that is at hand already."""
    return PinnedGraph(
        uri=store.root.uri,
        branch=snapshot.branch,
        manifest_version=snapshot.version,
        catalog=picklable(catalog),
        tables={key: _pinned(store, entry) for key, entry in sorted(snapshot.entries.items())},
        storage_options=storage_options(store),
    )


def storage_options(store: GraphStore) -> dict[str, str]:
    """What Lance needs to get into the graph's store."""
    from reference.storage.uris import storage_options_from_env

    return storage_options_from_env(store.env) if store.root.scheme == "s3" else {}


def picklable(catalog: Catalog) -> Catalog:
    """The same catalog with plain dictionaries: the read-only views of a compiled one do not pickle."""
    return replace(catalog, interfaces=dict(catalog.interfaces), nodes=dict(catalog.nodes), edges=dict(catalog.edges))


def _pinned(store: GraphStore, entry: TableEntry) -> PinnedTable:
    handle = store.tables.open(entry.path, entry.branch, entry.version)
    return PinnedTable(
        table_key=entry.table_key,
        uri=store.tables.uri(entry.path, entry.branch),
        version=entry.version,
        row_count=entry.row_count,
        fragment_ids=tuple(int(fragment.fragment_id) for fragment in handle.get_fragments()),
        path=entry.path,
        location=store.tables.uri(entry.path),
        branch=entry.branch,
    )


def open_pinned(table: PinnedTable, storage_options: Mapping[str, str]) -> LanceDataset:
    """Open a pinned table inside a task, or a view of it where the graph was moved since it was written."""
    from reference.storage.relocated import moved_bases, view_of
    from reference.storage.tables import translated

    with translated(f"version {table.version} of {table.path}"):
        handle: Any = _dataset(table, storage_options)
        bases = moved_bases(handle, table.path, table.location)
        return view_of(handle, bases) if bases else handle


def _dataset(table: PinnedTable, storage_options: Mapping[str, str]) -> LanceDataset:
    import lance

    return lance.dataset(table.uri, version=table.version, storage_options=dict(storage_options) or None)
