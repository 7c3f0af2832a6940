"""The page of a verdict: what an engine of somebody else keeps and breaks, from the files that runs have left.

    python -m conformance.verdicts report --traces fixtures/traces/engine-1.0 --into docs/verdicts/engine-1.0.md

It says nothing that is not in the report, in the traces, in the reports of faults or in the requirements. What the
suites have passed, and a trace or a fault breaks, is not said to hold. Files of different engines are refused, and so
is a report that never got to judge. Words that are not ours are text in it, never markup; of paths in them, the names
of temporary folders are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from conformance.consoles import usage
from conformance.registry import requirements
from conformance.report.checking import ReportRefused, check_report
from conformance.report.page import page_of as report_page_of
from conformance.report.scratch import without_scratch
from conformance.report.words import OUTCOMES, engine_title, words_of
from conformance.runner.known import KnownFailure
from conformance.runner.verdict import CONFORMS, FAILS, INTERRUPTED, STALE, VERDICTS
from conformance.traces import TraceError, read_trace
from cost_budgets.side_by_side import SideBySide, read_costs, side_by_side
from failpoints.reporting import ENDS, FaultReportRefused, read_fault_report

_PAGE: Final = Path(__file__).parent / "report" / "page"
_JUDGED: Final = frozenset(VERDICTS[code] for code in (CONFORMS, FAILS, STALE))
_BROKEN: Final = ("failed", "known_failing")
_PASSED_AND_BROKEN: Final = "Passed by the suites, and broken all the same"
_UNASKED_AND_BROKEN: Final = "Not asked by the suites, and broken all the same"
_SENTENCE_MAX: Final = 300
_SHOWN_MAX: Final = 6
# Where a character is markup: a backslash before punctuation, an underscore that is not inside a word, a star or tilde
# that touches something, a bracket before a link's address, a tag, an entity, what begins a line or ends a heading.
_ACTS: Final = (
    r"\\(?=[!-/:-@\[-`{-~]|$)|`|(?<! )[*~]|[*~](?! )|(?<!\w)_+|_+(?!\w)|\](?=[(\[])|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
    r"|^[#>]|(?<= )#(?=#*$)"
)


class PageRefused(ValueError):
    """Files that make no page: which one, and why."""


@dataclass(frozen=True)
class KeptTrace:
    """A trace, as the page shows it."""

    name: str
    path: str
    ids: tuple[str, ...]
    because: str
    engine: str
    peer: str | None
    store: str

    def replay(self, engine: str, page: Path) -> str:
        """The command that repeats it on an engine, in the place that it had: the other one is as it was."""
        first = self.engine if engine == self.peer else engine
        peer = () if self.peer is None else ("--peer", self.peer)
        store = () if self.store == "local" else ("--store", self.store)
        file = os.path.relpath(page.parent / self.path)
        return shlex.join(["touchstone", "replay", file, "--engine", first, *peer, *store])


def traces_in(directory: Path, beside: Path) -> list[KeptTrace]:
    """The traces of a folder, with their paths as the page links them."""
    if not directory.is_dir():
        raise PageRefused(f"{directory}: there is no such folder of traces")
    found = []
    for path in sorted(directory.glob("*.json")):
        body = read_trace(path)
        link = os.path.relpath(path, beside.parent)
        because = _shortened(str(body.get("because", "")))
        about = body["engine"], body.get("peer"), body["store"]
        found.append(KeptTrace(path.stem, link, tuple(body["broke"]), because, *about))
    return found


def page_of(
    report: Mapping[str, Any],
    traces: Sequence[KeptTrace],
    *,
    commands: Sequence[str],
    cost: SideBySide | None = None,
    picture: str = "",
    whole: str = "",
    lead: Sequence[str] = (),
    notes: Sequence[str] = (),
    faults: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page, as Markdown. Each requirement stands in one part of it."""
    found = {id_ for trace in traces for id_ in trace.ids} | {id_ for each in faults for id_ in _ids_of(each)}
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["requirements"]:
        parts.setdefault(_part(row["outcome"], row["id"] in found), []).append(row)
    known, counts, told = _known(report), report["summary"]["requirements"], set[str]()
    broken = [_broken_row(row, report, traces, known) for row in _by_id(parts.get("broken", []))]
    all_the_same = [
        (heading, [_found_row(row, traces, faults, known) for row in _by_id(parts.get(heading, []))])
        for heading in (_PASSED_AND_BROKEN, _UNASKED_AND_BROKEN)
    ]
    for row in (*broken, *(row for _, rows in all_the_same for row in rows)):
        row["traces"] = [_told_once(trace, told) for trace in row["traces"]]
    return _template().render(
        report=report,
        title=engine_title(report),
        verdict=words_of(report["verdict"], report["summary"]).headline,
        stores=", ".join(store["name"] for store in report["stores"]),
        because=_ended(report["because"]),
        lead=[_ended(_one_line(each)) for each in lead],
        counts=[(name.replace("_", " "), number) for name, number in counts.items()],
        number_broken=len(broken) + sum(len(rows) for _, rows in all_the_same),
        number_held=len(parts.get("passed", [])),
        number_tried=len(broken) + sum(len(rows) for _, rows in all_the_same) + len(parts.get("passed", [])),
        broken=broken,
        all_the_same=all_the_same,
        held=_by_group(parts.get("passed", [])),
        silent=[
            (OUTCOMES[outcome].word, ", ".join(row["id"] for row in parts[outcome]))
            for outcome in ("unsupported", "skipped", "not_tested", "gap")
            if parts.get(outcome)
        ],
        cost=cost,
        picture=picture,
        whole=whole,
        notes=[_ended(each) for each in map(_one_line, notes) if each],
        faults=[_fault_row(each, known) for each in faults],
        commands=commands,
    )


