"""Curves: a plot for each variable that grows, and nothing in it that only colour would tell apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from cost_budgets.counters import Tally
from cost_budgets.counters.tests.test_tally import exchange
from cost_budgets.curves import HEIGHT, WIDTH, drawn_of, legend_of
from cost_budgets.judging import Line, judge
from cost_budgets.measuring import Measured, Point
from cost_budgets.operations import Ground
from cost_budgets.tests.test_judging import budget

# Within the axes, and of the names at the ends of lines as far as the picture goes.
_AXIS = re.compile(r'class="axis" d="M(\d+) (\d+)V(\d+)H(\d+)"')


def lines_on(ground: Ground, variable: str, *places: tuple[float, int], **more: float) -> list[Line]:
    """The requests of one operation where a variable grew."""
    points = []
    for at, requests in places:
        variables = {"T": 1.0, "H": 100.0 + at, "B": 0.0, "R": 1.0, "F": 0.0, **more, variable: at}
        points.append(Point(variables, Tally.of([exchange("GET", "table data", "nodes/aa")] * requests)))
    return judge(Measured({("insert-node", ground): points}), budget(at_most={"requests": "40"}))


def three_graphs() -> list[Line]:
    grown = lines_on("grown", "H", (10, 20), (50, 26), (200, 33))
    optimized = lines_on("optimized", "H", (14, 19), (55, 19), (230, 19))
    return [*grown, *lines_on("branched", "B", (4, 20), (8, 21), (12, 22)), *optimized]


def places_in(drawn: Markup) -> list[tuple[float, float]]:
    lines = re.findall(r'<polyline class="(?:measured|allowed)"[^>]* points="([^"]+)"', drawn)
    numbers = [pair.split(",") for line in lines for pair in line.split()]
    return [(float(x), float(y)) for x, y in numbers]


def test_branches_have_a_plot_of_their_own_beside_that_of_commits() -> None:
    by_commits, by_branches = drawn_of(three_graphs())
    assert 'aria-label="requests of insert-node by commits of main"' in by_commits
    assert 'aria-label="requests of insert-node by branches besides main"' in by_branches
    assert ">branched</text>" in by_branches and "branched" not in by_commits
    assert all(f">{number}</text>" in by_branches for number in (4, 8, 12, 20, 21, 22))


def test_everything_that_is_drawn_is_within_the_axes() -> None:
    for drawn in drawn_of(three_graphs()):
        axis = _AXIS.search(drawn)
        assert axis is not None
        left, top, bottom, right = map(int, axis.groups())
        assert [at for at in places_in(drawn) if not (left <= at[0] <= right and top <= at[1] <= bottom)] == []
        texts = re.findall(r'<text[^>]* x="([\d.-]+)" y="([\d.-]+)"', drawn)
        assert [at for at in texts if not (0 <= float(at[0]) <= WIDTH and 0 <= float(at[1]) <= HEIGHT)] == []


def test_graphs_differ_in_mark_and_dash_and_every_line_has_its_name_at_its_end() -> None:
    by_commits, _ = drawn_of(three_graphs())
    dashes = re.findall(r'class="measured" stroke-dasharray="([^"]+)"', by_commits)
    marks = set(re.findall(r'class="mark" d="M[\d.]+ [\d.]+([^"]+)"', by_commits))
    assert len(dashes) == len(set(dashes)) == len(marks) == 2
    names = [text for text in texts_of(by_commits) if text.startswith(("grown", "optimized"))]
    assert sorted(names) == ["grown", "grown allowed", "optimized", "optimized allowed"]


def texts_of(drawn: Markup) -> Sequence[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


def test_numbers_and_names_do_not_lie_on_each_other() -> None:
    close = [
        *lines_on("grown", "H", (10, 20), (11, 20), (200, 20)),
        *lines_on("optimized", "H", (10, 19), (11, 20), (200, 19)),
    ]
    (drawn,) = drawn_of(close)
    found = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    boxes = [(float(x), float(y)) for x, y, _ in found]
    near = [
        (one, other)
        for number, one in enumerate(boxes)
        for other in boxes[number + 1 :]
        if abs(one[0] - other[0]) < 8 and abs(one[1] - other[1]) < 8
    ]
    assert near == []


def test_the_legend_has_a_sample_of_each_graph() -> None:
    samples = legend_of(three_graphs())
    assert [name for _, name in samples] == ["grown", "branched", "optimized"]
    assert len({str(sample) for sample, _ in samples}) == 3
