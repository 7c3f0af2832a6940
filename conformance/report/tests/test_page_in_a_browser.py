"""The page in Chromium: it fits a phone, runs no script but its own, and says everything with none at all."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from conformance.doctor import BROWSERS
from conformance.report import write_report
from conformance.report.tests.browser import Browser, Measured, Screen, find_browser
from conformance.report.tests.sample import failing

PHONE_WITHOUT_SCRIPTS = Screen(390, scripts=False)
LONG_WORD = "unbreakable" * 20
SCREENS = (PHONE_WITHOUT_SCRIPTS, Screen(320), Screen(390), Screen(768), Screen(1280))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    program = find_browser()
    if program is None:
        pytest.skip(
            f"No browser on the PATH ({', '.join(BROWSERS)}): install Chromium, on Debian `apt install chromium`."
        )
    return Browser(program, tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    record = failing()
    record["engine"] |= {"version": LONG_WORD, "spec": f"cmd:{LONG_WORD}"}
    record["run"] |= {"platform": LONG_WORD, "versions": {"python": LONG_WORD}}
    for test in record["tests"]:
        if test["outcome"] != "passed":
            test |= {"name": f"{test['name']}_{LONG_WORD}", "reason": f"{test['reason']} {LONG_WORD}"}
    for line in record["known_failing"]["lines"]:
        line["names"] += f" {LONG_WORD}"
    *_, page = write_report(record, tmp_path_factory.mktemp("report"))
    return page


@pytest.fixture(scope="module")
def measured(browser: Browser, page: Path) -> dict[Screen, Measured]:
    """One start of the browser for every screen."""
    return dict(zip(SCREENS, browser.measure(page, SCREENS), strict=True))


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_the_page_never_scrolls_sideways(screen: Screen, measured: dict[Screen, Measured]) -> None:
    found = measured[screen]
    assert 0 < found.width <= screen.width
    assert found.scroll_width <= found.width, f"{found.scroll_width} pixels wide because of {found.sticking_out[:5]}"
    assert found.text_size_min >= 11


@pytest.mark.parametrize("screen", SCREENS, ids=str)
def test_no_script_runs_but_that_of_the_page(screen: Screen, measured: dict[Screen, Measured]) -> None:
    found = measured[screen]
    assert found.filter_shown == screen.scripts
    assert (found.scripts, found.pictures) == (1, 0), "something that an engine said became an element"


def test_everything_is_said_without_javascript(measured: dict[Screen, Measured]) -> None:
    shown = " ".join(measured[PHONE_WITHOUT_SCRIPTS].text.split())
    for requirement in failing()["requirements"]:
        assert requirement["id"] in shown
    for fact in (
        "Fails",
        "exit code 1",
        "thread 'main' panicked at src/driver.rs:118",
        "Writer A was told ok for its load, and the 3 rows of it are in no snapshot of main.",
        "touchstone replay traces/two_writers_on_one_table-minio.json",
        f"BRA-11 {LONG_WORD} line 4",
        "The engine declares no capability server.",
    ):
        assert fact in shown


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_the_page_can_be_pictured(width: int, height: int, browser: Browser, page: Path) -> None:
    picture = browser.screenshot(page, width, height)
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == (width, height)
    assert len(picture) > 10_000, "the picture is as good as empty"
