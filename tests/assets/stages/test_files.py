"""What the page of `S_dump` shows."""

import hashlib
from pathlib import Path

from assets.stages.files import metadata
from pipeline.build import Node, build
from pipeline.config import FilesConfig
from pipeline.sources import STAGE
from pipeline.store import open_store


def shown(**origin: str) -> dict[str, object]:
    config = FilesConfig.model_validate({"from": origin})
    record = build(open_store(), Node("r", "dump", STAGE, config, config.digest())).record
    found = metadata(record, open_store().content(record.stage, record.version))
    return {name: getattr(value, "value", value) for name, value in found.items()} | {
        "files": [row.data for row in found["files"].records]
    }


def test_a_download_shows_address_checksums_and_speed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    (tmp_path / "tales.txt").write_bytes(b"Once upon a time")
    sha256 = hashlib.sha256(b"Once upon a time").hexdigest()
    url = (tmp_path / "tales.txt").as_uri()
    found = shown(url=url, sha256=sha256)
    row = {"file": "tales.txt", "megabytes": 0.0, "sha256": sha256, "declared": f"sha256 {sha256}", "kept": "stored"}
    assert found["files"] == [row]
    assert found["url"] == url and found["checksum"] == "sha256" and found["downloaded_bytes"] == 16
    assert "MB_per_second" in found and "download_seconds" in found
    local = shown(path=str(tmp_path / "tales.txt"))
    assert local["files"] == [row | {"declared": ""}]  # the version holds the bytes already
    assert "url" not in local and "checksum" not in local
