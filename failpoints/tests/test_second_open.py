"""A second open: what an engine keeps while it is open is not compared, and what it writes each time is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.judge import Engine, Handle, RequirementBroken
from failpoints.oracle import judge_second_open

Act = Callable[[Path, int], None]


class Opens:
    """An engine of which only the opens are of interest: `opening` and `closing` are told how many there were."""

    def __init__(self, root: Path, opening: Act, closing: Act) -> None:
        self._root = root
        self._opening = opening
        self._closing = closing
        self.times = 0
        self.recovered: tuple[dict[str, Any], ...] = ()

    def open(self, uri: str) -> Opens:
        self.times += 1
        self._opening(self._root, self.times)
        return self

    def close(self) -> None:
        self._closing(self._root, self.times)


def nothing(root: Path, times: int) -> None:
    pass


def writes(name: str) -> Act:
    def act(root: Path, times: int) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(str(times))

    return act


def removes(name: str) -> Act:
    return lambda root, times: (root / name).unlink(missing_ok=True)


def judged(root: Path, opening: Act, closing: Act = nothing) -> Opens:
    opens = Opens(root, opening, closing)
    first = cast(Handle, opens.open(str(root)))
    judge_second_open(cast(Engine, opens), first, str(root), {}, "after it")
    return opens


def test_an_open_that_changes_nothing_is_tried_once(tmp_path: Path) -> None:
    assert judged(tmp_path, nothing).times == 3, "the first, the second, and the one that is handed out"


def test_a_lease_that_goes_with_the_close_is_no_change(tmp_path: Path) -> None:
    judged(tmp_path, writes("lease.json"), removes("lease.json"))


def test_a_removal_that_was_still_under_way_is_let_pass_once(tmp_path: Path) -> None:
    for number in (1, 2):
        writes(f"left-{number}")(tmp_path, 0)

    judged(tmp_path, lambda root, times: removes(f"left-{times}")(root, times))


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        (writes("probe.json"), "changes probe.json"),
        (lambda root, times: writes(f"probe-{times}")(root, times), "changes probe-3"),
        (writes("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json"), "changes __recovery"),
    ],
)
def test_what_changes_at_every_open_is_blamed(tmp_path: Path, opening: Act, words: str) -> None:
    with pytest.raises(RequirementBroken, match=words):
        judged(tmp_path, opening)


def test_a_commit_that_comes_only_once_is_blamed_all_the_same(tmp_path: Path) -> None:
    def once(root: Path, times: int) -> None:
        if times == 2:
            writes("__manifest/_versions/5.manifest")(root, times)

    with pytest.raises(RequirementBroken, match="a second open changes __manifest"):
        judged(tmp_path, once)
