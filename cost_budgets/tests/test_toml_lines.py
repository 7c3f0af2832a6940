"""Where everything in a TOML file stands."""

from __future__ import annotations

import pytest

from cost_budgets.toml_lines import lines_of


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[a]\nb = { c = 1 }", {("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 2}),
        ('a = """\n[b]\n"""\n[b]\nc = 1', {("a",): 1, ("b",): 4, ("b", "c"): 5}),
        ("a = '''\n[b]\n'''\n[b]\nc = 1", {("a",): 1, ("b",): 4, ("b", "c"): 5}),
        ('a = """\n\\"""\n[b]"""""\n[b]\n', {("a",): 1, ("b",): 4}),
        ('\n["a\\u002db"]\n"c\\"d" = 1', {("a-b",): 2, ("a-b", 'c"d'): 3}),
    ],
)
def test_every_name_has_the_line_on_which_it_stands(text: str, lines: dict[tuple[str, ...], int]) -> None:
    assert lines_of(text) == lines
