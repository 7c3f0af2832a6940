"""The files of a report: which are written, what they keep, and what happens to those of an earlier run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from conformance.report import ReportRefused, check_report, replay_command, write_report
from conformance.report.tests.parsed import Page
from conformance.report.tests.sample import SAMPLES, failing, small


@pytest.mark.parametrize("sample", SAMPLES)
def test_three_files_are_written_and_named(sample: str, tmp_path: Path) -> None:
    directory = tmp_path / "new" / "report"
    written = write_report(SAMPLES[sample](), directory)
    assert written == [directory / name for name in ("report.json", "badge.svg", "index.html")]
    assert sorted(directory.iterdir()) == sorted(written)


def test_the_record_is_written_as_it_was_given(tmp_path: Path) -> None:
    record, *_ = write_report(small(), tmp_path)
    assert json.loads(record.read_text(encoding="utf-8")) == small()


def test_a_strict_reader_takes_what_a_careless_engine_said(tmp_path: Path) -> None:
    record, *_ = write_report(failing(), tmp_path)
    read: dict[str, Any] = orjson.loads(record.read_bytes())
    check_report(read)
    assert "<script>alert('caught')</script>" in read["engine"]["name"]


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in write_report(small(), tmp_path / "a")]
    assert first == [path.read_bytes() for path in write_report(small(), tmp_path / "b")]


@pytest.mark.parametrize("there", [True, False])
def test_junit_is_linked_where_it_is(there: bool, tmp_path: Path) -> None:
    if there:
        (tmp_path / "junit.xml").write_text("<testsuites/>")
    *_, page = write_report(small(), tmp_path)
    links = {link.attributes["href"] for link in Page(page.read_text(encoding="utf-8")).all("a")}
    assert ("junit.xml" in links) == there
    assert {"report.json", "badge.svg"} <= links


def test_no_green_badge_outlives_a_run_that_cannot_be_reported(tmp_path: Path) -> None:
    write_report(small(), tmp_path)
    (tmp_path / "traces").mkdir()
    with pytest.raises(ReportRefused):
        write_report(small() | {"verdict": "great", "root": Path("here")}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.refused.json", "traces"]
    assert json.loads((tmp_path / "report.refused.json").read_text(encoding="utf-8"))["verdict"] == "great"


def test_the_next_good_run_takes_the_refused_record_away(tmp_path: Path) -> None:
    with pytest.raises(ReportRefused):
        write_report({"format": 1}, tmp_path)
    write_report(small(), tmp_path)
    assert not (tmp_path / "report.refused.json").exists()


def test_the_replay_command_is_safe_to_paste() -> None:
    assert replay_command("traces/x.json", "reference", None) == "touchstone replay traces/x.json --engine reference"
    assert (
        replay_command("traces/$(x).json", "cmd:a b", "minio")
        == "touchstone replay 'traces/$(x).json' --engine 'cmd:a b' --store minio"
    )
