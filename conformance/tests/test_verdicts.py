"""The page of a verdict says what its files say and nothing else, and files that contradict it are refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from conformance.report.tests import sample
from conformance.verdicts import KeptTrace, code, fenced, main, page_of, words

TRACE: Final = Path(__file__).parents[2] / "fixtures" / "traces" / "lost-ack-on-publish.json"
SPEC: Final = "cmd:./driver --graph-cache 'two words'"
# Of the sample: what its suites have passed, and what they have not tested.
PASSED, UNASKED = "REC-05", "PUB-23"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A report that fails, and one trace, which breaks what the suites did not ask."""
    reported(tmp_path, sample.failing())
    (tmp_path / "traces").mkdir()
    traced(tmp_path)
    return tmp_path


def reported(folder: Path, body: sample.Record) -> None:
    (folder / "report").mkdir(exist_ok=True)
    (folder / "report" / "report.json").write_text(json.dumps(body), encoding="utf-8")


def traced(folder: Path, name: str = TRACE.name, **more: object) -> None:
    """One more trace, or another one in place of the first."""
    body = json.loads(TRACE.read_text(encoding="utf-8"))
    (folder / "traces" / name).write_text(json.dumps({**body, "engine": SPEC, **more}), encoding="utf-8")


def fault_report(folder: Path, **more: object) -> Path:
    body = {
        "format": 1, "suite_version": "0.1.0", "instrument": "sweep", "command": "touchstone sweep --engine x",
        "engine": SPEC, "peer": None, "store": "moto", "ended": "wrong", "exit_code": 1, "whole": True, "tried": 9,
        "noun": "cells", "seconds": 3.0, "counts": {},
        "wrong": [
            {"where": f"insert kill at {number}", "broke": [PASSED], "because": "a | row\nis lost"} for number in "12"
        ],
    }  # fmt: skip
    path = folder / "sweep.json"
    path.write_text(json.dumps({**body, **more}), encoding="utf-8")
    return path


def cost_report(folder: Path, name: str, requests: tuple[int, int] = (20, 21), **more: object) -> Path:
    store = more.pop("on", "moto")
    rows = [
        {"store": store, "operation": "cold-query", "ground": "grown", "variables": {"H": commits}, "requests": number}
        for commits, number in zip((2, 80), requests, strict=True)
    ]
    body = {"engine": "reference", "store": store, "profile": "full", "measurements": rows}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**body, **more}), encoding="utf-8")
    return path


def both_costs(folder: Path, **more: object) -> list[str]:
    theirs = cost_report(folder, "theirs", (40, 400), **{"engine": SPEC, **more})
    return ["--cost", str(theirs), "--reference", str(cost_report(folder, "ours"))]


