"""The places in the commit protocol where a test can step in.

The names are those of the public engine at v0.8.0, so that a fault found here can be looked for there. A name says
which operation it belongs to and which gap it stands for.
"""

from __future__ import annotations

from typing import Final

INIT_AFTER_SCHEMA_PG_WRITTEN: Final = "init.after_schema_pg_written"
INIT_AFTER_SCHEMA_CONTRACT_WRITTEN: Final = "init.after_schema_contract_written"
INIT_AFTER_COORDINATOR_INIT: Final = "init.after_coordinator_init"

PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION: Final = "publish.load_state_retryable_contention"
GRAPH_PUBLISH_BEFORE_COMMIT_APPEND: Final = "graph_publish.before_commit_append"
GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT: Final = "graph_publish.after_manifest_commit"

MUTATION_DELETE_NODE_PRE_PRIMARY_DELETE: Final = "mutation.delete_node_pre_primary_delete"
# Fired by mutations and by loads: the tables are committed, the manifest is not.
MUTATION_POST_FINALIZE_PRE_PUBLISHER: Final = "mutation.post_finalize_pre_publisher"

RECOVERY_SIDECAR_WRITE: Final = "recovery.sidecar_write"
RECOVERY_SIDECAR_CONFIRM: Final = "recovery.sidecar_confirm"
RECOVERY_SIDECAR_DELETE: Final = "recovery.sidecar_delete"
RECOVERY_SIDECAR_LIST: Final = "recovery.sidecar_list"
RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH: Final = "recovery.before_roll_forward_publish"
RECOVERY_RECORD_AUDIT: Final = "recovery.record_audit"
RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND: Final = "recovery.orphan_discard_audit_append"

SCHEMA_APPLY_BEFORE_STAGING_WRITE: Final = "schema_apply.before_staging_write"
SCHEMA_APPLY_AFTER_STAGING_WRITE: Final = "schema_apply.after_staging_write"
SCHEMA_APPLY_AFTER_MANIFEST_COMMIT: Final = "schema_apply.after_manifest_commit"

BRANCH_MERGE_ADOPT_AFTER_APPEND_PRE_UPSERT: Final = "branch_merge.adopt_after_append_pre_upsert"
BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE: Final = "branch_merge.adopt_after_upsert_pre_delete"
BRANCH_MERGE_REWRITE_AFTER_MERGE_PRE_DELETE: Final = "branch_merge.rewrite_after_merge_pre_delete"
BRANCH_MERGE_REWRITE_AFTER_DELETE_PRE_INDEX: Final = "branch_merge.rewrite_after_delete_pre_index"
BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "branch_merge.post_phase_b_pre_manifest_commit"

ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE: Final = "ensure_indices.post_stage_pre_commit_btree"
ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "ensure_indices.post_phase_b_pre_manifest_commit"

OPTIMIZE_BEFORE_COMPACT: Final = "optimize.before_compact"
OPTIMIZE_INJECT_REINDEX_CONFLICT: Final = "optimize.inject_reindex_conflict"
OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT: Final = "optimize.post_phase_b_pre_manifest_commit"

BRANCH_DELETE_BEFORE_TABLE_CLEANUP: Final = "branch_delete.before_table_cleanup"
FORK_BEFORE_CLASSIFY: Final = "fork.before_classify"
FORK_BEFORE_RECLAIM: Final = "fork.before_reclaim"
CLASSIFY_FRESH_READ: Final = "classify.fresh_read"

CLEANUP_TABLE_GC: Final = "cleanup.table_gc"
CLEANUP_RECONCILE_FORK: Final = "cleanup.reconcile_fork"
CLEANUP_RESOLVE_BRANCH_SNAPSHOT: Final = "cleanup.resolve_branch_snapshot"

UPSTREAM: Final[frozenset[str]] = frozenset(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)
NAMES: Final[frozenset[str]] = UPSTREAM
