"""One contract for text objects, kept on a disk, in memory and on S3 [STO-03, STO-04, STO-05]."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from fixtures.stores.moto import MotoStore
from reference.errors import BadRequest, Internal, NotFound, StorageError
from reference.storage.objects import TextObjects
from reference.storage.uris import parse_root

pytestmark = pytest.mark.requirement("STO-03", "STO-04")


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> TextObjects:
    match request.param:
        case "local":
            return TextObjects(parse_root(str(tmp_path / "graph")))
        case "memory":
            return TextObjects(parse_root(f"memory://{uuid.uuid4().hex}"))
        case _:
            store: MotoStore = request.getfixturevalue("moto_store")
            return TextObjects(parse_root(store.fresh_root()), store.env)


def test_a_written_text_is_read_back(objects: TextObjects) -> None:
    objects.write("__recovery/one.json", "Çarol ☂\r\n\0")
    assert objects.read("__recovery/one.json") == "Çarol ☂\r\n\0"
    objects.write("__recovery/one.json", "")
    assert objects.read("__recovery/one.json") == ""


def test_a_missing_object_is_not_found(objects: TextObjects) -> None:
    with pytest.raises(NotFound) as missing:
        objects.read("_schema.pg")
    assert missing.value.details == {"path": "_schema.pg"}
    with pytest.raises(NotFound):
        objects.read_if_changed("_schema.pg", "token")
    assert objects.probe("_schema.pg") is None


def test_nothing_is_below_an_object(objects: TextObjects) -> None:
    objects.write("file", "x")
    with pytest.raises(NotFound):
        objects.read("file/below")
    assert objects.probe("file/below") is None
    assert objects.exists("file/below") is False
    assert objects.list_dir("file") == []
    objects.delete("file/below")
    objects.delete_prefix("file")
    assert objects.read("file") == "x"


def test_write_if_absent_wins_once(objects: TextObjects) -> None:
    assert objects.write_if_absent("_schema.pg", "first")
    assert not objects.write_if_absent("_schema.pg", "second")
    assert objects.read("_schema.pg") == "first"


def test_write_if_absent_has_one_winner_among_threads(objects: TextObjects) -> None:
    start = threading.Barrier(8)
    winners: list[int] = []

    def claim(number: int) -> None:
        start.wait()
        if objects.write_if_absent("claim", str(number)):
            winners.append(number)

    claimants = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for claimant in claimants:
        claimant.start()
    for claimant in claimants:
        claimant.join()
    assert [str(number) for number in winners] == [objects.read("claim")]


def test_write_if_absent_has_one_winner_among_processes(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from reference.storage.objects import TextObjects\n"
        "from reference.storage.uris import parse_root\n"
        "objects = TextObjects(parse_root(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(sum(objects.write_if_absent(f'claim-{n}', sys.argv[2]) for n in range(200)))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "graph"), str(number)],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    wins = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(wins) == 200, f"200 claims were won {sum(wins)} times"


def test_write_if_match_replaces_what_was_read(objects: TextObjects) -> None:
    objects.write("state", "one")
    text, token = objects.read_versioned("state")
    assert text == "one"
    assert objects.probe("state") == token
    changed = objects.write_if_match("state", "two", token)
    assert changed is not None and changed != token
    assert objects.read_versioned("state") == ("two", changed)


def test_write_if_match_loses_to_another_write_and_to_a_delete(objects: TextObjects) -> None:
    objects.write("state", "one")
    _, token = objects.read_versioned("state")
    objects.write("state", "other")
    assert objects.write_if_match("state", "two", token) is None
    assert objects.read("state") == "other"
    objects.delete("state")
    assert objects.write_if_match("state", "two", token) is None
    assert not objects.exists("state")


def test_write_if_match_has_one_winner_among_threads(objects: TextObjects) -> None:
    token = objects.write("state", "start")
    start = threading.Barrier(6)
    winners: list[str] = []

    def swap(number: int) -> None:
        start.wait()
        if objects.write_if_match("state", f"from {number}", token):
            winners.append(f"from {number}")

    swappers = [threading.Thread(target=swap, args=(number,)) for number in range(6)]
    for swapper in swappers:
        swapper.start()
    for swapper in swappers:
        swapper.join()
    assert winners == [objects.read("state")]


def test_read_if_changed_is_silent_until_something_changed(objects: TextObjects) -> None:
    token = objects.write("state", "one")
    assert objects.read_if_changed("state", token) is None
    objects.write("state", "two")
    changed = objects.read_if_changed("state", token)
    assert changed is not None
    assert changed == objects.read_versioned("state")
    assert changed[0] == "two"


def test_exists_sees_objects_and_directories_with_something_in_them(objects: TextObjects) -> None:
    assert not objects.exists("")
    assert not objects.exists("__manifest")
    objects.write("__manifest/_versions/1", "x")
    assert objects.exists("")
    assert objects.exists("__manifest")
    assert objects.exists("__manifest/_versions/1")
    assert not objects.exists("__mani")
    objects.delete("__manifest/_versions/1")
    assert not objects.exists("__manifest")


@pytest.mark.requirement("STO-05")
def test_rename_replaces_the_target(objects: TextObjects) -> None:
    objects.write("_schema.pg.staging", "new")
    objects.write("_schema.pg", "old")
    objects.rename("_schema.pg.staging", "_schema.pg")
    assert objects.read("_schema.pg") == "new"
    assert not objects.exists("_schema.pg.staging")
    with pytest.raises(NotFound):
        objects.rename("_schema.pg.staging", "_schema.pg")
    assert objects.read("_schema.pg") == "new"


def test_rename_onto_itself_keeps_the_object(objects: TextObjects) -> None:
    objects.write("_schema.pg", "kept")
    objects.rename("_schema.pg", "_schema.pg")
    assert objects.read("_schema.pg") == "kept"


def test_delete_of_a_missing_object_is_fine(objects: TextObjects) -> None:
    objects.delete("nothing")
    objects.write("something", "x")
    objects.delete("something")
    objects.delete("something")
    assert not objects.exists("something")


def test_list_dir_names_the_files_of_one_directory_only(objects: TextObjects) -> None:
    assert objects.list_dir("__recovery") == []
    for path in ("__recovery/b.json", "__recovery/a.json", "__recovery/deeper/c.json", "__recovery_else/d", "top"):
        objects.write(path, "x")
    assert objects.list_dir("__recovery") == ["a.json", "b.json"]
    assert objects.list_dir("") == ["top"]


def test_list_files_goes_to_any_depth(objects: TextObjects) -> None:
    paths = ["refs/a%2Fb.json", "refs/deep/er/c", "refs/é ☂+=&"]
    assert objects.list_files("refs") == []
    for path in (*paths, "refsx"):
        objects.write(path, path)
    assert objects.list_files("refs") == sorted(paths)
    assert objects.list_files("") == sorted([*paths, "refsx"])
    assert [objects.read(path) for path in paths] == paths


def test_a_listing_may_be_longer_than_a_page(objects: TextObjects) -> None:
    names = [f"{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda name: objects.write(f"many/{name}", "x"), names))
    assert objects.list_dir("many") == names
    assert objects.list_files("many") == [f"many/{name}" for name in names]
    objects.delete_prefix("many")
    assert not objects.exists("many")


def test_delete_prefix_removes_everything_below_and_nothing_beside(objects: TextObjects) -> None:
    for path in ("tree/feat/a", "tree/feat/one/b", "tree/feature/c"):
        objects.write(path, "x")
    objects.delete_prefix("tree/feat")
    objects.delete_prefix("tree/feat")
    assert objects.list_files("tree") == ["tree/feature/c"]


def test_two_handles_see_one_store(objects: TextObjects, moto_store: MotoStore) -> None:
    objects.write("shared", "x")
    assert TextObjects(parse_root(objects.root.uri), moto_store.env).read("shared") == "x"


@pytest.mark.parametrize("path", ["", "..", "../x", "a/../b", "/a", "a/", "a//b", "a/./b", "a\0b", "a\n", "name#12"])
def test_a_path_that_could_leave_the_root_or_vanish_in_it_is_refused(objects: TextObjects, path: str) -> None:
    with pytest.raises(BadRequest):
        objects.write(path, "x")
    with pytest.raises(BadRequest):
        objects.read(path)
    with pytest.raises(BadRequest):
        objects.delete_prefix(path)


def test_bytes_that_are_no_text_name_the_object(objects: TextObjects) -> None:
    objects.write("sidecar", "x")
    obstore.put(objects._store, objects._key("sidecar"), b"ok \xff")
    with pytest.raises(Internal) as undecodable:
        objects.read("sidecar")
    assert undecodable.value.details == {"path": "sidecar", "offset": 3}


@pytest.mark.requirement("LAY-15")
def test_residue_of_a_dead_local_writer_is_invisible(tmp_path: Path) -> None:
    objects = TextObjects(parse_root(str(tmp_path)))
    objects.write("__recovery/a.json", "x")
    (tmp_path / "__recovery" / "b.json#1").write_text("half")
    assert objects.list_dir("__recovery") == ["a.json"]
    assert objects.list_files("") == ["__recovery/a.json"]
    objects.delete_prefix("__recovery")
    assert not (tmp_path / "__recovery").exists()


def test_looking_at_a_missing_local_graph_does_not_create_it(tmp_path: Path) -> None:
    objects = TextObjects(parse_root(str(tmp_path / "typo")))
    assert not objects.exists("")
    assert objects.list_dir("__recovery") == []
    objects.delete_prefix("nodes")
    assert not (tmp_path / "typo").exists()


def test_no_permission_is_an_error_and_not_an_absence(objects: TextObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionDeniedError("403 Forbidden: <Error><Code>AccessDenied</Code></Error>")

    for name in ("head", "get", "list_with_delimiter", "list"):
        monkeypatch.setattr(obstore, name, refuse)
    for ask in (objects.exists, objects.probe, objects.read, objects.list_dir, objects.list_files):
        with pytest.raises(StorageError) as refused:
            ask("_schema.pg")
        assert refused.value.code == "permission_denied"
        assert refused.value.details["store_code"] == "AccessDenied"


@pytest.mark.s3
def test_a_missing_bucket_is_an_error_and_not_an_empty_graph(moto_store: MotoStore) -> None:
    objects = TextObjects(parse_root("s3://no-such-bucket/graph"), moto_store.env)
    for ask in (objects.exists, objects.list_dir, objects.list_files, objects.delete_prefix):
        with pytest.raises(StorageError) as refused:
            ask("__manifest")
        assert refused.value.details["store_code"] == "NoSuchBucket"
    with pytest.raises(StorageError):
        objects.write("_schema.pg", "x")


@pytest.mark.s3
def test_an_error_of_the_store_leaks_no_credentials(moto_store: MotoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = TextObjects(parse_root(moto_store.fresh_root()), moto_store.env)
    secret, key_id = moto_store.env["AWS_SECRET_ACCESS_KEY"], "AKIDEXAMPLE"

    def fail(*_: object, **__: object) -> None:
        raise GenericError(
            f"PUT with {secret}: 403: <Error><AWSAccessKeyId>{key_id}</AWSAccessKeyId></Error>\nmore {secret}"
        )

    monkeypatch.setattr(obstore, "put", fail)
    with pytest.raises(StorageError) as failed:
        objects.write("_schema.pg", "x")
    shown = f"{failed.value} {failed.value.to_json()} {objects!r} {failed.value.__cause__}"
    assert secret not in shown
    assert key_id not in shown


@pytest.mark.s3
def test_the_given_endpoint_wins_over_the_one_of_the_process(
    moto_store: MotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    objects = TextObjects(parse_root(moto_store.fresh_root()), moto_store.env)
    assert objects.list_dir("") == []
