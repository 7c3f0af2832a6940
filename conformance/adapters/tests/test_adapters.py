"""The kinds of adapters: how they are named, and that every operation passes through each of them alike."""

from __future__ import annotations

import inspect
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import protocol
from conformance.adapters import (
    AdapterFault,
    EngineError,
    InvalidEngineSpec,
    PythonEngine,
    Unsupported,
    connect,
    parse,
)
from conformance.adapters.credentials import Scrubber, Tail
from conformance.adapters.tests.whole_vocabulary import SCHEMA, speak
from failpoints import registry
from fixtures.stores.moto import MotoStore

DRIVE = f"cmd:{shlex.quote(sys.executable)} -c 'from reference.driver import main; main()'"
ENGINES = "python:conformance.adapters.tests.engines"
KINDS = ["reference", DRIVE, f"{ENGINES}:Wrapped"]


@pytest.mark.parametrize("spec", KINDS, ids=["reference", "cmd", "python"])
def test_every_operation_passes_through_every_kind_of_adapter(spec: str, tmp_path: Path) -> None:
    with connect(spec, env={}) as adapter:
        assert speak(adapter, str(tmp_path / "graph")) == set(protocol.operations())
        with pytest.raises(EngineError) as missing:
            adapter.call("open", {"uri": str(tmp_path / "nowhere")})
        assert (missing.value.kind, missing.value.code) == ("not_found", "graph_not_found")


@pytest.mark.s3
@pytest.mark.parametrize("spec", KINDS, ids=["reference", "cmd", "python"])
def test_the_store_is_the_one_that_the_adapter_is_given(spec: str, moto_store: MotoStore) -> None:
    root = moto_store.fresh_root()
    with connect(spec, env=moto_store.env) as adapter:
        adapter.call("init", {"uri": root, "schema": SCHEMA})
        assert adapter.call("open", {"uri": root})["recovered"] == []


def test_a_spec_says_what_it_names() -> None:
    assert parse("cmd:./my driver --name 'two words'").command == ("./my", "driver", "--name", "two words")
    assert (parse("python:a.b:C").module, parse("python:a.b:C").class_name) == ("a.b", "C")
    assert parse("reference").kind == "reference"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "it is empty"),
        ("./driver", "'./driver' is no kind of engine"),
        ("cmd", "'cmd' is no kind"),
        ("cmd:", "a command line"),
        ("cmd:'open", "No closing quotation"),
        ("python:module", "a module and a class"),
        ("python:mod ule:Class", "a module and a class"),
        ("reference:x", "'reference' is no kind"),
        ("mutant", "'mutant' is no kind"),
        ("mutant:no-sidecars", "no mutant 'no-sidecars': did you mean no-sidecar"),
        ("mutant:", "no mutant ''"),
    ],
)
def test_any_other_spec_is_refused_with_the_forms_there_are(spec: str, says: str) -> None:
    with pytest.raises(InvalidEngineSpec) as refused:
        parse(spec)
    assert says in str(refused.value) and "cmd:<command line>" in str(refused.value)


def test_a_mutant_is_the_driver_of_that_name_and_says_so() -> None:
    engine = parse("mutant:no-sidecar")
    assert (engine.text, engine.kind, engine.command[0]) == ("mutant:no-sidecar", "cmd", sys.executable)
    with connect(engine, env={}) as adapter:
        assert adapter.spec == "mutant:no-sidecar"
        assert adapter.call("hello", {})["name"] == "mutant:no-sidecar"


