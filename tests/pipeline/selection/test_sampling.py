"""What a rehearsal reads of every kind of source: its beginning, with counts that add up, by hand calculation."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from model.tasks import prepare_task
from pipeline import extraction, own_text, sources
from pipeline.beam import extraction_beam
from pipeline.books import extract_text as read_books
from pipeline.config import BooksTextConfig, FilesConfig, OwnTextConfig, PathFrom, Task, TaskDataConfig, TaskFiles
from pipeline.config import WikipediaTextConfig as WikiConfig
from pipeline.schemas import iter_rows
from pipeline.selection.sampling import FETCHED, Beginning, evenly, first_bytes
from pipeline.wiki import dump_parts
from tests.pipeline.dumps import dump, page
from tests.pipeline.origins.test_wikimedia import add_dump, add_export, site  # noqa: F401

TEXT = "x" * 100


def test_the_first_that_hold_a_share_of_the_bytes_and_at_least_one() -> None:
    sizes = [10, 20, 30, 40]
    assert [first_bytes("abcd", sizes, share) for share in (0.0001, 0.1, 0.3, 0.31, 1)] == [
        "a",
        "a",
        "ab",
        "abc",
        "abcd",
    ]


def test_examples_are_spaced_evenly_and_a_few_hundred_stay_whole() -> None:
    assert evenly(range(1000), 0.01, least=4) == list(range(0, 1000, 100))
    assert evenly(range(1000), 0.001, least=4) == [0, 250, 500, 750]
    assert evenly(range(150), 0.001) == list(range(150))


@pytest.mark.parametrize(("share", "read"), [(0.01, 200), (0.25, 250), (0.9999, 1000)])
def test_documents_stop_at_the_share_of_characters_and_not_before_two_hundred(share: float, read: int) -> None:
    closed = []

    def all_() -> Any:
        try:
            for _ in range(1000):
                yield {"text": TEXT}
        finally:
            closed.append(True)

    beginning = Beginning(all_(), 100_000, share)
    assert len(list(beginning)) == read
    assert beginning.share == read / 1000 and closed == [True]


def test_of_a_dump_the_first_parts_are_read_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pipeline.beam.beam_process.run", lambda _, plan, scratch, poll: (extraction_beam.run(plan), poll())
    )
    monkeypatch.setattr(dump_parts, "PARTS", 10)
    monkeypatch.setattr(dump_parts, "SMALLEST", 1)
    folder = tmp_path / "dump"
    folder.mkdir()
    text = "A sentence of a page that holds some words. " * 20
    xml = dump(*(page(f"Page {n}", n, f"{n} {text}") for n in range(1, 101)))
    (folder / "a.xml").write_bytes(xml)

    def read(sample: float, **fetched: float) -> tuple[list[str], dict[str, Any]]:
        (folder / FETCHED).unlink(missing_ok=True)
        if fetched:
            (folder / FETCHED).write_text(json.dumps(fetched))
        out = tmp_path / f"out {sample} {fetched}"
        out.mkdir()
        found = extraction.extract_text({"dump": folder}, WikiConfig(source="wiki", sample=sample), out)
        return [row["title"] for row in iter_rows(out)], found

    titles, found = read(0.25)
    assert found["sample_share"] == pytest.approx(0.3, abs=0.001), "three of ten parts"
    assert titles == [f"Page {n}" for n in range(1, len(titles) + 1)] and 28 <= len(titles) <= 32
    titles, found = read(0.0001)
    assert found["sample_share"] == pytest.approx(0.1, abs=0.001) and 8 <= len(titles) <= 12
    # Half of the dump was downloaded: a tenth of the dump is a fifth of what is there.
    titles, found = read(0.0999, share=0.5)
    assert found["sample_share"] == pytest.approx(0.1, abs=0.001) and 18 <= len(titles) <= 22
    titles, found = read(1)
    assert len(titles) == 100 and "sample_share" not in found


def test_of_a_dump_site_the_first_files_are_downloaded(tmp_path: Path, site: Any) -> None:  # noqa: F811
    add_dump(site, "20260101")
    add_export(site, "2026-02-01")  # newer, but of another layout
    for name, share, wanted in (("whole", 1.0, 4), ("part", 0.01, 1)):
        out = tmp_path / name
        out.mkdir()
        origin = {"wiki": "tlwiki", "dump": "20260101"}
        sources.resolve(FilesConfig(**{"from": origin}).from_)
        found = sources.fetch_files({}, FilesConfig(sample=share, **{"from": origin}), out)
        assert len(found["files"]) == found["file_count"] == wanted
        names = {path.name for path in out.iterdir()} - {FETCHED}
        assert len(names) == wanted
    assert names == {"tlwiki-20260101-pages-articles-multistream2.xml-p1p5.bz2"}
    sizes = {name: len(data) for name, data in site.files.items() if "/20260101/" in name and ".xml" in name}
    first = next(size for name, size in sizes.items() if name.endswith("p1p5.bz2"))
    assert json.loads((out / FETCHED).read_text())["share"] == pytest.approx(first / sum(sizes.values()))


@pytest.mark.parametrize("kind", ["jsonl", "text"])
def test_own_text_is_read_from_the_beginning(tmp_path: Path, kind: str) -> None:
    files = tmp_path / "files"
    files.mkdir()
    if kind == "jsonl":
        rows = [json.dumps({"text": f"{n} {TEXT}"}) for n in range(1000)] + ["{broken"]
        (files / "a.jsonl").write_text("\n".join(["{broken", *rows]))
    else:
        for n in range(1000):
            (files / f"{n:04}.txt").write_text(f"{n} {TEXT}")
    out = tmp_path / "out"
    out.mkdir()
    found = own_text.extract_text({"files": files}, OwnTextConfig(source="mine", kind=kind, sample=0.3), out)
    assert found["read"] == found["kept"] + sum(found["dropped"].values())
    kept = [row["text"].split()[0] for row in iter_rows(out)]
    assert kept == [str(n) for n in range(len(kept))]
    assert len(kept) == pytest.approx(300, rel=0.15) and found["sample_share"] == pytest.approx(0.3, rel=0.01)


def test_books_are_read_from_the_first_files_and_the_table_of_books_says_which(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    story = "Once upon a time there was a king, and he lived in a castle by the sea. "
    for n in range(400):
        (files / f"{n:03}.txt").write_text(f"Book {n}. {story * 3}")
    (files / "zzz.tab").write_text("Content\nNever reached.\n")
    out = tmp_path / "out"
    out.mkdir()
    config = BooksTextConfig(source="shelf", sample=0.6, columns={"text": "Content"})
    found = read_books({"files": files}, config, out)
    assert found["read"] == found["kept"] + sum(found["dropped"].values())
    kept = len(list(iter_rows(out)))
    assert kept == pytest.approx(240, abs=3) and found["sample_share"] == pytest.approx(0.6, rel=0.02)
    books = pq.read_table(out / "books.parquet").to_pylist()
    assert [row["path"] for row in books if row["documents"]] == [f"{n:03}.txt" for n in range(kept)]
    assert {row["dropped"] for row in books if not row["documents"]} <= {"not in the sample"}


def test_tasks_keep_a_few_hundred_examples_with_all_their_labels(tmp_path: Path) -> None:
    rows = [f"text {n},{'rare' if n == 777 else 'even' if n % 2 else 'odd'}" for n in range(4000)]
    (tmp_path / "a.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    out = tmp_path / "out"
    out.mkdir()
    task = Task(files=TaskFiles(train=PathFrom(path=str(tmp_path / "a.csv"))), dev_share=0.25, test_share=0.25)
    found = prepare_task({}, TaskDataConfig(task="mine", define=task, sample=0.001), out)
    assert (found["train"], found["dev"], found["test"], found["label_count"]) == (200, 200, 200, 3)
    assert sum(found["dropped"].values()) == 4000 - 600
    assert set(found["dropped"]) == {f"{part}: not in the sample" for part in ("train", "dev", "test")}


def test_compressed_dumps_are_cut_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(b"BZh9")
    with path.open("r+b") as file:
        file.truncate(100 << 20)  # sparse
    parts = dump_parts.cut([path])
    assert len(parts) == 25
    assert len(dump_parts.beginning(parts, 0.1)) == 3, "2.5 parts of 4 MiB"