def _told_once(trace: KeptTrace, told: set[str]) -> KeptTrace:
    """A trace with its words where it stands first, and by its name alone where it stands again."""
    is_first = trace.name not in told
    told.add(trace.name)
    return trace if is_first else replace(trace, because="")


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _template() -> Template:
    environment = Environment(loader=FileSystemLoader(_PAGE), undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters.update(words=words, code=code, fenced=fenced)
    return environment.get_template("verdict.md")


def _part(outcome: str, found: bool) -> str:
    """The part of the page in which a requirement stands. What a trace or a fault breaks does not hold."""
    if outcome in _BROKEN:
        return "broken"
    if found:
        return _PASSED_AND_BROKEN if outcome == "passed" else _UNASKED_AND_BROKEN
    return outcome


def _ids_of(fault: Mapping[str, Any]) -> set[str]:
    return {id_ for wrong in fault["wrong"] for id_ in wrong["broke"]}


def _known(report: Mapping[str, Any]) -> list[KnownFailure]:
    """The lines of the list of known failures that say why."""
    lines = (report["known_failing"] or {"lines": []})["lines"]
    return [KnownFailure(line["line"], line["names"], line["reason"]) for line in lines if line["reason"]]


def _said(id_: str, stores: Iterable[str | None], known: Sequence[KnownFailure]) -> list[str]:
    """What the list says of a requirement on one of these stores."""
    places = list(stores)
    return [
        _shortened(line.reason)
        for line in known
        if line.requirement == id_ and any(line.is_about(store) for store in places)
    ]


def _fault_row(fault: Mapping[str, Any], known: Sequence[KnownFailure]) -> dict[str, Any]:
    """One report of faults: how much was tried, and what was wrong, by the requirements that it broke."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for each in fault["wrong"]:
        groups.setdefault(tuple(each["broke"]), []).append(each)
    was_cut_short = fault["ended"] == ENDS[INTERRUPTED] or (fault["tried"] and not fault.get("whole", True))
    return {
        "command": fault["command"],
        "tried": fault["tried"],
        "noun": _shortened(fault["noun"]),
        "wrong": len(fault["wrong"]),
        "ended": _shortened(fault["ended"]) + (": what was found until then" if was_cut_short else ""),
        "groups": [
            {
                "number": len(wrong),
                "broke": ", ".join(ids),
                "reasons": "; ".join(reason for id_ in ids for reason in _said(id_, [fault["store"]], known)),
                # Of many cells the first stands for all; a few schedules are each a story of its own.
                "shown": [
                    (_shortened(each["where"]), _shortened(each["because"]))
                    for each in (wrong if len(wrong) <= _SHOWN_MAX else wrong[:1])
                ],
            }
            for ids, wrong in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        ],
    }


def _broken_row(
    row: Mapping[str, Any], report: Mapping[str, Any], traces: Sequence[KeptTrace], known: Sequence[KnownFailure]
) -> dict[str, Any]:
    """A requirement that does not hold: what the list says of it, of the tests that it failed, or else their words."""
    id_ = row["id"]
    failed = [test for test in report["tests"] if id_ in test["broke"]]
    said = _said(id_, [test["store"] for test in failed], known)
    because = [_shortened(test["because"]) for test in failed if test["because"]]
    if not said:
        # A line about a file of tests says little of one requirement: what one of them has met says more.
        said = [_shortened(line.reason) for line in known if any(line.names_test(test["name"]) for test in failed)]
        said += [f"such as: {each}" for each in because[:1] if said]
    return {
        "id": id_,
        "sentence": _sentence(row),
        "reasons": "; ".join(said or because[:1] or ["no test says why"]),
        "traces": [trace for trace in traces if id_ in trace.ids],
    }


def _found_row(
    row: Mapping[str, Any],
    traces: Sequence[KeptTrace],
    faults: Sequence[Mapping[str, Any]],
    known: Sequence[KnownFailure],
) -> dict[str, Any]:
    """A requirement that no test found broken, and that is: by which traces, and by which commands of faults."""
    id_ = row["id"]
    those = [trace for trace in traces if id_ in trace.ids]
    by = [fault for fault in faults if id_ in _ids_of(fault)]
    stores = [*(trace.store for trace in those), *(fault["store"] for fault in by)]
    return {
        "id": id_,
        "sentence": _sentence(row),
        "reasons": "; ".join(_said(id_, stores, known)),
        "traces": those,
        "commands": list(dict.fromkeys(fault["command"] for fault in by)),
    }


def _sentence(row: Mapping[str, Any]) -> str:
    """Our own words, with their markup; of a requirement that is ours no more the report's."""
    known = requirements().get(row["id"])
    return words(row["sentence"]) if known is None else known.sentence


def _by_id(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))