def test_errors_survive_the_way_to_another_process() -> None:
    for error in (
        EngineError("conflict", "branch_exists", "it is there", {"name": "x"}, "choose another"),
        Unsupported("merge", "not yet"),
        AdapterFault("broke", "stderr", {"seq": 1}, "silent"),
        InvalidEngineSpec("x", "y"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and vars(again) == vars(error)


# -- python: ---------------------------------------------------------------------------------------------------------


def test_a_class_has_the_operations_that_it_has_methods_for() -> None:
    with connect(f"{ENGINES}:Small", env={}) as adapter:
        assert adapter.call("hello", {})["name"] == "in-process"
        with pytest.raises(Unsupported, match="Small has no method 'merge'"):
            adapter.call("merge", {"handle": "h", "source": "a", "target": "b"})
        with pytest.raises(EngineError) as refused:
            adapter.call("refresh", {"handle": "h9"})
        assert str(refused.value) == "not_found/handle_not_found: no graph is open as h9 (open it)"


@pytest.mark.parametrize(
    ("op", "args", "reason", "says"),
    [
        ("init", {"uri": "/x", "schema": ""}, "raised", "init raised ZeroDivisionError: no room at /x"),
        ("open", {"uri": "/x"}, "not_an_answer", "ok['handle']"),
        ("open", {"uri": "/x", "read_only": True}, "raised", "unexpected keyword argument 'read_only'"),
        ("close", {"handle": "h"}, "not_json", "object is not JSON serializable"),
    ],
)
def test_what_a_class_may_not_do_is_a_fault(op: str, args: dict[str, object], reason: str, says: str) -> None:
    with connect(f"{ENGINES}:Small", env={}) as adapter:
        with pytest.raises(AdapterFault) as raised:
            adapter.call(op, args)
        assert raised.value.reason == reason and says in raised.value.message
        assert ("Traceback" in raised.value.stderr) == (reason == "raised")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("python:no_such_module:Engine", "module 'no_such_module' cannot be imported"),
        (f"{ENGINES}:Missing", "has no class 'Missing'"),
        (f"{ENGINES}:Unmakeable", "Unmakeable cannot be made: OSError: no licence"),
    ],
)
def test_a_class_that_cannot_be_made_says_why(spec: str, says: str) -> None:
    with pytest.raises(AdapterFault, match=says):
        connect(spec, env={})


def test_the_documented_class_has_every_operation_and_its_arguments() -> None:
    definitions = protocol.schema(protocol.OPERATIONS_SCHEMA)["$defs"]
    for op in protocol.operations():
        args = definitions[f"{op}.args"]
        while "$ref" in args:
            args = definitions[args["$ref"].removeprefix("#/$defs/")]
        parameters = dict(inspect.signature(getattr(PythonEngine, op)).parameters)
        del parameters["self"]
        assert parameters.keys() == args.get("properties", {}).keys(), op
        assert {name for name, each in parameters.items() if each.default is each.empty} == set(
            args.get("required", [])
        ), op


# -- failpoints and attaching ----------------------------------------------------------------------------------------


def test_failpoints_are_armed_for_the_life_of_a_reference_adapter(tmp_path: Path) -> None:
    uri, point = str(tmp_path / "graph"), "mutation.post_finalize_pre_publisher"
    with connect("reference", env={}, failpoints=f"{point}=error*1") as adapter:
        adapter.call("init", {"uri": uri, "schema": SCHEMA})
        handle = adapter.call("open", {"uri": uri})["handle"]
        with pytest.raises(EngineError) as pending:
            adapter.call("load", {"handle": handle, "data": '{"type":"Person","data":{"name":"a"}}', "mode": "append"})
        assert pending.value.kind == "outcome_pending"
    with registry.armed(point, "error"):
        pass  # It would be armed already if the adapter had left it so.


def test_failpoints_that_an_adapter_cannot_arm_are_refused() -> None:
    with pytest.raises(AdapterFault, match="would end the harness"):
        connect("reference", env={}, failpoints="recovery.sidecar_delete=kill")
    with pytest.raises(Unsupported, match="no environment of its own"):
        connect(f"{ENGINES}:Small", env={}, failpoints="recovery.sidecar_delete=error")
    with pytest.raises(registry.FailpointMisuse):
        connect("reference", env={}, failpoints="no.such.point=error")


def test_an_adapter_is_closed_if_the_person_gives_up_attaching() -> None:
    def give_up(text: str) -> None:
        assert "in the harness itself" in text
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connect("reference", env={}, failpoints="recovery.sidecar_delete=error", attach=give_up)
    with registry.armed("recovery.sidecar_delete", "error"):
        pass


def test_the_harness_works_without_the_reference_engine() -> None:
    text = "import sys; sys.modules['reference'] = None; import conformance.adapters as a; a.parse('cmd:x')"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


# -- credentials -----------------------------------------------------------------------------------------------------


def test_a_secret_is_found_however_it_is_spelled_and_cut() -> None:
    secret = "wJalr/XUtn+FEMI"
    scrubber = Scrubber({"AWS_SECRET_ACCESS_KEY": secret, "AWS_ACCESS_KEY_ID": "short", "AWS_REGION": "us-east-1"})
    assert (
        scrubber.text(f"{secret} wJalr%2FXUtn%2BFEMI wJalr\\/XUtn+FEMI short us-east-1")
        == "*** *** *** short us-east-1"
    )
    for bytes_max in range(1, 60):
        tail = Tail(scrubber, bytes_max)
        for character in f"before {secret} between {secret} after":
            tail.add(character.encode())
        assert tail.text() == "before *** between *** after"[-bytes_max:]
