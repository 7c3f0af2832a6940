"""A page as its facts: the text that is read, the elements with their attributes, and nothing of how it looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

VOID: Final = frozenset({"meta", "br", "input", "wbr", "img", "link", "hr"})
SILENT: Final = frozenset({"script", "style"})


@dataclass(frozen=True)
class Element:
    """One element, and the text inside of it, its children's too."""

    tag: str
    attributes: dict[str, str]
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


class Page(HTMLParser):
    """Reads a page, and refuses one whose elements do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {[element.tag for element in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag == "br":
            self.handle_data(" ")
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> does not close <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1].tag not in SILENT:
            for element in self._open:
                element.pieces.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements by tag; `class_` asks for one of the classes."""
        wanted = attributes.pop("class_", None)
        return [
            element
            for element in self.elements
            if element.tag == tag
            and attributes.items() <= element.attributes.items()
            and (wanted is None or wanted in element.attributes.get("class", "").split())
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        (element,) = self.all(tag, **attributes)
        return element

    @property
    def ids(self) -> list[str]:
        return [element.attributes["id"] for element in self.elements if "id" in element.attributes]

    @property
    def text(self) -> str:
        return self.one("body").text
