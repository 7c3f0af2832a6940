"""The matrix bites: engines that are broken in one place are wrong at a spot at which the reference is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from failpoints.matrix import KILL, SUBJECTS, Crew, Spot, SpotResult, try_spots
from fixtures.stores.catalog import Store

BEFORE_PUBLISH = Spot("insert", "mutation.post_finalize_pre_publisher", KILL)
WITHOUT_SIDECAR = Spot("insert", "recovery.sidecar_write", KILL)
FORWARD = Spot("recovery-insert", "recovery.sidecar_list", KILL)
FORWARD_CUT = Spot("recovery-insert", "recovery.sidecar_delete", KILL)
BACK = Spot("recovery-insert-half-way", "recovery.sidecar_list", KILL)
FORWARD_MERGE = Spot("recovery-merge", "recovery.sidecar_list", KILL)
FORWARD_BRANCH = Spot("recovery-branch-write", "recovery.sidecar_list", KILL)
LOCKED = Spot("schema-add", "schema_apply.before_staging_write", KILL)

SPOTS = {
    "no-sidecar": BEFORE_PUBLISH,
    "sidecar-after-first-commit": WITHOUT_SIDECAR,
    "rollback-does-not-publish": BACK,
    "roll-forward-a-subset": BACK,
    "recovery-without-audit": FORWARD,
    "recovery-keeps-the-sidecar": FORWARD,
    "recovery-not-idempotent": FORWARD_CUT,
    "recovery-forgets-for-whom": FORWARD,
    "recovery-in-nobodys-name": FORWARD,
    "recovered-merge-has-one-parent": FORWARD_MERGE,
    "recovery-of-a-branch-moves-main": FORWARD_BRANCH,
    "schema-apply-leaves-its-lock": LOCKED,
}


def tried(crew: Crew, spot: Spot) -> SpotResult:
    (result,) = try_spots(crew, SUBJECTS[spot.writer], [spot])
    return result


@pytest.mark.parametrize("mutant", SPOTS)
def test_a_mutant_is_wrong_where_the_reference_is_right(
    quick: Callable[[str], str], local: Store, crew: Crew, mutant: str
) -> None:
    right = tried(crew, SPOTS[mutant])
    with Crew(quick(f"mutant:{mutant}"), {}, local.fresh_root) as broken:
        found = tried(broken, SPOTS[mutant])

    assert right.reached and right.wrong is None, str(right)
    assert found.wrong is not None, f"nobody notices: {found}"
