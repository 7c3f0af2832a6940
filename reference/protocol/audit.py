"""The recovery audit: one row for each sidecar that recovery has dealt with [REC 11.4].

The table appears with the first recovery; a graph that never crashed has none [LAY-08].
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from reference.errors import CommitConflict, Conflict, NotFound
from reference.format.manifest import PRIMARY_KEY_METADATA
from reference.format.names import RECOVERY_AUDIT_DIR
from reference.storage.tables import Tables

RecoveryKind = Literal["RolledForward", "RolledBack", "OrphanedBranchDiscarded"]

AUDIT_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


@dataclass(frozen=True)
class Outcome:
    """What recovery did to one table."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True)
class AuditRow:
    """One recovery."""

    graph_commit_id: str
    recovery_kind: RecoveryKind
    recovery_for_actor: str | None
    operation_id: str
    sidecar_writer_kind: str
    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "outcomes": [vars(outcome) for outcome in self.outcomes]}


def append_audit(tables: Tables, row: AuditRow) -> None:
    """Record a recovery. Of two that record one operation at once, one is refused, here or by the store [REC-19]."""
    record = {**row.to_json(), "created_at": datetime.now(UTC).replace(tzinfo=None)}
    record["per_table_outcomes_json"] = json.dumps(record.pop("outcomes"), separators=(",", ":"))
    rows = pa.Table.from_pylist([record], schema=AUDIT_SCHEMA)
    with contextlib.suppress(Conflict):  # The first recovery creates the table; all others find it there.
        tables.create(RECOVERY_AUDIT_DIR, AUDIT_SCHEMA)
    merge = tables.open_latest(RECOVERY_AUDIT_DIR, None).merge_insert("operation_id").when_not_matched_insert_all()
    done = tables.run(RECOVERY_AUDIT_DIR, lambda: merge.conflict_retries(0).use_index(False).execute(rows))
    if not done["num_inserted_rows"]:
        raise CommitConflict(RECOVERY_AUDIT_DIR, f"operation {row.operation_id} has its row already", retryable=True)


def read_audit(tables: Tables, operation_id: str | None = None) -> list[AuditRow]:
    """All recoveries in the order in which they happened, or those of one operation."""
    try:
        handle = tables.open_latest(RECOVERY_AUDIT_DIR, None)
    except NotFound:
        return []
    rows = tables.run(RECOVERY_AUDIT_DIR, lambda: handle.to_table(columns=AUDIT_SCHEMA.names).to_pylist())
    rows.sort(key=lambda row: (row["created_at"], row["operation_id"]))
    return [
        AuditRow(
            **{name: row[name] for name in AUDIT_SCHEMA.names[:5]},
            outcomes=tuple(Outcome(**outcome) for outcome in json.loads(row["per_table_outcomes_json"])),
        )
        for row in rows
        if operation_id in (None, row["operation_id"])
    ]
