"""The commands of `touchstone` that ask no engine: what they print, and how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from conformance import cli
from conformance.audit.cli import app as audit_app
from conformance.cli import app
from conformance.coverage import uncovered
from conformance.doctor import Finding, findings, show
from conformance.registry import requirements
from conformance.runner.records import Phase
from conformance.runner.redaction import without_secrets, words_without_secrets
from conformance.runner.session import RunOptions
from fixtures.stores.catalog import STORES, Store, StoreKind, UnknownStore, kind_of, running

WIDE = {"COLUMNS": "250"}


def test_the_requirements_are_listed_with_the_number_of_their_tests() -> None:
    done = CliRunner().invoke(app, ["requirements", "--format", "table"], env=WIDE)

    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert lines[-1].startswith(f"{len(requirements())} requirements, ") and lines[-1].endswith("without a test: none")
    (row,) = (line.split() for line in lines if line.startswith("LOD-07 "))
    assert row[1:3] == ["must", "core"] and int(row[3]) >= 1


def test_requirements_that_are_measured_are_listed_with_the_command_and_its_budgets() -> None:
    done = CliRunner().invoke(app, ["requirements", "--group", "cost"], env=WIDE)

    assert "COST-01 is measured by `touchstone cost`, against the budgets of: " in done.output
    assert "none" not in done.output.splitlines()[-2]


def test_the_requirements_of_a_group_are_listed_as_json_with_their_tests() -> None:
    done = CliRunner().invoke(app, ["requirements", "--format", "json", "--group", "mrg"])

    rows = json.loads(done.output)
    assert {row["group"] for row in rows} == {"MRG"}
    assert all("::test_" in name for row in rows for name in row["tests"])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["requirements", "--format", "poem"], "there is no format 'poem'"),
        (["requirements", "--group", "XYZ"], "there is no group 'XYZ'"),
        (["replay", "nowhere.json"], "cannot be read"),
    ],
)
def test_a_request_that_makes_no_sense_ends_with_two(args: list[str], words: str) -> None:
    done = CliRunner().invoke(app, args, env=WIDE)

    assert done.exit_code == 2 and words in done.output


def test_a_folder_for_graphs_that_is_not_there_is_said_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOUCHSTONE_SCRATCH", str(tmp_path / "gone"))
    done = CliRunner().invoke(app, ["run", "--suite", "SNP"], env=WIDE)
    assert done.exit_code == 2, done.output
    assert f"TOUCHSTONE_SCRATCH names '{tmp_path / 'gone'}', which is no directory" in done.output
    assert str(kind_of("local").missing()) in done.output


def test_a_relative_folder_for_graphs_is_the_same_one_for_an_engine_that_is_started_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "graphs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOUCHSTONE_SCRATCH", "graphs")
    with running("local") as store:
        assert Path(store.fresh_root()).is_relative_to(tmp_path / "graphs")


def test_the_doctor_names_every_store_and_what_to_do_about_what_is_missing() -> None:
    found = list(findings())

    assert set(STORES) <= {each.name for each in found if each.kind == "store"}
    console = Console(record=True, width=200)
    show(console, [*found, Finding("store", "floppy", False, "buy a drive")])
    text = console.export_text()
    assert "floppy" in text and "buy a drive" in text and "missing: " in text


def test_the_doctor_does_not_promise_what_it_has_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    far = StoreKind("far", "somebody's server", lambda: None, STORES["local"].start, is_elsewhere=True)
    monkeypatch.setattr("conformance.doctor.STORES", {"far": far})

    found = [each for each in findings() if each.kind == "store"]
    console = Console(record=True, width=200)
    show(console, found)

    text = console.export_text()
    assert "perhaps" in text and "set up, and not tried: touchstone doctor --stores tries it" in text


@pytest.mark.s3
def test_the_doctor_starts_the_stores_that_are_here_and_prints_what_they_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floppy = StoreKind("floppy", "a disk", lambda: "buy a drive", STORES["local"].start)
    chosen = {"local": STORES["local"], "moto": STORES["moto"], "floppy": floppy}
    for module in ("conformance.doctor", "fixtures.stores.catalog"):
        monkeypatch.setattr(f"{module}.STORES", chosen)

    done = CliRunner().invoke(app, ["doctor", "--stores"], env=WIDE)

    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert "local: ok, a local directory" in lines and any(re.match(r"moto \d\S*: ok, ", line) for line in lines)
    assert "floppy: the store 'floppy' cannot run here: buy a drive" in lines
    assert "PUT with If-Match on a key that is not there 404" in lines


def test_a_store_that_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert "pip install" in (kind_of("moto").missing() or "")


def test_a_store_that_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownStore, match="there is no store 'floppy'; there are local, moto"):
        running("floppy")


def test_what_a_test_has_written_is_removed_when_it_is_over() -> None:
    removed: list[str] = []
    store = Store("x", {}, iter(["one", "two"]).__next__, removed.append)

    given = [store.fresh_root(), store.fresh_root()]
    store.discard()
    store.discard()

    assert removed == given == ["one", "two"]


def test_coverage_asks_for_everything_but_gaps_other_surfaces_and_the_unseen() -> None:
    row = {"id": "LOD-07", "group": "LOD", "level": "must", "outcome": "passed"}
    rows = [
        row,
        {**row, "id": "LOD-08", "outcome": "not_tested"},
        {**row, "id": "LOD-03", "level": "gap", "outcome": "gap"},
        {**row, "id": "SRV-01", "group": "SRV", "outcome": "not_tested"},
        {**row, "id": "LOD-13", "outcome": "not_tested"},
    ]

    assert uncovered({"requirements": rows}) == ["LOD-08"]


@pytest.mark.parametrize(
    "given",
    [
        "env AWS_SECRET_ACCESS_KEY=hush MODE=fast ./driver",
        "env API_TOKEN='also hush' MODE=fast ./driver",
        "env PASSWD=hush CREDENTIALS=hush MODE=fast ./driver",
        "env PGPASSWORD=a\\ hush MODE=fast ./driver",
        "env MODE=fast ./driver --secret-key hush",
        "env MODE=fast ./driver --password 'it is hush' --verbose",
        "env MODE=fast ./driver -password=hush",
        "env MODE=fast ./driver --endpoint http://user:hush@127.0.0.1:9000/x",
        "env MODE=fast ./driver --endpoint http://user:hu/hush@127.0.0.1:9000/x",
        "env MODE=fast ./driver --endpoint https://hush@example.org",
        "env MODE=fast ./driver -H 'Authorization: Bearer hush' --verbose",
        """env MODE=fast ./driver --config '{"password": "hush"}'""",
        "sh -c 'env MODE=fast ./driver --db-pass hush --token hush'",
        "env MODE=fast ./driver 's3://b/x?X-Amz-Signature=hush&a=b'",
        "env MODE=fast ./driver --header 'X-Api-Key: hush hush' --verbose",
        "env MODE=fast ./driver --header X-Api-Key:hush",
        "env MODE=fast ./driver -H 'Cookie: a=hush'",
        "env MODE=fast ./driver --user ann:hush --verbose",
        "env MODE=fast ./driver --proxy-user='ann:hush'",
        "env MODE=fast ./driver --cookie hush",
        "env MODE=fast ./driver --secret -hush",
    ],
)
def test_the_values_of_secrets_do_not_get_into_a_report(given: str) -> None:
    options = RunOptions(engine=f"cmd:{given}", pytest_args=("--token", "hush", "-k", "a b"))

    assert "hush" not in without_secrets(options.engine) and "hush" not in options.command()
    assert "MODE=fast ./driver" in without_secrets(options.engine)
    assert without_secrets(without_secrets(given)) == without_secrets(given)
    assert "-k 'a b'" in options.command()


@pytest.mark.parametrize(
    "given",
    [
        "python:my.keys:TokenEngine",
        "cmd:./driver --cache 10 --author ann http://127.0.0.1:9000/a s3://bucket/graph",
        "cmd:./driver --monkey-patch",
        "cmd:./driver --user ann --tokenize --verbose",
        "cmd:./driver --header 'Accept: text/plain'",
        "mutant:no-sidecar",
    ],
)
def test_what_is_no_secret_stays(given: str) -> None:
    assert without_secrets(given) == given


@pytest.mark.parametrize("commands", [app, audit_app])
def test_no_command_shows_the_values_of_variables_when_it_breaks_down(commands: typer.Typer) -> None:
    assert not commands.pretty_exceptions_enable


@pytest.mark.parametrize(
    "said",
    [
        "PUT http://h/b/x?X-Amz-Algorithm=A&X-Amz-Credential=hush%2Fus&X-Amz-Signature=hush&a=1: 403",
        "PUT http://h/b/x?AWSAccessKeyId=hush&Signature=hush&Expires=1: 403",
        "the request had Authorization: AWS4-HMAC-SHA256 Credential=hush, Signature=hush",
        "{'secret_access_key': 'hush', 'a': 1}",
        "http://ann:hush@127.0.0.1:9000/b answered 403",
        "AWS_SESSION_TOKEN=hush was given",
        "AWS_SESSION_TOKEN = 'hush hush' was given",
        "<Error><SecretAccessKey>hush</SecretAccessKey><Token>hush hush</Token></Error>",
        "<SignatureProvided>hush</SignatureProvided>",
        'Config { token: Some("hush hush"), retries: 3 }',
        r"{\"token\": \"hush\"}",
        r"token=\"hush hush\"",
        r'"secret": "a\"hush"',
        "sent Bearer hush to the store",
        '{"authorization": ["AWS4 hush"]}',
        'authorization: Some("AWS4 hush")',
        "http%3A%2F%2Fh%2Fb%3Fa%3D1%26X-Amz-Signature%3Dhush",
        "https://h/c?sv=1&sig=hush&se=2: 403",
        "account_key=hush; pwd=hush",
    ],
)
def test_what_an_engine_says_gets_into_a_report_without_secrets(said: str) -> None:
    assert "hush" not in words_without_secrets(said)
    phase = Phase("failed", because=said, detail=said, stderr=said, trace={"because": said, "steps": [{"do": said}]})
    body = json.loads(phase.to_text())
    assert "hush" not in json.dumps({**body, "trace": body["trace"]["because"]})
    assert body["trace"]["steps"] == [{"do": said}], "a replay runs what the suite has written"


@pytest.mark.parametrize(
    "said",
    [
        "node:Person 'ann' is {'table_key': 'node:Person', 'key': 'ann'}, and should not be",
        "GET http://127.0.0.1:9000/b/nodes/40d7?list-type=2&prefix=x answered 403",
        "after mutate a row by 'ann@x' of s3://bucket/graph is lost: name = ann",
        "sort_key: name, key = 'ann', keys: ['a', 'b'], partition key: id",
        "the token has expired, and its signature does not match; a secret is needed",
        "the bearer of this, a bearer token is missing, signal=9, significant: yes",
        "<Code>AccessDenied</Code><Key>nodes/40d7</Key><Message>no token</Message>",
    ],
)
def test_words_without_secrets_stay(said: str) -> None:
    assert words_without_secrets(said) == said


def test_a_mistake_of_the_kit_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("conformance.cli.app", broken)

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 3
    assert "nobody thought of this" in (said := capsys.readouterr().err) and "a mistake of the kit" in said
