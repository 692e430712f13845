"""Folders of links (pipeline/storage/views.py); how the store reads through them is tested in test_store.py."""

from pathlib import Path

import pytest

from pipeline.storage.views import view


def test_what_keeps_a_view_from_being_made_is_an_error_and_no_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "views").write_text("no folder", encoding="utf-8")
    with pytest.raises(OSError):
        view(tmp_path / "views", {"a.txt": tmp_path / "a.txt"})
    assert list((tmp_path / "scratch").iterdir()) == []
