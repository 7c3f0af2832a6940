"""A gap is called by evidence: on hand-made requests, what makes it one, and what looks like it and is none."""

from __future__ import annotations

from dataclasses import replace

from failpoints.gate import Exchange
from failpoints.gate.roles import place_of, role_of
from failpoints.pairs.gaps import RECLAIM, RECREATED, ROLL_BACK, STAGING, Evidence, gap_of
from failpoints.pairs.pairs import PAIRS, Side

TABLE = "g/nodes/40d76f1f51639ec0"
FORK = f"{TABLE}/tree/feature/_versions/9.manifest"
REF = f"{TABLE}/_refs/branches/feature.json"
PUBLISH = "g/__manifest/tree/feature/_versions/8.manifest"
ON_MAIN = "g/__manifest/_versions/8.manifest"
SIDECAR = "g/__recovery/01A.json"
MOVED = f"{TABLE}/_versions/9.manifest"
STAGED = "g/_schema.pg.staging"
BRANCH = "g/__manifest/_refs/branches/feature.json"


def asked(number: int, verb: str, key: str) -> Exchange:
    place = place_of(key)
    return Exchange(
        number, "driver", verb, verb, "b", key, "", role_of(verb, key), place.table, place.branch, place.version,
        (), (), 0, 0, 200, 200, "answered", float(number), number + 0.5, 0,
    )  # fmt: skip


def gap(
    pair: str,
    held: Side,
    mine: list[tuple[int, str, str]],
    others: list[tuple[int, str, str]],
    *broken: str,
    at: int | None = None,
) -> str | None:
    """What becomes of a schedule whose held lane asked for these, and the other for those; it stood in its last."""
    own = [asked(*each) for each in mine]
    other: Side = "second" if held == "first" else "first"
    standing = next((each for each in own if each.number == at), own[-1])
    return gap_of(
        Evidence(PAIRS[pair], held, standing, {held: own, other: [asked(*each) for each in others]}),
        broken or ("PUB-01",),
    )


def test_a_fork_that_was_removed_before_it_was_published_is_a_gap() -> None:
    writing = [(1, "PUT", FORK)]
    cleaning = [(2, "GET", PUBLISH), (3, "DELETE", FORK)]
    assert gap("first-write-cleanup", "first", writing, cleaning) == RECLAIM
    assert gap("first-write-cleanup", "first", [(1, "PUT", REF)], [(3, "DELETE", REF)]) == RECLAIM
    elsewhere = [(3, "DELETE", FORK.replace("nodes", "edges"))]
    assert gap("first-write-cleanup", "first", writing, elsewhere) is None


def test_a_bulk_delete_is_read_key_by_key() -> None:
    bulk = replace(asked(3, "DELETE", ""), keys=(FORK, SIDECAR))
    lanes = {"first": [asked(1, "PUT", FORK)], "second": [bulk]}
    seen = Evidence(PAIRS["first-write-cleanup"], "first", lanes["first"][0], lanes)  # type: ignore[arg-type]
    assert gap_of(seen, ("PUB-01",)) == RECLAIM


def test_a_fork_that_the_manifest_already_placed_is_no_gap() -> None:
    """Whoever reads the manifest after the publish knows whose fork it is."""
    writing = [(1, "PUT", FORK), (2, "PUT", PUBLISH), (3, "DELETE", SIDECAR)]
    assert gap("first-write-cleanup", "first", writing, [(4, "GET", PUBLISH), (5, "DELETE", FORK)]) is None


def test_a_cleanup_that_is_held_between_its_read_and_its_delete_is_a_gap() -> None:
    writing = [(3, "PUT", FORK), (4, "PUT", PUBLISH)]
    assert gap("first-write-cleanup", "second", [(1, "GET", PUBLISH), (5, "DELETE", FORK)], writing) == RECLAIM


