"""Adapters: how the harness talks to an engine under test.

    parse("cmd:./my-driver --fast")     what a text names, without touching it
    connect(spec, env=store.env)        an adapter, started and ready to be asked

Three kinds: `cmd:` a driver process in any language, `python:` a class in this process, `reference` the built-in
engine. All are one conversation, checked message by message (`conversation`), over three transports (`process`,
`python`, `reference`). `base` says what a call can end in. `mutant:` is short for the `cmd:` of a deliberately broken
engine of `fixtures.mutants`.
"""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from conformance.adapters.base import (
    Adapter,
    AdapterFault,
    EngineError,
    FaultReason,
    InvalidEngineSpec,
    NotInProtocol,
    Transport,
    TransportFailure,
    Unsupported,
)
from conformance.adapters.conversation import Conversation
from conformance.adapters.credentials import Scrubber
from conformance.adapters.process import ProcessTransport
from conformance.adapters.python import PythonEngine, PythonTransport, instantiate
from failpoints.registry import ENVIRONMENT_VARIABLE
from fixtures.stores import without_stores

__all__ = [
    "TIMEOUT_SECONDS",
    "Adapter",
    "AdapterFault",
    "Conversation",
    "EngineError",
    "EngineSpec",
    "FaultReason",
    "InvalidEngineSpec",
    "NotInProtocol",
    "ProcessTransport",
    "PythonEngine",
    "Scrubber",
    "Unsupported",
    "connect",
    "driver_environment",
    "parse",
]

TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True)
class EngineSpec:
    """What a text such as `cmd:./my-driver` names."""

    text: str
    kind: Literal["cmd", "python", "reference"]
    command: tuple[str, ...] = ()
    module: str = ""
    class_name: str = ""


def parse(spec: str) -> EngineSpec:
    """Read the text that names an engine; nothing is started, and nothing of the engine is imported."""
    kind, colon, rest = spec.partition(":")
    match kind:
        case "cmd" if colon:
            return EngineSpec(spec, "cmd", command=_split(spec, rest))
        case "python" if colon:
            module, second_colon, class_name = rest.partition(":")
            if not second_colon or not class_name.isidentifier() or not all(map(str.isidentifier, module.split("."))):
                raise InvalidEngineSpec(spec, "after 'python:' come a module and a class, as in my.module:MyEngine")
            return EngineSpec(spec, "python", module=module, class_name=class_name)
        case "reference" if not colon:
            return EngineSpec(spec, "reference")
        case "mutant" if colon:
            return EngineSpec(spec, "cmd", command=_mutant(spec, rest))
        case _:
            raise InvalidEngineSpec(spec, f"'{kind}' is no kind of engine" if kind else "it is empty")


def connect(
    spec: str | EngineSpec,
    *,
    env: Mapping[str, str],
    timeout_seconds: float = TIMEOUT_SECONDS,
    failpoints: str | None = None,
    attach: Callable[[str], None] | None = None,
) -> Conversation:
    """Start an engine and return its adapter.

    `env` holds the variables of the store, and is all of AWS that the engine gets to see. `failpoints` is the text of
    TOUCHSTONE_FAILPOINTS. `attach` is called with the process id and the command line before the first request, and
    returns when the person who debugs is ready. A driver has `timeout_seconds` for each answer.
    """
    engine = parse(spec) if isinstance(spec, str) else spec
    scrubber = Scrubber(env)
    try:
        transport = _transport(engine, env, scrubber, timeout_seconds, failpoints)
    except TransportFailure as failure:
        raise AdapterFault(scrubber.text(failure.message), reason=failure.reason) from None
    command = shlex.join(engine.command) if engine.kind == "cmd" else None
    adapter = Conversation(engine.text, command, transport, scrubber)
    if attach is not None:
        pid = transport.pid if isinstance(transport, ProcessTransport) else os.getpid()
        try:
            attach(f"process {pid}: {command or f'{engine.text}, in the harness itself'}")
        except BaseException:
            adapter.close()
            raise
    return adapter


def driver_environment(env: Mapping[str, str], failpoints: str | None = None) -> dict[str, str]:
    """What a driver process gets: this process's environment with no store in it but the one that it is given."""
    inherited = without_stores(os.environ)
    inherited.pop(ENVIRONMENT_VARIABLE, None)
    return inherited | dict(env) | ({} if failpoints is None else {ENVIRONMENT_VARIABLE: failpoints})


def _transport(
    engine: EngineSpec, env: Mapping[str, str], scrubber: Scrubber, timeout_seconds: float, failpoints: str | None
) -> Transport:
    match engine.kind:
        case "cmd":
            environment = driver_environment(env, failpoints)
            return ProcessTransport(engine.command, environment, scrubber, timeout_seconds=timeout_seconds)
        case "python":
            if failpoints is not None:
                raise Unsupported("failpoints", "a python: engine has no environment of its own to arm them in")
            return PythonTransport(instantiate(engine.module, engine.class_name, env))
        case "reference":
            # Imported late: who tries another engine needs neither the reference nor the time that it takes to load.
            from conformance.adapters.reference import ReferenceTransport

            return ReferenceTransport(env, failpoints)


def _mutant(spec: str, name: str) -> tuple[str, ...]:
    # Imported late: mutants know the reference, and who names another engine needs neither.
    from fixtures.mutants import MUTANTS

    if name not in MUTANTS:
        close = difflib.get_close_matches(name, MUTANTS, n=3, cutoff=0.3) or [*MUTANTS][:3]
        raise InvalidEngineSpec(
            spec,
            f"there is no mutant '{name}': did you mean {' or '.join(close)}? `python -m fixtures.mutants` lists them",
        )
    return sys.executable, "-P", "-m", "fixtures.mutants", name


def _split(spec: str, command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise InvalidEngineSpec(spec, f"the command line cannot be split: {error}") from None
    if not words:
        raise InvalidEngineSpec(spec, "after 'cmd:' comes a command line")
    return words
