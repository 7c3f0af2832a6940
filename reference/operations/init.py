"""Init: claim an empty root, create every table, then the manifest that makes them a graph [SCH-16, MAN-07]."""

from __future__ import annotations

from ulid import ULID

from reference.errors import Conflict, OmniError
from reference.failpoint import fire
from reference.format.manifest import (
    GENESIS_MANIFEST_VERSION,
    MANIFEST_CONFIG,
    MANIFEST_SCHEMA,
    GraphCommit,
    Row,
    TableEntry,
    commit_row,
    head_row,
    rows_to_table,
    table_row,
    table_version_row,
)
from reference.format.names import (
    MANIFEST_DIR,
    RECOVERY_AUDIT_DIR,
    RECOVERY_DIR,
    SCHEMA_FILES,
    STAGING_SUFFIX,
    table_path,
)
from reference.format.stamp import INTERNAL_SCHEMA_VERSION, STAMP_KEY
from reference.protocol.publish import now_micros
from reference.protocol.store import GraphStore
from reference.schema.compiler import compile_schema
from reference.schema.types import Catalog
from reference.storage.tables import manifest_file


def init_graph(store: GraphStore, source: str, *, force: bool = False) -> None:
    """Create a graph with a schema and no rows. `force` replaces a graph that is there."""
    catalog = compile_schema(source)
    if force:
        _clear(store)
    _claim(store, source)
    try:
        fire("init.after_schema_pg_written")
        store.schema.write_all(source, catalog)
        fire("init.after_schema_contract_written")
        _create_tables(store, catalog)
        _create_manifest(store, catalog)
        fire("init.after_coordinator_init")
    except BaseException:
        _give_back(store)
        raise


def _claim(store: GraphStore, source: str) -> None:
    """Exactly one of several inits owns the root: the one that created the source file."""
    if store.objects.exists(MANIFEST_DIR) or store.schema.any_exists() or not store.schema.claim(source):
        raise Conflict(
            f"there is a graph at {store.root.uri} already",
            code="already_initialized",
            hint="choose another place, or pass --force to replace it",
        )
    foreign = [name for name in ("nodes", "edges") if store.objects.exists(name)]
    if foreign:
        store.schema.remove_all()
        raise Conflict(
            f"{store.root.uri} holds '{foreign[0]}' but no graph",
            code="root_not_empty",
            hint="choose an empty place, or pass --force to remove what is there",
        )


def _clear(store: GraphStore) -> None:
    """Remove a graph: its manifest first, so that no half of it can be taken for a whole."""
    for directory in (MANIFEST_DIR, "nodes", "edges", RECOVERY_DIR, RECOVERY_AUDIT_DIR):
        store.objects.delete_prefix(directory)
    for name in SCHEMA_FILES:
        store.objects.delete(name + STAGING_SUFFIX)
    store.schema.remove_all()
    store.manifests.forget(None)


def _give_back(store: GraphStore) -> None:
    """Undo a claim that came to nothing. If even that fails, the first error is the one to report."""
    try:
        for directory in (MANIFEST_DIR, "nodes", "edges"):
            store.objects.delete_prefix(directory)
        store.schema.remove_all()
    except OmniError:
        return


def _create_tables(store: GraphStore, catalog: Catalog) -> None:
    for table_key in catalog.table_keys():
        store.tables.create(table_path(table_key), catalog.arrow_schema(table_key))


def _create_manifest(store: GraphStore, catalog: Catalog) -> None:
    """Version 1 holds all rows, version 2 the config, version 3 the stamp: only then can the graph be opened."""
    genesis = GraphCommit(
        graph_commit_id=str(ULID()),
        manifest_branch=None,
        manifest_version=GENESIS_MANIFEST_VERSION,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=None,
        created_at=now_micros(),
    )
    rows: list[Row] = []
    for table_key in catalog.table_keys():
        entry = TableEntry(table_key, table_path(table_key), 1, None, 0)
        manifest_path = f"{store.root.prefix}/{manifest_file(entry.path, None, 1)}".lstrip("/")
        rows += [table_row(table_key, entry.path), table_version_row(entry, manifest_path)]
    rows += [commit_row(genesis), head_row(genesis)]
    handle = store.tables.create(MANIFEST_DIR, MANIFEST_SCHEMA, rows_to_table(rows))
    store.tables.run(MANIFEST_DIR, lambda: handle.update_config(dict(MANIFEST_CONFIG)))
    stamp = {STAMP_KEY: str(INTERNAL_SCHEMA_VERSION)}
    store.tables.run(MANIFEST_DIR, lambda: handle.update_schema_metadata(dict(stamp)))
    store.manifests.forget(None)
