"""Files of budgets: what is in the kit's own, and how a mistake is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost_budgets.budgets import BudgetError, read_budgets
from cost_budgets.operations import OPERATIONS
from cost_budgets.yardstick import PUBLIC
from fixtures.mutants import MUTANTS

COSTLY = {name for name, each in MUTANTS.items() if "cost" in each.caught_by}


def test_every_operation_has_a_budget_for_its_requests() -> None:
    budgets = read_budgets()
    assert budgets.keys() == OPERATIONS.keys()
    assert all("requests" in budget.at_most for budget in budgets.values())


def test_every_costly_engine_is_named_by_a_budget_and_each_budget_names_one() -> None:
    budgets = read_budgets()
    assert {name for budget in budgets.values() for name in budget.tripwires} == COSTLY
    assert [name for name, budget in budgets.items() if not budget.tripwires] == []


def test_whoever_writes_or_starts_has_to_ask_for_something() -> None:
    """Who answers from memory and writes later would keep every ceiling."""
    budgets = read_budgets()
    writers = {name for name, each in OPERATIONS.items() if each.rows or "branch_delete" in each.needs}
    writers |= {"branch-create", "cold-branch-create", "load-rows"}
    assert [name for name in writers if not {"writes", "manifest"} <= budgets[name].at_least.keys()] == []
    cold = [name for name, each in OPERATIONS.items() if each.cold]
    assert [name for name in cold if "reads" not in budgets[name].at_least] == []


def test_whatever_may_look_at_branches_is_measured_among_more_and_more_of_them() -> None:
    merges = [name for name, each in OPERATIONS.items() if "merge" in each.needs and "loads" not in each.grounds]
    names = [*merges, "first-write", "cold-first-write", "branch-delete", "cold-branch-delete", "cleanup"]
    assert [name for name in names if "branched" not in OPERATIONS[name].grounds] == []


def test_requests_have_no_term_for_history() -> None:
    formulas = [
        (name, measure, formula)
        for name, budget in read_budgets().items()
        for limits in (budget.at_most, budget.after_optimize)
        for measure, formula in limits.items()
        if "H" in formula.slopes
    ]
    assert formulas and {measure for _, measure, _ in formulas} <= {"bytes fetched", "bytes written"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_budget_is_far_below_what_the_public_engine_needs_without_an_optimize(name: str) -> None:
    deep = {"T": 1.0, "H": 80.0, "B": 1.0, "R": 1.0, "F": 80.0}
    assert read_budgets()[name].at_most["requests"].at(deep) < PUBLIC[name]["grown"] / 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[insert-mode]\nguards = ["COST-01"]\n', ":1: there is no operation 'insert-mode'; there are"),
        ('[insert-node]\nguards = ["COST-99"]\nat_most = { GET = 1 }\n', ":2: there is no requirement 'COST-99'"),
        ('[insert-node]\nat_most = { GET = 1 }\n', "names no requirement that it guards"),
        ('[insert-node]\nguards = ["COST-01"]\n', ":1: the budget of 'insert-node' limits nothing"),
        (
            '[update]\nguards = ["COST-01"]\nat_most = { GET = 1 }\n\n[insert-node]\nguards = ["COST-01"]\n'
            'at_most = { GET = "2 Q" }\n',
            ":7: there is no variable 'Q'",
        ),
        (
            '[insert-node]\nguards = ["COST-01"]\n[insert-node.at_most]\nPUT = "1"\nGETS = "1"\n',
            ":5: nothing is counted as 'GETS'",
        ),
        ('[insert-node]\nguards = ["COST-01"]\nceiling = 4\n', ":3: there is no 'ceiling' in a budget"),
        ('[insert-node]\nguards = "COST-01"\n', ":2: 'guards' is no list of names"),
        ('[insert-node]\nguards = ["COST-01"]\nat_most = 3\n', ":3: 'at_most' is no table of formulas"),
        (
            '[insert-node]\nguards = ["COST-01"]\ntripwires = ["nobody"]\nat_most = { GET = 1 }\n',
            ":3: there is no costly engine 'nobody'",
        ),
        (
            '[payload-read]\nguards = ["COST-01"]\nat_most = { GET = 1 }\nafter_optimize = { GET = 1 }\n',
            ":4: 'payload-read' is not measured after an optimize",
        ),
        (
            '[insert-node]\n# at_most = { GET = 3 } was\nguards = ["COST-01"]\nat_most = { GET = "3 Q" }\n',
            ":4: there is no variable 'Q'",
        ),
        ('# c\n\ninsert-mode.guards = ["COST-01"]\n', ":3: there is no operation 'insert-mode'"),
        (
            '# c\n\ninsert-node.guards = ["COST-01"]\ninsert-node.at_most.GET = "2 Q"\n',
            ":4: there is no variable 'Q'",
        ),
        (
            '\ninsert-node = { guards = ["COST-01"], at_most = { GET = "2 Q" } }\n',
            ":2: there is no variable 'Q'",
        ),
        (
            '[insert-node]\nguards = [\n "COST-01",\n "COST-99", # two\n]\nat_most = { GET = 1 }\n',
            ":4: there is no requirement 'COST-99'",
        ),
        (
            '[insert-node]\nguards = ["COST-01"]\nat_least = { GET = "1" }\nat_most = { GET = "1 X" }\n',
            ":4: there is no variable 'X'",
        ),
        (
            '[insert-node]\nguards = ["COST-01"]\nat_most = { GET = 1 }\nat_least = { GET = 5 }\n',
            ":4: 'GET' must be at least 5 and at most 1: nothing can be both",
        ),
        *(
            (f'[insert-node]\nguards = ["COST-01"]\nat_most = {{ GET = {given} }}\n', f":3: {shown} cannot be counted")
            for given, shown in [("1e20", "1e+20"), ("nan", "nan"), ("-1", "-1")]
        ),
        (
            f'[insert-node]\nguards = ["COST-01"]\nat_most = {{ GET = "{"9" * 400}" }}\n',
            f":3: '{'9' * 40}…' is more than anybody counts",
        ),
        ('[insert-node]\nguards = ["COST-01"]\nat_most = { GET = "\u0663 H" }\n', ":3: '\u0663 H' in"),
        (
            '[insert-node]\nguards = ["COST-01",\n  "COST-01"]\nat_most = { GET = 1 }\n',
            ":2: 'COST-01' stands in 'guards' twice",
        ),
        *(
            (f'[insert-node]\nguards = ["COST-01"]\nat_most = {{ GET = {number} }}\n', words)
            for number, words in [
                ("9" * 400, ":3: one of hundreds of digits cannot be counted"),
                ("-" + "9" * 400, ":3: one of hundreds of digits cannot be counted"),
                ("0x" + "f" * 5000, ":3: one of hundreds of digits cannot be counted"),
                ("9" * 5000, ":3: a number has more digits than anybody counts to"),
                ("[" * 5000 + "]" * 5000, ":3: is nested deeper than any budget is"),
            ]
        ),
        (
            '[insert-node]\nguards = ["COST-01"]\nafter_optimize = { GET = 5 }\nat_least = { GET = 9 }\n',
            ":4: 'GET' must be at least 9 and at most 5: nothing can be both",
        ),
        (
            '[warm-read]\nguards = ["COST-01"]\nat_most = { GET = "T + F" }\nat_least = { GET = 1 }\n',
            ":4: 'GET' must be at least 1 and at most T + F: nothing can be both",
        ),
        (
            '# c\n["insert\\u002dnode"]\nguards = ["COST-01"]\n\nat_most = { GET = "2 Q" }\n',
            ":5: there is no variable 'Q'",
        ),
        (
            '[insert-node]\nguards = ["COST-01"]\nat_most = { LIST = 1 }\nbounded = ["LISTX"]\n',
            ":4: nothing is counted as 'LISTX'; there are",
        ),
        ('\ufeff[insert-node]\nguards = ["COST-01"]\n', ":1: begins with a byte order mark"),
        ("# nothing\n", "has no budget in it"),
        ("insert-node = 3\n", "the budget of 'insert-node' is no table"),
        ("[insert-node\n", ":1: is no TOML: Expected ']' at the end of a table declaration"),
        (
            '[insert-node]\nguards = ["COST-01"]\nat_most = { GET = 1 }\nguards = ["COST-01"]\n',
            ":4: is no TOML: Cannot overwrite a value",
        ),
        ('[insert-node]\nguards = [\n "COST-01",\n', ":3: is no TOML: "),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text(text)
    with pytest.raises(BudgetError) as refused:
        read_budgets(path)
    assert words in str(refused.value)
    assert str(refused.value).startswith(str(path))


@pytest.mark.parametrize("name", ["load-rows", "merge-rows"])
def test_where_rows_are_varied_a_ceiling_for_each_row_may_be_met(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    limits = 'at_least = { writes = "1" }\nat_most = { writes = "0.5 R" }\n'
    path.write_text(f'[{name}]\nguards = ["COST-04"]\n{limits}')
    assert read_budgets(path).keys() == {name}


def test_what_is_nested_without_end_is_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[update]\nguards = ["COST-04"]\nat_most.requests{".a" * 3000} = 1\n')
    with pytest.raises(BudgetError, match="is no formula"):
        read_budgets(path)


def test_a_budget_may_hold_only_after_an_optimize(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text('[insert-node]\nguards = ["COST-01"]\nafter_optimize = { GET = 1 }\n')
    assert list(read_budgets(path)["insert-node"].after_optimize) == ["GET"]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.toml"
    with pytest.raises(BudgetError) as refused:
        read_budgets(path)
    assert str(refused.value) == f"{path}: cannot be read: No such file or directory"


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_bytes(b"[insert-node]\xff")
    with pytest.raises(BudgetError) as refused:
        read_budgets(path)
    assert str(refused.value) == f"{path}: is no text in UTF-8: invalid start byte at byte 13"
