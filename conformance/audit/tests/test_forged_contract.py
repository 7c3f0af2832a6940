"""The schema contract, sidecars, the lock and the audit of recoveries: each way in which one can be wrong is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import lance
import pyarrow as pa
import pytest

from conformance.audit.names import AUDIT_DIR, LOCK_BRANCH
from conformance.audit.recoveries import RECOVERY_SCHEMA
from conformance.audit.tests.forge import Forgery
from conformance.audit.tests.test_forged_manifest import PERSON, defect, wrong_codes

Damage = Callable[[Forgery], Any]
IR, STATE = "_schema.ir.json", "__schema_state.json"


def drop_type(ir: Any) -> None:
    del ir["nodes"][0]


def rehash(forgery: Forgery, edit: Callable[[Any], object]) -> None:
    """Another schema, accepted with the right hash, over the same tables."""
    forgery.edit_json(IR, edit)
    compact = json.dumps(json.loads((forgery.path / IR).read_text()), separators=(",", ":"))
    digest = "sha256:" + hashlib.sha256(compact.encode()).hexdigest()
    forgery.edit_json(STATE, lambda state: state.update(schema_ir_hash=digest))


def swap_types(ir: Any) -> None:
    ir["nodes"].reverse()


def stage(forgery: Forgery) -> None:
    (forgery.path / f"{IR}.staging").write_text("{}")


def remove(name: str) -> Damage:
    return lambda forgery: (forgery.path / name).unlink()


def widen_age(table: Any) -> None:
    table.alter_columns({"path": "age", "data_type": pa.int64()})


CONTRACT = [
    *(defect("schema-file-missing", remove(name), name=f"without-{name}") for name in ("_schema.pg", IR, STATE)),
    defect("schema-hash", lambda f: f.edit_json(STATE, lambda state: state.update(schema_ir_hash="sha256:00"))),
    defect("schema-hash", lambda f: f.edit_json(IR, drop_type), also=("schema-tables",), name="ir-edited"),
    defect("schema-state", lambda f: f.edit_json(STATE, lambda state: state.update(format_version=2))),
    defect("schema-state", lambda f: (f.path / STATE).write_text("no"), name="state-not-json"),
    defect("schema-ir", lambda f: (f.path / IR).write_text("no"), also=("schema-hash",), name="ir-not-json"),
    defect("schema-ir", lambda f: rehash(f, swap_types), name="ir-not-sorted"),
    defect("schema-ir", lambda f: rehash(f, lambda ir: ir["nodes"][0].update(type_id=1)), name="ir-wrong-id"),
    defect("schema-ir", lambda f: rehash(f, lambda ir: ir.update(ir_version=2)), name="ir-of-the-future"),
    defect("schema-tables", lambda f: rehash(f, drop_type)),
    defect("columns", lambda f: rehash(f, lambda ir: ir["nodes"][1]["properties"].pop(0)), name="column-extra"),
    defect("columns", lambda f: f.amend(PERSON, lambda table: table.drop_columns(["score"])), name="column-missing"),
    defect(
        "columns",
        lambda f: f.amend(PERSON, widen_age),
        name="column-of-another-type",
    ),
    defect("staging-residue", stage),
    defect("schema-lock-orphan", lambda f: f.manifest().create_branch(LOCK_BRANCH)),
]


@pytest.mark.parametrize(("damage", "codes"), CONTRACT)
def test_a_broken_contract_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


@pytest.mark.requirement("SCH-01", "SCH-17")
def test_a_lock_with_its_sidecar_is_a_schema_apply_under_way(forgery: Forgery) -> None:
    forgery.manifest().create_branch(LOCK_BRANCH)
    forgery.sidecar(writer_kind="SchemaApply", tables=[])
    stage(forgery)
    report = forgery.audit()
    assert report.ok
    assert {each.code for each in report.findings} == {"schema-lock", "sidecar-pending"}


def pin(forgery: Forgery, **changes: Any) -> list[dict[str, Any]]:
    file = forgery.sidecar()
    (body,) = json.loads(file.read_text())["tables"]
    file.unlink()
    return [{**body, **changes}]


PENDING = ("sidecar-pending",)
SIDECARS = [
    defect("sidecar-pending", lambda f: f.sidecar()),
    defect("sidecar-unreadable", lambda f: f.sidecar().write_text('{"schema_version": 2'), name="sidecar-torn"),
    defect("sidecar-unreadable", lambda f: f.sidecar(writer_kind="Wish"), name="sidecar-of-unknown-kind"),
    defect("sidecar-unreadable", lambda f: f.sidecar(tables=None), name="sidecar-without-tables"),
    defect(
        "sidecar-unreadable",
        lambda f: f.sidecar(operation_id="01M7GZSZTDJD97MA655G1X2CDX"),
        name="sidecar-of-another-name",
    ),
    defect("sidecar-future", lambda f: f.sidecar(schema_version=3)),
    defect(
        "sidecar-foreign",
        lambda f: f.sidecar(tables=pin(f, table_path="s3://other/graph/nodes/40d76f1f51639ec0")),
        also=PENDING,
    ),
    defect("sidecar-branch-gone", lambda f: f.sidecar(branch="gone"), also=PENDING),
    defect(
        "sidecar-implausible",
        lambda f: f.sidecar(tables=pin(f, expected_version=90, post_commit_pin=91)),
        also=PENDING,
        name="sidecar-ahead-of-the-manifest",
    ),
    defect(
        "sidecar-implausible",
        lambda f: f.sidecar(tables=pin(f, post_commit_pin=1)),
        also=PENDING,
        name="sidecar-that-goes-back",
    ),
]


@pytest.mark.parametrize(("damage", "codes"), SIDECARS)
def test_what_is_wrong_with_a_sidecar_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


def recoveries(forgery: Forgery, *rows: dict[str, Any], schema: pa.Schema = RECOVERY_SCHEMA) -> None:
    sound = {
        "graph_commit_id": "01M7GZSZTDJD97MA655G1X2CDR",
        "recovery_kind": "RolledForward",
        "recovery_for_actor": None,
        "operation_id": "01M7GZSZTDJD97MA655G1X2CDS",
        "sidecar_writer_kind": "Load",
        "per_table_outcomes_json": '[{"table_key":"node:Person","from_version":1,"to_version":2}]',
        "created_at": datetime(2026, 1, 1),
    }
    table = pa.Table.from_pylist([{**sound, **row} for row in rows], schema=schema)
    lance.write_dataset(table, str(forgery.path / AUDIT_DIR), enable_stable_row_ids=True)


RECOVERIES = [
    defect("recovery-duplicate", lambda f: recoveries(f, {}, {})),
    defect("recovery-table", lambda f: recoveries(f, {"recovery_kind": "Wished"}), name="unknown-recovery-kind"),
    defect("recovery-table", lambda f: recoveries(f, {"per_table_outcomes_json": "{}"}), name="outcomes-no-list"),
    defect("recovery-table", lambda f: recoveries(f, {}, schema=RECOVERY_SCHEMA.remove(2)), name="column-missing"),
    defect("recovery-table", lambda f: (f.path / AUDIT_DIR / "data").mkdir(parents=True), name="recoveries-unreadable"),
]


@pytest.mark.parametrize(("damage", "codes"), RECOVERIES)
def test_what_is_wrong_with_the_recoveries_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


@pytest.mark.requirement("REC-14")
def test_recoveries_as_the_format_has_them_are_fine(forgery: Forgery) -> None:
    recoveries(forgery, {}, {"operation_id": "01M7GZSZTDJD97MA655G1X2CDT", "per_table_outcomes_json": "[]"})
    report = forgery.audit()
    assert report.findings == ()
    assert report.checked["recoveries"] == 2
