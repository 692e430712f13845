"""The tasks known by name: their real files, as far as they are at hand, and imitations of the rest."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from model import tasks
from model.task_files import known_tasks
from model.task_files.known_tasks import KNOWN
from pipeline.config import OfficialFrom, PathFrom, TaskDataConfig, TaskFrom, UrlFrom
from pipeline.errors import DataError, SourceError
from pipeline.origins import transfer
from pipeline.origins.transfer import Patience
from tests.conftest import shared
from tests.pipeline.badserver import Site, serving


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(transfer, "PATIENCE", Patience(pause_seconds=0.01))


def prepare(out: Path, task: str, origin: TaskFrom | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(task.json or not_run.json, statistics)"""
    out.mkdir()
    from_ = PathFrom(path=str(origin)) if isinstance(origin, Path) else origin
    statistics = tasks.prepare_task({}, TaskDataConfig(task=task, **{"from": from_}), out)
    name = tasks.NOT_RUN if "not_run" in statistics else "task.json"
    return json.loads((out / name).read_text(encoding="utf-8")), statistics


def rows(out: Path, part: str) -> list[tuple[Any, ...]]:
    return pl.read_parquet(out / f"{part}.parquet").rows()


# ── declarations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_declarations_are_sound() -> None:
    for task in KNOWN.values():
        assert task.downloads or task.home
        assert all(download.url.startswith("https://") for download in task.downloads)
        names = [name for part in task.parts.values() for name in (part.file, *part.also)]
        assert len(set(names)) == len(names)
        for row in task.published:
            assert row.split in ("dev", "test")
    assert KNOWN["stsb_vectors"].downloads == KNOWN["stsb"].downloads  # another task of the same files
    sums = [download.sha256 for name, task in KNOWN.items() if name != "stsb_vectors" for download in task.downloads]
    assert len(set(sums)) == len(sums)


def test_published_scores_are_those_of_the_paper() -> None:
    """Devlin et al. 2019, table 1, row BERT-base: the average over eight tasks is 79.6 (MNLI as m/mm 84.6/83.4)."""
    base = {
        task: row["points"]
        for task in ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte")
        for row in known_tasks.published_of(task)
        if row["system"] == "BERT-base" and row["split"] == "test"
    }
    assert len(base) == 7
    assert (sum(base.values()) + 84.6 + 83.4) / 9 == pytest.approx(79.6, abs=0.05)
    assert known_tasks.published_of("mine") == []


# ── real files ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("task", "folder", "notes"),
    [
        ("cola", "glue/CoLA", []),
        ("stsb", "glue/STS-B", []),
        ("rte", "glue/RTE", []),
        ("wnli", "glue/WNLI", []),
        ("sst2", "glue/SST-2", ["test.tsv is missing: no test part"]),
        ("wnut17", "ner", []),
    ],
)
def test_complete_public_data_is_read_to_the_last_example(
    tmp_path: Path, task: str, folder: str, notes: list[str]
) -> None:
    described, _ = prepare(tmp_path / "out", task, shared(f"data/finetune/{folder}"))
    found = {part: count for part, count in described["counts"].items() if count}
    assert found == described["official_counts"]
    assert found == {part: KNOWN[task].parts[part].count for part in found}
    assert (described["notes"], described["dropped"]) == (notes, {})


def test_cola_as_it_stands_in_the_files(tmp_path: Path) -> None:
    described, _ = prepare(tmp_path / "out", "cola", shared("data/finetune/glue/CoLA"))
    assert (described["labels"], described["metrics"]) == (["unacceptable", "acceptable"], ["matthews"])
    assert rows(tmp_path / "out", "dev")[0] == (*("dev:1", "The sailors rode the breeze clear of the rocks.", None, 1),)
    assert rows(tmp_path / "out", "test")[0] == ("test:1", "Bill whistled past the house.", None, None)
    # Warstadt et al. 2019: 70.5 % of the public sentences are acceptable
    counts = described["label_counts"]["acceptable"]
    assert (counts["train"] + counts["dev"]) / (8_551 + 1_043) == pytest.approx(0.70, abs=0.01)


def test_stsb_as_pairs_that_mean_the_same(tmp_path: Path) -> None:
    """Counted with awk: 1,406 of the 5,749 pairs of train have a score of 4 or more."""
    described, statistics = prepare(tmp_path / "out", "stsb_vectors", shared("data/finetune/glue/STS-B"))
    assert (described["kind"], described["metrics"], described["labels"]) == (
        "sentence_similarity",
        ["spearman", "pearson"],
        [],
    )
    assert described["counts"] == {"train": 1_406, "dev": 1_500, "test": 1_379}
    assert (described["dropped"], described["notes"]) == ({"train: a score below 4": 4_343}, [])
    first = rows(tmp_path / "out", "train")[0]
    assert first == ("train:1", "A plane is taking off.", "An air plane is taking off.", None, 5.0)
    assert min(row[4] for row in rows(tmp_path / "out", "train")) == 4.0
    assert min(row[4] for row in rows(tmp_path / "out", "dev")) == 0.0
    assert {row[4] for row in rows(tmp_path / "out", "test")} == {None}
    assert statistics["leaked_texts"] > 0  # official parts stay as they are


