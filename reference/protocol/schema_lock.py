"""The lock of schema apply: a branch of `__manifest` that everyone can see [SCH-01, SCH-17]."""

from __future__ import annotations

import contextlib

from reference.errors import Conflict, NotFound
from reference.format.names import MANIFEST_DIR, SCHEMA_LOCK_BRANCH
from reference.protocol.manifests import Manifests
from reference.storage.tables import Tables


def take_schema_lock(tables: Tables, manifests: Manifests) -> str | None:
    """Create the lock branch. Of several that try, one succeeds, and gets what tells its lock from another's."""
    if manifests.schema_lock_is_held():
        raise in_progress("schema apply")
    version = manifests.fresh(None).version
    try:
        tables.fork(MANIFEST_DIR, None, version, SCHEMA_LOCK_BRANCH)
    except Conflict as error:
        raise in_progress("schema apply") from error
    return manifests.schema_lock_token()


def release_schema_lock(tables: Tables, manifests: Manifests) -> None:
    """Delete the lock branch, if it is there, and whatever a cut deletion left of it."""
    with contextlib.suppress(NotFound):
        tables.drop_branch(MANIFEST_DIR, SCHEMA_LOCK_BRANCH)
    manifests.remove_branch_files(SCHEMA_LOCK_BRANCH)


def refuse_during_schema_apply(manifests: Manifests, operation: str) -> None:
    """Stop an operation that must not overlap with a schema apply [MUT-16, BRA-06]."""
    if manifests.schema_lock_is_held():
        raise in_progress(operation)


def in_progress(operation: str) -> Conflict:
    return Conflict(
        f"{operation} must wait: a schema apply holds the branch '{SCHEMA_LOCK_BRANCH}'",
        code="schema_apply_in_progress",
        details={"operation": operation, "lock": SCHEMA_LOCK_BRANCH},
        hint="retry when it is done; if its process died, open the graph read-write, then try 'repair --confirm'",
    )
