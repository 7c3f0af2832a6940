"""The page of a verdict: what an engine of somebody else keeps and breaks, from the files that runs have left.

    python -m conformance.verdicts report --traces fixtures/traces/engine-1.0 --into docs/verdicts/engine-1.0.md

It says nothing that is not in the report, in the traces or in the requirements. Traces that break what the suites do
not reach are listed apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from conformance.consoles import usage
from conformance.registry import requirements
from conformance.report.checking import ReportRefused, check_report
from conformance.report.words import OUTCOMES
from conformance.runner.known import KnownFailure
from conformance.traces import TraceError, read_trace

_PAGE: Final = Path(__file__).parent / "report" / "page"
_BROKEN: Final = ("failed", "known_failing")
_SENTENCE_MAX: Final = 300


@dataclass(frozen=True)
class KeptTrace:
    """A trace, as the page shows it."""

    name: str
    path: str
    kind: str
    ids: tuple[str, ...]
    because: str

    @property
    def broke(self) -> str:
        return ", ".join(self.ids)


def traces_in(directory: Path, beside: Path) -> list[KeptTrace]:
    """The traces of a folder, with their paths as the page links them."""
    found = []
    for path in sorted(directory.glob("*.json")):
        body = read_trace(path)
        link = os.path.relpath(path, beside.parent)
        because = _one_line(str(body.get("because", "")))
        found.append(KeptTrace(path.stem, link, body["kind"], tuple(body["broke"]), because))
    return found


def page_of(
    report: Mapping[str, Any],
    traces: Sequence[KeptTrace],
    *,
    commands: Sequence[str],
    cost: Mapping[str, str] | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page, as Markdown."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["requirements"]:
        rows.setdefault(row["outcome"], []).append(row)
    failing = [row for outcome in _BROKEN for row in rows.get(outcome, [])]
    ids = {row["id"] for row in failing}
    environment = Environment(loader=FileSystemLoader(_PAGE), undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template("verdict.md").render(
        report=report,
        name=_one_line(str(report["engine"]["name"])),
        version=_one_line(str(report["engine"]["version"])),
        driver=_one_line(str(report["engine"]["spec"])),
        stores=", ".join(store["name"] for store in report["stores"]),
        counts=[(name.replace("_", " "), number) for name, number in report["summary"]["requirements"].items()],
        broken=[_broken_row(row, report, traces) for row in sorted(failing, key=lambda row: row["id"])],
        others=[trace for trace in traces if not set(trace.ids) & ids],
        held=_by_group(rows.get("passed", [])),
        silent=[
            (OUTCOMES[outcome].word, ", ".join(row["id"] for row in rows[outcome]))
            for outcome in ("unsupported", "skipped", "not_tested", "gap")
            if rows.get(outcome)
        ],
        cost=cost,
        faults=[_fault_row(each, report) for each in faults],
        commands=commands,
    )


def _fault_row(fault: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """One report of faults: how much was tried, and what was wrong, by the requirements that it broke."""
    said = {line["names"]: line["reason"] for line in (report["known_failing"] or {"lines": []})["lines"]}
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for each in fault["wrong"]:
        groups.setdefault(tuple(each["broke"]), []).append(each)
    return {
        "command": _one_line(fault["command"]),
        "tried": fault["tried"],
        "noun": _one_line(fault["noun"]),
        "wrong": len(fault["wrong"]),
        "ended": _one_line(fault["ended"]),
        "groups": [
            {
                "number": len(wrong),
                "broke": _one_line(", ".join(ids)),
                "reasons": "; ".join(_one_line(said[id_]) for id_ in ids if id_ in said),
                "where": _one_line(wrong[0]["where"]),
                "because": _one_line(wrong[0]["because"]),
            }
            for ids, wrong in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        ],
    }


def _broken_row(row: Mapping[str, Any], report: Mapping[str, Any], traces: Sequence[KeptTrace]) -> dict[str, Any]:
    """A requirement that does not hold: what the list says of it, of the tests that it failed, or else their words."""
    id_ = row["id"]
    lines = [
        KnownFailure(line["line"], line["names"], line["reason"])
        for line in (report["known_failing"] or {"lines": []})["lines"]
    ]
    failed = [test for test in report["tests"] if id_ in test["broke"]]
    said = [line.reason for line in lines if line.requirement == id_]
    because = [test["because"] for test in failed if test["because"]]
    if not said:
        # A line about a file of tests says little of one requirement: what one of them has met says more.
        said = [line.reason for line in lines if any(line.names_test(test["name"]) for test in failed)]
        said += [f"such as: {_one_line(each)}" for each in because[:1] if said]
    return {
        "id": id_,
        "sentence": requirements()[id_].sentence,
        "reasons": "; ".join(said) or _one_line(because[0] if because else "no test says why"),
        "traces": [trace for trace in traces if id_ in trace.ids],
    }


def _by_group(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row["id"].partition("-")[0], []).append(row["id"].partition("-")[2])
    return [(group, " ".join(numbers)) for group, numbers in sorted(groups.items())]


def _one_line(text: str) -> str:
    """Words of an engine in a page of ours: on one line, and not as markup."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(printable.split()).replace("`", "'").replace("<", "‹").replace(">", "›")
    return line if len(line) <= _SENTENCE_MAX else f"{line[:_SENTENCE_MAX]}…"


def main(
    report: Annotated[Path, typer.Argument(help="The folder of a report.")],
    traces: Annotated[Path, typer.Option(help="A folder of traces.")],
    into: Annotated[Path, typer.Option(help="The page.")],
    cost: Annotated[Path | None, typer.Option(help="The cost.json of the engine.")] = None,
    reference: Annotated[Path | None, typer.Option(help="The cost.json of the reference, for the same store.")] = None,
    faults: Annotated[
        list[Path] | None, typer.Option(help="A sweep.json, race.json, history.json or storm.json.")
    ] = None,
) -> None:
    """Write the page of a verdict from a report, traces, and what sweeps, races and measurements of cost have left."""
    from failpoints.reporting import FaultReportRefused, read_fault_report

    try:
        body = json.loads((report / "report.json").read_text(encoding="utf-8"))
        check_report(body)
        kept = traces_in(traces, into)
        reports = [read_fault_report(path) for path in faults or ()]
        costs = None
        if cost is not None and reference is not None:
            from cost_budgets.side_by_side import read_costs, side_by_side

            costs = side_by_side(read_costs(cost), read_costs(reference), into.with_suffix(".svg"))
    except (OSError, ValueError, ReportRefused, FaultReportRefused, TraceError) as error:
        raise usage(str(error)) from None
    commands = [
        body["run"]["command"],
        *(each["command"] for each in reports),
        *(f"touchstone replay {_from_here(each.path, into)} --engine '{body['engine']['spec']}'" for each in kept),
    ]
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(
        page_of(body, kept, commands=commands, cost=costs, faults=reports), encoding="utf-8", errors="replace"
    )


def _from_here(link: str, page: Path) -> str:
    return os.path.relpath(page.parent / link)


if __name__ == "__main__":
    typer.run(main)
