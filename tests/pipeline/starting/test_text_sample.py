"""A part of a large text: of the right kind, readable, and about the share of the whole that it says it is."""

import csv
import gzip
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Columns, OwnTextConfig
from pipeline.own_text import extract_text
from pipeline.schemas import iter_rows
from pipeline.starting.text_sample import sample
from pipeline.starting.text_survey import survey
from tests import tiny

DOCUMENTS = 400
TEXTS = ["\n\n".join(tiny.paragraphs(n, 4)) for n in range(DOCUMENTS)]
BYTES = sum(map(len, TEXTS))


def lay_out(kind: str, folder: Path) -> None:
    folder.mkdir()
    if kind == "jsonl.gz":
        with gzip.open(folder / "a.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    elif kind == "many jsonl":
        for start in range(0, DOCUMENTS, 50):
            lines = (json.dumps({"text": text}) + "\n" for text in TEXTS[start : start + 50])
            (folder / f"{start}.jsonl").write_text("".join(lines), encoding="utf-8")
    elif kind == "csv":
        with (folder / "a.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    elif kind == "parquet":
        pq.write_table(pa.table({"text": TEXTS}), folder / "a.parquet", compression="none")
    elif kind == "zip":
        with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for n, text in enumerate(TEXTS):
                archive.writestr(f"{n}.txt", text)
    elif kind == "lines":
        lines = ("\n".join(line + "." for line in text.replace("\n\n", " ").split(". ")) for text in TEXTS)
        (folder / "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    else:
        for n, text in enumerate(TEXTS):
            (folder / f"{n:03}.txt").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("kind", ["jsonl.gz", "many jsonl", "csv", "parquet", "zip", "lines", "text"])
def test_the_share_that_was_read_tells_how_much_there_is(kind: str, tmp_path: Path) -> None:
    lay_out(kind, tmp_path / "files")
    (found,) = survey(tmp_path / "files").taken
    part = sample(found, BYTES // 4, tmp_path / "part")
    packed = kind in ("jsonl.gz", "zip")  # taken for a third of what they hold; this text of few words packs better
    assert 0.05 < part.share < (0.75 if packed else 0.5)
    out = tmp_path / "out"
    out.mkdir()
    config = OwnTextConfig(
        source="a",
        kind=found.kind,  # type: ignore[arg-type]
        columns=Columns(),
        sentence_per_line=found.sentence_per_line,
    )
    assert extract_text({"files": part.folder}, config, out)["dropped"] == {}
    rows = list(iter_rows(out))
    # Every text that was read is one of the whole.
    if not found.sentence_per_line:
        assert {row["text"] for row in rows} <= set(TEXTS)
    assert len(rows) / part.share == pytest.approx(DOCUMENTS, rel=0.7 if packed else 0.1)


def test_what_is_small_is_there_whole_under_its_own_name(tmp_path: Path) -> None:
    lay_out("text", tmp_path / "files")
    (found,) = survey(tmp_path / "files").taken
    part = sample(found, 2 * BYTES, tmp_path / "part")
    assert part.share == 1
    there = {path.name: path.read_text(encoding="utf-8") for path in part.folder.rglob("*.txt")}
    assert there == {f"{n:03}.txt": text for n, text in enumerate(TEXTS)}