def written(folder: Path, *more: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(main)
    page = folder / "docs" / "page.md"
    args = [str(folder / "report"), "--traces", str(folder / "traces"), "--into", str(page), *more]
    done = CliRunner().invoke(app, args)
    return done.exit_code, page.read_text(encoding="utf-8") if page.exists() else "", " ".join(done.stderr.split())


def standing(page: str) -> Iterator[tuple[str, str]]:
    """Every requirement that stands in a part of the page, with the title of that part."""
    for part in page.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        for line in body.splitlines():
            if line.startswith("**"):
                yield line[2:].partition("**")[0], title
            name, _, rest = line.removeprefix("- ").partition(": ")
            if title == "What holds" and line:
                yield from ((f"{name}-{number}", title) for number in rest.split())
            if title == "What was not asked" and line:
                yield from ((id_, title) for id_ in rest.split(", "))


def line_with(page: str, start: str) -> str:
    return next(line for line in page.splitlines() if line.startswith(start))


def test_every_requirement_of_the_report_stands_in_exactly_one_part_of_the_page(folder: Path) -> None:
    report = sample.failing()
    parts = dict.fromkeys(("failed", "known_failing"), "What breaks") | {"passed": "What holds"}
    expected = {row["id"]: parts.get(row["outcome"], "What was not asked") for row in report["requirements"]}
    traced(folder, "of-two.json", broke=["PUB-08", "LAY-01"])

    code, page, said = written(folder, "--faults", str(fault_report(folder)))

    assert code == 0, said
    expected |= dict.fromkeys((PASSED, "LAY-01"), "Passed by the suites, and broken all the same")
    expected |= {UNASKED: "Not asked by the suites, and broken all the same"}
    assert sorted(standing(page)) == sorted(expected.items())


def test_what_is_broken_all_the_same_says_by_what_and_what_the_list_says(folder: Path) -> None:
    lines = [{"line": 1, "names": f"{PASSED}@s3", "reason": "it forgets", "state": "failed"}]
    reported(folder, {**sample.failing(), "known_failing": {"file": "list", "lines": lines}})
    traced(folder, "cut.json", broke=[PASSED], because="the row is gone")

    _, page, _ = written(folder, "--faults", str(fault_report(folder)))

    part = page.partition("## Passed by the suites, and broken all the same\n")[2].partition("\n## ")[0]
    assert part.strip().splitlines()[0].endswith(" *Here: it forgets*")
    assert "\n- [cut](../traces/cut.json): the row is gone\n- found by `touchstone sweep --engine x`\n" in part


def test_a_trace_is_linked_from_the_page_and_can_be_replayed_by_its_command(folder: Path) -> None:
    traced(folder, "a b (1).json")

    _, page, _ = written(folder)

    assert "[lost-ack-on-publish](../traces/lost-ack-on-publish.json)" in page
    assert "](../traces/a%20b%20%281%29.json)" in page
    replays = [line for line in page.rpartition("```sh")[2].splitlines() if line.startswith("touchstone replay")]
    files = [str(folder / "traces" / name) for name in ("a b (1).json", TRACE.name)]
    for replay, file in zip(map(shlex.split, replays), files, strict=True):
        assert Path(replay[2]).resolve() == Path(file).resolve()
        assert replay[3:] == ["--engine", SPEC, "--store", "moto"], "where it was found"


@pytest.mark.parametrize(
    ("engine", "peer", "expected"),
    [(SPEC, "reference", [SPEC, "--peer", "reference"]), ("reference", SPEC, ["reference", "--peer", SPEC])],
)
def test_of_two_engines_the_other_one_is_named_where_it_was(engine: str, peer: str, expected: list[str]) -> None:
    trace = KeptTrace("t", "t.json", (UNASKED,), "", engine, peer, "local")

    assert shlex.split(trace.replay(SPEC, Path("page.md"))) == ["touchstone", "replay", "t.json", "--engine", *expected]


def test_the_verdict_of_the_report_stands_under_its_counts(folder: Path) -> None:
    _, page, _ = written(folder)

    top = page.partition("## What breaks")[0]
    assert f"**Fails**: {sample.failing()['because']} [" in top
    broken = len(re.findall(r"^\*\*[A-Z]{3,4}-\d\d\*\*", page, re.MULTILINE))
    held = sum(title == "What holds" for _, title in standing(page))
    counted = rf"^Of {broken + held} requirements that were tried, .* {held} hold and {broken} are broken\."
    assert re.search(counted, top, re.MULTILINE)


def test_a_lead_stands_at_the_top_and_a_trace_is_told_once(folder: Path) -> None:
    traced(folder, broke=["PUB-08", "REC-04"], because="it was lost")

    _, page, _ = written(folder, "--lead", "Rows are lost", "--lead", "A graph is locked.")

    assert "- Rows are lost.\n- A graph is locked.\n" in page.partition("| requirements |")[0]
    assert page.count("[lost-ack-on-publish]") == 2 and page.count("it was lost") == 1


def test_a_trace_of_another_engine_is_refused(folder: Path) -> None:
    traced(folder, engine="mutant:another")

    code, page, said = written(folder)

    assert (code, page) == (2, "") and "is about 'mutant:another'" in said


@pytest.mark.parametrize("by", ["id", "test", "file", "nobody"])
def test_what_the_list_says_stands_beside_what_breaks(by: str) -> None:
    report = sample.failing()
    failed = next(test for test in report["tests"] if test["broke"])
    id_, folder = failed["broke"][0], failed["name"].partition("/")[0]
    names = {"id": id_, "test": failed["name"], "file": f"{folder}/*", "nobody": "other/*"}[by]
    lines = [{"line": 1, "names": names, "reason": "it forgets", "state": "failed"}]

    page = page_of({**report, "known_failing": {"file": "list", "lines": lines}}, [], commands=[])

    row = line_with(page, f"**{id_}** ")
    assert row.endswith("*Here: it forgets*") == (by == "id")
    # What a line says of tests is about all of them: what this requirement has met stands beside it.
    assert f"*Here: it forgets; such as: {failed['because'][:15]}" in row or by not in ("test", "file")


@pytest.mark.parametrize(("place", "is_said"), [("minio", True), ("s3", True), ("local", False)])
def test_a_line_about_another_store_than_that_of_the_failing_test_says_nothing(place: str, is_said: bool) -> None:
    lines = [{"line": 1, "names": f"PUB-08@{place}", "reason": "it forgets", "state": "failed"}]

    page = page_of({**sample.failing(), "known_failing": {"file": "list", "lines": lines}}, [], commands=[])

    assert ("it forgets" in line_with(page, "**PUB-08** ")) == is_said


MARKUP: Final = (
    "it said `x` # <b>loudly</b>", "*all* is __lost__ ~~here~~", "see [this](http://x) ![and](that)", "a | b \\| c",
    "\\*a* \\", "&lt; &#35; a < b > c", "[1, 2]](x)", "> quoted", "# title #", "``two` ticks", "'a'*b_c_* _",
)  # fmt: skip


@pytest.mark.parametrize("text", MARKUP)
@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (lambda text: f"*Here: {words(text)}*", "Here: {}"),
        (lambda text: f"# {words(text)}", "{}"),
        (lambda text: f"- [{words(text, '[]')}](x.json): `x`", "{}: x"),
        (lambda text: f"| a |\n|---|\n| {words(text, '|')} |", "a{}"),
        (lambda text: f"by {code(text)}, `x`", "by {}, x"),
        (lambda text: f"x\n\n{fenced([text, '```'])}\n\n`x`", "x{}\n```\nx"),
    ],
    ids=["sentence", "title", "link", "cell", "code", "block"],
)
def test_words_and_commands_are_shown_as_they_are(text: str, place: Callable[[str], str], shown: str) -> None:
    assert rendered(place(text)) == shown.format(text)


