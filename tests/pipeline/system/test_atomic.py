"""Files that are replaced as a whole, and errors of the operating system with their way out."""

import errno
import os
import socket
from pathlib import Path

import pytest

from pipeline.errors import StoreError
from pipeline.system.atomic import (
    canonical_json,
    copy_folder,
    explain,
    explained,
    make_folder,
    rename_folder,
    write_bytes,
    write_json,
)


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


def test_a_link_at_the_target_is_replaced_and_what_it_led_to_stands(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    write_bytes(tmp_path / "file", b"mine")
    assert (tmp_path / "other").read_bytes() == b"other"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_where_a_step_fails_the_old_content_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    write_bytes(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_json_is_the_same_for_equal_values(tmp_path: Path) -> None:
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"loss": float("nan")})
    write_json(tmp_path / "x.json", {"b": 1, "a": 2})
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == '{\n "a": 2,\n "b": 1\n}\n'


def test_a_folder_takes_no_place_that_is_taken(tmp_path: Path) -> None:
    for name in ("source", "target"):
        write_bytes(tmp_path / name / "file", name.encode())
    with pytest.raises(OSError, match="not empty|exists"):
        rename_folder(tmp_path / "source", tmp_path / "target")
    rename_folder(tmp_path / "source", tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place" / "file").read_bytes() == b"source"
    assert (tmp_path / "target" / "file").read_bytes() == b"target"


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists|Not a directory"):
        make_folder(tmp_path / "file" / "folder")


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "free space there"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "BERT_HOME"),
        (errno.EACCES, "permissions"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_errors_name_the_path_and_the_way_out(number: int, way_out: str) -> None:
    error = explain(OSError(number, "x"), Path("home/store"))
    assert error.what == f"home/store: {os.strerror(number)}"
    assert way_out in error.todo


def test_only_errors_about_files_are_the_stores(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing: No such file"), explained(tmp_path):
        (tmp_path / "missing").read_bytes()
    with pytest.raises(ConnectionRefusedError), explained(tmp_path), socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # a port where nobody listens
        socket.create_connection(free.getsockname(), timeout=5)


def test_of_a_link_or_a_copy_the_place_is_named_that_was_written(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "full", "source.csv", None, str(tmp_path / "link.csv"))
    assert explain(full, tmp_path).what == f"{tmp_path / 'link.csv'}: No space left on device"
    gone = FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "source.csv"), None, str(tmp_path / "link.csv"))
    assert explain(gone, tmp_path).what == f"{tmp_path / 'source.csv'}: No such file or directory"


def test_a_name_without_its_folder_names_no_file(tmp_path: Path) -> None:
    """As `shutil.rmtree` raises it, which removes by descriptors."""
    told = explain(OSError(errno.EROFS, "read-only", "places.csv"), tmp_path / "staging").what
    assert told == f"{tmp_path / 'staging'}: Read-only file system"


def test_a_folder_is_copied_into_another_and_the_first_error_names_its_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "in").mkdir(parents=True)
    for name in ("a", "in/b", "in/left"):
        (source / name).write_text(name, encoding="utf-8")
    target.mkdir()
    (target / "c").write_text("c", encoding="utf-8")
    copy_folder(source, target, without={"left"})
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {"a", "c", "in", "in/b"}
    assert (target / "in" / "b").read_text(encoding="utf-8") == "in/b"
    copy_folder(source / "in", tmp_path / "new" / "in")
    assert (tmp_path / "new" / "in" / "left").read_text(encoding="utf-8") == "in/left"
    (target / "a").unlink()
    (target / "a").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        copy_folder(source, target)
    assert str(target / "a") in (error.value.filename, error.value.filename2)
