"""Dependencies point one way, and the engine stays small enough to read.

    format, schema <- storage <- protocol <- operations <- pipeline

The rules are data (`RULES`), the check is a function of a module's name and its text, and the first test feeds it bad
modules: a check that cannot fail checks nothing.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("reference", "conformance", "failpoints", "cost_budgets", "fixtures")
FILE_LINES_MAX = 500
ENGINE_LINES_MAX = 6000

BASE = ("reference.errors", "reference.format", "reference.schema")
FAILPOINTS = ("reference.failpoint", "failpoints.registry", "failpoints.names")
STORAGE = (*BASE, "reference.storage")
PROTOCOL = (*STORAGE, *FAILPOINTS, "reference.protocol")
OPERATIONS = (*PROTOCOL, "reference.operations")


@dataclass(frozen=True)
class Rule:
    """Modules below `room` may import, of this project, only what is below `allowed`."""

    room: str
    allowed: tuple[str, ...]
    io: frozenset[str] = frozenset({"lance"})


# The first rule whose room holds the module decides.
RULES = (
    Rule("reference.errors", ()),
    Rule("reference.failpoint", ("reference.errors", "failpoints.registry", "failpoints.names")),
    Rule("reference.format", BASE, io=frozenset()),
    Rule("reference.schema", BASE, io=frozenset()),
    Rule("reference.storage", STORAGE, io=frozenset({"lance", "obstore"})),
    Rule("reference.protocol", PROTOCOL),
    Rule("reference.operations", OPERATIONS),
    # The audit on Spark is the auditor's: one definition of its rules and findings.
    Rule("reference.pipeline.audit", ("reference", *FAILPOINTS, "conformance.audit")),
    Rule("reference.pipeline.audit_rows", ("reference", *FAILPOINTS, "conformance.audit")),
    Rule("reference.pipeline.audit_suspects", ("reference", *FAILPOINTS, "conformance.audit")),
    Rule("reference.pipeline", ("reference", *FAILPOINTS)),
    Rule("reference", ("reference", *FAILPOINTS)),
    Rule("conformance.adapters.reference", ROOMS),
    Rule("conformance", ("conformance", "failpoints", "cost_budgets", "fixtures"), io=frozenset({"lance", "obstore"})),
    Rule("failpoints", ("failpoints", "conformance", "fixtures"), io=frozenset({"lance", "obstore"})),
    Rule("cost_budgets", ("cost_budgets", "conformance", "failpoints", "fixtures"), io=frozenset({"lance", "obstore"})),
    Rule("fixtures.mutants", ROOMS, io=frozenset({"lance", "obstore"})),
    Rule("fixtures", ("fixtures", "conformance"), io=frozenset({"lance", "obstore"})),
)


def below(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def imported(module: str, tree: ast.AST, *, is_package: bool = False) -> Iterator[tuple[str, str | None]]:
    """Each import as (module, name), the name being None for `import module`. Relative imports are resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.split(".")
                anchor = parts[: len(parts) - node.level + is_package]
                source = ".".join([*anchor, *filter(None, [node.module])])
            yield from ((source, alias.name) for alias in node.names)


def is_pure_lance(source: str, name: str | None, tree: ast.AST) -> bool:
    """Whether an import of Lance takes nothing from it but the blob column type, which is no I/O."""
    if source == "lance.blob":
        return True
    if name is not None:
        return source == "lance" and name.startswith(("blob", "Blob"))
    uses = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lance"
    ]
    return source == "lance" and all(use.startswith(("blob", "Blob")) for use in uses)


def violations(module: str, text: str, *, is_package: bool = False) -> list[str]:
    """What a module imports that its room may not, in words."""
    rule = next(rule for rule in RULES if below(module, (rule.room,)))
    tree = ast.parse(text)
    found: list[str] = []
    for source, name in imported(module, tree, is_package=is_package):
        top = source.partition(".")[0]
        full = source if name is None else f"{source}.{name}"
        if top in ROOMS and not (below(source, rule.allowed) or below(full, rule.allowed)):
            found.append(f"{module} imports {full}, which {rule.room} must not know")
        elif top == "obstore" and top not in rule.io:
            found.append(f"{module} imports {full}: only storage touches the object store")
        elif top == "lance" and top not in rule.io and not is_pure_lance(source, name, tree):
            found.append(f"{module} imports {full}: {rule.room} is pure and reads no tables")
    return found


