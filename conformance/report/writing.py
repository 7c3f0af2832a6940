"""Puts the files of a report into a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from conformance.report.badge import badge_of
from conformance.report.checking import ReportRefused, check_report
from conformance.report.page import page_of

RECORD: Final = "report.json"
REFUSED_RECORD: Final = "report.refused.json"
BADGE: Final = "badge.svg"
PAGE: Final = "index.html"
JUNIT: Final = "junit.xml"


def write_report(report: dict[str, Any], directory: Path) -> list[Path]:
    """Write report.json, badge.svg and index.html, and give their paths.

    What an earlier run left under these names goes first: no old green badge outlives a run that cannot be reported.
    A record that is refused is kept beside, as report.refused.json, because the run may have taken hours.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in (RECORD, REFUSED_RECORD, BADGE, PAGE):
        (directory / name).unlink(missing_ok=True)
    try:
        check_report(report)
    except ReportRefused:
        _write(directory / REFUSED_RECORD, _json(report))
        raise
    beside = (RECORD, BADGE, *(name for name in (JUNIT,) if (directory / name).is_file()))
    return [
        _write(directory / RECORD, _json(report)),
        _write(directory / BADGE, badge_of(report)),
        _write(directory / PAGE, page_of(report, files=beside)),
    ]


def _json(report: dict[str, Any]) -> str:
    # Only a refused record can hold what JSON has no word for.
    return json.dumps(report, indent=1, ensure_ascii=False, default=str) + "\n"


def _write(path: Path, text: str) -> Path:
    # Bytes of an engine's stderr that are no UTF-8 arrive as halves of characters, which no strict reader would take.
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return path
