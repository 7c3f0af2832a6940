"""The words of the `.pg` schema language: a text becomes declarations, as they are written [VAL-13].

    interface I { properties }
    node N [annotations] [implements I, J] { properties and rules }
    edge E: From -> To [@card(min..max?)] [annotations] [{ properties and rules }]

    name: Type[?] [annotations]     a property: String, I32 …, Vector(d), enum(a, b) or a list of them, [T]
    @key(a, …)  @unique(a, …)  @index(a, …)  @range(p, low..high)  @check(p, "pattern")     a rule

An annotation is `@name` or `@name(value)`. The five names of rules start one when a bracket follows, and are
annotations when none does. Whether the declarations make sense is not asked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from conformance.model.errors import Refusal, bad_request
from conformance.model.schema import Property

Kind = Literal["interface", "node", "edge"]
Bound = int | float | None

SCALARS: Final = frozenset({"String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"})
RULES: Final = frozenset({"key", "unique", "index", "range", "check"})
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")
_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\[nrt"\\])*)"')
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
_INTEGER_DIGITS_MAX: Final = 19  # As many as the largest number has that any place of a schema allows.


@dataclass(frozen=True)
class Annotation:
    name: str
    value: str | None = None


@dataclass(frozen=True)
class DeclaredProperty:
    property: Property
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A constraint on columns; bounds only of a range, a pattern only of a check."""

    name: str
    columns: tuple[str, ...]
    low: Bound = None
    high: Bound = None
    pattern: str = ""


@dataclass(frozen=True)
class Declaration:
    """An interface, a node type or an edge type. Only nodes implement, only edges have ends and a cardinality."""

    kind: Kind
    name: str
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    edges_min: int = 0
    edges_max: int | None = None
    properties: tuple[DeclaredProperty, ...] = ()
    rules: tuple[Rule, ...] = ()


def read_declarations(text: str) -> list[Declaration]:
    """The declarations of a schema in the order of the text, or a refusal where it cannot be read on."""
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise bad_request("invalid_schema", "the schema has half of a surrogate pair, which UTF-8 cannot write")
    reader = _Reader(text)
    found = []
    while not reader.at_end():
        found.append(_declaration(reader))
    return found


