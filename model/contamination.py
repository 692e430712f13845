"""`contamination`: which test texts share a long run of words with the text that the model was trained on.

A test text is touched if any of its runs of `ngram_words` words (pipeline/selection/ngrams.py) stands in a training document (13
words: Brown et al. 2020, appendix C). Texts with fewer words can't be measured and are counted apart. The corpus is read
once in bounded memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from model.artifact import read_table, short, write_json
from model.tasks import NOT_RUN
from pipeline import progress
from pipeline.config import ContaminationConfig
from pipeline.schemas import count_rows, iter_batches
from pipeline.selection.ngrams import NO_RUN, Hashes, runs, spelled, words
from pipeline.stage import Stage

STAGE = Stage(
    name="contamination",
    function="model.contamination:measure",
    version="2",  # every part, and a list of all touched examples: scores with and without them
    sources=("model/contamination.py", "pipeline/selection/ngrams.py", "pipeline/streams.py"),
)

SAMPLE = 20
"""touched examples that are named, per task"""
TOUCHED = "touched.parquet"
"""all touched examples: task, part, example_id, the first run of words that it shares, and the first document with that run"""
_PREFIX = "task_data_"
_HIT = {"example_id": pl.String, "words": pl.String, "doc_id": pl.String}
_TOUCHED = pl.DataFrame(schema={"task": pl.String, "part": pl.String, **_HIT})


def measure(inputs: Mapping[str, Path], config: ContaminationConfig, out: Path) -> dict[str, Any]:
    """Write contamination.json: per task the number of texts, how many are touched, and a sample of them; and touched.parquet
    with every touched example.

    Reads the training part of `documents` and all parts but train of every `task_data_T`. What a task's entry tells is of its
    test part, or of dev where it has no test examples; `parts` has every part.

    Raises:
        DataError: documents or task data that can't be read.
    """
    tests = {
        name.removeprefix(_PREFIX): _read_tests(folder) for name, folder in sorted(inputs.items()) if _is_task(name)
    }
    texts = pl.concat([_EMPTY, *(found for parts in tests.values() for found in parts.values())])
    of_text, numbers = words(texts["text"].to_list())
    hashes = runs(of_text, numbers, config.ngram_words)
    corpus = _look_through(inputs["documents"], np.unique(hashes[hashes != NO_RUN]), config.ngram_words)
    per_word = pl.DataFrame({"row": of_text, "hash": hashes})
    content: dict[str, Any] = {
        "ngram_words": config.ngram_words,
        "documents": corpus.documents,
        "words": corpus.words,
        "tasks": {},
    }
    first, touched = 0, [_TOUCHED]
    for task, parts in tests.items():
        entries, hits = {}, {}
        for part, found in parts.items():
            rows = per_word.filter(pl.col("row").is_between(first, first + found.height - 1))
            first += found.height
            hits[part] = _hits(
                found, rows.with_columns(pl.col("row") - first + found.height), corpus, config.ngram_words
            )
            entries[part] = _counts(found, rows, hits[part])
            named = hits[part].select(pl.lit(task).alias("task"), pl.lit(part).alias("part"), pl.all())
            touched.append(named)
        content["tasks"][task] = _entry(entries, hits)
    pl.concat(touched).write_parquet(out / TOUCHED, compression="zstd")
    write_json(out / "contamination.json", content)
    return _statistics(content)


def _is_task(name: str) -> bool:
    return name.startswith(_PREFIX)


# ── the test texts ───────────────────────────────────────────────────────────────────────────────────────────────────

_EMPTY = pl.DataFrame(schema={"example_id": pl.String, "text": pl.String})
_NOT_RUN: dict[str, Any] = {"part": None, "texts": 0, "measurable": 0, "touched": 0, "share": None, "sample": []}
_PARTS = (("test", True), ("test_mismatched", False), ("dev", True), ("dev_mismatched", False))
"""in the order of the report, and whether every task with data has the file"""


def _read_tests(folder: Path) -> dict[str, pl.DataFrame]:
    """part → its examples (example_id, text); nothing for a task without data."""
    if (folder / NOT_RUN).exists():
        return {}
    found = {}
    for part, expected in _PARTS:
        path = folder / f"{part}.parquet"
        if not expected and not path.exists():
            continue
        table = pl.from_arrow(read_table(path))
        assert isinstance(table, pl.DataFrame)
        found[part] = table.select(pl.col("example_id"), _text(table.columns).alias("text"))
    return found


def _text(columns: Sequence[str]) -> pl.Expr:
    """All text of an example, whatever kind of task it is of (model/task_files/task_kinds.py); answers stand in their context."""
    texts = [pl.col(name) for name in ("text_a", "text_b", "question", "context") if name in columns]
    lists = [pl.col(name).list.join(" ") for name in ("choices", "words") if name in columns]
    return pl.concat_str([*texts, *lists], separator=" ", ignore_nulls=True)


# ── the corpus ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Corpus:
    """What the documents hold of the wanted runs."""

    def __init__(self) -> None:
        self.documents = 0
        self.words = 0
        self.first: dict[int, str] = {}
        """hash → doc_id of the first document that holds it"""


def _look_through(folder: Path, wanted: Hashes, length: int) -> _Corpus:
    found = _Corpus()
    total, done = count_rows(folder), 0
    for doc_ids, texts in _documents(folder):
        done += len(doc_ids)
        kept = texts.is_not_null()
        ids = doc_ids.filter(kept)
        rows, numbers = words(texts.filter(kept).to_list())
        found.documents += len(ids)
        found.words += len(rows)
        hashes = runs(rows, numbers, length)
        for place in np.flatnonzero(np.isin(hashes, wanted)):
            found.first.setdefault(int(hashes[place]), ids[int(rows[place])])
        progress.report(done, total, "documents")
    return found


def _documents(folder: Path) -> Iterator[tuple[pl.Series, pl.Series]]:
    """(doc_id, text) of the documents, batch by batch; the text is null for those that no training sees."""
    for batch in iter_batches(folder, ["doc_id", "split", "text"]):
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        text = pl.when(pl.col("split") == "train").then(pl.col("text"))
        yield frame["doc_id"], frame.select(text.alias("text"))["text"]


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _hits(texts: pl.DataFrame, words: pl.DataFrame, corpus: _Corpus, length: int) -> pl.DataFrame:
    """example_id, words, doc_id of every touched text, by the first run that it shares. `words` has the row (of `texts`) of every
    word, and the hash of the run that begins there."""
    found = pl.Series(list(corpus.first), dtype=pl.UInt64)
    places = words.with_columns(place=pl.int_range(pl.len()).over("row"))
    shared = places.filter(pl.col("hash").is_in(found.implode())).unique("row", keep="first", maintain_order=True)
    rows = [
        (
            texts["example_id"][row],
            " ".join(spelled(texts["text"][row])[place : place + length]),
            corpus.first[run],
        )
        for row, place, run in shared.select("row", "place", "hash").iter_rows()
    ]
    return pl.DataFrame(rows, schema=_HIT, orient="row")


def _counts(texts: pl.DataFrame, words: pl.DataFrame, hits: pl.DataFrame) -> dict[str, Any]:
    """How many texts a part has, how many are long enough to tell, and how many of those are touched."""
    measurable = words.filter(pl.col("hash") != NO_RUN)["row"].n_unique()
    share = short(hits.height / measurable) if measurable else None
    return {"texts": texts.height, "measurable": measurable, "touched": hits.height, "share": share}


def _entry(parts: Mapping[str, Mapping[str, Any]], hits: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """One task's entry: the counts and a sample of its test part, and the counts of every part."""
    if not parts:
        return {**_NOT_RUN, "parts": {}}
    part = "test" if parts["test"]["texts"] else "dev"
    return {"part": part, **parts[part], "sample": hits[part].head(SAMPLE).to_dicts(), "parts": dict(parts)}


def _statistics(content: Mapping[str, Any]) -> dict[str, Any]:
    tasks = content["tasks"]
    return {
        "ngram_words": content["ngram_words"],
        "documents": content["documents"],
        "corpus_words": content["words"],
        "tasks": len(tasks),
        "tests": sum(task["texts"] for task in tasks.values()),
        "touched": sum(task["touched"] for task in tasks.values()),
        "touched_by_task": {name: task["touched"] for name, task in tasks.items() if task["part"]},
        "parts_by_task": {name: task["parts"] for name, task in tasks.items() if task["part"]},
        "dropped": {},
    }
