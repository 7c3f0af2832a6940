"""The command line: which commands there are, and what becomes of every way in which one can end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

import typer
from typer.core import TyperCommand

from reference.cli import pipeline, pipeline_jobs, reading, writing
from reference.cli.output import EXIT_CODES, EXIT_INTERRUPTED, json_line, note, report, stdout_failed, unexpected, write
from reference.errors import OmniError, StorageError

HELP = """The reference storage engine for OmniGraph graphs.

Exit codes: 0 done; 1 the store or the graph is broken; 2 the request is wrong; 3 not found; 4 conflict, nothing
happened; 5 outcome pending, recovery decides; 130 interrupted; 141 the reader of stdout went away."""
# What typer raises for a wrong command line. Its module has moved between releases; this name has not.
UsageError = typer.BadParameter.__mro__[1]


PENDING = "the outcome is pending: the next read-write open, or `omniref recover`, decides"


class Interrupted(Exception):
    """Ctrl-C, with what it means for what the command was doing."""


class Command(TyperCommand):
    """A command whose help names its arguments as they are written, without braces and Python types."""

    def get_help(self, ctx: Any) -> str:
        return re.sub(r"\{([A-Z]+)\}", r"\1", super().get_help(ctx)).replace(" <str>", " " * 6)


def _pending(command: Callable[..., None]) -> str:
    """What nobody knows when a command was cut short: nothing if it only reads."""
    if command is writing.init:
        return "the graph may be there in part: `omniref init --force` replaces it"
    return PENDING if command.__module__ in (writing.__name__, pipeline.__name__) else ""


def add(to: typer.Typer, name: str, command: Callable[..., None]) -> None:
    @wraps(command)
    def interruptible(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            raise Interrupted(_pending(command)) from None

    to.command(name, cls=Command)(interruptible)


def group(help: str) -> typer.Typer:
    return typer.Typer(
        help=help,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = group(HELP)
for each in (
    writing.init,
    writing.load,
    writing.mutate,
    reading.read,
    reading.entity,
    reading.snapshot,
    reading.export,
    reading.diff,
    reading.recoveries,
    writing.recover,
    writing.ensure_indices,
    writing.optimize,
    writing.repair,
    writing.cleanup,
    reading.version,
    writing.drive,
):
    add(app, each.__name__.replace("_", "-"), each)

branch = group("Create, list, delete and merge branches.")
add(branch, "create", writing.branch_create)
add(branch, "list", reading.branch_list)
add(branch, "delete", writing.branch_delete)
add(branch, "merge", writing.branch_merge)
app.add_typer(branch, name="branch")

commit = group("List and show commits.")
add(commit, "list", reading.commit_list)
add(commit, "show", reading.commit_show)
app.add_typer(commit, name="commit")

schema = group("Plan, apply and show the schema.")
add(schema, "plan", reading.schema_plan)
add(schema, "apply", writing.schema_apply)
add(schema, "show", reading.schema_show)
app.add_typer(schema, name="schema")

spark = group("Load, check and look at graphs of any size, on Spark.")
add(spark, "load", pipeline.load)
add(spark, "clean", pipeline.clean)
add(spark, "export", pipeline_jobs.export)
add(spark, "diff", pipeline_jobs.diff)
add(spark, "audit", pipeline_jobs.audit)
add(spark, "generate", pipeline_jobs.generate)
add(spark, "history", pipeline_jobs.history)
app.add_typer(spark, name="pipeline")


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code. Nothing gets past this but the end of the process."""
    try:
        return _run(args, as_json="--json" in args)
    except typer.Exit as gone:
        return gone.exit_code  # Nobody reads stdout, and it was an error that was to be printed there.


def _run(args: Sequence[str], *, as_json: bool) -> int:
    try:
        code: Any = app(args=list(args), prog_name="omniref", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except OmniError as error:
        return report(error.to_json(), as_json=as_json)
    except (Interrupted, KeyboardInterrupt) as error:
        return _interrupted(str(error), as_json=as_json)
    except Exception as error:
        if isinstance(error, UsageError):
            return _misused(error, as_json=as_json)
        if isinstance(error, OSError) and {"-h", "--help"} & set(args):
            failed = stdout_failed(error)
            if not isinstance(failed, StorageError):
                raise failed from None
            return report(failed.to_json(), as_json=as_json)
        return report(unexpected(error), as_json=as_json)


def _interrupted(pending: str, *, as_json: bool) -> int:
    """Ctrl-C. How far a writing command came, nobody knows here."""
    body = {"kind": "interrupted", "code": "interrupted", "message": "interrupted"}
    if pending:
        body |= {"kind": "outcome_pending", "message": f"interrupted; {pending}"}
    note(body["message"])
    if as_json:
        with suppress(StorageError):
            write(json_line({"error": body}))
    return EXIT_INTERRUPTED


def _misused(error: Any, *, as_json: bool) -> int:
    """A wrong command line; one without any command is answered with the help."""
    context = error.ctx
    if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
        write(f"{error.message}\n".encode())
        return EXIT_CODES["bad_request"]
    body = {"kind": "bad_request", "code": "usage", "message": error.format_message()}
    if context is not None:
        body["hint"] = f"see '{context.command_path} --help'"
    return report(body, as_json=as_json)
