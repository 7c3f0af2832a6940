"""Results as words and as a table, all actions in plain driver processes, and what the matrix refuses to try."""

from __future__ import annotations

import io
import shlex
import sys

import pytest
from rich.console import Console

from conformance.adapters import Unsupported
from failpoints.matrix import (
    ERROR,
    GO_ON,
    KILL,
    PAUSE,
    SUBJECTS,
    Crew,
    Spot,
    SpotResult,
    UnknownSubject,
    matrix,
    subjects_called,
    sweep,
    try_spots,
)
from fixtures.stores.catalog import Store

POINT = "recovery.sidecar_write"
MUTE = """
import json, sys
for line in sys.stdin:
    hello = {"name": "mute", "version": "1", "protocol_version": 1}
    hello |= {"internal_schema_version": 4, "capabilities": ["hello"]}
    print(json.dumps({"seq": json.loads(line)["seq"], "ok": hello}), flush=True)
"""


def test_the_matrix_shows_what_became_of_each_writer_at_each_name() -> None:
    results = [
        SpotResult(Spot("insert", POINT, KILL), True, "unknown", "old"),
        SpotResult(Spot("merge", POINT, KILL), True, "unknown", wrong=(("REC-03",), "a HEAD has moved")),
        SpotResult(Spot("insert", "recovery.sidecar_confirm", KILL), False, "acknowledged"),
        SpotResult(Spot("merge", "recovery.sidecar_confirm", KILL), True, "unknown", "back"),
        SpotResult(Spot("optimize", POINT, KILL), False, "acknowledged"),
        SpotResult(Spot("update", POINT, ERROR), True, "refused", "old"),
    ]
    console = Console(width=120, record=True, file=io.StringIO())

    console.print(matrix(results))

    lines = [line.split() for line in console.export_text().splitlines() if "recovery." in line or "insert" in line]
    words = [[word for word in line if word not in ("│", "┃")] for line in lines]
    assert words == [
        ["name", "insert", "merge"],
        ["recovery.sidecar_confirm", "·", "back"],
        [POINT, "old", "WRONG"],
    ]


def test_a_result_that_is_wrong_says_which_requirement_and_why() -> None:
    result = SpotResult(Spot("merge", POINT, KILL), True, "unknown", wrong=(("REC-03",), "a HEAD has moved"))

    assert str(result) == f"merge, killed at {POINT}: WRONG [REC-03] a HEAD has moved"


@pytest.mark.parametrize(
    ("action", "ending", "outcome"),
    [
        (KILL, "unknown", "old"),
        (ERROR, "refused", "old"),
        (GO_ON, "refused", "old"),
        (PAUSE, "acknowledged", "new"),
    ],
)
def test_every_action_works_on_a_plain_driver_process(local: Store, action: str, ending: str, outcome: str) -> None:
    spot = Spot("insert", POINT, action)  # type: ignore[arg-type]
    with Crew("reference", {}, local.fresh_root) as crew:
        (result,) = try_spots(crew, SUBJECTS["insert"], [spot])

    assert result == SpotResult(spot, True, ending, outcome)


def test_a_name_that_is_never_reached_is_a_result(crew: Crew) -> None:
    (result,) = sweep(crew, subjects=[SUBJECTS["branch-create"]], names=["optimize.before_compact"])

    assert (result.reached, result.word) == (False, "not reached")


def test_the_other_actions_are_tried_where_a_kill_came_to_the_name(crew: Crew) -> None:
    names = ["mutation.delete_node_pre_primary_delete", "optimize.before_compact"]

    results = list(sweep(crew, subjects=[SUBJECTS["delete"]], names=names, actions=[ERROR]))

    assert [(each.spot.name, each.word) for each in results] == [(names[0], "old")]


def test_an_engine_without_failpoints_is_not_tried(local: Store) -> None:
    with pytest.raises(Unsupported, match="mute does not obey TOUCHSTONE_FAILPOINTS"):
        Crew(f"cmd:{shlex.join([sys.executable, '-c', MUTE])}", {}, local.fresh_root)


def test_an_unknown_subject_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownSubject, match="there is no 'inserts' in the matrix; there are init, load-append"):
        subjects_called(["inserts"])

    assert [each.name for each in subjects_called(["orphan", "insert", "insert"])] == ["insert", "orphan"]
