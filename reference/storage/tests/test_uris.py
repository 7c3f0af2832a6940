"""A root has one normal spelling, ambiguous ones are refused, and settings never show their secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference.errors import BadRequest
from reference.storage.uris import S3Settings, parse_root, storage_options_from_env

pytestmark = pytest.mark.requirement("STO-01", "STO-02")

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_SESSION_TOKEN": "t0k3n"}


def test_a_root_joins_relative_paths() -> None:
    root = parse_root("s3://bucket/graphs/one/")
    assert root.uri == "s3://bucket/graphs/one"
    assert (root.scheme, root.bucket, root.prefix) == ("s3", "bucket", "graphs/one")
    assert root.join("nodes/40d76f1f51639ec0") == "s3://bucket/graphs/one/nodes/40d76f1f51639ec0"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/srv/graph", "/srv/graph"),
        ("/srv/graph///", "/srv/graph"),
        ("//srv//graph", "/srv/graph"),
        ("/srv/./old/../graph", "/srv/graph"),
        ("/../../srv", "/srv"),
        ("file:///srv/graph/", "/srv/graph"),
        ("file://localhost/srv/graph", "/srv/graph"),
        ("FILE:///srv/../graph", "/graph"),
        ("/srv/50%/a b#1", "/srv/50%/a b#1"),
        ("/", "/"),
    ],
)
def test_a_local_root_is_absolute_and_folded(text: str, path: str) -> None:
    root = parse_root(text)
    assert (root.scheme, root.uri, root.path) == ("file", path, path)
    assert root.join("__manifest") == path.rstrip("/") + "/__manifest"


def test_a_relative_path_is_made_absolute_without_touching_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_root("absent/../graph").path == os.path.join(os.getcwd(), "graph")
    assert not list(tmp_path.iterdir())


def test_a_bucket_may_be_the_root() -> None:
    root = parse_root("S3://bucket/")
    assert (root.uri, root.prefix) == ("s3://bucket", "")
    assert root.join("_schema.pg") == "s3://bucket/_schema.pg"


def test_memory_is_named_as_lance_names_it() -> None:
    root = parse_root("memory://graph-1/")
    assert (root.scheme, root.uri, root.prefix) == ("memory", "shared-memory://graph-1", "graph-1")
    assert parse_root(root.uri) == root
    with pytest.raises(ValueError, match="not a local directory"):
        _ = root.path


@pytest.mark.parametrize("text", ["/srv/graph", "s3://bucket", "s3://bucket/a/b", "memory://g/h"])
def test_the_normal_spelling_is_a_fixed_point(text: str) -> None:
    root = parse_root(text)
    assert parse_root(root.uri) == root


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "/srv/\0graph",
        "/srv/gra\nph",
        "s3://",
        "s3:///prefix",
        "s3://B_d/prefix",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/a%20b",
        "s3://bucket/a?versionId=1",
        "s3://bucket/a#b",
        "s3://key:s3cr3t@bucket/a",
        "file://server/share",
        "file://",
        "file:///a%20b",
        "memory://",
        "http://host/graph",
        "https://host/graph",
        "gs://bucket/graph",
        "s3a://bucket/graph",
    ],
)
def test_what_is_no_root_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_root(text)
    assert refused.value.code == "invalid_uri"
    assert refused.value.hint
    assert "s3cr3t" not in str(refused.value.to_json())


def test_the_s3_endpoint_wins_over_the_general_one() -> None:
    env = {"AWS_ENDPOINT_URL": "https://general", "AWS_ENDPOINT_URL_S3": "https://s3.example/"}
    assert S3Settings.from_env(env).endpoint == "https://s3.example"
    assert S3Settings.from_env({**env, "AWS_ENDPOINT_URL_S3": ""}).endpoint == "https://general"


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "True", "yes", "YES", "on", "ON"])
def test_the_words_for_yes(word: str) -> None:
    settings = S3Settings.from_env({"AWS_ALLOW_HTTP": word, "AWS_S3_FORCE_PATH_STYLE": word})
    assert settings.allow_http
    assert settings.path_style


@pytest.mark.parametrize("word", ["", "0", "false", "no", "off", "tRUE", "Y"])
def test_every_other_word_is_no(word: str) -> None:
    settings = S3Settings.from_env({"AWS_ALLOW_HTTP": word, "AWS_S3_FORCE_PATH_STYLE": word})
    assert not settings.allow_http
    assert not settings.path_style


def test_an_http_endpoint_allows_http() -> None:
    assert S3Settings.from_env({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}).allow_http
    assert not S3Settings.from_env({"AWS_ENDPOINT_URL": "https://s3.example"}).allow_http


def test_pylance_gets_every_setting() -> None:
    env = {**KEYS, "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://e", "AWS_S3_FORCE_PATH_STYLE": "1"}
    assert storage_options_from_env(env) == {
        "aws_region": "eu-west-1",
        "aws_access_key_id": "AKIDEXAMPLE",
        "aws_secret_access_key": "s3cr3t",
        "aws_session_token": "t0k3n",
        "aws_endpoint": "http://e",
        "aws_endpoint_url_s3": "http://e",
        "aws_virtual_hosted_style_request": "false",
        "allow_http": "true",
    }
    assert storage_options_from_env({}) == {}


def test_secrets_are_in_no_repr() -> None:
    shown = repr(S3Settings.from_env(KEYS))
    assert not any(secret in shown for secret in KEYS.values())


@pytest.mark.parametrize(
    "env",
    [
        {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE"},
        {"AWS_SECRET_ACCESS_KEY": "s3cr3t"},
        {"AWS_ENDPOINT_URL": "127.0.0.1:9000"},
        {"AWS_ENDPOINT_URL": "ftp://host"},
        {"AWS_ENDPOINT_URL": "http://user:s3cr3t@host"},
    ],
)
def test_half_a_setting_is_refused_without_repeating_it(env: dict[str, str]) -> None:
    with pytest.raises(BadRequest) as refused:
        S3Settings.from_env(env)
    assert "s3cr3t" not in str(refused.value)