def _by_group(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row["id"].partition("-")[0], []).append(row["id"].partition("-")[2])
    return [(group, " ".join(numbers)) for group, numbers in sorted(groups.items())]


def words(text: str, within: str = "") -> str:
    r"""Words that are not ours as text, on one line: what would act as markup is escaped, and nothing else.

    >>> words("a_b is *lost* <b>, see [1](x)")
    'a_b is \\*lost\\* \\<b>, see [1\\](x)'

    Characters that end the place where it stands, such as `|` in a cell of a table, are escaped as well.
    """
    acts = f"{_ACTS}|[{re.escape(within)}]" if within else _ACTS
    return re.sub(acts, lambda found: "".join(f"\\{each}" for each in found[0]), _one_line(text))


def code(text: str) -> str:
    """A command in the middle of a line: exactly what it is, between as many backticks as it takes."""
    shown = _printable(text)
    ends = _backticks(shown, 1)
    space = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{ends}{space}{shown}{space}{ends}"


def fenced(commands: Iterable[str]) -> str:
    """Commands in a block, one in a line: exactly what they are."""
    shown = "\n".join(map(_printable, commands))
    ends = _backticks(shown, 3)
    return f"{ends}sh\n{shown}\n{ends}"


def _backticks(text: str, least: int) -> str:
    """More backticks than the text has anywhere in a row."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _shortened(text: str) -> str:
    line = _one_line(text)
    return line if len(line) <= _SENTENCE_MAX else f"{line[:_SENTENCE_MAX]}…"


def _read_report(folder: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    check_report(body)
    if not {body["verdict"], VERDICTS[body["exit_code"]]} <= _JUDGED:
        raise PageRefused(f"{folder}: the run never got to judge: {body['verdict']}, {body['because']}")
    return body


def _without_files(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report as it is without its folder: beside the page there are no traces of each test, nor tracebacks."""
    return {**report, "tests": [{**test, "trace": None, "detail": None} for test in report["tests"]]}


