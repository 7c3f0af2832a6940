"""An engine under test: one method per operation of the protocol, on whatever adapter it is reached by.

Answers are the plain values of `conformance/protocol`. A refusal is an `EngineError`, an operation that the engine does
not have is `Unsupported`, and a conversation that broke down is an `AdapterFault`; suites catch the first only.
Every call is recorded with the test that runs, so that a failure can show what was asked and answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from conformance.adapters import Adapter, EngineError, Unsupported, connect
from conformance.judge.broken import current_case

Answer = dict[str, Any]
Point = Mapping[str, Any]
LONGEST_RECORDED_TEXT: Final = 2_000


@dataclass(frozen=True)
class Hello:
    """What an engine says about itself."""

    name: str
    version: str
    internal_schema_version: int
    capabilities: frozenset[str]
    # Forms of operations that it does not have, or not always, such as `read.at`.
    lacks: frozenset[str] = frozenset()


class Engine:
    """One engine, as one process or session of it."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._opened: list[Handle] = []
        said = adapter.call("hello", {})
        self.hello = Hello(
            said["name"],
            said["version"],
            said["internal_schema_version"],
            frozenset(said["capabilities"]),
            frozenset(said.get("lacks", [])),
        )

    @classmethod
    def connect(cls, spec: str, *, env: Mapping[str, str], **options: Any) -> Engine:
        adapter = connect(spec, env=env, **options)
        try:
            return cls(adapter)
        except BaseException:
            adapter.close()
            raise

    def supports(self, *operations: str) -> bool:
        return self.hello.capabilities >= set(operations)

    def may_lack(self, op: str) -> bool:
        """Whether the engine has said that it does not have this operation in every form."""
        return op in {form.partition(".")[0] for form in self.hello.lacks}

    def require(self, *operations: str) -> None:
        """Go on only with an engine that offers these; `Unsupported` names what is missing."""
        missing = sorted(set(operations) - self.hello.capabilities)
        if missing:
            raise Unsupported(", ".join(missing), "the engine does not declare it")

    def require_live_handles(self) -> None:
        """Go on only with an engine whose handles keep something: one that opens a graph anew for each operation has
        nothing that it could refresh."""
        self.require("refresh")

    def call(self, op: str, /, **args: Any) -> Any:
        """Ask for one operation. Arguments that are None are left out: that is what an engine's default is for."""
        given = {name: value for name, value in args.items() if value is not None}
        try:
            answer = self.adapter.call(op, given)
        except EngineError as error:
            self._record(op, given, {"error": {"kind": error.kind, "code": error.code, "message": error.message}})
            raise
        except Unsupported as error:
            self._record(op, given, {"unsupported": error.why})
            raise
        self._record(op, given, {"ok": answer})
        return answer

    def init(self, uri: str, schema: str, *, force: bool | None = None) -> None:
        self.call("init", uri=uri, schema=schema, force=force)

    def open(self, uri: str, *, branch: str | None = None, read_only: bool | None = None) -> Handle:
        answer = self.call("open", uri=uri, branch=branch, read_only=read_only)
        self._opened.append(Handle(self, answer["handle"], tuple(answer["recovered"])))
        return self._opened[-1]

    def look(self, uri: str, *, branch: str | None = None) -> Handle:
        """A handle to look at a graph with: a read-only one, or any where the engine has no such thing.

        Whoever tests what a read-only open leaves alone asks for one by name.
        """
        try:
            return self.open(uri, branch=branch, read_only=True)
        except Unsupported:
            return self.open(uri, branch=branch)

    def close_handles(self) -> None:
        """Close what was opened and not closed: a test that is over needs none of it."""
        for handle in self._opened:
            with suppress(EngineError, Unsupported):
                self.adapter.call("close", {"handle": handle.name})
        self._opened.clear()

    def close(self) -> None:
        self.adapter.close()

    def _record(self, op: str, args: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        case = current_case()
        if case is not None:
            case.operations.append({"op": op, "args": _short(args), **_short(answer)})


@dataclass(frozen=True)
class Handle:
    """A graph that the engine has open, bound to a branch."""

    engine: Engine
    name: str
    recovered: tuple[Answer, ...] = ()

    def call(self, op: str, /, **args: Any) -> Any:
        return self.engine.call(op, handle=self.name, **args)

    def close(self) -> None:
        self.call("close")
        if self in self.engine._opened:
            self.engine._opened.remove(self)

    # -- writing -----------------------------------------------------------------------------------------------------

    def load(
        self,
        data: str,
        mode: str = "merge",
        *,
        branch: str | None = None,
        base: str | None = None,
        actor: str | None = None,
    ) -> Answer:
        answer: Answer = self.call("load", data=data, mode=mode, branch=branch, base=base, actor=actor)
        return answer

    def mutate(
        self,
        *statements: Mapping[str, Any],
        branch: str | None = None,
        actor: str | None = None,
        name: str | None = None,
    ) -> Answer:
        answer: Answer = self.call("mutate", statements=list(statements), branch=branch, actor=actor, name=name)
        return answer

    def merge(self, source: str, target: str = "main", *, actor: str | None = None) -> Answer:
        answer: Answer = self.call("merge", source=source, target=target, actor=actor)
        return answer

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self, branch: str | None = None, *, version: int | None = None, commit: str | None = None) -> Answer:
        answer: Answer = self.call("snapshot", branch=branch, version=version, commit=commit)
        return answer

    def table(self, table_key: str, branch: str | None = None, *, version: int | None = None) -> Answer:
        """The entry of one table in a snapshot."""
        (entry,) = (each for each in self.snapshot(branch, version=version)["tables"] if each["table_key"] == table_key)
        found: Answer = entry
        return found

    def read(
        self,
        table_key: str,
        branch: str | None = None,
        *,
        version: int | None = None,
        commit: str | None = None,
    ) -> list[Answer]:
        rows: list[Answer] = self.call("read", table_key=table_key, branch=branch, version=version, commit=commit)[
            "rows"
        ]
        return rows

    def row(self, table_key: str, id: str, branch: str | None = None, *, commit: str | None = None) -> Answer | None:
        """One row, by reading its table: every engine can do that."""
        return next((each for each in self.read(table_key, branch, commit=commit) if each["id"] == id), None)

    def entity_at(
        self,
        table_key: str,
        id: str,
        branch: str | None = None,
        *,
        version: int | None = None,
        commit: str | None = None,
    ) -> Answer | None:
        found: Answer | None = self.call(
            "entity_at", table_key=table_key, id=id, branch=branch, version=version, commit=commit
        )["entity"]
        return found

    def export(
        self,
        branch: str | None = None,
        *,
        types: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
    ) -> str:
        chosen = {"types": None if types is None else list(types), "tables": None if tables is None else list(tables)}
        return str(self.call("export", branch=branch, **chosen)["data"])

    def diff(
        self,
        older: Point,
        newer: Point,
        *,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Answer:
        chosen = {"types": None if types is None else list(types), "ops": None if ops is None else list(ops)}
        answer: Answer = self.call("diff", older=dict(older), newer=dict(newer), **chosen)
        return answer

    def commits(self, branch: str | None = None) -> list[Answer]:
        found: list[Answer] = self.call("commits", branch=branch)["commits"]
        return found

    def commit(self, commit_id: str) -> Answer:
        answer: Answer = self.call("commit", commit_id=commit_id)
        return answer

    def recoveries(self) -> list[Answer]:
        found: list[Answer] = self.call("recoveries")["recoveries"]
        return found

    def refresh(self) -> list[Answer]:
        recovered: list[Answer] = self.call("refresh")["recovered"]
        return recovered

    def sync_branch(self, branch: str) -> None:
        self.call("sync_branch", branch=branch)

    # -- branches, schema, maintenance -------------------------------------------------------------------------------

    def branch_create(self, name: str, source: str | None = None) -> None:
        self.call("branch_create", name=name, source=source)

    def branch_delete(self, name: str) -> None:
        self.call("branch_delete", name=name)

    def branch_list(self) -> list[str]:
        found: list[str] = self.call("branch_list")["branches"]
        return found

    def schema_plan(self, source: str, *, allow_data_loss: bool | None = None) -> Answer:
        answer: Answer = self.call("schema_plan", source=source, allow_data_loss=allow_data_loss)
        return answer

    def schema_apply(self, source: str, *, allow_data_loss: bool | None = None) -> Answer:
        answer: Answer = self.call("schema_apply", source=source, allow_data_loss=allow_data_loss)
        return answer

    def ensure_indices(self, branch: str | None = None) -> list[Answer]:
        pending: list[Answer] = self.call("ensure_indices", branch=branch)["pending"]
        return pending

    def optimize(self) -> list[Answer]:
        tables: list[Answer] = self.call("optimize")["tables"]
        return tables

    def cleanup(
        self,
        *,
        keep_versions: int | None = None,
        older_than_seconds: int | None = None,
        confirm: Literal[True] | None = True,
    ) -> list[Answer]:
        tables: list[Answer] = self.call(
            "cleanup", keep_versions=keep_versions, older_than_seconds=older_than_seconds, confirm=confirm
        )["tables"]
        return tables

    def repair(self, branch: str | None = None, *, confirm: bool | None = None, force: bool | None = None) -> Answer:
        answer: Answer = self.call("repair", branch=branch, confirm=confirm, force=force)
        return answer


def _short(value: Any) -> Any:
    """A value as a record keeps it: long texts are cut, with their length."""
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, str) and len(value) > LONGEST_RECORDED_TEXT:
        return f"{value[:LONGEST_RECORDED_TEXT]}… ({len(value)} characters)"
    if isinstance(value, list) and len(value) > 200:
        return [*(_short(each) for each in value[:200]), f"… ({len(value)} items)"]
    return [_short(each) for each in value] if isinstance(value, list) else value
