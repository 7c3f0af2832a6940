"""Every defect of `__manifest` that a damaged engine could leave is found, by the requirement that it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from conformance.audit import CODES
from conformance.audit.manifest import MANIFEST_SCHEMA
from conformance.audit.tests.forge import Forgery, rebuild_manifest

PERSON = "node:Person"
Damage = Callable[[Forgery], Any]


def defect(code: str, damage: Damage, *, also: tuple[str, ...] = (), name: str = "") -> Any:
    mark = pytest.mark.requirement(CODES[code][0])
    return pytest.param(damage, {code, *also}, marks=mark, id=f"{CODES[code][0]}-{name or code}")


def wrong_codes(forgery: Forgery) -> set[str]:
    return {finding.code for finding in forgery.audit().findings if finding.severity != "note"}


def pinned(forgery: Forgery) -> str:
    return f"{PERSON}${forgery.pin(PERSON):020d}"


def move_location(forgery: Forgery) -> None:
    forgery.set("node:City", location="nodes/0000000000000000")


ROWS = [
    defect(
        "object-id-duplicate",
        lambda f: f.add(
            object_id="graph_head:main",
            object_type="graph_head",
            metadata=f.manifest().to_table(filter="object_id = 'graph_head:main'")["metadata"][0].as_py(),
        ),
    ),
    defect(
        "row-incomplete",
        lambda f: f.set("node:City", location=None),
        also=("schema-tables",),
        name="table-without-location",
    ),
    defect("location", move_location, also=("schema-tables",)),
    defect(
        "location-absolute",
        lambda f: f.set("node:City", location=str(f.table_dir("node:City"))),
        also=("location", "schema-tables"),
    ),
    defect("row-incomplete", lambda f: f.set(pinned(f), metadata=None), name="version-without-metadata"),
    defect(
        "row-incomplete",
        lambda f: f.set(pinned(f), row_count=None),
        also=("row-count",),
        name="version-without-row-count",
    ),
    defect(
        "row-incomplete",
        # What is left is the version of init, which the HEAD has long passed.
        lambda f: f.set(pinned(f), table_version=None),
        also=("drift-uncovered", "edge-dangling"),
        name="version-without-version",
    ),
    defect("version-metadata", lambda f: f.set(pinned(f), metadata="{not json"), name="version-metadata-not-json"),
    defect("version-metadata", lambda f: f.set(pinned(f), metadata='{"manifest_path":"x"}'), name="metadata-partial"),
    defect(
        "manifest-path",
        lambda f: f.set(
            pinned(f),
            metadata=json.dumps(
                {"manifest_path": "a/b.manifest", "manifest_size": 1, "e_tag": None, "naming_scheme": "V2"}
            ),
        ),
    ),
    defect("object-id", lambda f: f.set(pinned(f), object_id=f"{PERSON}$12"), name="version-id-not-padded"),
    defect("object-id", lambda f: f.set("node:City", object_id="node:Town"), name="table-id-of-another-key"),
    defect(
        "object-id",
        lambda f: f.add(
            object_id="node:City$tombstone$1", object_type="table_tombstone", table_key="node:City", table_version=1
        ),
        also=("commit-missing",),
        name="tombstone-id-not-padded",
    ),
    defect(
        "table-key",
        lambda f: f.add(object_id="thing:X", object_type="table", table_key="thing:X", location="things/x"),
    ),
    defect("reserved-column", lambda f: f.add(object_id="new:1", object_type="new", base_objects=["x"])),
    defect(
        "version-without-table",
        lambda f: f.manifest().delete("object_id = 'node:City'"),
        also=("schema-tables",),
    ),
    defect("lineage-metadata", lambda f: f.set("graph_head:main", metadata="[]"), also=("head-missing",), name="head"),
    defect(
        "lineage-metadata",
        lambda f: f.set(f.commit_ids()[-1], metadata=None),
        also=("head-wrong", "commit-missing"),
        name="commit-without-metadata",
    ),
]


@pytest.mark.parametrize(("damage", "codes"), ROWS)
def test_a_damaged_row_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


NULLABLE_KEY = MANIFEST_SCHEMA.set(5, pa.field("table_key", pa.string()))
DATASETS = [
    defect("manifest-key", lambda f: rebuild_manifest(f, is_keyed=False)),
    defect("manifest-schema", lambda f: rebuild_manifest(f, schema=NULLABLE_KEY), name="nullable-table-key"),
    defect(
        "manifest-schema",
        lambda f: rebuild_manifest(f, schema=MANIFEST_SCHEMA.remove(8)),
        also=("schema-tables", "genesis"),
        name="column-missing",
    ),
    defect("manifest-config", lambda f: rebuild_manifest(f, config={"other": "1"})),
    defect("stamp", lambda f: rebuild_manifest(f, stamp=None), name="stamp-missing"),
    defect("stamp", lambda f: rebuild_manifest(f, stamp="abc"), name="stamp-garbage"),
    defect("stamp", lambda f: f.manifest().update_schema_metadata({"omnigraph:internal_schema_version": "5"})),
    defect("stable-row-ids", lambda f: rebuild_manifest(f, stable_row_ids=False), name="manifest-row-ids"),
    defect("file-version", lambda f: rebuild_manifest(f, file_version="2.0"), name="manifest-file-version"),
    defect("auto-cleanup", lambda f: f.manifest().update_config({"lance.auto_cleanup.interval": "20"})),
    defect("manifest-key-indexed", lambda f: f.manifest().create_scalar_index("object_id", "BTREE")),
]


@pytest.mark.parametrize(("damage", "codes"), DATASETS)
def test_a_damaged_dataset_is_found(empty: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(empty)
    assert wrong_codes(empty) == codes


@pytest.mark.requirement("MAN-04")
def test_rows_of_a_future_type_are_ignored(forgery: Forgery) -> None:
    forgery.add(object_id="hologram:1", object_type="hologram", metadata="not even JSON")
    report = forgery.audit()
    assert report.findings == ()
    assert report.checked["unknown_rows"] == 1


@pytest.mark.requirement("MAN-09", "TMB-01")
def test_a_tombstone_hides_versions_up_to_its_own(forgery: Forgery) -> None:
    pin = forgery.pin("edge:Knows")
    row = {"object_type": "table_tombstone", "table_key": "edge:Knows"}
    forgery.add(object_id=f"edge:Knows$tombstone${pin - 1:020d}", table_version=pin - 1, **row)
    assert "schema-tables" not in wrong_codes(forgery)
    forgery.add(object_id=f"edge:Knows$tombstone${pin:020d}", table_version=pin, **row)
    (finding,) = (each for each in forgery.audit().findings if each.code == "schema-tables")
    assert finding.details == {"missing": ["edge:Knows"], "extra": []}