def rendered(markdown: str) -> str:
    """What a reader sees; an image or a tag shows as its kind."""
    blocks = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    parts = [part for block in blocks for part in block.children or [block]]
    return "".join(part.content or ("" if part.type not in ("image", "html_inline") else part.type) for part in parts)


def test_what_cannot_act_is_not_escaped() -> None:
    text = "snake_case_name (see 1 < 2 > 0) [1.0, 'x'] SELECT * FROM t # 3! C:\\dir a|b"

    assert words(text) == text


def test_the_words_of_an_engine_are_no_markup_anywhere_in_the_page(folder: Path) -> None:
    hostile = "it `said`\n# <b>*loudly*</b> [x](y)"
    shown = r"it \`said\` # \<b>\*loudly\*\</b> [x\](y)"
    report = sample.failing()
    report["because"] = report["run"]["platform"] = hostile
    report["known_failing"]["lines"][0] |= {"names": "PUB-08", "reason": hostile}
    for test in report["tests"]:
        test["because"] = hostile
    reported(folder, report)
    traced(folder, because=hostile)
    wrong = [{"where": hostile, "broke": [PASSED], "because": hostile}]
    faults = fault_report(folder, wrong=wrong, noun=hostile, ended=hostile)

    _, page, said = written(folder, "--faults", str(faults))

    assert not said and "<b>" not in page.replace(r"\<b>", "").partition("```sh")[0]
    # The verdict, the platform, a reason, two tests, a trace, and four of the sweep.
    assert page.count(shown) == 10


def test_a_command_is_shown_as_it_ran(folder: Path) -> None:
    command = "touchstone sweep --engine 'cmd:./a `b`  | c_*d*' --writer x"

    _, page, _ = written(folder, "--faults", str(fault_report(folder, command=command)))

    assert f"\n``{command}``: wrong 2 of 9 cells; ended: wrong\n" in page
    assert f"\n- found by ``{command}``\n" in page
    assert f"\n{command}\n" in page.rpartition("```sh")[2]


def test_what_sweeps_have_left_is_counted_and_grouped_by_what_it_broke(folder: Path) -> None:
    code, page, said = written(folder, "--faults", str(fault_report(folder)))

    assert code == 0, said
    assert "`touchstone sweep --engine x`: wrong 2 of 9 cells; ended: wrong\n" in page
    both = "".join(f"  - insert kill at {number}: a | row is lost\n" for number in "12")
    assert f"\n- 2 × **REC-05**\n{both}\n" in page
    assert "touchstone sweep --engine x\n" in page.rpartition("```sh")[2]


def test_of_many_cells_that_break_the_same_the_first_stands_for_all(folder: Path) -> None:
    wrong = [{"where": f"cell {number}", "broke": [PASSED], "because": "a row is lost"} for number in range(9)]

    _, page, _ = written(folder, "--faults", str(fault_report(folder, wrong=wrong)))

    assert "- 9 × **REC-05**, such as\n  - cell 0: a row is lost\n\n" in page


