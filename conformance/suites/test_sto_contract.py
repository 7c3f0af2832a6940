"""STO: what the protocol asks of every store, shown on the store itself, in the words of an object store.

What an engine proves on a store that breaks this contract is worth nothing. What a directory cannot do alone, which is
to replace on a condition, is asked of S3 only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, S3Store

from conformance.adapters import EngineError
from conformance.audit.places import S3Objects, parse_root
from conformance.judge import Engine, proving
from conformance.runner.plugin import Peers
from conformance.suites.graphs import NOTES, lines, note
from fixtures.stores.catalog import Store

WRITERS: Final = 8


@dataclass(frozen=True)
class Place:
    """A part of the store that nobody else uses, and a client of it."""

    client: LocalStore | S3Store
    prefix: str

    def key(self, name: str) -> str:
        return f"{self.prefix}/{name}".strip("/")

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.client, self.key(name)).bytes())
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes, mode: Any = None) -> str | None:
        return obstore.put(self.client, self.key(name), content, mode=mode)["e_tag"]

    def put_if_absent(self, name: str, content: bytes) -> bool:
        try:
            self.put(name, content, "create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def put_if_match(self, name: str, content: bytes, token: str | None) -> str | None:
        """The new token, or None for the one who lost."""
        try:
            return self.put(name, content, {"e_tag": token})
        except (PreconditionError, FileNotFoundError):
            return None

    def token(self, name: str) -> str | None:
        return obstore.head(self.client, self.key(name))["e_tag"]

    def delete(self, name: str) -> None:
        # A directory says that there was nothing, which an adapter takes for done.
        with contextlib.suppress(FileNotFoundError):
            obstore.delete(self.client, self.key(name))

    def files(self, directory: str) -> list[str]:
        """The files directly in a directory."""
        listed = obstore.list_with_delimiter(self.client, self.key(directory))["objects"]
        return sorted(each["path"].rpartition("/")[2] for each in listed)

    def below(self, directory: str) -> list[str]:
        chunks = obstore.list(self.client, self.key(directory))
        return sorted(each["path"].removeprefix(f"{self.prefix}/") for chunk in chunks for each in chunk)


@pytest.fixture
def place(store: Store) -> Place:
    root = parse_root(store.fresh_root(), dict(store.env))
    objects = root.objects()
    if isinstance(objects, S3Objects):
        return Place(objects.store, root.prefix)
    return Place(LocalStore(root.uri, mkdir=True), "")


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """Run all of them at the same moment, and return what each answered."""
    barrier, answers = threading.Barrier(len(works)), [None] * len(works)

    def run(number: int) -> None:
        barrier.wait()
        answers[number] = works[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@pytest.mark.requirement("STO-03")
def test_what_was_written_is_read_and_listed_at_once_and_what_was_deleted_is_gone(place: Place) -> None:
    with proving("STO-03"):
        assert place.read("a/one") is None and place.files("a") == [] and place.below("a") == []
        for number in range(5):
            place.put(f"a/{number}", str(number).encode())
            assert place.read(f"a/{number}") == str(number).encode()
            assert place.files("a") == [str(each) for each in range(number + 1)]
        place.put("a/0", b"")
        assert place.read("a/0") == b"", "an object may be empty"
        place.put("a/deeper/x", b"x")
        place.put("ab", b"beside")
        assert place.files("a") == ["0", "1", "2", "3", "4"], "a directory lists its own files, and no deeper one"
        assert place.below("a") == ["a/0", "a/1", "a/2", "a/3", "a/4", "a/deeper/x"], "and not what only begins alike"
        for _ in range(2):
            place.delete("a/0")
            assert place.read("a/0") is None and "0" not in place.files("a"), "deleting what is missing is done"
        for _ in range(2):
            for name in place.below("a"):
                place.delete(name)
            assert place.below("a") == [] and place.read("ab") == b"beside"


@pytest.mark.requirement("STO-03")
def test_a_replaced_object_is_the_old_or_the_new_one_and_never_a_part(place: Place) -> None:
    contents = [bytes([letter]) * 200_000 for letter in b"abcd"]
    place.put("x", contents[0])
    done = threading.Event()
    seen: set[bytes | None] = set()

    def watch() -> None:
        while not done.is_set():
            seen.add(place.read("x"))

    def write() -> None:
        for content in contents * 4:
            place.put("x", content)
        done.set()

    at_once([watch, write])

    with proving("STO-03"):
        assert seen <= set(contents), "a reader saw something that nobody wrote"
        assert place.read("x") == contents[-1]


@pytest.mark.requirement("STO-03")
def test_of_many_that_create_one_object_one_wins(place: Place) -> None:
    with proving("STO-03"):
        assert place.put_if_absent("once", b"first")
        assert not place.put_if_absent("once", b"second") and place.read("once") == b"first"
        for turn in range(5):
            name = f"race/{turn}"
            answers = at_once([partial(place.put_if_absent, name, str(each).encode()) for each in range(WRITERS)])
            winners = [number for number, won in enumerate(answers) if won]
            assert len(winners) == 1, f"{len(winners)} of {WRITERS} were told that they created it"
            assert place.read(name) == str(winners[0]).encode(), "what is there is the winner's"
        place.delete("once")
        assert place.put_if_absent("once", b"third"), "what was deleted can be created again"


@pytest.mark.requirement("STO-03", "STO-05")
def test_a_rename_replaces_and_in_between_both_names_exist(place: Place) -> None:
    place.put("from", b"new")
    place.put("to", b"old")

    with proving("STO-05"):
        obstore.copy(place.client, place.key("from"), place.key("to"), overwrite=True)
        assert (place.read("from"), place.read("to")) == (b"new", b"new")
        place.delete("from")
        assert (place.read("from"), place.read("to")) == (None, b"new")
    with proving("STO-03"):
        place.put("from", b"newer")
        obstore.rename(place.client, place.key("from"), place.key("to"), overwrite=True)
        assert (place.read("from"), place.read("to")) == (None, b"newer")
        with pytest.raises((FileNotFoundError, BaseError)):
            obstore.rename(place.client, place.key("missing"), place.key("to"), overwrite=True)
        assert place.read("to") == b"newer", "a rename of nothing destroys nothing"


@pytest.mark.requirement("STO-04")
def test_an_object_is_replaced_only_while_it_has_the_token_that_was_read(place: Place) -> None:
    if isinstance(place.client, LocalStore):
        pytest.skip("a directory compares and replaces in two steps, which no other process is kept out of")
    first = place.put("x", b"1")

    with proving("STO-04"):
        assert first and place.token("x") == first
        second = place.put_if_match("x", b"2", first)
        assert second and second != first and place.token("x") == second, "new content has a new token"
        assert place.put_if_match("x", b"3", first) is None and place.read("x") == b"2", "the old token has lost"
        assert place.put_if_match("missing", b"1", first) is None and place.read("missing") is None
        place.delete("x")
        assert place.put_if_match("x", b"4", second) is None and place.read("x") is None
        for turn in range(3):
            token = place.put("race", f"begin {turn}".encode())
            contents = [f"{turn}-{each}".encode() for each in range(WRITERS)]
            answers = at_once([partial(place.put_if_match, "race", content, token) for content in contents])
            winners = [number for number, answer in enumerate(answers) if answer is not None]
            assert len(winners) == 1, f"{len(winners)} of {WRITERS} replaced the same content"
            assert place.read("race") == contents[winners[0]]
            assert place.token("race") == answers[winners[0]]


@pytest.mark.requirement("STO-03")
def test_of_many_that_create_one_graph_one_wins(peers: Peers, engine: Engine, root: str) -> None:
    engines = [engine, peers(), peers()]

    def create(each: Engine) -> str:
        try:
            each.init(root, NOTES)
        except EngineError as error:
            return error.kind
        return "created"

    answers = at_once([partial(create, each) for each in engines])

    with proving("STO-03"):
        assert answers.count("created") == 1, f"the engines answered {answers}"
        handle = engine.open(root)
        handle.load(lines(note("a", 1)))
        assert [row["id"] for row in engine.open(root).read("node:Note")] == ["a"]