class _Reader:
    """A place in the text. Spaces and comments may stand before every word and sign."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def at_end(self) -> bool:
        self._skip()
        return self._place == len(self._text)

    def sees(self, sign: str) -> bool:
        """Whether a sign is next, without taking it."""
        self._skip()
        return self._text.startswith(sign, self._place)

    def takes(self, sign: str) -> bool:
        """Take a sign if it is next."""
        found = self.sees(sign)
        self._place += len(sign) if found else 0
        return found

    def takes_word(self, word: str) -> bool:
        """Take a word if it is next, whole."""
        self._skip()
        match = _WORD.match(self._text, self._place)
        found = match is not None and match[0] == word
        self._place += len(word) if found else 0
        return found

    def need(self, sign: str) -> None:
        if not self.takes(sign):
            raise self.refusal(f"{sign!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """What must be next."""
        self._skip()
        match = pattern.match(self._text, self._place)
        if match is None:
            raise self.refusal(what)
        self._place = match.end()
        return match

    def place(self) -> int:
        return self._place

    def back_to(self, place: int) -> None:
        self._place = place

    def refusal(self, what: str) -> Refusal:
        before = self._text[: self._place]
        line, column = before.count("\n") + 1, self._place - (before.rfind("\n") + 1) + 1
        return bad_request("invalid_schema", f"line {line}, column {column}: {what} is expected here")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._place)
        self._place = self._place if match is None else match.end()


# -- declarations ------------------------------------------------------------------------------------------------


def _declaration(reader: _Reader) -> Declaration:
    if reader.takes_word("interface"):
        name = reader.match(_TYPE_NAME, "the name of an interface")[0]
        properties, rules = _body(reader)
        if rules:
            raise bad_request("invalid_schema", f"interface {name} has rules, which belong to a type")
        return Declaration("interface", name, properties=properties)
    if reader.takes_word("node"):
        return _node(reader)
    if reader.takes_word("edge"):
        return _edge(reader)
    raise reader.refusal("'interface', 'node' or 'edge'")


def _node(reader: _Reader) -> Declaration:
    name = reader.match(_TYPE_NAME, "the name of a node type")[0]
    annotations = _annotations(reader)
    implements: list[str] = []
    if reader.takes_word("implements"):
        implements.append(reader.match(_TYPE_NAME, "the name of an interface")[0])
        while reader.takes(","):
            implements.append(reader.match(_TYPE_NAME, "the name of an interface")[0])
    properties, rules = _body(reader)
    return Declaration("node", name, annotations, tuple(implements), properties=properties, rules=rules)


def _edge(reader: _Reader) -> Declaration:
    name = reader.match(_TYPE_NAME, "the name of an edge type")[0]
    reader.need(":")
    source = reader.match(_TYPE_NAME, "the name of a node type")[0]
    reader.need("->")
    target = reader.match(_TYPE_NAME, "the name of a node type")[0]
    low, high = _cardinality(reader)
    annotations = _annotations(reader)
    properties, rules = _body(reader) if reader.sees("{") else ((), ())
    return Declaration("edge", name, annotations, (), (source, target), low, high, properties, rules)


def _cardinality(reader: _Reader) -> tuple[int, int | None]:
    start = reader.place()
    if not (reader.takes("@") and reader.takes_word("card") and reader.takes("(")):
        reader.back_to(start)
        return 0, None
    low = _integer(reader)
    reader.need("..")
    high = None if reader.sees(")") else _integer(reader)
    reader.need(")")
    return low, high


def _body(reader: _Reader) -> tuple[tuple[DeclaredProperty, ...], tuple[Rule, ...]]:
    properties: list[DeclaredProperty] = []
    rules: list[Rule] = []
    reader.need("{")
    while not reader.takes("}"):
        if reader.sees("@"):
            rules.append(_rule(reader))
            continue
        name = reader.match(_NAME, "a property, a rule or '}'")[0]
        reader.need(":")
        properties.append(DeclaredProperty(_property(reader, name), _annotations(reader, before_rules=True)))
    return tuple(properties), tuple(rules)


# -- properties --------------------------------------------------------------------------------------------------


def _property(reader: _Reader, name: str) -> Property:
    is_list = reader.takes("[")
    scalar, values, dimensions = _scalar(reader)
    if is_list:
        reader.need("]")
        if scalar in ("Blob", "Vector"):
            raise reader.refusal(f"a list of something else than {scalar}")
    return Property(name, scalar, reader.takes("?"), is_list, values, dimensions)


def _scalar(reader: _Reader) -> tuple[str, tuple[str, ...] | None, int | None]:
    """A scalar type, the values of an enum, and the dimensions of a vector."""
    if reader.takes_word("enum"):
        reader.need("(")
        values = {reader.match(_ENUM_VALUE, "a value of the enum")[0]}
        while reader.takes(","):
            values.add(reader.match(_ENUM_VALUE, "a value of the enum")[0])
        reader.need(")")
        return "String", tuple(sorted(values)), None
    if reader.takes_word("Vector"):
        reader.need("(")
        dimensions = _integer(reader)
        reader.need(")")
        return "Vector", None, dimensions
    scalar = reader.match(_TYPE_NAME, "a type")[0]
    if scalar not in SCALARS:
        raise reader.refusal(f"a type that there is, and not {scalar!r},")
    return scalar, None, None


def _annotations(reader: _Reader, *, before_rules: bool = False) -> tuple[Annotation, ...]:
    """All annotations that follow; next to a property they end where a rule starts."""
    found: list[Annotation] = []
    start = reader.place()
    while reader.takes("@"):
        name = reader.match(_NAME, "the name of an annotation")[0]
        if before_rules and name in RULES and reader.sees("("):
            reader.back_to(start)
            break
        value = None
        if reader.takes("("):
            value = _value(reader)
            reader.need(")")
        found.append(Annotation(name, value))
        start = reader.place()
    return tuple(found)


def _value(reader: _Reader) -> str:
    """The value of an annotation is text: of a string its content, else as it is written."""
    if reader.sees('"'):
        return _string(reader)
    return reader.match(re.compile(f"{_NUMBER.pattern}|{_NAME.pattern}"), "a string, a number or a name")[0]


# -- rules -------------------------------------------------------------------------------------------------------


def _rule(reader: _Reader) -> Rule:
    reader.need("@")
    name = reader.match(_NAME, "the name of a rule")[0]
    if name not in RULES:
        raise reader.refusal("a rule")
    reader.need("(")
    columns = [reader.match(_NAME, "a property")[0]]
    low: Bound = None
    high: Bound = None
    pattern = ""
    if name == "range":
        reader.need(",")
        low = None if reader.sees("..") else _number(reader)
        reader.need("..")
        high = None if low is not None and reader.sees(")") else _number(reader)
    elif name == "check":
        reader.need(",")
        pattern = _string(reader)
    else:
        while reader.takes(","):
            columns.append(reader.match(_NAME, "a property")[0])
    reader.need(")")
    return Rule(name, tuple(columns), low, high, pattern)


def _string(reader: _Reader) -> str:
    content = reader.match(_STRING, 'a string with none but the escapes \\n \\r \\t \\" \\\\')[1]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES[escape[1]], content)


def _integer(reader: _Reader) -> int:
    return _checked_integer(reader, reader.match(_INTEGER, "an integer")[0])


def _number(reader: _Reader) -> int | float:
    digits = reader.match(_NUMBER, "a number")[0]
    return float(digits) if "." in digits else _checked_integer(reader, digits)


def _checked_integer(reader: _Reader, digits: str) -> int:
    """Python would refuse thousands of digits in its own way."""
    if len(digits.lstrip("-0")) > _INTEGER_DIGITS_MAX:
        raise reader.refusal("a number that fits in 64 bits")
    return int(digits)
