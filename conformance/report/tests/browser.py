"""A real browser, without a window: the page as it is laid out, and as it is without JavaScript."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import unescape
from pathlib import Path
from typing import Final

from conformance.doctor import BROWSERS

TIMEOUT_SECONDS: Final = 90

# Frames stand for screens: the page inside of one is laid out for its width. In a sandbox no script of the page runs,
# while the wrapper may still look: Chromium's own switch for that silences `--dump-dom` and `--screenshot` too.
_WRAPPER: Final = """<!doctype html><meta charset="utf-8"><body><script>
const frames = %s.map((screen) => {
  const frame = document.createElement("iframe");
  frame.width = screen.width; frame.height = 844; frame.style.border = 0;
  if (!screen.scripts) frame.sandbox = "allow-same-origin";
  frame.src = %s;
  return document.body.appendChild(frame);
});
window.addEventListener("load", () => {
  const measured = frames.map((frame) => {
    const page = frame.contentDocument;
    const text = frame.sandbox.length ? page.body.innerText : "";
    for (const closed of page.querySelectorAll("details")) closed.open = true;
    const width = page.documentElement.clientWidth;
    const scroll_width = page.documentElement.scrollWidth;
    const inside = (each) => each.parentElement.closest("pre, .scroll");
    const too_wide = (each) => each.getBoundingClientRect().right > width && !inside(each);
    return {
      width,
      scroll_width,
      sticking_out: scroll_width <= width ? [] : [...page.querySelectorAll("main *")].filter(too_wide)
        .map((each) => each.outerHTML.slice(0, 120)),
      text_size_min: Math.min(...[...page.querySelectorAll("p, small, small > code")].map((each) => parseFloat(
        frame.contentWindow.getComputedStyle(each).fontSize))),
      filter_shown: Boolean(page.getElementById("filter").offsetParent),
      scripts: page.scripts.length,
      pictures: page.images.length,
      text,
    };
  });
  document.body.textContent = JSON.stringify(measured);
});
</script>"""


@dataclass(frozen=True)
class Screen:
    """What the page is shown on."""

    width: int
    scripts: bool = True


@dataclass(frozen=True)
class Measured:
    """What became of the page on one screen. The text is read only where no script runs."""

    width: int
    scroll_width: int
    sticking_out: list[str]
    text_size_min: float
    filter_shown: bool
    scripts: int
    pictures: int
    text: str


@dataclass(frozen=True)
class Browser:
    """Chromium, with a profile of its own that goes with the test."""

    program: str
    room: Path

    def measure(self, page: Path, screens: Sequence[Screen]) -> list[Measured]:
        """The page on these screens: its text as it is shown at first, its sizes with everything in it opened."""
        wrapper = self.room / "wrapper.html"
        asked = json.dumps([asdict(screen) for screen in screens])
        wrapper.write_text(_WRAPPER % (asked, json.dumps(page.as_uri())), encoding="utf-8")
        document = self._run(wrapper, "--dump-dom", "--virtual-time-budget=5000", "--allow-file-access-from-files")
        found = re.search(r"<body>(\[.*\])\s*</body>", document, re.DOTALL)
        assert found, f"The browser measured nothing: {document[:400]}"
        return [Measured(**each) for each in json.loads(unescape(found[1]))]

    def screenshot(self, page: Path, width: int, height: int) -> bytes:
        """A picture of the top of the page, as PNG."""
        picture = self.room / f"{width}x{height}.png"
        self._run(page, f"--screenshot={picture}", f"--window-size={width},{height}", "--hide-scrollbars")
        return picture.read_bytes()

    def _run(self, page: Path, *flags: str) -> str:
        own = [f"--user-data-dir={self.room / 'profile'}", "--no-first-run", "--disable-extensions"]
        offline = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [self.program, "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", *sandbox, *own, *offline]
        ended = subprocess.run(
            [*command, *flags, page.as_uri()],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{self.program} ended with {ended.returncode}: {ended.stderr[-2000:]}"
        return ended.stdout


def find_browser() -> str | None:
    """The program, where there is one on the PATH."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)