def test_a_first_write_that_finds_a_fork_must_read_the_manifest_after_that() -> None:
    other = [(3, "PUT", FORK), (4, "PUT", PUBLISH)]
    stale = [(1, "GET", PUBLISH), (2, "GET", MOVED), (5, "GET", FORK), (6, "DELETE", FORK), (7, "PUT", FORK)]
    assert gap("first-write-first-write", "first", stale, other, at=2) is None
    suspended = [(1, "GET", FORK), (2, "GET", PUBLISH), (5, "DELETE", FORK), (6, "PUT", FORK)]
    assert gap("first-write-first-write", "first", suspended, other, at=5) == RECLAIM


def test_a_deleted_branch_takes_its_forks_along_and_that_is_no_gap() -> None:
    assert gap("branch-write-delete", "first", [(1, "PUT", FORK)], [(2, "DELETE", FORK)]) is None


def test_two_that_take_one_writer_back_are_a_gap() -> None:
    restores = [(2, "PUT", MOVED), (3, "PUT", ON_MAIN), (4, "DELETE", SIDECAR)]
    assert gap("open-open-back", "first", [(1, "GET", SIDECAR)], restores, "PUB-21") == ROLL_BACK
    assert gap("open-open-back", "first", [(1, "PUT", MOVED)], [(2, "PUT", ON_MAIN)], "PUB-21") == ROLL_BACK


def test_a_roll_forward_is_no_gap_and_neither_is_a_restore_after_it() -> None:
    forward = [(2, "PUT", ON_MAIN), (3, "DELETE", SIDECAR)]
    assert gap("open-open", "first", [(1, "GET", SIDECAR)], forward, "REC-19") is None
    late = [(1, "GET", SIDECAR), (5, "PUT", MOVED), (6, "PUT", ON_MAIN)]
    assert gap("open-write", "first", late, forward, "PUB-07", at=1) is None


def test_a_sidecar_that_is_removed_before_anything_was_published_was_rolled_back() -> None:
    writing = [(1, "PUT", SIDECAR), (2, "PUT", MOVED)]
    assert gap("write-open", "first", writing, [(3, "DELETE", SIDECAR)], "PUB-07") == ROLL_BACK
    withdrawn = [(3, "PUT", "g/__recovery/01B.json"), (4, "DELETE", "g/__recovery/01B.json")]
    assert gap("write-open", "first", writing, withdrawn, "PUB-07") is None


def test_who_only_refreshes_or_writes_may_not_take_anything_back() -> None:
    writing, back = [(1, "PUT", SIDECAR), (2, "PUT", MOVED)], [(3, "PUT", MOVED), (4, "DELETE", SIDECAR)]
    assert gap("write-open", "first", writing, back, "PUB-07") == ROLL_BACK
    assert gap("write-refresh", "first", writing, back, "PUB-07") is None
    assert gap("insert-insert-keys", "first", writing, back[1:], "PUB-07") is None


def test_a_writer_that_lives_must_cover_what_it_moved_whoever_rolled_it_back() -> None:
    writing = [(1, "PUT", SIDECAR), (2, "PUT", MOVED)]
    assert gap("write-open", "first", writing, [(3, "DELETE", SIDECAR)], "PUB-21") is None


def test_an_acknowledged_write_of_a_bystander_is_lost_by_no_roll_back() -> None:
    """Who takes a dead writer's move of one table back has no business with another one."""
    other, own = MOVED.replace("40d7", "50d7"), "g/__recovery/01B.json"
    back = [(1, "GET", SIDECAR), (2, "PUT", MOVED), (3, "GET", ON_MAIN), (9, "PUT", ON_MAIN), (10, "DELETE", SIDECAR)]
    writing = [(4, "PUT", own), (5, "PUT", other), (6, "PUT", ON_MAIN), (7, "DELETE", own)]
    lost = ("PUB-07", "PUB-20", "MUT-08")
    assert gap("open-write-back", "first", back, writing, *lost, at=9) is None
    assert gap("open-write-back", "first", back, writing, "PUB-01", "PUB-07", at=9) is None
    assert gap("open-write-back", "first", back, writing, "REC-19", "REC-14", at=9) == ROLL_BACK
    same_table = [(4, "PUT", own), (5, "PUT", MOVED), (6, "PUT", ON_MAIN), (7, "DELETE", own)]
    assert gap("open-write-back", "first", back, same_table, *lost, at=9) == ROLL_BACK