def test_the_list_says_why_of_faults_as_well_on_their_store(folder: Path) -> None:
    lines = [
        {"line": number, "names": f"{PASSED}@{place}", "reason": f"it forgets on {place}", "state": "failed"}
        for number, place in enumerate(("s3", "local"), 1)
    ]
    reported(folder, {**sample.failing(), "known_failing": {"file": "list", "lines": lines}})

    _, page, _ = written(folder, "--faults", str(fault_report(folder)))

    assert "- 2 × **REC-05** *it forgets on s3*\n" in page


@pytest.mark.parametrize(("ended", "exit_code"), [("interrupted", 130), ("could not run", 3)])
def test_a_sweep_that_was_interrupted_is_shown_as_one(folder: Path, ended: str, exit_code: int) -> None:
    faults = fault_report(folder, ended=ended, exit_code=exit_code, whole=False)

    _, page, _ = written(folder, "--faults", str(faults))

    assert f"; ended: {ended}: what was found until then\n" in page


def test_a_race_beside_another_engine_is_about_both(folder: Path) -> None:
    code, _, said = written(folder, "--faults", str(fault_report(folder, engine="reference", peer=SPEC)))

    assert code == 0, said


def test_no_temporary_folder_is_named_by_the_page_or_the_report_beside_it(folder: Path) -> None:
    body = sample.failing()
    failed = next(test for test in body["tests"] if test["outcome"] == "failed")
    failed["because"] = "nothing at dev/shm/touchstone-9a_8b7c6/touchstone-12345678/graph-3/nodes"
    reported(folder, body)
    file = fault_report(folder, wrong=[{"where": "x", "broke": [PASSED], "because": "/tmp/tmpa1b2c3d4/g/x is lost"}])
    exit_code, page, _ = written(folder, "--faults", str(file))
    assert exit_code == 0
    whole = (folder / "docs" / "page.html").read_text(encoding="utf-8")
    assert "g/x is lost" in page
    assert "graph-3/nodes" in whole
    assert not re.search("touchstone-9a_8b7c6|touchstone-12345678|tmpa1b2c3d4|dev/shm", page + whole)


def test_the_whole_report_stands_beside_the_page_and_links_nothing_that_does_not(folder: Path) -> None:
    _, page, _ = written(folder)

    whole = (folder / "docs" / "page.html").read_text(encoding="utf-8")
    assert "[Every requirement and every test](page.html)" in page
    assert "PUB-08" in whole and "traces/" not in whole


def test_with_two_measurements_the_costs_stand_side_by_side(folder: Path) -> None:
    code, page, said = written(folder, *both_costs(folder))

    assert code == 0, said
    assert "| cold-query | grown | 40 at 2, 400 at 80 | 20 at 2, 21 at 80 | - |" in page
    picture = (folder / "docs" / "page.svg").read_text(encoding="utf-8")
    assert picture.count("<polyline") == 2 and ">400<" in picture and "stroke-dasharray" in picture


def test_the_costs_say_on_which_store_and_in_which_profile_they_were_measured(folder: Path) -> None:
    _, page, _ = written(folder, *both_costs(folder, profile="quick"))

    said = " ".join(page.partition("## What it costs")[2].partition("![")[0].split())
    assert "before moto, profile `quick`, beside the reference engine `reference`, profile `full`." in said
    assert "same store" not in said


def test_what_is_over_its_budget_is_named_and_counted(folder: Path) -> None:
    about = {"operation": "cold-query", "ground": "grown", "along": "H"}
    judged = [("requests", "at_most", "over"), ("requests", "at_least", "ok"), ("LIST", "at_most", "grows")]
    budgets = [{**about, "measure": name, "bound": bound, "verdict": verdict} for name, bound, verdict in judged]
    theirs = cost_report(folder, "theirs", (40, 400), engine=SPEC, budgets=budgets)

    _, page, _ = written(folder, "--cost", str(theirs), "--reference", str(cost_report(folder, "ours")))

    assert "| 40 at 2, 400 at 80 | 20 at 2, 21 at 80 | requests, LIST |" in page
    assert " It keeps 1 of 3 budgets." in page


def test_costs_can_be_measured_again_by_their_commands(folder: Path) -> None:
    _, page, _ = written(folder, *both_costs(folder, profile="quick"))

    again = page.partition("## See it again")[2].splitlines()
    assert shlex.join(["touchstone", "cost", "--engine", SPEC, "--store", "moto", "--profile", "quick"]) in again
    assert "touchstone cost --engine reference --store moto --profile full" in again


