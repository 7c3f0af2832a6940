"""Curves: what an operation costs as its graph grows, drawn as SVG that can be read without colour.

There is a plot for each variable that grows: commits on one axis and branches on another. Every graph has a mark and a
dash of its own; what is allowed on it is dotted, with the same mark made smaller. Each line has its name at its end,
and every point its number beside it, so nobody has to read it off an axis. Pure: lines in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from cost_budgets.formulas import VARIABLES
from cost_budgets.judging import Line
from cost_budgets.operations import GROUNDS

WIDTH: Final = 480
HEIGHT: Final = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 118, 30, 38
# Letters are about so wide and high, in the units of the picture.
_LETTER, _LETTERS_HIGH = 6.2, 11.0
_DASHES: Final = ("none", "8 3", "12 3 2 3", "5 4", "2 3", "14 4", "8 3 2 3 2 3")
# Marks around a point, as paths: a circle, a square, triangles, a diamond, a cross and a star.
_MARKS: Final = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "m-3.5 -3.5h7v7h-7z",
    "m0 -4.5l4.2 7.5h-8.4z",
    "m0 -5l5 5l-5 5l-5 -5z",
    "m0 4.5l4.2 -7.5h-8.4z",
    "m-4 -4l8 8m-8 0l8 -8",
    "m-4.5 0h9m-4.5 -4.5v9m-3 -7.5l6 6m-6 0l6 -6",
)


class _Box(NamedTuple):
    """Where a text stands."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def drawn_of(lines: Sequence[Line]) -> list[Markup]:
    """The requests of each operation, a plot for each variable along which they were measured."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.measure == "requests" and line.bound == "at_most":
            found.setdefault((line.operation, line.along), []).append(line)
    # The plots of one operation stand beside each other.
    order = list(dict.fromkeys(operation for operation, _ in found))
    return [curve(found[key]) for key in sorted(found, key=lambda key: order.index(key[0]))]


def legend_of(lines: Sequence[Line]) -> list[tuple[Markup, str]]:
    """A sample of the line of every graph that is drawn, and its name."""
    return [(_sample(ground), ground) for ground in dict.fromkeys(line.ground for line in lines)]


def curve(lines: Sequence[Line]) -> Markup:
    """One measure of one operation, on all graphs on which the same variable grew."""
    first = lines[0]
    along = VARIABLES.get(first.along, first.along)
    xs = [point[first.along] for line in lines for point in line.variables]
    ys = [max(value, limit) for line in lines for value, limit in zip(line.values, line.limits, strict=True)]
    low, high, top = min(xs), max(xs), max(*ys, 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low) / (high - low) if high > low else 0.5
        width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return _LEFT + across * width, HEIGHT - _BOTTOM - y / top * height

    label = f"{first.measure} of {first.operation} by {along}"
    parts = [_axes(label, [(x, place(x, 0)[0]) for x in sorted(set(xs))], top, along)]
    ends: list[tuple[float, str]] = []
    numbers: list[tuple[float, float, int]] = []
    taken: list[_Box] = []
    for line in lines:
        points = sorted(zip((each[line.along] for each in line.variables), line.values, line.limits, strict=True))
        allowed = [place(x, limit) for x, _, limit in points]
        measured = [place(x, value) for x, value, _ in points]
        style = _style(line.ground)
        parts.append(f'<polyline class="allowed" points="{_path(allowed)}"/>')
        parts += [
            f'<path class="limit" transform="translate({x:.1f} {y:.1f}) scale(.6)" d="M0 0{_MARKS[style]}"/>'
            for x, y in allowed
        ]
        parts.append(f'<polyline class="measured" stroke-dasharray="{_DASHES[style]}" points="{_path(measured)}"/>')
        parts += [f'<path class="mark" d="M{x:.1f} {y:.1f}{_MARKS[style]}"/>' for x, y in measured]
        taken += [_Box(x - 5, y - 5, x + 5, y + 5) for x, y in measured]
        numbers += [(x, y, value) for (x, y), (_, value, _) in zip(measured, points, strict=True)]
        ends += [(allowed[-1][1], f"{line.ground} allowed"), (measured[-1][1], line.ground)]
    parts += [_number(x, y, value, taken) for x, y, value in sorted(numbers)]
    parts += [f'<text x="{WIDTH - _RIGHT + 10}" y="{y:.1f}">{escape(name)}</text>' for y, name in _apart(sorted(ends))]
    return _svg(WIDTH, HEIGHT, label, "".join(parts))


def _style(ground: str) -> int:
    return [*GROUNDS].index(ground) % len(_MARKS) if ground in GROUNDS else 0


def _sample(ground: str) -> Markup:
    style = _style(ground)
    body = (
        f'<polyline class="measured" stroke-dasharray="{_DASHES[style]}" points="2,8 58,8"/>'
        f'<path class="mark" d="M30 8{_MARKS[style]}"/>'
    )
    return _svg(60, 16, f"the line of {ground}", body)


def _svg(width: int, height: int, label: str, body: str) -> Markup:
    return Markup(  # noqa: S704 - only numbers and escaped names are in it.
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'
    )


def _axes(label: str, ticks: Sequence[tuple[float, float]], top: float, along: str) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = [
        f'<text class="title" x="{_LEFT}" y="14">{escape(label)}</text>',
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{top:g}</text>',
        f'<text x="{(_LEFT + right) / 2:.1f}" y="{bottom + 32}" text-anchor="middle">{escape(along)}</text>',
    ]
    # The last one is always named, and the others where they have room.
    until, named = right + _LETTER * 4, []
    for value, x in reversed(ticks):
        half = len(f"{value:g}") * _LETTER / 2
        if x + half < until:
            named.append((value, x))
            until = x - half - 4
    parts += [f'<path class="axis" d="M{x:.1f} {bottom}v4"/>' for _, x in ticks]
    parts += [f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>' for value, x in named]
    return "".join(parts)


def _number(x: float, y: float, value: int, taken: list[_Box]) -> str:
    """The number of a point: above it, or where there is room."""
    half = len(str(value)) * _LETTER / 2 + 2
    places = [(x + across, y + down) for down in (-8, 16, -19, 27) for across in (0.0, half + 4, -half - 4)]
    for at_x, at_y in places:
        box = _Box(at_x - half, at_y - _LETTERS_HIGH + 2, at_x + half, at_y)
        if box.left > _LEFT + 1 and box.bottom < HEIGHT - _BOTTOM and not any(box.meets(each) for each in taken):
            break
    else:
        at_x, at_y = places[0]
        box = _Box(at_x - half, at_y - _LETTERS_HIGH + 2, at_x + half, at_y)
    taken.append(box)
    return f'<text class="number" x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="middle">{value}</text>'


def _apart(ends: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The names of lines, from above to below, none on top of another, and none below the axis."""
    found: list[tuple[float, str]] = []
    for y, name in ends:
        found.append((max(y + 4, found[-1][0] + _LETTERS_HIGH + 1) if found else y + 4, name))
    lowest = HEIGHT - _BOTTOM + 2.0
    for number in reversed(range(len(found))):
        y, name = found[number]
        found[number] = (min(y, lowest), name)
        lowest = found[number][0] - _LETTERS_HIGH - 1
    return found


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