def test_mrpc_in_microsofts_files(tmp_path: Path) -> None:
    """Without the list of dev ids, dev is a share by hash, and this is said; 1,147 of the test pairs are paraphrases."""
    folder = shared("data/finetune/glue/MRPC")
    described, statistics = prepare(tmp_path / "out", "mrpc", folder)
    assert "dev is a share of 0.1 of train, by hash of the texts, not the official part" in statistics["notes"]
    assert described["counts"]["train"] + described["counts"]["dev"] == 4_076
    assert described["label_counts"]["equivalent"]["test"] == 1_147
    first = rows(tmp_path / "out", "test")[0]
    assert first[1].startswith("PCCW's chief operating officer, Mike Butcher")  # and no byte order mark anywhere
    (tmp_path / "with").mkdir()
    for path in folder.iterdir():
        (tmp_path / "with" / path.name).symlink_to(path)
    ids = [line.split("\t")[1:3] for line in (folder / "msr_paraphrase_train.txt").read_text("utf-8-sig").split("\n")]
    chosen = ids[1:409]  # the first 408 pairs in the place of the official ones
    lines = ["#1 ID\t#2 ID", *("\t".join(pair) for pair in chosen)]
    (tmp_path / "with" / "dev_ids.tsv").write_text("\n".join(lines) + "\n")
    described, statistics = prepare(tmp_path / "out2", "mrpc", tmp_path / "with")
    assert described["counts"] == {"train": 3_668, "dev": 408, "test": 1_725}
    assert "notes" not in statistics
    assert [row[0] for row in rows(tmp_path / "out2", "dev")] == [f"train:{number}" for number in range(1, 409)]


SAMPLES = [
    ("cola", "CoLA", "train", ("Our friends won't buy this analysis, let alone the next one we propose.", None, 1)),
    ("sst2", "SST-2", "train", ("hide new secretions from the parental units ", None, 0)),
    ("mrpc", "MRPC", "test", ("PCCW 's chief operating officer , Mike Butcher , and Alex Arena , the chief financial "
     "officer , will report directly to Mr So .", "Current Chief Operating Officer Mike Butcher and Group Chief Financial "
     "Officer Alex Arena will report to So .", None)),
    ("stsb", "STS-B", "dev", ("A man with a hard hat is dancing.", "A man wearing a hard hat is dancing.", 5.0)),
    ("qqp", "QQP", "dev", ("Why are African-Americans so beautiful?", "Why are hispanics so beautiful?", 0)),
    ("mnli", "MNLI", "train", ("Conceptually cream skimming has two basic dimensions - product and geography.",
     "Product and geography are what make cream skimming work. ", 1)),
    ("mnli", "MNLI", "dev", ("The new rights are nice enough", "Everyone really likes the newest benefits ", 1)),
    ("mnli", "MNLI", "test_mismatched", ("What have you decided, what are you going to do?", "So what's your decision?", None)),
    ("rte", "RTE", "train", ("No Weapons of Mass Destruction Found in Iraq Yet.", "Weapons of Mass Destruction Found in Iraq.", 1)),
    ("wnli", "WNLI", "dev", ("The drain is clogged with hair. It has to be cleaned.", "The hair has to be cleaned.", 0)),
]  # fmt: skip


@pytest.mark.parametrize(("task", "folder", "part", "expected"), SAMPLES, ids=lambda value: str(value)[:12])
def test_real_rows_of_every_task_of_glue(
    tmp_path: Path, task: str, folder: str, part: str, expected: tuple[Any, ...]
) -> None:
    described, _ = prepare(tmp_path / "out", task, shared(f"data/finetune/glue/format_samples/{folder}"))
    assert rows(tmp_path / "out", part)[0] == (f"{part}:1", *expected)
    assert (
        f"train has {described['counts']['train']} examples, officially {KNOWN[task].parts['train'].count:,}"
        in (described["notes"])
    )


def test_qnli_with_its_quotes(tmp_path: Path) -> None:
    described, _ = prepare(tmp_path / "out", "qnli", shared("data/finetune/glue/format_samples/QNLI"))
    assert described["labels"] == ["entailment", "not_entailment"]
    ((_, _, text, label),) = rows(tmp_path / "out", "test")
    assert 'took a "quiescent" stance towards Israel' in text and label is None
    described, _ = prepare(tmp_path / "out2", "qnli", shared("data/finetune/glue/QNLI"))
    assert (described["why"], described["wants"]) == ("some of its files are missing", ["train: train.tsv"])


