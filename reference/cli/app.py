"""The command line: which commands there are, and what becomes of every way in which one can end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from reference.cli import reading, writing
from reference.cli.output import EXIT_CODES, EXIT_INTERRUPTED, report, unexpected, write
from reference.errors import OmniError

HELP = """The reference storage engine for OmniGraph graphs.

Exit codes: 0 done; 1 the store or the graph is broken; 2 the request is wrong; 3 not found; 4 conflict, nothing
happened; 5 outcome pending, recovery decides; 130 interrupted; 141 the reader of stdout went away."""
# What typer raises for a wrong command line. Its module has moved between releases; this name has not.
UsageError = typer.BadParameter.__mro__[1]


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
    app.command(each.__name__.replace("_", "-"))(each)

branch = group("Create, list, delete and merge branches.")
branch.command("create")(writing.branch_create)
branch.command("list")(reading.branch_list)
branch.command("delete")(writing.branch_delete)
branch.command("merge")(writing.branch_merge)
app.add_typer(branch, name="branch")

commit = group("List and show commits.")
commit.command("list")(reading.commit_list)
commit.command("show")(reading.commit_show)
app.add_typer(commit, name="commit")

schema = group("Plan, apply and show the schema.")
schema.command("plan")(reading.schema_plan)
schema.command("apply")(writing.schema_apply)
schema.command("show")(reading.schema_show)
app.add_typer(schema, name="schema")


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code. Nothing gets past this but the end of the process."""
    as_json = "--json" in args
    try:
        code: Any = app(args=list(args), prog_name="omniref", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except OmniError as error:
        return report(error.to_json(), as_json=as_json)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if isinstance(error, UsageError):
            return _misused(error, as_json=as_json)
        return report(unexpected(error), as_json=as_json)


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
