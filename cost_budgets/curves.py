"""Curves: what an operation costs as its graph grows, drawn as SVG that can be read without colour.

What was measured is a solid line with a mark at each point, one shape for each graph; what is allowed is dotted. Every
point has its number beside it, so nobody has to read it off an axis. Pure: lines in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape

from cost_budgets.formulas import VARIABLES
from cost_budgets.judging import Line

WIDTH: Final = 420
HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 26, 34
_DASHES: Final = {"optimized": "8 3", "branched": "2 3"}


def curve(lines: Sequence[Line]) -> Markup:
    """One measure of one operation, on all graphs that vary the same."""
    first = lines[0]
    xs = [point[first.along] for line in lines for point in line.variables]
    ys = [max(value, limit) for line in lines for value, limit in zip(line.values, line.limits, strict=True)]
    low, high, top = min(xs), max(xs), max(*ys, 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low) / (high - low) if high > low else 0.5
        width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return _LEFT + across * width, HEIGHT - _BOTTOM - y / top * height

    label = f"{first.measure} of {first.operation} by {VARIABLES[first.along]}"
    parts = [_axes(label, low, high, top, VARIABLES[first.along])]
    for line in lines:
        points = sorted(zip((each[line.along] for each in line.variables), line.values, line.limits, strict=True))
        allowed = [place(x, limit) for x, _, limit in points]
        measured = [place(x, value) for x, value, _ in points]
        parts.append(f'<polyline class="allowed" points="{_path(allowed)}"/>')
        dashes = _DASHES.get(line.ground, "")
        parts.append(f'<polyline class="measured" stroke-dasharray="{dashes}" points="{_path(measured)}"/>')
        for (x, y), (_, value, _) in zip(measured, points, strict=True):
            parts.append(_mark(line.ground, x, y))
            parts.append(f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="middle">{value}</text>')
    body = "".join(parts)
    return Markup(  # noqa: S704 - only numbers and escaped names are in it.
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'
    )


def _axes(label: str, low: float, high: float, top: float, along: str) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    return (
        f'<text class="title" x="{_LEFT}" y="14">{escape(label)}</text>'
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{top:g}</text>'
        f'<text x="{_LEFT}" y="{bottom + 16}">{low:g}</text>'
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{high:g} {escape(along)}</text>'
    )


def _mark(ground: str, x: float, y: float) -> str:
    if ground == "optimized":
        return f'<rect class="mark" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
