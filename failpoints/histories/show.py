"""A history for people: how its calls ended, and the few of them that contradict."""

from __future__ import annotations

from failpoints.histories.history import HistoryResult
from failpoints.histories.telling import Contradiction


def lines_of(result: HistoryResult) -> list[str]:
    """The result, a line each for the counts, the contradiction, and the calls that show it."""
    counted = ", ".join(f"{name} {number}" for name, number in result.counts.items() if number)
    lines = [f"seed {result.plan.seed}: {counted or 'nothing'}, in {result.seconds:.1f} s"]
    if isinstance(result.verdict, Contradiction):
        lines.append(f"broke {', '.join(result.verdict.ids)} because {result.verdict.because}")
        lines += [f"  {line.words}" for line in result.verdict.slice]
    else:
        lines.append("holds: one chain for each branch, every acknowledged commit once, and exactly the rows they make")
    return lines
