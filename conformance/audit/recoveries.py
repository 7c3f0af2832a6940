"""The table of recoveries: what it looks like, and that each operation was recovered once [REC-14, REC 11.4]."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final

import pyarrow as pa

from conformance.audit.datasets import DatasetMissing, DatasetMoved, Datasets, DatasetUnreadable, check_settings
from conformance.audit.findings import Findings
from conformance.audit.names import AUDIT_DIR, is_ulid
from conformance.audit.sidecars import WRITER_KINDS

KINDS: Final = ("RolledForward", "RolledBack", "OrphanedBranchDiscarded")
RECOVERY_SCHEMA: Final = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


def check_recoveries(found: Findings, datasets: Datasets) -> None:
    """Read the table of recoveries; a graph that never crashed has none, and that was looked at by the caller."""
    try:
        handle = datasets.head(AUDIT_DIR, None)
        with datasets.reading(AUDIT_DIR):
            check_settings(found, handle, AUDIT_DIR)
            if not handle.schema.equals(RECOVERY_SCHEMA, check_metadata=False):
                message = "the columns are not those of the format"
                found.add("recovery-table", AUDIT_DIR, message, actual=str(handle.schema))
                return
            columns = ["operation_id", "recovery_kind", "sidecar_writer_kind", "per_table_outcomes_json"]
            rows = handle.to_table(columns=columns).to_pylist()
    except (DatasetMissing, DatasetMoved, DatasetUnreadable) as error:
        found.add("recovery-table", AUDIT_DIR, f"the table of recoveries cannot be read: {error}")
        return
    found.checked["recoveries"] += len(rows)
    for operation_id, count in Counter(row["operation_id"] for row in rows).items():
        if count > 1:
            where = f"{AUDIT_DIR}/{operation_id}"
            found.add("recovery-duplicate", where, f"operation {operation_id} has {count} rows", count=count)
    for row in rows:
        problems = [
            name
            for name, as_expected in (
                ("operation_id", is_ulid(row["operation_id"])),
                ("recovery_kind", row["recovery_kind"] in KINDS),
                ("sidecar_writer_kind", row["sidecar_writer_kind"] in WRITER_KINDS),
                ("per_table_outcomes_json", _are_outcomes(row["per_table_outcomes_json"])),
            )
            if not as_expected
        ]
        if problems:
            where = f"{AUDIT_DIR}/{row['operation_id']}"
            found.add("recovery-table", where, f"the row has an invalid {', '.join(problems)}", fields=problems)


def _are_outcomes(text: str) -> bool:
    try:
        outcomes = json.loads(text)
    except ValueError:
        return False
    kinds = {"table_key": str, "from_version": int, "to_version": int}
    return isinstance(outcomes, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(name), kind) for name, kind in kinds.items())
        for each in outcomes
    )
