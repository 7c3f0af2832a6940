"""What a pair stands on: several dead writers on one graph, and set-ups that cannot be made, or that show a defect."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import pytest

from conformance.judge import RequirementBroken
from failpoints.baseline import SetupFailed
from failpoints.pairs.pairs import PAIRS
from failpoints.pairs.schedule import ScheduleResult
from failpoints.pairs.stage import NoSuchMeeting, together
from failpoints.pairs.sweep import Unit, run_unit
from failpoints.workshop import Refused
from fixtures.forge import Photo, Stat


def photo(**contents: str) -> Photo:
    inside = {name: text.encode() for name, text in contents.items()}
    stats = {name: Stat(len(text), hashlib.sha256(text).hexdigest()) for name, text in inside.items()}
    return Photo(("",), stats, inside)


# The module: its package has a function of the same name.
SWEEP = importlib.import_module("failpoints.pairs.sweep")
BEFORE = photo(manifest="1", lease="x")


def test_two_dead_writers_leave_what_each_of_them_left() -> None:
    first = photo(manifest="1", lease="x", sidecar_1="a", table_1="2")
    second = photo(manifest="1", sidecar_2="b", table_2="2")
    wanted = photo(manifest="1", sidecar_1="a", table_1="2", sidecar_2="b", table_2="2")
    assert together(BEFORE, [first, second]) == wanted


def test_writers_that_write_one_object_cannot_have_died_together() -> None:
    first, second = photo(manifest="1", lease="first"), photo(manifest="1", lease="second")
    with pytest.raises(NoSuchMeeting, match="writers of different tables both write lease"):
        together(BEFORE, [first, second])


def unit_that_raises(monkeypatch: pytest.MonkeyPatch, error: Exception) -> ScheduleResult | Refused:
    def prepare(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(SWEEP, "lacking", lambda bench, needs: [])
    monkeypatch.setattr(SWEEP, "prepare", prepare)
    (only,) = run_unit(None, None, Unit(PAIRS["open-open"], "second"))  # type: ignore[arg-type]
    return only


def test_a_set_up_that_breaks_a_requirement_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    found = unit_that_raises(monkeypatch, RequirementBroken(("LOD-08",), "rows are missing"))
    assert isinstance(found, ScheduleResult)
    assert (found.verdict, found.ids, found.held, str(found.hold)) == ("wrong", ("LOD-08",), "second", "nowhere")
    assert "with nobody in the way: rows are missing" in found.because


@pytest.mark.parametrize(
    ("error", "unsupported"), [(SetupFailed("the load was refused"), False), (NoSuchMeeting("it has no lock"), True)]
)
def test_a_set_up_that_cannot_be_made_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, unsupported: bool
) -> None:
    assert unit_that_raises(monkeypatch, error) == Refused("open-open", str(error), unsupported)
