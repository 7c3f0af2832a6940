"""A commit graph that is not one chain from one genesis is found, wherever it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.audit.tests.forge import Forgery
from conformance.audit.tests.test_forged_manifest import defect, wrong_codes

UNKNOWN = "01M7GZSZTDJD97MA655G1X2CDR"
Damage = Callable[[Forgery], Any]


def grown(forgery: Forgery) -> list[str]:
    """Two commits more; the ids of all, oldest first."""
    graph = forgery.graph()
    for handle in ("dan", "eve"):
        graph.mutate([{"op": "insert", "type": "Person", "data": {"handle": handle}}])
    return forgery.commit_ids()


def fork_the_chain(forgery: Forgery) -> None:
    genesis, first, second, third = grown(forgery)
    forgery.set_commit(third, parent_commit_id=first)
    head = {"head_commit_id": third, "parent_commit_id": first}
    forgery.set("graph_head:main", metadata=json.dumps(head))


def forget_the_parent(forgery: Forgery) -> None:
    *_, second, third = grown(forgery)
    forgery.manifest().delete(f"object_id = '{second}'")


def share_a_version(forgery: Forgery) -> None:
    *_, second, third = grown(forgery)
    (version,) = forgery.manifest().to_table(filter=f"object_id = '{third}'")["table_version"].to_pylist()
    forgery.set(second, table_version=version)


LINEAGE = [
    defect("chain-forked", fork_the_chain),
    defect(
        "parent-unknown",
        lambda f: f.set_commit(grown(f)[-2], parent_commit_id=UNKNOWN),
    ),
    defect("parent-unknown", forget_the_parent, also=("commit-missing",), name="parent-deleted"),
    defect(
        "genesis",
        lambda f: f.set_commit(grown(f)[-2], parent_commit_id=None),
        name="two-roots",
    ),
    defect("genesis", lambda f: f.set_commit(f.commit_ids()[0], actor_id="ann"), name="genesis-with-an-actor"),
    defect(
        "commit-version",
        lambda f: f.set(grown(f)[-1], table_version=99),
    ),
    defect("commit-version-shared", share_a_version, also=("commit-version", "parent-order")),
    defect(
        "commit-missing",
        lambda f: f.add(
            object_id="node:City",
            object_type="table",
            table_key="node:City",
            location="nodes/" + f.table_dir("node:City").name,
        ),
        also=("object-id-duplicate",),
    ),
    defect("commit-branch", lambda f: f.set(f.commit_ids()[-1], table_branch="elsewhere")),
    defect("commit-time", lambda f: f.set_commit(f.commit_ids()[-1], created_at=1794792795)),
    defect("head-missing", lambda f: f.manifest().delete("object_id = 'graph_head:main'")),
    defect(
        "head-wrong",
        lambda f: f.set("graph_head:main", metadata=json.dumps({"head_commit_id": f.commit_ids()[0]})),
    ),
    defect(
        "commit-id",
        lambda f: f.add(
            object_id="not-a-ulid",
            object_type="graph_commit",
            table_version=f.manifest().version + 1,
            metadata=json.dumps({"parent_commit_id": f.commit_ids()[-1], "created_at": 1794792795578134}),
        ),
        also=("head-wrong",),
    ),
]


@pytest.mark.parametrize(("damage", "codes"), LINEAGE)
def test_damaged_lineage_is_found(forgery: Forgery, damage: Damage, codes: set[str]) -> None:
    damage(forgery)
    assert wrong_codes(forgery) == codes


@pytest.mark.requirement("LIN-09")
def test_a_merged_parent_of_a_deleted_branch_is_only_worth_a_note(branched: Forgery) -> None:
    graph = branched.graph()
    graph.branch_delete("child")
    graph.merge("feature", "main")
    assert branched.audit().findings == ()
    graph.branch_delete("feature")
    assert [(each.code, each.severity) for each in branched.audit().findings] == [("merged-parent-unknown", "note")]