# ── imitations of the files that are not at hand ─────────────────────────────────────────────────────────────────────


def test_ax_is_a_test_set_only(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "AX.tsv").write_text("index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n")
    described, _ = prepare(tmp_path / "out", "ax", tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["task.json", "test.parquet"]
    assert rows(tmp_path / "out", "test") == [("test:1", "The cat sat.", "The cat did not sit.", None)]
    assert described["labels"] == ["entailment", "neutral", "contradiction"]


CONLL = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nand CC O O\nU.S. NNP I-NP I-LOC\n\nAda NNP I-NP I-PER\nBo NNP I-NP B-PER\n\n"


@pytest.mark.parametrize("names", [("eng.train", "eng.testa", "eng.testb"), ("train.txt", "valid.txt", "test.txt")])
def test_conll_2003_as_iob2_with_documents(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "data").mkdir()
    for name in names:
        (tmp_path / "data" / name).write_text(CONLL)
    described, _ = prepare(tmp_path / "out", "conll2003", tmp_path / "data")
    assert described["labels"] == ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
    assert rows(tmp_path / "out", "dev") == [
        ("dev:1", ["EU", "and", "U.S."], [3, 0, 5], "dev:1"),
        ("dev:2", ["Ada", "Bo"], [1, 1], "dev:1"),
    ]
    assert described["notes"][0].startswith("train has 2 examples, officially 14,041")
    assert described["notes"][-1] == "9 tags I- that begin an entity became B- (IOB2)"


def test_swag(tmp_path: Path) -> None:
    sample = shared("data/finetune/swag/swag-format-sample.csv").read_text(encoding="utf-8")
    (tmp_path / "data").mkdir()
    for name in ("train.csv", "val.csv"):
        (tmp_path / "data" / name).write_text(sample)
    without = [line.rsplit(",", 1)[0] for line in sample.removesuffix("\n").split("\n")]
    (tmp_path / "data" / "test.csv").write_text("\n".join(without) + "\n")
    prepare(tmp_path / "out", "swag", tmp_path / "data")
    assert rows(tmp_path / "out", "dev")[0] == (
        "dev:1",
        "Students lower their eyes nervously.",
        [
            "She pats her shoulder, then saunters toward someone.",
            "She turns with two students.",
            "She walks slowly towards someone.",
            "She wheels around as her dog thunders out.",
        ],
        2,
    )
    assert {row[3] for row in rows(tmp_path / "out", "test")} == {None}


def squad(path: Path, *answers: dict[str, Any]) -> None:
    qas = [{"id": f"{path.stem}-{n}", "question": "Who?", "answers": [answer]} for n, answer in enumerate(answers)]
    paragraph = {"context": "In Paris, Ada met Bo, and Bo met Cy.", "qas": qas}
    path.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}], "version": "1.1"}))


