"""The pair sweep for people: a line for each schedule."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from failpoints.pairs.schedule import ScheduleResult

_VERDICTS = {"ok": "[green]ok[/]", "gap": "[bold yellow]gap[/]", "wrong": "[bold red]WRONG[/]"}


def where_of(result: ScheduleResult) -> str:
    """Which schedule it was, in words."""
    return f"{result.pair}, the {result.held} held {result.hold}"


def show_schedule(result: ScheduleResult, console: Console) -> None:
    """Who was held where, how both ended, and what is wrong with that."""
    endings = "; ".join(f"{side} {', '.join(kinds)}" for side, kinds in result.endings.items())
    order = f", as {result.order}" if result.order else ""
    held = f"[bold]{result.pair}[/], the {result.held} held {escape(str(result.hold))}"
    line = f"{held}: {escape(endings + order)}"
    console.print(f"{_VERDICTS[result.verdict]} {line} [dim]{result.seconds:.1f} s[/]", highlight=False, soft_wrap=True)
    if result.verdict == "wrong":
        words = f"      broke {', '.join(result.ids)} because {escape(result.because)}"
        console.print(words, highlight=False, soft_wrap=True)
    elif result.verdict == "gap":
        console.print(f"      a known gap: {escape(str(result.gap))}", highlight=False, soft_wrap=True)
