"""The three schema files at the root of a graph, as text [LAY-10, LAY-11, SNP-10].

`_schema.pg` is the source, `_schema.ir.json` what it was compiled to when the graph accepted it, and
`__schema_state.json` the hash of that. Together they are a contract: `check_contract` refuses a graph in which they
disagree. Nothing here reads or writes a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from reference.errors import BadRequest, Conflict, Internal
from reference.format.names import SCHEMA_IR_FILE, SCHEMA_SOURCE_FILE, SCHEMA_STATE_FILE
from reference.schema.compiler import compile_schema
from reference.schema.ir import catalog_from_ir, ir_hash, parse_ir, schema_ir
from reference.schema.jsontext import pretty_json
from reference.schema.types import Catalog

FORMAT_VERSION = 1
IDENTITY_VERSION = 1


@dataclass(frozen=True)
class SchemaState:
    """`__schema_state.json`."""

    schema_ir_hash: str
    format_version: int = FORMAT_VERSION
    schema_identity_version: int = IDENTITY_VERSION


def schema_file_texts(source: str, catalog: Catalog) -> dict[str, str]:
    """The text of each file, by name, in the order in which they are written and promoted."""
    ir = schema_ir(catalog)
    state = {
        "format_version": FORMAT_VERSION,
        "schema_ir_hash": ir_hash(ir),
        "schema_identity_version": IDENTITY_VERSION,
    }
    return {SCHEMA_SOURCE_FILE: source, SCHEMA_IR_FILE: pretty_json(ir), SCHEMA_STATE_FILE: pretty_json(state)}


def parse_state(text: str) -> SchemaState:
    """Decode the state file, or refuse a state that this engine cannot vouch for."""
    try:
        body = json.loads(text)
        state = SchemaState(body["schema_ir_hash"], body["format_version"], body["schema_identity_version"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from None
    for found, known in ((state.format_version, FORMAT_VERSION), (state.schema_identity_version, IDENTITY_VERSION)):
        if found != known or isinstance(found, bool):
            raise Internal(
                f"{SCHEMA_STATE_FILE} has version {found!r}; this engine reads version {known}",
                code="unsupported_schema_format",
                hint="use the engine that wrote this graph",
            )
    if not isinstance(state.schema_ir_hash, str):
        raise _unreadable("the hash is not text")
    return state


def check_contract(source: str, ir_text: str, state_text: str) -> Catalog:
    """The catalog of a graph whose three files agree."""
    state = parse_state(state_text)
    ir = parse_ir(ir_text)
    if ir_hash(ir) != state.schema_ir_hash:
        raise Conflict(
            f"{SCHEMA_IR_FILE} is not the schema that {SCHEMA_STATE_FILE} records",
            code="schema_state_mismatch",
            details={"recorded": state.schema_ir_hash, "found": ir_hash(ir)},
            hint="if a schema apply was interrupted, open the graph for writing so that it is resolved",
        )
    try:
        compiled = ir_hash(schema_ir(compile_schema(source)))
    except BadRequest as error:
        raise _drift({"cause": error.message}) from error
    if compiled != state.schema_ir_hash:
        raise _drift({"accepted": state.schema_ir_hash, "found": compiled})
    return catalog_from_ir(ir)


def _drift(details: dict[str, str]) -> Conflict:
    return Conflict(
        f"{SCHEMA_SOURCE_FILE} was changed outside of schema apply and no longer is the schema this graph accepted",
        code="schema_source_drift",
        details=details,
        hint=f"put the accepted text of {SCHEMA_SOURCE_FILE} back, then change the schema with schema apply",
    )


def _unreadable(why: str) -> Internal:
    return Internal(
        f"{SCHEMA_STATE_FILE} cannot be read: {why}",
        code="schema_state_invalid",
        hint="restore the file from a copy of the graph",
    )
