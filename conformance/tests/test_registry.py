"""The registry of requirements: complete, well formed, and with ids that never go away."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from conformance.registry import RegistryError, load_requirements, requirements

# The ids that have been given out, by group: GROUP-01 up to the number. Groups grow; nothing is ever taken from here.
GIVEN_OUT = {
    "LAY": 16, "MAN": 12, "STM": 10, "PUB": 23, "LIN": 15, "SNP": 12, "MUT": 16, "LOD": 17, "VAL": 16, "DEL": 8,
    "REC": 28, "BRA": 18, "MRG": 14, "SCH": 19, "IDX": 9, "OPT": 8, "CLN": 7, "RPR": 1, "TMB": 1, "EXP": 6, "CHG": 5,
    "STO": 6, "SRV": 6, "CLI": 3, "COST": 9,
}  # fmt: skip

ENTRY = {
    "id": '"PUB-08"',
    "group": '"PUB"',
    "level": '"must"',
    "capability": '"core"',
    "sentence": '"Writers on different tables all commit."',
    "source": '["S001"]',
}


def written(tmp_path: Path, *entries: dict[str, str]) -> Path:
    lines = (line for entry in entries for line in ("[[requirement]]", *(f"{key} = {entry[key]}" for key in entry)))
    path = tmp_path / "requirements.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_requirement_is_found_by_its_id() -> None:
    found = requirements()["PUB-08"]
    assert (found.group, found.level, found.capability) == ("PUB", "must", "core")
    assert found.source == ("S001", "release 0.8.0") and found.note is None
    with pytest.raises(FrozenInstanceError):
        found.level = "gap"  # type: ignore[misc]


def test_no_id_that_was_given_out_is_ever_removed() -> None:
    given_out = {f"{group}-{number:02}" for group, last in GIVEN_OUT.items() for number in range(1, last + 1)}
    assert len(given_out) == 285
    assert not given_out - requirements().keys(), "these ids were removed, and must come back"
    new = sorted(requirements().keys() - given_out)
    assert not new, f"new ids: write them down in GIVEN_OUT, so that they stay: {new}"


def test_what_is_known_to_be_open_is_a_gap() -> None:
    gaps = {each.id for each in requirements().values() if each.level == "gap"}
    assert {"REC-25", "STM-06", "SCH-15", "VAL-12", "LOD-03"} <= gaps


def test_what_was_only_inferred_is_not_a_must() -> None:
    inferred = [each for each in requirements().values() if "derived" in each.source]
    assert inferred and not [each.id for each in inferred if each.level == "must"]


def test_every_sentence_says_something_of_its_own() -> None:
    sentences = [each.sentence for each in requirements().values()]
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert len(sentence.split()) >= 4 and re.match(r"[A-Z`]", sentence), sentence


def test_a_broken_file_says_what_is_wrong_and_on_which_line(tmp_path: Path) -> None:
    path = tmp_path / "requirements.toml"
    path.write_text("[[requirement]]\nid = PUB\n", encoding="utf-8")
    with pytest.raises(RegistryError, match=r"requirements.toml: this is not TOML: .*line 2"):
        load_requirements(path)
    path.write_text("title = 'no requirement'\n", encoding="utf-8")
    with pytest.raises(RegistryError, match=r"there is no \[\[requirement\]\] in it"):
        load_requirements(path)
    with pytest.raises(RegistryError, match="there is no such file"):
        load_requirements(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"id": '"PUB-8"'}, "the id is 'PUB-8'"),
        ({"id": '"pub-08"'}, "the id is 'pub-08'"),
        ({"group": '"MRG"'}, "the group is 'MRG'"),
        ({"level": '"may"'}, "the level is 'may', and should be one of must, should, gap"),
        ({"capability": '"magic"'}, "the capability is 'magic'"),
        ({"sentence": '""'}, "the sentence is ''"),
        ({"sentence": '"Writers commit"'}, "ends with a period"),
        ({"sentence": "7"}, "the sentence is 7"),
        ({"note": '"release"'}, "the note is 'release'"),
        ({"source": "[]"}, "the source is []"),
        ({"source": '["S009"]'}, "S009"),
        ({"source": '"S001"'}, "the source is 'S001'"),
        ({"colour": '"red"'}, "'colour' is not a field"),
    ],
)
def test_a_bad_requirement_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = written(tmp_path, {**ENTRY, "id": '"PUB-01"'}, {**ENTRY, **change})
    with pytest.raises(RegistryError, match=re.escape(problem)) as refused:
        load_requirements(path)
    assert "line 8, " in str(refused.value)


def test_a_missing_field_and_a_repeated_id_are_both_reported(tmp_path: Path) -> None:
    unfinished = {key: value for key, value in ENTRY.items() if key != "level"}
    with pytest.raises(RegistryError) as refused:
        load_requirements(written(tmp_path, ENTRY, ENTRY, unfinished))
    assert refused.value.problems == (
        "line 8, PUB-08: this id is that of line 1 already",
        "line 15, PUB-08: 'level' is missing",
        "line 15, PUB-08: this id is that of line 1 already",
    )
