"""The report: everything that turns the record of a conformance run into files.

    write_report(record, directory)     report.json, badge.svg and index.html, written into a directory
    check_report(record)                refuses a record that is not what `report.schema.json` describes

The promises of this room: nothing is green unless the verdict is `conforms`; what failed, is known to fail, is
unsupported, was skipped or was not tested is as loud as what passed; no text of an engine acts instead of being read.

    checking        is this a report, and does it agree with itself?
    words           the words and signs, one for each verdict and outcome
    views           what the page shows, derived from the record
    page, badge     the files that people look at
    foreign         text of an engine, made fit to be shown
"""

from __future__ import annotations

from conformance.report.badge import badge_of
from conformance.report.checking import ReportRefused, check_report, report_schema
from conformance.report.page import page_of
from conformance.report.views import replay_command
from conformance.report.writing import write_report

__all__ = [
    "ReportRefused",
    "badge_of",
    "check_report",
    "page_of",
    "replay_command",
    "report_schema",
    "write_report",
]
