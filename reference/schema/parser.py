"""From `.pg` text to declarations.

Only the shape of the text is judged here. Every refusal is a `SchemaError` with the place and what would have been
accepted there; no exception of the parser generator leaves this module [VAL-13].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from reference.schema.declarations import ConstraintDeclaration, Declaration, PropertyDeclaration, Reference
from reference.schema.errors import INVALID, SYNTAX, Position, SchemaError
from reference.schema.types import SCALARS, VECTOR_DIMENSIONS_MAX, Annotation, PropertyType

_GRAMMAR = Lark(
    Path(__file__).with_name("grammar.lark").read_text(),
    start="schema",
    parser="lalr",
    lexer="contextual",
    maybe_placeholders=False,
)

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_CARDINALITY_MAX = 2**32 - 1
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}

_TYPE_HINT = f"use one of {', '.join(sorted(SCALARS))}, Vector(d), enum(a, b) or [T]"
_UNCLOSED = (
    ('"', "this string is not closed", 'close the string with "'),
    ("/*", "this comment is not closed", "close the comment with */"),
    ("\ufeff", "the schema starts with a byte order mark", "save the schema as UTF-8 without one"),
)

# What a reader calls the terminals that have no spelling of their own.
_TERMINALS = {
    "$END": "the end of the schema",
    "TYPE_NAME": "a type name such as Person",
    "PROPERTY_NAME": "a property name such as age",
    "ANNOTATION": "an @annotation",
    "COLUMNS": "a constraint",
    "RANGE": "a constraint",
    "CHECK": "a constraint",
    "CARD": "@card(…)",
    "STRING": 'a "string"',
    "INTEGER": "a number",
    "FLOAT": "a number",
    "ENUM_VALUE": "a value",
    "VECTOR": "Vector(d)",
    "LBRACE": "{",
    "RBRACE": "}",
    "LPAR": "(",
    "RPAR": ")",
    "LSQB": "[T]",
    "RSQB": "]",
    "COLON": ":",
    "COMMA": ",",
    "DOTS": "..",
    "__ANON_0": "->",
    "__ANON_1": "..",
    "NULLABLE": "?",
}


def parse(source: str) -> tuple[Declaration, ...]:
    """Read a schema; an empty one has no declarations."""
    try:
        source.encode()
    except UnicodeEncodeError as error:
        at = _position_of(source, error.start)
        raise SchemaError(
            "this character is half of a surrogate pair, not text",
            code=SYNTAX,
            source=source,
            at=at,
            hint="save the schema as UTF-8",
        ) from None
    try:
        tree = _GRAMMAR.parse(source)
    except UnexpectedInput as error:
        raise _syntax_error(source, error) from None
    return _Reader(source).declarations(tree)


def _position_of(source: str, offset: int) -> Position:
    before = source[:offset]
    return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)


def _syntax_error(source: str, error: UnexpectedInput) -> SchemaError:
    offset, what = len(source.rstrip()), "the schema ends too early"
    expected: Iterable[str] = ()
    if isinstance(error, UnexpectedToken):
        expected = error.accepts or error.expected
        if error.token.type != "$END":
            offset, what = error.token.start_pos or 0, f"'{_shortened(error.token)}' does not belong here"
    elif isinstance(error, UnexpectedCharacters):
        offset, expected = error.pos_in_stream, error.allowed  # type: ignore[assignment]
        what = f"{_shown(source[offset])} does not belong here"
    hint = f"expected {_alternatives(expected)}"
    if isinstance(error, UnexpectedCharacters):
        # Only an unclosed string or comment fails on its first character: a closed one is a token.
        for opening, thing, remedy in _UNCLOSED:
            if source.startswith(opening, offset):
                what, hint = thing, remedy
    return SchemaError(what, code=SYNTAX, source=source, at=_position_of(source, offset), hint=hint)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _shown(char: str) -> str:
    return f"'{char}'" if char.isprintable() else f"the character U+{ord(char):04X}"


def _alternatives(terminals: Iterable[str]) -> str:
    names = sorted({_TERMINALS.get(each, each.lower()) for each in terminals})
    return ", ".join(names[:-1]) + (" or " if names[1:] else "") + names[-1] if names else "nothing more"


class _Reader:
    """Turns the parse tree of one source into declarations; the source is only needed to show mistakes."""

    def __init__(self, source: str) -> None:
        self._source = source

    def declarations(self, tree: Tree[Token]) -> tuple[Declaration, ...]:
        read: dict[str, Callable[[list[Any]], Declaration]] = {
            "interface": self._interface,
            "node": self._node,
            "edge": self._edge,
        }
        return tuple(read[each.data](each.children) for each in tree.children if isinstance(each, Tree))

    def _interface(self, children: list[Any]) -> Declaration:
        _, name, *members = children
        return Declaration("interface", str(name), self._properties(members), at=_at(name))

    def _node(self, children: list[Any]) -> Declaration:
        _, name, *members = children
        clauses = [Reference(str(each), _at(each)) for clause in _named(members, "implements") for each in clause[1:]]
        return Declaration(
            "node",
            str(name),
            self._properties(members),
            self._constraints(members),
            self._annotations(members),
            implements=tuple(clauses),
            at=_at(name),
        )

    def _edge(self, children: list[Any]) -> Declaration:
        _, name, source, target, *members = children
        minimum, maximum, cardinality_at = 0, None, None
        for card, *bounds in _named(members, "cardinality"):
            limits = [self._integer(each, 0, _CARDINALITY_MAX) for each in bounds]
            minimum, maximum = limits[0], limits[1] if len(limits) == 2 else None
            cardinality_at = _at(card)
        return Declaration(
            "edge",
            str(name),
            self._properties(members),
            self._constraints(members),
            self._annotations(members),
            endpoints=(Reference(str(source), _at(source)), Reference(str(target), _at(target))),
            cardinality_min=minimum,
            cardinality_max=maximum,
            cardinality_at=cardinality_at,
            at=_at(name),
        )

    def _properties(self, members: list[Any]) -> tuple[PropertyDeclaration, ...]:
        found = []
        for name, type_tree, *rest in _named(members, "property"):
            nullable = any(isinstance(each, Token) and each.type == "NULLABLE" for each in rest)
            annotations = self._annotations(rest)
            found.append(PropertyDeclaration(str(name), self._type(type_tree, nullable), annotations, _at(name)))
        return tuple(found)

    def _type(self, tree: Tree[Token], nullable: bool) -> PropertyType:
        item: Any = tree.children[0]
        is_list = isinstance(item, Tree) and item.data == "list"
        if is_list:
            item = item.children[0]
        if isinstance(item, Token):
            if item not in SCALARS:
                raise self._invalid(item, f"there is no type '{item}'", _TYPE_HINT)
            if is_list and item == "Blob":
                raise self._invalid(item, "a list cannot hold blobs", "declare one Blob property, or a node per blob")
            return PropertyType(str(item), nullable, is_list)
        keyword, *values = item.children
        if item.data == "enum":
            if not values:
                raise self._invalid(keyword, "an enum needs at least one value", "write enum(first, second)")
            return PropertyType("String", nullable, is_list, tuple(sorted(set(map(str, values)))))
        if is_list:
            raise self._invalid(keyword, "a list cannot hold vectors", "declare one Vector(d) property")
        return PropertyType("Vector", nullable, dimensions=self._integer(values[0], 1, VECTOR_DIMENSIONS_MAX))

    def _annotations(self, members: list[Any]) -> tuple[Annotation, ...]:
        found = []
        for name, *values in _named(members, "annotation"):
            value = self._literal(values[0]) if values else None
            found.append(Annotation(name.lstrip("@ \t\r\n"), value))
        return tuple(sorted(found, key=lambda each: (each.name, each.value is not None, each.value or "")))

    def _constraints(self, members: list[Any]) -> tuple[ConstraintDeclaration, ...]:
        found = []
        for name, *columns in _named(members, "columns"):
            kind: Any = name.lstrip("@ \t\r\n").capitalize()
            found.append(ConstraintDeclaration(kind, tuple(map(str, columns)), at=_at(name)))
        for name, column, bounds in _named(members, "range"):
            dots = next(index for index, each in enumerate(bounds.children) if each.type == "DOTS")
            low, high = [self._bounds(each) for each in (bounds.children[:dots], bounds.children[dots + 1 :])]
            found.append(ConstraintDeclaration("Range", (str(column),), low, high, at=_at(name)))
        for name, column, pattern in _named(members, "check"):
            text = self._literal(pattern)
            found.append(ConstraintDeclaration("Check", (str(column),), pattern=text, at=_at(name)))
        return tuple(found)

    def _bounds(self, tokens: list[Token]) -> int | float | None:
        if not tokens:
            return None
        # The IR holds integers in 64 signed bits; a larger one would become a float and stop being exact [VAL-16].
        return float(tokens[0]) if tokens[0].type == "FLOAT" else self._integer(tokens[0], _INTEGER_MIN, _INTEGER_MAX)

    def _integer(self, token: Token, minimum: int, maximum: int) -> int:
        # Python refuses to convert thousands of digits, and no limit here has more than twenty.
        value = int(token) if len(token) <= 40 else maximum + 1
        if not minimum <= value <= maximum:
            raise self._invalid(token, "this number is out of range", f"use a number from {minimum} to {maximum}")
        return value

    def _literal(self, token: Token) -> str:
        if token.type != "STRING":
            return str(token)
        decoded, chars = [], iter(token[1:-1])
        for char in chars:
            if char == "\\":
                escaped = next(chars)
                if escaped not in _ESCAPES:
                    hint = r'only \" \\ \n \r \t are escapes; a backslash of a pattern is written twice, as in "\\d"'
                    raise self._invalid(token, f"'\\{escaped}' is not an escape", hint, SYNTAX)
                char = _ESCAPES[escaped]
            decoded.append(char)
        return "".join(decoded)

    def _invalid(self, token: Token, what: str, hint: str, code: str = INVALID) -> SchemaError:
        return SchemaError(what, code=code, source=self._source, at=_at(token), hint=hint)


def _named(members: list[Any], rule: str) -> list[list[Any]]:
    return [each.children for each in members if isinstance(each, Tree) and each.data == rule]


def _at(token: Token) -> Position:
    return Position(token.line or 1, token.column or 1)
