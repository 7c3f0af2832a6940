"""For every broken engine and every instrument of faults that claims to catch it: the smallest trial that does.

A claim is the word of `fixtures.mutants`: its `caught_by`. What is proved by the tests of an instrument anyway is
taken from there; the rest is here. Each place is the one that the mutant's own schedule names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failpoints.cuts.tests.test_sensitivity import (
    BEFORE_PUBLISH,
    FOUND_AT,
    HALF_WAY,
    Choice,
    after_the_answer,
    at,
    the_listing,
)
from failpoints.histories.plan import Plan, make_plan
from failpoints.histories.tests.test_mutants import PLAN
from failpoints.matrix import ERROR, GO_ON, KILL, Spot
from failpoints.matrix.tests.test_mutants import BACK, FORWARD, SPOTS
from failpoints.matrix.tests.test_mutants import BEFORE_PUBLISH as BEFORE_ITS_PUBLISH
from failpoints.pairs.pairs import Side
from failpoints.pairs.schedule import Hold
from failpoints.pairs.tests.test_sensitivity import CAUGHT, PERSON
from failpoints.storms.tests.test_storms import STORMS
from failpoints.writers import WRITERS, insert, insert_edge, mutate

INSTRUMENTS: Final = ("cuts", "pairs", "histories", "storms", "matrix")


@dataclass(frozen=True)
class Schedule:
    """Who of a pair is held, and where."""

    pair: str
    hold: Hold
    held: Side = "first"


CUTS: Final[dict[str, tuple[str, Choice, Choice | None]]] = {
    **FOUND_AT,
    "lineage-in-a-second-commit": ("insert", at("applied", "manifest version", 0), None),
    "unconfirmed-merge-goes-forward": ("merge", at("before", "PUT sidecar", -1), None),
    "list-failure-means-none": ("insert", the_listing, None),
    "rollback-forgets-a-table": ("insert", HALF_WAY, None),
    "recovery-on-main-for-a-branch": ("branch-write", BEFORE_PUBLISH, None),
    "recovery-breaks-down": ("update", BEFORE_PUBLISH, None),
    "schema-files-before-manifest": ("schema-add", BEFORE_PUBLISH, None),
    "init-leaves-half-a-graph": ("init", at("applied", "schema file", 0), None),
    "branch-delete-leaves-forks-that-block-re-creation": ("branch-delete", at("applied", "manifest ref", 0), None),
    "schema-apply-acknowledged-before-its-files": ("schema-add", after_the_answer, None),
    "sidecar-failure-is-ignored": ("insert", at("failed", "PUT sidecar", 0), None),
    "delete-failure-fails-the-write": ("insert", at("failed", "DELETE sidecar", 0), None),
    "recovery-commits-twice": ("insert", BEFORE_PUBLISH, None),
    "audit-failure-drops-the-sidecar": ("insert", BEFORE_PUBLISH, at("failed", "audit version", 0)),
    "recovery-is-recorded-anew": ("insert", BEFORE_PUBLISH, at("applied", "audit version", -1)),
    "maintenance-without-its-sidecar": ("optimize", at("failed", "PUT sidecar", 0), None),
    "optimize-takes-no-list-for-an-empty-one": ("optimize", the_listing, None),
    "open-takes-no-list-for-an-empty-one": ("insert", BEFORE_PUBLISH, the_listing),
    "rollback-is-best-effort": ("insert", HALF_WAY, at("failed", "table version", 0)),
    "reclaim-failure-fails-the-delete": ("branch-delete", at("failed", "table ref", 0), None),
    "loser-shows-its-rows": ("insert", at("failed", "manifest version", -1), None),
}

_AT_SIDECAR: Final = Hold(0, "PUT", "sidecar", 1)
# The plan is made, and the manifest has not been looked at again.
_SECOND_LISTING: Final = Hold(0, "LIST", "listing", 2, table="__manifest")
_AT_PUBLISH: Final = Hold(0, "PUT", "manifest version", 1)
SCHEDULES: Final[dict[str, Schedule]] = {
    **{each.mutant: Schedule(each.pair, each.hold, each.held) for each in CAUGHT},
    "publish-per-table": Schedule("write-branch-create", Hold(0, "PUT", "manifest version", 2)),
    "retry-with-the-old-parent": Schedule("insert-insert-tables", _AT_PUBLISH),
    "blind-manifest-put": Schedule("insert-insert-tables", _AT_PUBLISH),
    "rollback-publishes-over-a-bystander": Schedule("open-write-back", _AT_PUBLISH),
    "retry-forgets-the-actor": Schedule("insert-insert-tables", _AT_PUBLISH),
    "retried-merge-has-one-parent": Schedule("merge-write-other", _AT_PUBLISH),
    "merge-names-a-later-source-head": Schedule("merge-write-source", _SECOND_LISTING),
    "first-write-fork-deletes-a-live-fork": Schedule(
        "first-write-first-write", Hold(0, "HEAD", "table version", 1, table=PERSON)
    ),
    "schema-apply-lock-left-on-withdraw": Schedule("schema-branch-create", _SECOND_LISTING),
    "loser-reads-stale": Schedule("update-update-row", _AT_SIDECAR),
    "init-claims-nothing": Schedule("init-init", Hold(0, "PUT", "schema file", 1)),
}

PLANS: Final[dict[str, Plan]] = {
    **dict.fromkeys(("retry-with-the-old-parent", "blind-manifest-put", "acknowledge-before-publish"), PLAN),
    "update-lost": make_plan(processes=4, writes=8, seed=1, profile="hot"),
    "merge-names-a-later-source-head": make_plan(processes=4, writes=10, seed=1, profile="mixed"),
    "first-write-fork-deletes-a-live-fork": make_plan(processes=4, writes=10, seed=1, profile="mixed"),
}

_TWO_TABLES: Final = mutate(insert("Person", name="dan"), insert_edge("Knows", "ann", "bob"))
# What comes after the weather is calm, and shows what the weather has left.
WEATHERS: Final[dict[str, list[dict[str, Any]]]] = {
    **STORMS,
    "retry-after-lost-answer": [{**_TWO_TABLES, "weather": STORMS["lost-publish-is-a-conflict"][0]["weather"]}],
    "schema-apply-lock-left-on-withdraw": [
        {
            **WRITERS["schema-add"].step,
            "weather": {"rules": [{"action": "answer", "status": 412, "verbs": ["PUT"], "roles": ["table version"]}]},
        },
        dict(_TWO_TABLES),
    ],
}

PLACES: Final[dict[str, Spot]] = {
    **SPOTS,
    "publish-per-table": Spot("insert", "graph_publish.before_commit_append", KILL),
    "lineage-in-a-second-commit": Spot("insert", "graph_publish.before_commit_append", KILL),
    "delete-failure-fails-the-write": Spot("insert", "recovery.sidecar_delete", ERROR),
    "unconfirmed-merge-goes-forward": Spot("recovery-merge-unconfirmed", "recovery.sidecar_list", KILL),
    "rollback-forgets-a-table": BACK,
    "recovery-forgets-for-whom": BEFORE_ITS_PUBLISH,
    "recovery-in-nobodys-name": FORWARD,
    "recovered-merge-has-one-parent": Spot("merge", "branch_merge.post_phase_b_pre_manifest_commit", KILL),
    "recovery-of-a-branch-moves-main": Spot("branch-write", "mutation.post_finalize_pre_publisher", KILL),
    "finished-write-counts-as-rolled-back": Spot("insert", "graph_publish.after_manifest_commit", KILL),
    "recovery-on-main-for-a-branch": Spot("recovery-branch-write", "recovery.sidecar_list", KILL),
    "audit-failure-drops-the-sidecar": Spot("recovery-insert", "recovery.record_audit", ERROR),
    "branch-delete-leaves-forks-that-block-re-creation": Spot("fork-reclaim", "fork.before_classify", GO_ON),
    "schema-files-before-manifest": Spot("schema-add", "graph_publish.before_commit_append", KILL),
    "init-leaves-half-a-graph": Spot("init", "init.after_schema_pg_written", KILL),
}

TRIALS: Final[Mapping[str, Mapping[str, object]]] = {
    "cuts": CUTS,
    "pairs": SCHEDULES,
    "histories": PLANS,
    "storms": WEATHERS,
    "matrix": PLACES,
}