def modules() -> list[tuple[str, Path]]:
    """Every module of the project, tests and benchmarks aside."""
    found = []
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not {"tests", "benchmarks"} & set(parts[:-1]):
            found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("reference.format.names", "from reference.storage.objects import TextObjects"),
        ("reference.format.names", "import reference.protocol"),
        ("reference.format.names", "from ..storage import objects"),
        ("reference.format.names", "from reference import storage"),
        ("reference.format.names", "import lance\nlance.dataset('x')"),
        ("reference.format.names", "from lance import LanceDataset"),
        ("reference.format.names", "def late():\n    import obstore"),
        ("reference.schema.types", "from lance.fragment import write_fragments"),
        ("reference.storage.tables", "from reference.protocol.publish import publish"),
        ("reference.storage.tables", "from failpoints.registry import fire"),
        ("reference.protocol.publish", "from reference.operations import load"),
        ("reference.protocol.publish", "import obstore"),
        ("reference.protocol.publish", "from failpoints.gate import Gate"),
        ("reference.operations.load", "from reference.pipeline import spark"),
        ("reference.operations.load", "from conformance.model import Model"),
        ("reference.pipeline.export", "from conformance.audit import audit"),
        ("reference.pipeline.audit", "from conformance.judge import Engine"),
        ("reference.cli", "import cost_budgets.counters"),
        ("reference.cli", "from fixtures import golden"),
        ("conformance.audit.reader", "from reference.format.names import TableKey"),
        ("conformance.adapters.other", "import reference"),
        ("failpoints.registry", "from reference.errors import InjectedFailure"),
        ("cost_budgets.counters", "import reference.cli"),
        ("fixtures.old_graphs", "from reference.format import manifest"),
    ],
)
def test_a_bad_import_is_found(module: str, text: str) -> None:
    assert len(violations(module, text)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("reference.schema.types", "import lance\nlance.blob_field('x')"),
        ("reference.schema.types", "from lance.blob import BlobType\nfrom reference.format.names import fnv1a_32"),
        ("reference.format.values", "from reference.schema import types\nfrom .names import TableKey"),
        ("reference.storage.objects", "import obstore\nfrom reference.errors import NotFound"),
        ("reference.protocol.publish", "from failpoints import registry, names\nfrom reference.failpoint import fire"),
        ("conformance.adapters.reference", "from reference.operations.load import load"),
        ("fixtures.mutants.no_sidecar", "from reference.protocol import sidecars"),
    ],
)
def test_a_good_import_is_left_alone(module: str, text: str) -> None:
    assert violations(module, text) == []


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    assert violations("reference.format", "from . import names", is_package=True) == []
    assert violations("reference.format", "from ..storage import tables", is_package=True) != []


def test_imports_point_one_way() -> None:
    found = [
        sentence
        for module, path in modules()
        for sentence in violations(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]
    assert found == [], "\n".join(found)


def test_the_walk_sees_the_engine() -> None:
    assert {"reference.errors", "reference.storage.objects", "failpoints.registry"} <= {name for name, _ in modules()}


def test_every_file_of_the_engine_can_be_read_in_one_sitting() -> None:
    long = {name: lines for name, lines in engine_lines().items() if lines > FILE_LINES_MAX}
    assert long == {}, f"split what is over {FILE_LINES_MAX} lines: {long}"


def test_the_engine_can_be_read_in_an_afternoon() -> None:
    """Lines of code: what explains them (docstrings, comments) and what spaces them out is free [decision 005]."""
    beside = ("reference.pipeline", "reference.cli", "reference.driver", "reference.schema")
    lines = {
        name: code_lines(path) for name, path in modules() if below(name, ("reference",)) and not below(name, beside)
    }
    assert sum(lines.values()) < ENGINE_LINES_MAX, f"the engine has {sum(lines.values())} lines of code"


def test_only_code_counts_as_code(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Says\nwhat."""\n\n# Why.\ndef f() -> None:\n    """Doc."""\n    return (\n        None\n    )  # End.\n'
    )
    assert code_lines(module) == 4


def code_lines(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    explained: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            explained.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    beside_code = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in beside_code:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - explained)


def engine_lines() -> dict[str, int]:
    return {
        name: len(path.read_text(encoding="utf-8").splitlines())
        for name, path in modules()
        if below(name, ("reference",))
    }