def _check_fault(path: Path, fault: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    if not fault["tried"] and fault["exit_code"] not in (CONFORMS, FAILS):
        raise PageRefused(f"{path}: nothing was tried: {fault['ended']}")
    peer = fault.get("peer")
    _check_engine(path, (fault["engine"], *(() if peer is None else (peer,))), report)
    _check_ids(str(path), _ids_of(fault), report)


def _check_engine(path: Path, engines: Sequence[str], report: Mapping[str, Any]) -> None:
    spec = report["engine"]["spec"]
    if spec not in engines:
        theirs = " and ".join(f"'{each}'" for each in engines)
        raise PageRefused(f"{path} is about {theirs}, and the report about '{spec}': a page is about one engine")


def _check_ids(where: str, ids: Iterable[str], report: Mapping[str, Any]) -> None:
    """Refuse what breaks a requirement that the report does not know: it would stand nowhere in the page."""
    unknown = sorted(set(ids) - {row["id"] for row in report["requirements"]})
    if unknown:
        raise PageRefused(f"{where} says that {unknown[0]} is broken, and the report has no such requirement")


def _costs(
    cost: Path | None, reference: Path | None, notes: Sequence[str], report: Mapping[str, Any]
) -> SideBySide | None:
    """Both measurements beside each other, or none."""
    if (cost is None) != (reference is None):
        raise PageRefused("--cost and --reference belong together: what one costs is shown beside the other")
    if cost is None or reference is None:
        if notes:
            raise PageRefused("--note is about costs: give --cost and --reference as well")
        return None
    measured = read_costs(cost)
    _check_engine(cost, [measured.engine], report)
    return side_by_side(measured, read_costs(reference))


def main(
    report: Annotated[Path, typer.Argument(help="The folder of a report.")],
    traces: Annotated[Path, typer.Option(help="A folder of traces.")],
    into: Annotated[Path, typer.Option(help="The page; the whole report goes beside it, as .html.")],
    cost: Annotated[Path | None, typer.Option(help="The cost.json of the engine.")] = None,
    reference: Annotated[Path | None, typer.Option(help="The cost.json of the reference, for the same store.")] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="What a reader has to know of the costs, in a sentence; may be repeated.")
    ] = None,
    lead: Annotated[list[str] | None, typer.Option(help="A sentence for the top of the page; may be repeated.")] = None,
    faults: Annotated[
        list[Path] | None, typer.Option(help="A sweep.json, race.json, history.json or storm.json.")
    ] = None,
) -> None:
    """Write the page of a verdict from a report, traces, and what sweeps, races and measurements of cost have left."""
    notes, files, picture, whole = note or [], faults or [], into.with_suffix(".svg"), into.with_suffix(".html")
    try:
        body = without_scratch(_read_report(report))
        kept = traces_in(traces, into)
        for trace in kept:
            _check_ids(trace.name, trace.ids, body)
            _check_engine(traces / trace.name, [trace.engine, *([trace.peer] if trace.peer else [])], body)
        reports = [without_scratch(read_fault_report(path)) for path in files]
        for path, fault in zip(files, reports, strict=True):
            _check_fault(path, fault, body)
        costs = _costs(cost, reference, notes, body)
        commands = [
            body["run"]["command"],
            *(each["command"] for each in reports),
            *([] if costs is None else [costs.engine.command, costs.reference.command]),
            *(each.replay(body["engine"]["spec"], into) for each in kept),
        ]
        page = page_of(
            body,
            kept,
            commands=commands,
            cost=costs,
            picture=picture.name,
            whole=whole.name,
            lead=lead or [],
            notes=notes,
            faults=reports,
        )
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_text(page, encoding="utf-8", errors="replace")
        whole.write_text(report_page_of(_without_files(body)), encoding="utf-8", errors="replace")
        if costs is not None:
            picture.write_text(costs.picture, encoding="utf-8")
    except (OSError, ValueError, ReportRefused, FaultReportRefused, TraceError) as error:
        raise usage(str(error)) from None


if __name__ == "__main__":
    typer.run(main)
