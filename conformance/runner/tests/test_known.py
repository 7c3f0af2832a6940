"""Lists of known failures: what a line means, and which lists are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.runner.known import KnownFailingError, KnownFailure, excuse, read_known_failing


def listed(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "known.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_line_is_a_name_and_a_reason(tmp_path: Path) -> None:
    path = listed(tmp_path, "# why\n\nLOD-07   append accepts it\ntest_mrg_merge.py::test_net_zero  fails for ever\n")

    assert read_known_failing(path) == (
        KnownFailure(3, "LOD-07", "append accepts it"),
        KnownFailure(4, "test_mrg_merge.py::test_net_zero", "fails for ever"),
    )


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("LOD-07", "line 1: 'LOD-07' has no reason"),
        ("LOD-99 why", "line 1: there is no requirement 'LOD-99'"),
        ("LOD-99@s3 why", "line 1: there is no requirement 'LOD-99'"),
        ("LOD-07@motto why", "line 1: there is no store 'motto'; there are s3, local"),
        ("LOD-07@ why", "line 1: there is no store ''"),
        ("nonsense why", "line 1: 'nonsense' is neither a requirement id nor a test"),
        ("*::* why", "line 1: '*::*' would excuse whole suites"),
        ("~test_x.py::* why", "line 1: '~test_x.py::*' would excuse whole suites: name the tests"),
        ("LOD-07:nonsense why", "line 1: 'LOD-07:nonsense' is neither a requirement id nor a test"),
        ("LOD-07: why", "line 1: 'LOD-07:' is neither a requirement id nor a test"),
        ("LOD-07 why\nLOD-07 again", "line 2: 'LOD-07' stands in line 1 already"),
        ("LOD-07 why\n~LOD-07 again", "line 2: '~LOD-07' stands in line 1 already"),
        ("~LOD-99 why", "line 1: there is no requirement 'LOD-99'"),
    ],
)
def test_a_line_that_nobody_can_check_is_refused(tmp_path: Path, line: str, what: str) -> None:
    with pytest.raises(KnownFailingError) as caught:
        read_known_failing(listed(tmp_path, line))

    assert what in str(caught.value)


def test_every_problem_of_a_list_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(KnownFailingError) as caught:
        read_known_failing(listed(tmp_path, "LOD-99 why\nLOD-07\n"))

    assert len(caught.value.problems) == 2


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KnownFailingError, match="cannot be read"):
        read_known_failing(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("names", "test", "broke", "excused"),
    [
        ("LOD-07", "test_x.py::test_y[reference-local-core]", ["LOD-07", "LOD-06"], True),
        ("LOD-07", "test_x.py::test_y[reference-local-core]", ["LOD-06"], False),
        ("test_x.py::test_y", "test_x.py::test_y[reference-local-core]", ["LOD-06"], True),
        ("test_x.py::test_y[*-moto-*]", "test_x.py::test_y[reference-local-core]", ["LOD-06"], False),
        ("test_x.py::test_y[*-moto-*]", "test_x.py::test_y[reference-moto-core]", ["LOD-06"], True),
        ("test_x.py::*", "test_x.py::test_y", ["LOD-06"], True),
        ("LOD-07:test_x.py::test_y", "test_x.py::test_y[reference-local-core]", ["LOD-07", "LOD-06"], True),
        ("LOD-07:test_x.py::test_y", "test_x.py::test_y[reference-local-core]", ["LOD-06"], False),
        ("~LOD-07:test_x.py::*", "test_x.py::test_y[reference-local-core]", ["LOD-07"], True),
        ("~LOD-07:test_x.py::*", "test_x.py::test_y[reference-local-core]", ["LOD-06"], False),
        ("LOD-07:test_x.py::test_y[*-twice]", "test_x.py::test_y[reference-local-core-twice]", ["LOD-07"], True),
        ("LOD-07:test_x.py::test_y[*-twice]", "test_x.py::test_y[reference-local-core-once]", ["LOD-07"], False),
        ("test_x.py::test_y", "test_x.py::test_yes", ["LOD-06"], False),
    ],
)
def test_a_line_excuses_what_it_names(names: str, test: str, broke: list[str], excused: bool) -> None:
    assert KnownFailure(1, names, "why").excuses(test, broke) is excused


def test_a_test_is_excused_only_if_all_that_it_broke_is_listed() -> None:
    known = [KnownFailure(1, "LOD-07", "accepts it"), KnownFailure(2, "LOD-08", "loses it")]

    assert excuse(known, "test_x.py::test_y", ["LOD-07"]) == "accepts it"
    assert excuse(known, "test_x.py::test_y", ["LOD-07", "LOD-08"]) == "accepts it; loses it"
    assert excuse(known, "test_x.py::test_y", ["LOD-07", "LOD-06"]) is None
    assert excuse(known, "test_x.py::test_y", []) is None
    elsewhere = KnownFailure(4, "LOD-06:test_x.py::test_z", "forgets it")
    assert excuse([*known, elsewhere], "test_x.py::test_y", ["LOD-06"]) is None
    assert excuse([*known, elsewhere], "test_x.py::test_z", ["LOD-06", "LOD-07"]) == "forgets it; accepts it"
    by_name = KnownFailure(3, "test_x.py::test_y", "races")
    assert excuse([*known, by_name], "test_x.py::test_y", ["LOD-06"]) == "races"


@pytest.mark.parametrize(
    ("names", "store", "excused"),
    [
        ("LOD-07@s3", "moto", True),
        ("LOD-07@s3", "seaweedfs", True),
        ("LOD-07@s3", "local", False),
        ("LOD-07@local", "local", True),
        ("LOD-07@moto", "seaweedfs", False),
        ("LOD-07", "local", True),
    ],
)
def test_a_line_of_one_store_excuses_nothing_on_another(names: str, store: str, excused: bool) -> None:
    known = [KnownFailure(1, names, "loses it")]

    assert excuse(known, "test_x.py::test_y", ["LOD-07"], store) == ("loses it" if excused else None)
