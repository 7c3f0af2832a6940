"""Schemas to try the model with: texts that are whole, texts that are broken, and schemas that change step by step."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

PROPERTY_NAMES = ("a", "b", "c", "null", "_x")
TYPES = ("String", "I32", "U64", "F64", "Bool", "Date", "DateTime", "[String]", "enum(x, y-1, 2)", "Vector(2)", "Blob")
BOUNDS = ("0", "-1", "9", "10", "-0.0", "2.5", "10.25", "0.00001", "10000000000000000.0", "9007199254740993", "")

# -- texts -------------------------------------------------------------------------------------------------------

_notes = st.lists(
    st.sampled_from(["@note", '@note("ü\\"\\n")', "@note(7)", "@note(-1.50)", "@note(true)", '@description("d")']),
    max_size=2,
    unique=True,
)
_flags = st.sampled_from(["", "", "", "@index", "@index", "@unique", "@key", '@embed("a")', '@rename_from("b") @index'])


@st.composite
def _bodies(draw: st.DrawFn, *, rules: bool = True, ends: tuple[str, ...] = ()) -> str:
    """Properties and rules. Types and rules are drawn apart, so that they often do not fit and must be refused."""
    names = draw(st.lists(st.sampled_from(PROPERTY_NAMES), max_size=4, unique=True))
    parts = []
    for name in names:
        kind = draw(st.sampled_from(TYPES)) + draw(st.sampled_from(["", "?", "?"]))
        parts.append(f"{name}: {kind} {' '.join(draw(_notes))} {draw(_flags)}")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])) if rules and names else 0):
        parts.append(draw(_rules(tuple(names) + ends)))
    return "{ " + "\n  ".join(parts) + " }"


@st.composite
def _rules(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    name = draw(st.sampled_from(names))
    columns = ", ".join(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)))
    low, high = draw(st.sampled_from(BOUNDS)), draw(st.sampled_from(BOUNDS))
    pattern = draw(st.sampled_from(["^a$", "[", "x|", "(?i)é", "(?=a)", "\\\\d+", '\\"', "", "[[a]]", "a{2,1}"]))
    return draw(
        st.sampled_from(
            [
                f"@unique({columns})",
                f"@index({columns})",
                f"@key({columns})",
                f"@range({name}, {low}..{high})",
                f'@check({name}, "{pattern}")',
            ]
        )
    )


@st.composite
def schema_texts(draw: st.DrawFn) -> str:
    """Schemas that are read well, and mostly make sense."""
    interfaces = draw(st.lists(st.sampled_from(["I", "J"]), max_size=2, unique=True))
    parts = [f"interface {name} {draw(_bodies(rules=False))}" for name in interfaces]
    nodes = draw(st.lists(st.sampled_from(["A", "B", "I"]), min_size=1, max_size=3, unique=True))
    for name in nodes:
        promised = draw(st.lists(st.sampled_from(interfaces), max_size=2)) if interfaces else []
        more = f"implements {', '.join(promised)}" if promised else " ".join(draw(_notes))
        parts.append(f"node {name} {more} {draw(_bodies())}")
    for name in draw(st.lists(st.sampled_from(["E", "F", "A"]), max_size=2, unique=True)):
        source, target = draw(st.sampled_from(nodes)), draw(st.sampled_from([*nodes, *nodes, *nodes, "Z"]))
        card = draw(st.sampled_from(["", "", "@card(1..)", "@card(0..1)", "@card(3..3)", "@card(2..1)"]))
        more = draw(
            st.just("")
            | st.tuples(_notes, _bodies(ends=("src", "dst"))).map(lambda both: f"{' '.join(both[0])} {both[1]}")
        )
        parts.append(f"edge {name}: {source} -> {target} {card} {more}")
    return draw(st.sampled_from(["\n", " // c\n", " /* } */ "])).join(draw(st.permutations(parts)))


_TOKENS = re.compile(r'\s+|"[^"]*"|\w+|->|\.\.|.', re.DOTALL)
_STRAY = (
    "", " ", "{", "}", "(", ")", "@", "?", ",", ":", "->", "..", ".", "-", "[", "]", '"', "/*", "//", "1", "x", "X",
    "node", "edge", "implements", "\x00", "\xa0", "\\", "Vector", "enum", "@key", "@card(1..2)", "id",
)  # fmt: skip


@st.composite
def broken_texts(draw: st.DrawFn) -> str:
    """Schemas with a word or a sign gone, doubled, replaced or astray; some of them still are schemas."""
    tokens = _TOKENS.findall(draw(schema_texts()))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(tokens) - 1))
        stray = draw(st.sampled_from(_STRAY))
        tokens[place : place + draw(st.integers(0, 2))] = draw(st.sampled_from([[], [stray], [stray, tokens[place]]]))
        tokens = tokens or [""]
    return "".join(tokens)


# -- schemas that change -----------------------------------------------------------------------------------------


@dataclass
class Column:
    type: str
    notes: list[str] = field(default_factory=list)
    renamed_from: str | None = None
    nullable: bool = True


@dataclass
class Sketch:
    """A node type or, with ends, an edge type, before it is written as text."""

    columns: dict[str, Column] = field(default_factory=dict)
    rules: list[tuple[str, list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    renamed_from: str | None = None
    ends: list[str] = field(default_factory=list)
    card: str = ""


Sketches = dict[str, Sketch]


def first_sketches() -> Sketches:
    """Two node types, one of them with a key, and an edge type."""
    return {
        "A": Sketch(
            {"k": Column("String", ["@key"], nullable=False), "a": Column("I32"), "b": Column("I32", ["@unique"])}
        ),
        "B": Sketch({"a": Column("String"), "b": Column("[F64]"), "c": Column("Blob")}),
        "E": Sketch({"a": Column("I32"), "b": Column("String")}, [("@unique", ["a", "src"])], ends=["A", "B"]),
    }


def text_of(sketches: Sketches) -> str:
    return "\n".join(_type_text(name, sketch) for name, sketch in sketches.items())


def _type_text(name: str, sketch: Sketch) -> str:
    notes = sketch.notes + _renamed(sketch.renamed_from)
    lines = [
        f"{column}: {each.type}{'?' if each.nullable else ''} {' '.join(each.notes + _renamed(each.renamed_from))}"
        for column, each in sketch.columns.items()
    ]
    lines += [f"{rule}({', '.join(columns)})" for rule, columns in sketch.rules]
    head = f"edge {name}: {' -> '.join(sketch.ends)} {sketch.card}" if sketch.ends else f"node {name}"
    return f"{head} {' '.join(notes)} {{ {' '.join(lines)} }}"


def _renamed(source: str | None) -> list[str]:
    return [] if source is None else [f'@rename_from("{source}")']


@st.composite
def changed(draw: st.DrawFn, sketches: Sketches) -> Sketches:
    """The sketches with one or two changes, of which most can be carried out."""
    found = copy.deepcopy(sketches)
    for _ in range(draw(st.integers(1, 2))):
        edits = _SAFE_EDITS * 3 + _OTHER_EDITS
        draw(st.sampled_from(edits))(draw, found)
    return found


def _rename_keys(items: dict[str, Any], now: dict[str, str]) -> None:
    renamed = {now.get(name, name): each for name, each in items.items()}
    items.clear()
    items.update(renamed)


def _any_type(draw: st.DrawFn, sketches: Sketches) -> Sketch:
    return sketches[draw(st.sampled_from(sorted(sketches)))]


def _add_column(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    free = [name for name in PROPERTY_NAMES if name not in sketch.columns]
    if free:
        sketch.columns[draw(st.sampled_from(free))] = Column(draw(st.sampled_from(TYPES)))


def _add_required_column(draw: st.DrawFn, sketches: Sketches) -> None:
    _any_type(draw, sketches).columns["must"] = Column("I32", nullable=False)


def _drop_column(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    ruled = {name for _, columns in sketch.rules for name in columns}
    plain = [name for name, each in sketch.columns.items() if not each.notes and name not in ruled]
    if plain:
        del sketch.columns[draw(st.sampled_from(sorted(plain)))]


def _rename_column(draw: st.DrawFn, sketches: Sketches) -> None:
    """Sometimes with a new column under the old name."""
    sketch = _any_type(draw, sketches)
    free = [name for name in (*PROPERTY_NAMES, "k", "z") if name not in sketch.columns]
    if not sketch.columns or not free:
        return
    old, new = draw(st.sampled_from(sorted(sketch.columns))), draw(st.sampled_from(free))
    _move_columns(sketch, {old: new})
    if draw(st.booleans()):
        sketch.columns[old] = Column(draw(st.sampled_from(TYPES)))


def _swap_columns(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    if len(sketch.columns) > 1:
        one, other = draw(st.permutations(sorted(sketch.columns)))[:2]
        _move_columns(sketch, {one: other, other: one})


def _move_columns(sketch: Sketch, now: dict[str, str]) -> None:
    _rename_keys(sketch.columns, now)
    for old, new in now.items():
        sketch.columns[new].renamed_from = old
    sketch.rules = [(rule, [now.get(name, name) for name in columns]) for rule, columns in sketch.rules]


def _retype_column(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    for name in sorted(sketch.columns)[:1]:
        sketch.columns[name].type = draw(st.sampled_from(["I64", "I32", "String"]))


def _toggle_note(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    note = draw(st.sampled_from(["@index", '@description("d")', "@note", "@unique"]))
    notes = sketch.notes
    if sketch.columns and (note in ("@index", "@unique") or draw(st.booleans())):
        notes = sketch.columns[draw(st.sampled_from(sorted(sketch.columns)))].notes
    notes.remove(note) if note in notes else notes.append(note)


def _index_rule(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    names = sorted(sketch.columns) + (["src"] if sketch.ends else [])
    if names:
        sketch.rules.append(("@index", draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))))


def _forget_renames(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    sketch.renamed_from = None
    for column in sketch.columns.values():
        column.renamed_from = None


def _bad_rename(draw: st.DrawFn, sketches: Sketches) -> None:
    sketch = _any_type(draw, sketches)
    if draw(st.booleans()):
        sketch.renamed_from = draw(st.sampled_from(["A", "B", "C", "Gone"]))
    elif sketch.columns:
        column = sketch.columns[draw(st.sampled_from(sorted(sketch.columns)))]
        column.renamed_from = draw(st.sampled_from(["a", "b", "k", "gone"]))


def _add_type(draw: st.DrawFn, sketches: Sketches) -> None:
    free = [name for name in "ABCDEF" if name not in sketches]
    nodes = [name for name, sketch in sketches.items() if not sketch.ends]
    if free:
        is_edge = bool(nodes) and draw(st.booleans())
        ends = [draw(st.sampled_from(nodes)) for _ in range(2)] if is_edge else []
        sketches[draw(st.sampled_from(free))] = Sketch({"a": Column("I32", nullable=not ends)}, ends=ends)


def _drop_type(draw: st.DrawFn, sketches: Sketches) -> None:
    if len(sketches) < 2:
        return
    gone = draw(st.sampled_from(sorted(sketches)))
    for name in [name for name, sketch in sketches.items() if name == gone or gone in sketch.ends]:
        del sketches[name]


def _rename_type(draw: st.DrawFn, sketches: Sketches) -> None:
    free = [name for name in "ABCDEF" if name not in sketches]
    if not sketches or not free:
        return
    old, new = draw(st.sampled_from(sorted(sketches))), draw(st.sampled_from(free))
    _move_types(sketches, {old: new})
    if draw(st.booleans()):
        sketches[old] = Sketch({"fresh": Column("String")})


def _swap_types(draw: st.DrawFn, sketches: Sketches) -> None:
    nodes = sorted(name for name, sketch in sketches.items() if not sketch.ends)
    if len(nodes) > 1:
        one, other = draw(st.permutations(nodes))[:2]
        _move_types(sketches, {one: other, other: one})


def _move_types(sketches: Sketches, now: dict[str, str]) -> None:
    _rename_keys(sketches, now)
    for old, new in now.items():
        sketches[new].renamed_from = old
    for sketch in sketches.values():
        sketch.ends = [now.get(name, name) for name in sketch.ends]


def _recount(draw: st.DrawFn, sketches: Sketches) -> None:
    for sketch in sketches.values():
        sketch.card = draw(st.sampled_from(["", "@card(0..9)"])) if sketch.ends else ""


def _reorder(draw: st.DrawFn, sketches: Sketches) -> None:
    names = draw(st.permutations(sorted(sketches)))
    ordered = {name: sketches[name] for name in names}
    sketches.clear()
    sketches.update(ordered)


Edit = Callable[[st.DrawFn, Sketches], None]
_SAFE_EDITS: list[Edit] = [
    _add_column, _drop_column, _rename_column, _swap_columns, _index_rule, _add_type, _drop_type, _rename_type,
    _swap_types,
]  # fmt: skip
_OTHER_EDITS: list[Edit] = [
    _add_required_column, _retype_column, _toggle_note, _toggle_note, _forget_renames, _bad_rename, _recount, _reorder,
]  # fmt: skip