def test_squad_with_answers_out_of_place(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    ada, far, two = ({"text": t, "answer_start": s} for t, s in (("Ada", 10), ("Cy", 0), ("Bo", 1)))
    squad(tmp_path / "data" / "train-v1.1.json", ada, far, two)
    squad(tmp_path / "data" / "dev-v1.1.json", ada, two)
    described, statistics = prepare(tmp_path / "out", "squad1_1", tmp_path / "data")
    assert described["counts"] == {"train": 2, "dev": 2, "test": 0}
    assert statistics["answers"] == {"repaired": 1, "right": 2, "unplaced": 2}
    assert statistics["dropped"] == {"train: no answer that stands in the context": 1}
    starts = {row[0]: [answer["start"] for answer in row[4]] for row in rows(tmp_path / "out", "train")}
    assert starts == {"train-v1.1-0": [10], "train-v1.1-1": [33]}
    assert rows(tmp_path / "out", "dev")[1][4:] == ([{"text": "Bo", "start": None}], False)


def test_a_label_that_the_task_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "data" / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\nso so\t2\n")
    with pytest.raises(
        DataError, match=r"sst2 has labels that it does not have: '2' in 1 example of train \(first train:3\)"
    ):
        prepare(tmp_path / "out", "sst2", tmp_path / "data")


# ── where files come from ────────────────────────────────────────────────────────────────────────────────────────────

SST2 = {
    "SST-2/train.tsv": "sentence\tlabel\ngood \t1\nbad \t0\n",
    "SST-2/dev.tsv": "sentence\tlabel\nfine \t1\n",
    "SST-2/test.tsv": "index\tsentence\n0\twho knows\n",
    "SST-2/original/train.tsv": "not this one",
    "__MACOSX/SST-2/train.tsv": "nor this",
}


def archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, text in reversed(SST2.items()):
            file.writestr(name, text)
    return path


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as found:
        yield found


def test_official_files_are_downloaded_and_checked(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    data = archive(tmp_path / "SST-2.zip").read_bytes()
    site.files["/SST-2.zip"] = data
    url = UrlFrom(url=f"{site.url}/SST-2.zip", sha256=hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(KNOWN, "sst2", replace(KNOWN["sst2"], downloads=(url,)))
    described, _ = prepare(tmp_path / "out", "sst2", OfficialFrom(official=True))
    assert described["counts"] == {"train": 2, "dev": 1, "test": 1}
    assert rows(tmp_path / "out", "train")[0] == ("train:1", "good ", None, 1)
    asked = len(site.asked("/SST-2.zip"))
    again, _ = prepare(tmp_path / "out2", "sst2", OfficialFrom(official=True))
    assert again == described and len(site.asked("/SST-2.zip")) == asked  # kept
    monkeypatch.setitem(KNOWN, "sst2", replace(KNOWN["sst2"], downloads=(url.model_copy(update={"sha256": "0" * 64}),)))
    with pytest.raises(SourceError, match="wrong SHA256"):
        prepare(tmp_path / "out3", "sst2", OfficialFrom(official=True))


def test_files_of_several_addresses(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = []
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        squad(tmp_path / name, {"text": "Ada", "answer_start": 10})
        site.files[f"/{name}"] = data = (tmp_path / name).read_bytes()
        downloads.append(UrlFrom(url=f"{site.url}/{name}", sha256=hashlib.sha256(data).hexdigest()))
    monkeypatch.setitem(KNOWN, "squad1_1", replace(KNOWN["squad1_1"], downloads=tuple(downloads)))
    described, _ = prepare(tmp_path / "out", "squad1_1", OfficialFrom(official=True))
    assert described["counts"] == {"train": 1, "dev": 1, "test": 0}


def test_an_archive_instead_by_path_and_by_url(tmp_path: Path, site: Site) -> None:
    path = archive(tmp_path / "mine.zip")
    by_path, _ = prepare(tmp_path / "out", "sst2", path)
    site.files["/mine.zip"] = path.read_bytes()
    url = UrlFrom(url=f"{site.url}/mine.zip", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    by_url, _ = prepare(tmp_path / "out2", "sst2", url)
    assert by_path == by_url and by_path["counts"]["train"] == 2


def test_archives_and_folders_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "SST-2.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match=r"data/SST-2\.zip is no \.zip, or is cut off"):
        prepare(tmp_path / "out", "sst2", tmp_path / "data")
    for folder in ("CoLA", "SST-2"):
        (tmp_path / "glue" / folder).mkdir(parents=True)
        (tmp_path / "glue" / folder / "train.tsv").write_text("")
    with pytest.raises(DataError, match=r"holds 2 files named train\.tsv"):
        prepare(tmp_path / "out2", "sst2", tmp_path / "glue")


def test_a_member_that_can_not_be_unpacked_is_told(tmp_path: Path) -> None:
    path = tmp_path / "SST-2.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("SST-2/train.tsv", "sentence\tlabel\n" + "a film like no other\t1\n" * 500)
        at = file.infolist()[0].header_offset + 30 + len("SST-2/train.tsv")
    data = bytearray(path.read_bytes())
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"{tmp_path}/SST-2\.zip holds SST-2/train\.tsv, which is damaged"):
        prepare(tmp_path / "out", "sst2", path)


def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive(tmp_path / "SST-2.zip"), "a") as file:
        file.writestr("../dev.tsv", "x")
    with pytest.raises(DataError, match=r"SST-2\.zip holds \.\./dev\.tsv, which leads out of the archive's folder"):
        prepare(tmp_path / "out", "sst2", tmp_path / "SST-2.zip")


def test_what_was_never_there_says_where_to_get_it(tmp_path: Path) -> None:
    said, _ = prepare(tmp_path / "out", "sst2", tmp_path / "gone")
    assert said["why"] == "its files do not exist"
    assert said["wants"] == ["train: train.tsv", "dev: dev.tsv", "test: test.tsv"]
    assert "finetuning.data: {sst2: {official: true}}" in said["todo"]
    assert (
        f"https://dl.fbaipublicfiles.com/glue/data/SST-2.zip (SHA-256 {KNOWN['sst2'].downloads[0].sha256})"
        in said["todo"]
    )
    said, _ = prepare(tmp_path / "out2", "conll2003", tmp_path / "gone")
    assert "https://www.clips.uantwerpen.be/conll2003/ner/" in said["todo"] and "official" not in said["todo"]
    with pytest.raises(SourceError, match="CoNLL-2003 NER can't be downloaded"):
        prepare(tmp_path / "out3", "conll2003", OfficialFrom(official=True))
