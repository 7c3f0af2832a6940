"""Rows that are wrong, and commits that the rows before them forbid: the checker names them."""

from __future__ import annotations

from dataclasses import replace

from failpoints.histories.record import MAIN, Done, History
from failpoints.histories.tests.made import (
    BAD_REQUEST,
    CARDINALITY,
    Made,
    both,
    insert,
    knows,
    log,
    owns,
    update,
    without_commit,
)
from failpoints.histories.tests.wrong import NOTHING_CHANGED, actors, contradiction, person


def lost_update() -> tuple[Made, History]:
    """Two updates of one row; the third commit, of another row, brings the first update back, and it stays so."""
    made = Made()
    made.ok("p00-000", update("ann", 1))
    made.ok("p01-000", update("ann", 2), process=1)
    third = made.ok("p02-000", insert("bob", 5), process=2)
    made.falsify(third, "node:Person", [person("ann", 1), person("bob", 5)])
    for number in range(6):
        later = made.ok(f"p03-00{number}", log("later"), process=3)
        made.falsify(later, "node:Person", [person("ann", 1), person("bob", 5)])
    history = made.history()
    return made, replace(history, exports={MAIN: history.exports[MAIN].replace('"age":2', '"age":1')})


def test_a_lost_update_is_told_by_the_commit_that_lost_it() -> None:
    made, history = lost_update()
    found = contradiction(history, made.look, "PUB-20")
    assert "commit number 4 on 'main', C004 (p02-000)" in found.because
    assert "node:Person 'ann' is" in found.because
    assert actors(found) == ["p00-000", "p01-000", "p02-000"]
    assert "process 1" in found.slice[1].words and "number 3 on main" in found.slice[1].words


def test_a_wrong_final_state_is_noticed_without_time_travel_too() -> None:
    _, history = lost_update()
    contradiction(history, None, "PUB-20")


def test_half_a_commit_is_told_as_such() -> None:
    made = Made()
    commit = made.ok("p00-000", both("bob"))
    made.falsify(commit, "node:Pet", [])
    history = made.history()
    lines = [line for line in history.exports[MAIN].split("\n") if '"Pet"' not in line]
    found = contradiction(replace(history, exports={MAIN: "\n".join(lines)}), made.look, "PUB-01")
    assert actors(found) == ["p00-000"]
    assert "of the 2 rows that it changes, 1 are not as it left them" in found.because


def test_a_row_that_was_written_twice_is_noticed_whatever_its_id() -> None:
    made = Made()
    commit = made.ok("p00-000", log("one"))
    twice = [{"id": "LOG1", "text": "one"}, {"id": "LOG9", "text": "one"}]
    made.falsify(commit, "node:Log", twice)
    history = made.history()
    line = next(line for line in history.exports[MAIN].split("\n") if "LOG1" in line)
    exported = history.exports[MAIN].replace(f"{line}\n", f"{line}\n{line.replace('LOG1', 'LOG9')}\n")
    found = contradiction(replace(history, exports={MAIN: exported}), made.look, "PUB-20")
    assert actors(found) == ["p00-000"]


def test_a_state_that_only_the_last_read_shows_wrong_is_told_as_such() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    contradiction(replace(made.history(), exports={MAIN: ""}), made.look, "SNP-04")


def test_a_commit_that_the_rows_before_it_forbid_is_noticed() -> None:
    """An edge to a node that is not there: its writer looked before, and not when it published."""
    made = Made()
    deleted = made.ok("p00-000", insert("bob"))
    made.ok("p01-000", knows("k1", "ann", "bob"))
    history = without_commit(made.history(), deleted)
    calls = tuple(done for done in history.calls if done.actor != "p00-000")
    found = contradiction(replace(history, calls=calls), made.look, "VAL-09")
    assert actors(found)[-1] == "p01-000"


def test_a_commit_that_changes_nothing_is_noticed() -> None:
    made = Made()
    made.maintained("p00-000")
    made.lost("p00-000", update("nobody", 1), happened=False)
    contradiction(made.history(), made.look, "LIN-03")


def test_a_commit_of_a_call_that_was_told_of_none_is_noticed() -> None:
    made = Made()
    made.maintained("p00-000")
    made.record("p00-000", update("ann", 1), "ok", NOTHING_CHANGED)
    contradiction(made.history(), made.look, "LIN-03")


def test_a_wrong_count_is_noticed() -> None:
    made = Made()
    made.ok("p00-000", update("ann", 1))
    answer = {**made.calls[-1].outcome.answer, "affected_nodes": 2}
    calls = [*made.calls[:-1], Done(made.calls[-1].call, replace(made.calls[-1].outcome, answer=answer))]
    contradiction(replace(made.history(), calls=tuple(calls)), made.look, "MUT-10", "PUB-18")


def test_nothing_to_do_needs_a_state_in_which_there_was_nothing_to_do() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.record("p01-000", update("bob", 1), "ok", NOTHING_CHANGED)
    made.ok("p00-001", insert("cyd"))
    contradiction(made.history(), made.look, "SNP-02", "MUT-04")


def test_a_bad_request_needs_a_state_in_which_it_was_one() -> None:
    made = Made()
    made.ok("p00-000", insert("bob"))
    made.record("p01-000", knows("k1", "ann", "bob"), "refused", BAD_REQUEST)
    contradiction(made.history(), made.look, "MUT-08")


def test_a_source_with_room_for_an_edge_is_no_reason_to_refuse_it() -> None:
    made = Made()
    made.ok("p00-000", insert("rex", kind="Pet"))
    made.ok("p00-001", owns("o1", "ann", "rex"))
    made.lost("p01-000", owns("o2", "ann", "rex"), happened=False)
    made.record("p02-000", owns("o3", "ann", "rex"), "refused", CARDINALITY)
    contradiction(made.history(), made.look, "MUT-08")
