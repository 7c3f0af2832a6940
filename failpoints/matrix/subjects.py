"""Who is tried in the matrix: every writer, the open that recovers what one of them left, and those who meet its forks.

A subject prepares a graph of its own through the engine under test, up to the moment in which it is about to begin, and
says what it does then. What a dead writer left is forged, so that the open that recovers it meets the same on every
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from conformance.judge import Engine, Handle
from conformance.model import Model
from failpoints.baseline import build
from failpoints.oracle import BACK, DISCARDED, FORWARD, Before, Scene, look
from failpoints.steps import MAINTENANCE, Step, ask, branch_of
from failpoints.writers import BRANCH, CREATE, ON_MAIN, PEOPLE, SCHEMA, WRITERS, Writer
from fixtures.forge import Forge

Env = Mapping[str, str]
Prepare = Callable[[Engine, str, Env], "Ready"]
STRICT: Final = ("Mutation", "Load")
PERSON: Final = "node:Person"


@dataclass(frozen=True)
class Ready:
    """A graph whose subject is about to begin, and what it does: its step, an open, or an init.

    `pending` is what an open finds to recover, and `kind` what its audit row has to say then.
    """

    before: Before
    does: Literal["step", "open", "init"] = "step"
    pending: Scene | None = None
    kind: str | None = None


@dataclass(frozen=True)
class Subject:
    """One row of the matrix."""

    name: str
    sentence: str
    needs: tuple[str, ...]
    prepare: Prepare


def _opened(engine: Engine, uri: str, env: Env, writer: Writer) -> tuple[Handle, Before]:
    """The graph of a writer, open, and what is known of it."""
    baseline = build(engine, uri, env, writer.setup)
    handle = engine.open(uri)
    return handle, Before.of(handle, uri, env, baseline.model, writer.step)


def _writer(writer: Writer) -> Subject:
    """The writer itself."""
    commits: dict[str, int] = {}

    def prepare(engine: Engine, uri: str, env: Env) -> Ready:
        handle, before = _opened(engine, uri, env, writer)
        handle.close()
        if writer.step["do"] not in MAINTENANCE:
            return Ready(before)
        # How many commits maintenance makes is up to the engine: it is done once, on another graph.
        if engine.adapter.spec not in commits:
            other, unharmed = _opened(engine, f"{uri}-unharmed", env, writer)
            ask(other, writer.step)
            commits[engine.adapter.spec] = len(other.commits()) - unharmed.heads["main"]
            other.close()
        return Ready(replace(before, commits=commits[engine.adapter.spec]))

    return Subject(writer.name, writer.sentence, writer.needs, prepare)


def _init() -> Subject:
    def prepare(engine: Engine, uri: str, env: Env) -> Ready:
        nothing = Before(uri, env, Model.from_source(SCHEMA), {"do": "init"}, {}, frozenset())
        return Ready(nothing, does="init")

    return Subject("init", "a new graph", ("init",), prepare)


def _recovery(name: str, kind: str, *, half_way: bool = False, confirmed: bool = True) -> Subject:
    """The open that finds what a writer left between its last table commit and its publish, or half way."""
    writer = WRITERS[name]

    def prepare(engine: Engine, uri: str, env: Env) -> Ready:
        handle, before = _opened(engine, uri, env, writer)
        forge = Forge(uri, dict(env))
        branch = branch_of(writer.step)
        if half_way:
            forge.crash_half_way(lambda: ask(handle, writer.step), writer_kind=kind, branch=branch)
        else:
            is_confirmed = kind == "BranchMerge" and confirmed
            forge.crash_between_commit_and_publish(
                lambda: ask(handle, writer.step), writer_kind=kind, branch=branch, confirmed=is_confirmed
            )
        handle.close()
        pending = look(before)
        is_back = half_way or not confirmed or (kind in STRICT and _has_gone_on(forge, pending))
        return Ready(before, "open", pending, BACK if is_back else FORWARD)

    end = "half way" if half_way else "before its publish" if confirmed else "before it was confirmed"
    suffix = "-half-way" if half_way else "" if confirmed else "-unconfirmed"
    sentence = f"an open that recovers: {writer.sentence}, cut {end}"
    return Subject(f"recovery-{name}{suffix}", sentence, writer.needs, prepare)


def _has_gone_on(forge: Forge, pending: Scene) -> bool:
    """Whether an engine that builds indexes before it publishes moved a strict table on [REC-28]."""
    pins = [pin for body in pending.sidecars.values() for pin in body["tables"]]
    return any(
        forge.storage(pin["table_key"], pin.get("table_branch")).version > pin["post_commit_pin"] for pin in pins
    )


def _orphan() -> Subject:
    """The open that finds the sidecar of a branch that is gone."""

    def prepare(engine: Engine, uri: str, env: Env) -> Ready:
        step: Step = {"do": "open", "uri": uri}
        handle, before = _opened(engine, uri, env, replace(WRITERS["insert"], step=step))
        handle.close()
        forge = Forge(uri, dict(env))
        pin = {**forge.pin_of(PERSON), "table_branch": "gone"}
        forge.write_sidecar(forge.sidecar(writer_kind="Load", branch="gone", tables=[pin]))
        return Ready(replace(before, commits=0), "open", look(before), DISCARDED)

    return Subject("orphan", "an open that finds the sidecar of a branch that is gone", ("load",), prepare)


def _among_forks(name: str, sentence: str, writer: Writer, fork: str, *, versions_back: int = 0) -> Subject:
    """A writer that meets a fork of a table, left by a first write that died or by a delete that was cut.

    The fork stands at the HEAD of main's table, or some versions before it: then main has moved since it was made.
    """

    def prepare(engine: Engine, uri: str, env: Env) -> Ready:
        handle, before = _opened(engine, uri, env, writer)
        handle.close()
        forge = Forge(uri, dict(env))
        table = forge.storage(PERSON)
        origin = (None, int(table.version) - versions_back)
        table.create_branch(fork, origin, storage_options=forge.storage_options)
        is_maintenance = writer.step["do"] in MAINTENANCE
        return Ready(replace(before, commits=0) if is_maintenance else before)

    return Subject(name, sentence, writer.needs, prepare)


_FIRST: Final = WRITERS["first-write"]

SUBJECTS: Final[Mapping[str, Subject]] = {
    subject.name: subject
    for subject in (
        _init(),
        *(_writer(writer) for name, writer in WRITERS.items() if name != "init"),
        _recovery("insert", "Mutation"),
        _recovery("insert", "Mutation", half_way=True),
        _recovery("load-merge", "Load"),
        _recovery("branch-write", "Mutation"),
        _recovery("merge", "BranchMerge"),
        _recovery("merge", "BranchMerge", confirmed=False),
        _recovery("schema-add", "SchemaApply"),
        _recovery("schema-add", "SchemaApply", half_way=True),
        _recovery("ensure-indices", "EnsureIndices"),
        _recovery("optimize", "Optimize"),
        _orphan(),
        _among_forks("fork-reuse", "a first write that finds its fork made, by one that died", _FIRST, BRANCH),
        _among_forks(
            "fork-reclaim",
            "a first write that finds a fork of its name, made before main moved",
            replace(_FIRST, setup=(PEOPLE, ON_MAIN, CREATE)),
            BRANCH,
            versions_back=1,
        ),
        _among_forks("cleanup-forks", "old versions and a fork of no branch removed", WRITERS["cleanup"], "gone"),
    )
}


class UnknownSubject(ValueError):
    """A name that no subject has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no '{self.name}' in the matrix; there are {', '.join(SUBJECTS)}"


def subjects_called(names: Sequence[str]) -> list[Subject]:
    """The subjects of these names, each once, in the order of the matrix."""
    for name in names:
        if name not in SUBJECTS:
            raise UnknownSubject(name)
    return [subject for subject in SUBJECTS.values() if subject.name in names]
