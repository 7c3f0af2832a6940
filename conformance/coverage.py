"""Whether a run has covered the registry: every requirement that it could have shown was shown.

    python -m conformance.coverage local/report.json moto/report.json

For the project's own runs on its reference engine. A marker on a test is a promise; what counts is a step that was
reached and left in one of these runs. Exit code 0 if all is covered, 1 if not, 2 if there is no such report.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from conformance.report import ReportRefused, check_report

# The surfaces of servers and command lines, and the cost of operations, are no business of a storage engine's suites.
OTHER_SURFACES: Final = ("SRV", "CLI", "COST")
# Requirements at level should of which an engine's answers and bytes show nothing, with the reason.
UNSEEN_FROM_OUTSIDE: Final[Mapping[str, str]] = {
    "LOD-13": "how many fragments are written at the same time leaves no mark",
    "MRG-11": "temporary directories of a merge are gone when it answers",
    "OPT-08": "how many tables are compacted at the same time leaves no mark",
    "SNP-05": "the synthetic id of a live read is in no answer of the protocol",
    "SNP-12": "the protocol has no query that orders its rows otherwise than by id",
}


def uncovered(*reports: Mapping[str, Any]) -> list[str]:
    """The requirements, by id, that the runs should have shown and none of them has."""
    shown = {row["id"] for report in reports for row in report["requirements"] if row["outcome"] == "passed"}
    return [
        row["id"]
        for row in reports[0]["requirements"]
        if row["level"] != "gap"
        and row["group"] not in OTHER_SURFACES
        and row["id"] not in UNSEEN_FROM_OUTSIDE
        and row["id"] not in shown
    ]


def main(arguments: list[str]) -> int:
    try:
        reports = [json.loads(Path(each).read_text(encoding="utf-8")) for each in arguments]
        for report in reports:
            check_report(report)
        missing = uncovered(*reports)
    except (IndexError, OSError, ValueError, ReportRefused) as error:
        print(f"there is no report to look at: {error}", file=sys.stderr)
        return 2
    shown = [report["summary"]["requirements"]["passed"] for report in reports]
    print(f"requirements shown: {', '.join(map(str, shown))}; missing: {', '.join(missing) or 'none'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
