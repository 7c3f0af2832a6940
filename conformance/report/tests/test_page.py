"""The page, read without eyes: every fact is there, in order, inert, and every link leads somewhere."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import unquote

import pytest

from conformance.registry import requirements
from conformance.report import check_report
from conformance.report.foreign import SHOWN_LENGTH_MAX
from conformance.report.page import duration, page_of
from conformance.report.tests.parsed import Page
from conformance.report.tests.sample import (
    HOSTILE,
    LOST_TRACE,
    SAMPLES,
    conforming,
    could_not_run,
    failing,
    small,
    stale,
    store_died,
)
from conformance.report.words import GROUPS, OUTCOMES

Record = dict[str, Any]
every_sample = pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)


@cache
def read(sample: Callable[[], Record]) -> Page:
    return Page(page_of(sample()))


def said(text: str) -> str:
    """A text of the record as a reader of the page has it: without backticks, in single spaces."""
    return " ".join(text.replace("`", "").split())


@pytest.fixture(scope="module")
def failed() -> Page:
    return read(failing)


@every_sample
def test_the_page_is_one_whole_document(sample: Callable[[], Record]) -> None:
    page = read(sample)
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text.endswith("Touchstone")
    assert page.one("meta", name="viewport").attributes["content"] == "width=device-width, initial-scale=1"
    assert len(page.ids) == len(set(page.ids))
    levels = [int(element.tag[1]) for element in page.elements if re.fullmatch("h[1-6]", element.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


@every_sample
def test_the_page_asks_for_nothing_from_elsewhere(sample: Callable[[], Record]) -> None:
    html = page_of(sample(), files=("report.json", "badge.svg", "junit.xml"))
    page = Page(html)
    assert not {element.tag for element in page.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "video",
    }
    assert not [element for element in page.elements if "src" in element.attributes or "style" in element.attributes]
    assert not re.search(r"https?://|url\(|@import", html)
    for link in page.all("a"):
        assert re.match(r"#|traces/|report\.json$|badge\.svg$|junit\.xml$", link.attributes["href"])


@every_sample
def test_every_link_inside_the_page_leads_somewhere(sample: Callable[[], Record]) -> None:
    page = read(sample)
    targets = {unquote(a.attributes["href"][1:]) for a in page.all("a") if a.attributes["href"].startswith("#")}
    assert targets and targets <= set(page.ids)
    labels = {element.attributes.get("aria-labelledby") for element in page.elements} - {None}
    assert labels <= set(page.ids)


@every_sample
def test_the_verdict_is_said_first_in_words(sample: Callable[[], Record]) -> None:
    record, page = sample(), read(sample)
    words = {
        "conforms": "Conforms",
        "fails": "Fails",
        "could_not_run": "Could not run",
        "nothing_tested": "Nothing tested",
        "stale_known_failures": "Known failures are stale",
    }
    assert page.one("h1").text == words[record["verdict"]]
    (verdict,) = page.all("header", class_="verdict")
    assert said(record["because"]) in verdict.text
    assert ("good" in verdict.attributes["class"].split()) == (record["verdict"] == "conforms")


def test_the_sections_come_in_the_order_of_what_matters(failed: Page) -> None:
    order = ["run", "counts", "faults", "failures", "known", "aside", "parity", "requirements", "tests"]
    assert [element.attributes["id"] for element in failed.all("h2")] == order


def test_the_run_can_be_made_again_from_the_page(failed: Page) -> None:
    record = failing()
    (command, *_) = failed.all("pre", class_="command")
    assert command.text == record["run"]["command"]
    for fact in ("exit code 1", "seed 20260", "python 3.11.2", "pylance 14.0.0", "Linux x86_64", "internal schema 4"):
        assert fact in failed.text
    for store in record["stores"]:
        title = " ".join(filter(None, (store["name"], store["version"])))
        assert said(f"{title}: {store['description']}") in failed.text
        assert said(store["skipped"] or "") in failed.text


def test_every_count_is_said_in_the_same_way(failed: Page) -> None:
    record = failing()
    of_requirements, of_tests = (element.text for element in failed.all("ul", class_="counts"))
    for name, number in record["summary"]["requirements"].items():
        assert name == "total" or f"{number} {OUTCOMES[name].sign} {OUTCOMES[name].word}" in of_requirements
    for name, number in record["summary"]["tests"].items():
        key = {"faults": "fault", "store_faults": "store_fault"}.get(name, name)
        assert name == "total" or f"{number} {OUTCOMES[key].sign} {OUTCOMES[key].word}" in of_tests
    apart = failed.one("p", class_="apart").text
    of = record["summary"]["requirements"]
    rest = f"{of['unsupported']} unsupported, {of['skipped']} skipped, 4 not tested"
    assert apart == f"Not vouched for: 1 requirement known failing, {rest}."


def test_every_failure_is_told_with_sentence_reason_and_replay(failed: Page) -> None:
    cards = [card.text for card in failed.all("article", class_="failed")]
    for test in failing()["tests"]:
        if test["outcome"] == "failed":
            (card,) = (card for card in cards if test["name"] in card)
            for broken in test["broke"] or test["requirements"]:
                assert said(f"{broken} {requirements()[broken].sentence}") in card
            assert (test["because"] or "The test gave no reason.").partition("<script>")[0].replace("`", "") in card
            assert ("touchstone replay traces/" in card or "replay 'traces/" in card) == bool(test["trace"])
            assert ("Details" in card) == bool(test["detail"])
    assert {LOST_TRACE, "traces/a%20b%26c.json"} <= {link.attributes["href"] for link in failed.all("a")}


def test_a_requirement_that_failed_without_a_failed_test_is_a_failure_too(failed: Page) -> None:
    (card,) = (card.text for card in failed.all("article", class_="failed") if "STO-02" in card.text)
    assert "sto/conditional_put on minio: unsupported. It has no put_if_absent." in card


def test_a_failure_is_replayed_on_the_store_on_which_it_was_seen(failed: Page) -> None:
    (command,) = (each.text for each in failed.all("pre", class_="command") if LOST_TRACE in each.text)
    assert command.endswith("--store minio")


def test_a_test_that_needs_no_store_may_fail_as_well() -> None:
    record = small()
    record["tests"][0] |= {"store": None, "outcome": "failed", "trace": "traces/x.json"}
    (card,) = Page(page_of(record)).all("article", class_="failed")
    assert "lay/LAY-01_holds without a store" in card.text
    assert "touchstone replay traces/x.json" in card.text and "--store" not in card.text


def test_every_failed_id_is_in_a_failure(failed: Page) -> None:
    failures = " ".join(card.text for card in failed.all("article", class_="failed"))
    broken = [each["id"] for each in failing()["requirements"] if each["outcome"] == "failed"]
    assert len(broken) == 5 and all(each in failures for each in broken)


def test_faults_come_with_what_the_adapter_said(failed: Page) -> None:
    first, second = (card.text for card in failed.all("article", class_="fault"))
    assert "mrg/three_way" in first and "thread 'main' panicked at src/driver.rs:118" in first
    assert "Outside of any test" in second and "Nothing was said on stderr." in second


def test_a_fault_that_only_a_test_tells_is_shown() -> None:
    record = copy.deepcopy(failing()) | {"faults": []}
    (card,) = Page(page_of(record)).all("article", class_="fault")
    assert "mrg/three_way The driver's answer was not JSON." in card.text


def test_a_store_that_died_is_told_from_the_engine_with_the_tests_that_it_took_along() -> None:
    page = read(store_died)
    card = page.one("article", class_="store_fault")
    assert "~ store fault" in card.text and "it does not answer a plain PUT" in card.text
    assert "2 tests failed because of it" in card.text and "lay/LAY-02_holds" in card.text
    assert not page.all("article", class_="failed") and not page.all("article", class_="fault")
    assert "2 ~ store fault" in page.text


def test_what_stores_answer_differently_is_marked_and_comes_first() -> None:
    record = small()
    more = {"moto": "5.2.1", "seaweedfs": None}
    record["stores"] += [
        {"name": name, "description": name, "version": version, "skipped": None} for name, version in more.items()
    ]
    record["parity"] = [
        {"id": "a", "question": "DELETE of nothing", "answers": {"moto": "204", "seaweedfs": "204"}},
        {"id": "b", "question": "PUT on nothing", "answers": {"seaweedfs": "412", "moto": "404"}},
    ]
    check_report(record)
    page = Page(page_of(record))
    rows = [row.text for row in page.all("tr") if "nothing" in row.text]
    assert rows == ["PUT on nothing≠ they differ404412", "DELETE of nothing204204"]
    assert [row.attributes.get("class") for row in page.all("tr") if "nothing" in row.text] == ["differs", None]
    assert "Askedmoto5.2.1seaweedfs" in page.text.replace(" ", "")


def test_a_run_without_an_s3_store_has_no_table_of_answers() -> None:
    assert not [element for element in read(small).elements if element.attributes.get("id") == "parity"]


def test_stale_known_failures_are_named() -> None:
    page = read(stale)
    assert page.one("ul", class_="stale").text == "BRA-11 line 4 Bug 190: a branch deleted twice."


def test_known_failures_keep_their_reason_and_what_was_found(failed: Page) -> None:
    for text in ("LOD-07 line 3", "The second row won, silently.", "Bug 212: keys are not compared across batches."):
        assert text in failed.text


def test_what_was_set_aside_has_its_reason(failed: Page) -> None:
    rows = [row.text for row in failed.all("li")]
    for reason in ("The engine declares no capability server.", "Budgets are counted at the gate", "It has no put_if"):
        assert any(reason in row and ("unsupported" in row or "skipped" in row) for row in rows)
    assert any("not tested No test of these reached" in row and "PUB-23" in row and "MRG-05" in row for row in rows)


def test_every_requirement_is_in_the_matrix_on_every_store(failed: Page) -> None:
    record = failing()
    names = [store["name"] for store in record["stores"]]
    cells = failed.all("td", class_="cell")
    rows = failed.all("tr")
    by_id = {row.attributes["id"]: row for row in rows if "id" in row.attributes}
    assert list(by_id) == [each["id"] for each in record["requirements"]]
    assert [cell.attributes["data-store"] for cell in cells] == names * len(by_id)
    for requirement in record["requirements"]:
        text = by_id[requirement["id"]].text
        assert said(requirement["sentence"]) in text
        assert f"docs/spec/{requirement['group'].lower()}.md#{requirement['id'].lower()}" in text
        assert OUTCOMES[requirement["outcome"]].word in text
        for store in requirement["stores"].values():
            outcome = OUTCOMES["gap" if requirement["outcome"] == "gap" else store["outcome"]]
            assert f"{outcome.sign} {outcome.word}" in text


@pytest.mark.parametrize(
    ("requirement", "outcomes"),
    [
        ("LAY-04", ["✕ failed", "✓ passed", "» skipped"]),
        ("LOD-07", ["! known failing", "! known failing", "» skipped"]),
        ("PUB-23", ["? not tested", "? not tested", "» skipped"]),
        ("STO-02", ["? not tested", "∅ unsupported", "» skipped"]),
    ],
)
def test_a_store_on_which_nothing_was_tried_has_not_passed(requirement: str, outcomes: list[str], failed: Page) -> None:
    ids = [each["id"] for each in failing()["requirements"]]
    cells = failed.all("td", class_="cell")[3 * ids.index(requirement) :][:3]
    assert [re.sub(r"\d+ tests?$", "", cell.text).strip() for cell in cells] == outcomes


def test_a_gap_is_a_gap_on_every_store(failed: Page) -> None:
    gaps = [each for each in failing()["requirements"] if each["outcome"] == "gap"]
    open_cells = [cell for cell in failed.all("td", class_="cell") if cell.text == "○ open gap"]
    assert gaps and len(open_cells) == 3 * len(gaps)


def test_every_group_has_a_heading_and_its_counts(failed: Page) -> None:
    headings = [element.text for element in failed.all("h3") if "id" in element.attributes]
    assert headings == [f"{GROUPS[each]} {each}" for each in dict.fromkeys(r.group for r in requirements().values())]
    passed = sum(requirement.group == "LAY" for requirement in requirements().values()) - 2
    assert failed.all("p", class_="summary")[0].text == f"✕ 2 failed ✓ {passed} passed"


def test_every_group_of_the_registry_has_a_title() -> None:
    assert {requirement.group for requirement in requirements().values()} == GROUPS.keys()


def test_all_tests_are_listed_in_a_part_that_opens(failed: Page) -> None:
    table = failed.one("table", class_="tests")
    assert all(test["name"] in table.text for test in failing()["tests"])
    assert any(f"{len(failing()['tests'])} tests" in each.text for each in failed.all("details"))


def test_an_engine_that_could_not_be_asked_is_named_by_its_spec() -> None:
    page = read(could_not_run)
    assert "cmd:./driver --graph-cache 'two words': could not run" in page.one("title").text
    assert "No test failed, but that says nothing here" in page.text
    assert "sh: ./driver: not found" in page.text


def test_no_test_failed_is_plainly_said_of_an_engine_that_conforms() -> None:
    assert "Failures No test failed. Every requirement" in read(conforming).text


def test_nothing_that_an_engine_says_becomes_part_of_the_page() -> None:
    record = _with_hostile_text_everywhere(failing())
    page, calm = Page(page_of(record)), read(failing)
    kinds = [(element.tag, sorted(element.attributes)) for element in page.elements]
    assert {kind for kind, _ in kinds} == {element.tag for element in calm.elements}
    assert len(page.all("script")) == 1 and not page.all("img")
    assert not [name for _, names in kinds for name in names if name.startswith("on")]
    assert "<script>alert('caught')</script>" in page.text


def test_no_terminal_escape_or_half_character_reaches_the_page() -> None:
    html = page_of(_with_hostile_text_everywhere(failing()))
    assert html.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)
    assert "red \\u0007 \\u202e\\udc80" in html


def test_only_the_script_of_the_page_itself_may_run() -> None:
    policy = read(failing).one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "unsafe" not in policy


def test_a_flood_on_stderr_is_cut_in_the_middle() -> None:
    record = copy.deepcopy(could_not_run())
    record["faults"][0]["stderr"] = "first\n" + "x" * 3_000_000 + "\nlast"
    html = page_of(record)
    assert len(html) < 400_000 + SHOWN_LENGTH_MAX
    assert "first\n" in html and "\nlast" in html and "characters are left out here" in html


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.042, "0.04 s"),
        (9.994, "9.99 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min 0 s"),
        (192.4, "3 min 12 s"),
        (3840, "1 h 4 min"),
    ],
)
def test_times_are_said_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def _with_hostile_text_everywhere(record: Record) -> Record:
    record = copy.deepcopy(record)
    record |= {"because": HOSTILE, "suite_version": HOSTILE}
    record["engine"] |= {"name": HOSTILE, "version": HOSTILE, "spec": HOSTILE, "capabilities": [HOSTILE]}
    record["run"] |= {"command": HOSTILE, "platform": HOSTILE, "profile": HOSTILE, "versions": {HOSTILE: HOSTILE}}
    record["stores"][2] |= {"description": HOSTILE, "skipped": HOSTILE}
    for test in record["tests"]:
        test |= {"name": HOSTILE, "because": HOSTILE, "detail": HOSTILE, "reason": HOSTILE}
    for requirement in record["requirements"]:
        requirement |= {"sentence": HOSTILE, "capability": HOSTILE}
    for line in record["known_failing"]["lines"]:
        line |= {"names": HOSTILE, "reason": HOSTILE}
    record["known_failing"]["file"] = HOSTILE
    record["faults"] = [
        {"test": HOSTILE, "store": store, "message": HOSTILE, "stderr": HOSTILE} for store in (None, "x")
    ]
    record["parity"] = [{"id": HOSTILE, "question": HOSTILE, "answers": {"local": HOSTILE, "minio": "403"}}]
    return record
