"""How far a measurement is: seen on a terminal, and nowhere else."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cost_budgets.progress import progress_bar


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_sees_what_is_measured_and_how_far_it_is(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = io.StringIO()
    console = Console(file=text, force_terminal=is_terminal, width=120)
    with progress_bar("reference on moto", 2, console) as told:
        for name in ("warm-read, grown at 5", "warm-read, grown at 15", "warm-read, grown at 5"):
            told(name)
    if is_terminal:
        assert "reference on moto: warm-read, grown at 5" in text.getvalue()
        assert "2/3" in text.getvalue(), "what is measured once more is a step more"
    else:
        assert text.getvalue().strip() == ""
