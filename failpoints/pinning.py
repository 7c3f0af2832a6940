"""`touchstone pin`: a trace becomes a regression test, which lives beside it and needs nothing else."""

from __future__ import annotations

import io
import re
from pathlib import Path
from string import Template
from typing import Final

from conformance.runner.redaction import HIDDEN
from conformance.traces import as_text, read_trace, write_whole

_TEST: Final = Template('''"""Pinned by `touchstone pin`: $broke must hold where it once did not.

$because
"""

from __future__ import annotations

from pathlib import Path

from failpoints.pinning import check_pinned

TRACE = Path(__file__).with_name("$trace")


def test_$name() -> None:
    check_pinned(TRACE, engine=$engine, store=$store)
''')
_BECAUSE_MAX: Final = 400
_COLUMNS: Final = 200
_TIMEOUT_SECONDS: Final = 120.0


class PinError(ValueError):
    """A trace that cannot be pinned there: what is in the way."""


def pin(trace: Path, into: Path, *, engine: str, store: str | None) -> Path:
    """Write the trace and its test into a folder; the test's path. Nothing that is there is overwritten."""
    body = read_trace(trace)
    if HIDDEN in engine:
        raise PinError("the trace keeps no secrets, and its engine had one: name the engine with --engine")
    name = re.sub(r"[^a-z0-9]+", "_", str(body["test"]).lower()).strip("_") or "trace"
    test, copy = into / f"test_pinned_{name}.py", into / f"pinned_{name}.json"
    for path in (test, copy):
        if path.exists():
            raise PinError(f"{path} is there already: remove it, or give another folder with --into")
    try:
        into.mkdir(parents=True, exist_ok=True)
        write_whole(copy, as_text(body))
        write_whole(
            test,
            _TEST.substitute(
                broke=", ".join(body["broke"]) or "what is required",
                because=_one_line(str(body.get("because", ""))),
                trace=copy.name,
                name=name,
                engine=repr(engine),
                store=repr(store),
            ),
        )
    except OSError as error:
        # A trace without its test pins nothing, and would be in the way of the next attempt.
        copy.unlink(missing_ok=True)
        raise PinError(f"{into} cannot be written: {error.strerror}") from None
    return test


def check_pinned(trace: Path, *, engine: str, store: str | None) -> None:
    """What a pinned test does: replay, and fail with the words of whatever it breaks."""
    from rich.console import Console

    from conformance.replay import replay

    said = io.StringIO()
    console = Console(file=said, width=_COLUMNS)
    code = replay(read_trace(trace), engine=engine, store=store, timeout_seconds=_TIMEOUT_SECONDS, console=console)
    assert code == 0, said.getvalue()


def _one_line(text: str) -> str:
    line = " ".join(text.replace("\\", "/").replace('"""', "'''").split())
    return line if len(line) <= _BECAUSE_MAX else f"{line[:_BECAUSE_MAX]}…"
