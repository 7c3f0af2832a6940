"""The graph that is measured, and what is done to it before an operation is: nobody counts that.

Each of these leaves what one operation needs, and returns what that has to know of it.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from conformance.judge import Handle
from conformance.judge.graph import text_of
from failpoints.writers import insert, insert_edge, load

SCHEMA: Final = """
node Person {
  name: String @key
  age: I32? @index
  email: String? @unique
}
node Company {
  name: String @key
  size: I32?
}
node Project {
  name: String @key
}
edge Knows: Person -> Person
edge WorksAt: Person -> Company
edge Leads: Person -> Project
"""
# How many tables that makes.
NARROW: Final = 6
# Only where payloads are measured: a table more would cost every other measurement something.
DOCUMENTS: Final = """
node Document {
  name: String @key
  title: String?
  body: Blob?
}
"""
DOCUMENT: Final = "node:Document"
# Larger than what is stored in the row itself: an engine can leave it where it is.
PAYLOAD_BYTES: Final = 128 * 1024
PERSON, KNOWS, WORKS_AT, LEADS = "node:Person", "edge:Knows", "edge:WorksAt", "edge:Leads"
ROWS_OF_A_LOAD: Final = 64


class Place(Protocol):
    """A graph that grows, with an engine on it: what operations need of it."""

    uri: str
    handle: Handle
    # How many rows are in a load.
    load_rows: int

    def name(self) -> str:
        """A name that nobody has used."""

    def other(self) -> Handle:
        """The graph, opened by another process that stays."""


Prepare = Callable[[Place], Any]


def a_person(place: Place) -> str:
    """A person that is there, with a row of its own in its table."""
    name = place.name()
    place.handle.mutate(insert("Person", name=name, age=1))
    return name


def two_people(place: Place) -> tuple[str, str]:
    return a_person(place), a_person(place)


def a_branch(place: Place) -> str:
    name = place.name()
    place.handle.branch_create(name)
    return name


def a_branch_with_a_row(place: Place) -> str:
    name = a_branch(place)
    place.handle.mutate(insert("Person", name=place.name()), branch=name)
    return name


def a_branch_with_rows(place: Place) -> str:
    """A branch with as many rows of its own as are in a load."""
    name = a_branch(place)
    place.handle.load(records(place), "append", branch=name)
    return name


def a_branch_apart(place: Place) -> str:
    """A branch with a row of its own, while main has got one of its own too: a merge must look at both."""
    name = a_branch_with_a_row(place)
    place.handle.mutate(insert("Person", name=place.name()))
    return name


def a_loved_person(place: Place) -> str:
    """A person with an edge in each of the three tables of edges: a delete has to remove all of them."""
    name, other = place.name(), place.name()
    place.handle.mutate(insert("Person", name=name), insert("Person", name=other))
    place.handle.mutate(insert("Company", name=name), insert("Project", name=name))
    place.handle.mutate(
        insert_edge("Knows", other, name), insert_edge("WorksAt", name, name), insert_edge("Leads", name, name)
    )
    return name


def wide(tables: int) -> str:
    """The schema with more types, which nobody ever writes to: so many tables in all."""
    return SCHEMA + "".join(f"node Idle{number} {{\n  name: String @key\n}}\n" for number in range(tables - NARROW))


def records(place: Place) -> str:
    """Records with a unique column, for one load."""
    first = place.name()
    rows = [
        {"type": "Person", "data": {"name": f"{first}-{number}", "email": f"{first}-{number}@x"}}
        for number in range(place.load_rows)
    ]
    return text_of(load(*rows)["records"])


def a_stale_reader(place: Place) -> Handle:
    """Another process that knew the graph, before somebody wrote."""
    reader = place.other()
    reader.snapshot()
    a_person(place)
    return reader


def a_few_fragments(place: Place) -> None:
    for _ in range(4):
        a_person(place)


def versions_to_remove(place: Place) -> None:
    place.handle.cleanup(keep_versions=1)
    a_few_fragments(place)
    place.handle.optimize()


def insert_document(handle: Handle, name: str) -> object:
    """A row with a payload that is the same in every run, and that nothing can compress."""
    body = base64.b64encode(random.Random(name).randbytes(PAYLOAD_BYTES)).decode()  # noqa: S311 - no secret is made.
    return handle.mutate(insert("Document", name=name, body=f"base64:{body}"))


def a_document(place: Place) -> str:
    name = place.name()
    insert_document(place.handle, name)
    return name


def the_head(place: Place) -> dict[str, Any]:
    return {"commit": place.handle.commits()[-1]["graph_commit_id"]}


def insert_person(handle: Handle, name: str, branch: str | None = None) -> object:
    return handle.mutate(insert("Person", name=name), branch=branch)