def test_notes_on_the_costs_are_sentences_of_their_section(folder: Path) -> None:
    notes = ["--note", "The driver lists commits after each write", "--note", "It *starts* anew each time."]

    _, page, _ = written(folder, *both_costs(folder), *notes)

    said = page.partition("## What it costs")[2].partition("![")[0]
    assert said.endswith(" The driver lists commits after each write. It \\*starts\\* anew each time.\n\n")


def never_judged(make: Callable[[], sample.Record]) -> Callable[[Path], list[str]]:
    def given(folder: Path) -> list[str]:
        reported(folder, make())
        return []

    return given


def interrupted() -> sample.Record:
    return {**sample.failing(), "verdict": "interrupted", "exit_code": 130}


def without_traces(folder: Path) -> list[str]:
    shutil.rmtree(folder / "traces")
    return []


def without_that_requirement(folder: Path) -> list[str]:
    reported(folder, sample.small())
    return []


REFUSED: Final[dict[str, tuple[Callable[[Path], list[str]], str]]] = {
    "no report": (never_judged(dict), "is a required property"),
    "the engine could not run": (never_judged(sample.could_not_run), "never got to judge: could_not_run"),
    "nothing was tested": (never_judged(sample.nothing_tested), "never got to judge: nothing_tested"),
    "the run was interrupted": (never_judged(interrupted), "never got to judge: interrupted"),
    "no report of faults": (lambda at: ["--faults", str(fault_report(at, tried="many"))], "report['tried']"),
    "a race that could not run": (
        lambda at: [
            "--faults",
            str(fault_report(at, ended="could not run", exit_code=3, tried=0, wrong=[], whole=False)),
        ],
        "nothing was tried: could not run",
    ),
    "costs that are not whole": (lambda at: both_costs(at, verdict="incomplete"), "theirs.json is not whole"),
    "faults of a requirement that nobody has": (
        lambda at: ["--faults", str(fault_report(at, wrong=[{"where": "x", "broke": ["REC-99"], "because": "y"}]))],
        "says that REC-99 is broken, and the report has no",
    ),
    "faults of another engine": (lambda at: ["--faults", str(fault_report(at, engine="x"))], "is about 'x', and the"),
    "faults of two others": (
        lambda at: ["--faults", str(fault_report(at, engine="x", peer="y"))],
        "is about 'x' and 'y', and the report about",
    ),
    "no cost of an engine": (lambda at: both_costs(at, profile=None, measurements=7), "is no cost.json"),
    "costs of another engine": (lambda at: both_costs(at, engine="x"), "theirs.json is about 'x', and the"),
    "costs of one alone": (lambda at: both_costs(at)[:2], "--cost and --reference belong together"),
    "costs of the reference alone": (lambda at: both_costs(at)[2:], "--cost and --reference belong together"),
    "costs on different stores": (lambda at: both_costs(at, on="minio"), "different stores, minio and moto"),
    "a note on no costs": (lambda at: ["--note", "It is slow."], "--note is about costs"),
    "no folder of traces": (without_traces, "there is no such folder of traces"),
    "a requirement that nobody has": (without_that_requirement, "says that PUB-23 is broken, and the report has no"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_page_is_refused_in_words_and_nothing_is_written(folder: Path, what: str) -> None:
    given, because = REFUSED[what]

    code, _, said = written(folder, *given(folder))

    assert code == 2 and said.startswith("error: ") and because in said
    assert not (folder / "docs").exists()


@pytest.mark.parametrize("make", [sample.small, sample.stale])
def test_a_run_that_got_to_judge_has_its_page(folder: Path, make: Callable[[], sample.Record]) -> None:
    without: Any = make()
    reported(folder, without)
    (folder / "traces" / TRACE.name).unlink()

    code, page, said = written(folder)

    assert code == 0, said
    assert without["because"] in page


def test_a_bar_in_the_name_of_an_operation_breaks_no_row(folder: Path) -> None:
    row = {"store": "moto", "operation": "a|b", "ground": "c|d", "variables": {"H": 2}, "requests": 3}
    theirs, ours = (
        str(cost_report(folder, name, engine=engine, measurements=[row]))
        for name, engine in (("theirs", SPEC), ("ours", "reference"))
    )

    _, page, _ = written(folder, "--cost", theirs, "--reference", ours)

    assert "\n| a\\|b | c\\|d | 3 at 2 | 3 at 2 | - |\n" in page


def test_a_command_of_several_lines_is_shown_on_one() -> None:
    assert code("run 'a\nb'") == "`run 'a b'`"
    assert fenced(["run 'a\n```\nb  c'"]) == "````sh\nrun 'a ``` b  c'\n````"
