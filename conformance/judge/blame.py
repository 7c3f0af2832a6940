"""Which requirement is broken when an engine and the model disagree.

A test that proves something names its requirement itself. These tables are for all other disagreements, above all for
random sequences, in which nobody has said beforehand what is being tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# An operation that did something else than it means, or refused what it must do.
OPERATIONS: Final[Mapping[str, str]] = {
    "append": "LOD-06",
    "merge_load": "LOD-08",
    "overwrite": "LOD-09",
    "insert": "MUT-08",
    "update": "MUT-04",
    "delete": "DEL-02",
    "merge": "MRG-12",
    "branch_create": "BRA-01",
    "branch_delete": "BRA-12",
    "branch_list": "BRA-04",
    "schema_plan": "SCH-03",
    "schema_apply": "SCH-08",
    "optimize": "OPT-01",
    "ensure_indices": "IDX-01",
    "cleanup": "CLN-07",
    "repair": "RPR-01",
    "refresh": "SNP-02",
    "open": "PUB-14",
    "read": "SNP-02",
    "entity_at": "SNP-06",
    "time_travel": "SNP-07",
    "diff": "CHG-02",
    "export": "EXP-01",
    "import": "EXP-03",
    "commits": "LIN-10",
}

# Something that must be refused, by the reason of the model's refusal.
REFUSALS: Final[Mapping[str, str]] = {
    "branch_exists": "BRA-02",
    "branch_inside_another": "BRA-16",
    "branch_in_use": "BRA-12",
    "branch_not_found": "BRA-12",
    "commit_not_found": "SNP-04",
    "duplicate_id": "LOD-06",
    "table_not_found": "LAY-03",
    "internal_branch": "BRA-03",
    "invalid_branch_name": "BRA-02",
    "invalid_endpoint": "LOD-02",
    "invalid_id": "LOD-05",
    "invalid_json": "LOD-02",
    "invalid_mode": "LOD-01",
    "invalid_predicate": "MUT-12",
    "invalid_record": "LOD-17",
    "invalid_statement": "MUT-09",
    "invalid_value": "LOD-14",
    "missing_value": "VAL-01",
    "mixed_mutation": "MUT-03",
    "merge_conflicts": "MRG-02",
    "no_common_ancestor": "MRG-05",
    "same_branch": "MRG-05",
    "row_exists": "LOD-07",
    "undeclared_property": "LOD-16",
    "unique_violation": "VAL-06",
    "unknown_export": "EXP-04",
    "unknown_field": "LOD-17",
    "unknown_type": "LOD-02",
    "OrphanEdge": "VAL-09",
    "UniqueViolation": "VAL-06",
    "CardinalityViolation": "VAL-10",
    "ValueConstraintViolation": "VAL-04",
    "schema_apply_has_branches": "SCH-02",
    "schema_change_unsupported": "SCH-05",
    "invalid_schema": "VAL-15",
}


def operation_of(op: str, args: Mapping[str, Any]) -> str:
    """The requirement that stands for an operation, by what it was asked to do."""
    if op == "load":
        return OPERATIONS["merge_load" if args.get("mode") == "merge" else str(args.get("mode"))]
    if op == "mutate":
        kinds = [str(statement.get("op")) for statement in args.get("statements", [])]
        return OPERATIONS.get(kinds[0] if kinds else "insert", "MUT-08")
    return OPERATIONS.get(op, "PUB-14")