def test_who_has_read_a_publish_may_not_take_it_back() -> None:
    writing = [(1, "PUT", SIDECAR), (2, "PUT", MOVED), (3, "PUT", ON_MAIN)]
    late = [(4, "GET", ON_MAIN), (5, "PUT", MOVED), (6, "DELETE", SIDECAR)]
    assert gap("write-open", "first", writing, late, "PUB-07", "PUB-20") is None
    asleep = [(0, "GET", ON_MAIN), *late[1:]]
    assert gap("write-open", "first", writing, asleep, "PUB-07", "PUB-20") == ROLL_BACK


def test_a_publish_that_is_held_before_it_is_sent_is_known_to_nobody() -> None:
    writing = [asked(1, "PUT", SIDECAR), asked(2, "PUT", MOVED), replace(asked(3, "PUT", ON_MAIN), ended=9.0)]
    back = [asked(4, "GET", ON_MAIN), asked(5, "PUT", MOVED), asked(6, "DELETE", SIDECAR)]
    standing = replace(writing[-1], status=None, ended=None, outcome="held")
    lanes: dict[Side, list[Exchange]] = {"first": writing, "second": back}
    assert gap_of(Evidence(PAIRS["write-open"], "first", standing, lanes), ("PUB-07", "PUB-20")) == ROLL_BACK
    after = replace(standing, status=200)
    assert gap_of(Evidence(PAIRS["write-open"], "first", after, lanes), ("PUB-07", "PUB-20")) is None


def test_an_acknowledged_call_is_lost_by_staged_files_only_if_they_were_its_own() -> None:
    lost, elsewhere = ("PUB-07", "PUB-20", "SCH-01"), "g/_schema.ir.json.staging"
    assert gap("schema-open", "first", [(1, "PUT", STAGED)], [(2, "DELETE", STAGED)], *lost) == STAGING
    assert gap("schema-open", "first", [(1, "PUT", STAGED)], [(2, "DELETE", elsewhere)], *lost) is None


def test_staged_files_in_the_hands_of_two_are_a_gap() -> None:
    assert gap("schema-open", "first", [(1, "PUT", STAGED)], [(2, "DELETE", STAGED)], "SCH-18") == STAGING
    assert gap("open-open-schema", "first", [(1, "DELETE", STAGED)], [(2, "GET", STAGED)], "SCH-18") == STAGING
    assert gap("schema-open", "first", [(1, "PUT", STAGED)], [(2, "GET", STAGED)], "SCH-18") is None


def test_a_branch_made_anew_under_a_writer_is_a_gap_once_its_sidecar_is_put() -> None:
    remade = [(3, "DELETE", BRANCH), (4, "PUT", BRANCH), (5, "PUT", PUBLISH)]
    assert gap("branch-write-recreate", "first", [(1, "PUT", SIDECAR), (2, "PUT", FORK)], remade, "PUB-21") == RECREATED
    assert gap("branch-write-recreate", "first", [(1, "PUT", SIDECAR), (2, "PUT", FORK)], remade, "PUB-07") is None
    assert gap("branch-write-recreate", "first", [(1, "GET", FORK)], remade, "PUB-21") is None
    assert gap("branch-write-recreate", "first", [(1, "PUT", SIDECAR)], remade[:1], "PUB-21") is None


def test_a_branch_that_went_by_a_bulk_delete_was_made_anew_all_the_same() -> None:
    bulk = replace(asked(3, "DELETE", BRANCH), key="", keys=(BRANCH,))
    lanes: dict[Side, list[Exchange]] = {"first": [asked(1, "PUT", SIDECAR)], "second": [bulk, asked(4, "PUT", BRANCH)]}
    seen = Evidence(PAIRS["branch-write-recreate"], "first", lanes["first"][0], lanes)
    assert gap_of(seen, ("PUB-21",)) == RECREATED


def test_where_nobody_was_held_there_is_no_gap() -> None:
    lanes = {"first": [asked(1, "PUT", FORK)], "second": [asked(3, "DELETE", FORK)]}
    assert gap_of(Evidence(PAIRS["first-write-cleanup"], "first", None, lanes), ("PUB-01",)) is None  # type: ignore[arg-type]
