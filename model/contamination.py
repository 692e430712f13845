"""`contamination`: which test texts share a long run of words with the text that the model was trained on.

A test text is touched if any of its runs of `ngram_words` words (pipeline/ngrams.py) stands in a training document (13
words: Brown et al. 2020, appendix C). Texts with fewer words can't be measured and are counted apart. The corpus is read
once in bounded memory.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from model.tasks import NOT_RUN
from pipeline import progress
from pipeline.config import ContaminationConfig
from pipeline.errors import DataError
from pipeline.ngrams import NO_RUN, Hashes, runs, spelled, words
from pipeline.schemas import count_rows, iter_batches
from pipeline.stage import Stage

STAGE = Stage(
    name="contamination",
    function="model.contamination:measure",
    version="1",
    sources=("model/contamination.py", "pipeline/ngrams.py", "pipeline/streams.py"),
)

SAMPLE = 20
"""touched examples that are named, per task"""
_PREFIX = "task_data_"


def measure(inputs: Mapping[str, Path], config: ContaminationConfig, out: Path) -> dict[str, Any]:
    """Write contamination.json: per task the number of texts, how many are touched, and a sample of them.

    Reads the training part of `documents` and the test part of every `task_data_T`; where a task has no test examples,
    its dev part.

    Raises:
        DataError: documents or task data that can't be read.
    """
    tests = {
        name.removeprefix(_PREFIX): _read_tests(folder) for name, folder in sorted(inputs.items()) if _is_task(name)
    }
    texts = pl.concat([_EMPTY, *(found for _, found in tests.values())])
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
    first = 0
    for task, (part, found) in tests.items():
        rows = per_word.filter(pl.col("row").is_between(first, first + found.height - 1))
        rows = rows.with_columns(pl.col("row") - first)
        first += found.height
        content["tasks"][task] = _NOT_RUN if part is None else _result(part, found, rows, corpus, config.ngram_words)
    (out / "contamination.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return _statistics(content)


def _is_task(name: str) -> bool:
    return name.startswith(_PREFIX)


# ── the test texts ───────────────────────────────────────────────────────────────────────────────────────────────────

_EMPTY = pl.DataFrame(schema={"example_id": pl.String, "text": pl.String})
_NOT_RUN: dict[str, Any] = {"part": None, "texts": 0, "measurable": 0, "touched": 0, "share": None, "sample": []}


def _read_tests(folder: Path) -> tuple[str | None, pl.DataFrame]:
    """(part, its examples: example_id, text); None and no rows for a task without data."""
    if (folder / NOT_RUN).exists():
        return None, _EMPTY
    for part in ("test", "dev"):
        path = folder / f"{part}.parquet"
        try:
            table = pl.from_arrow(pq.read_table(path))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} can't be read: {error}", "`bert verify` sets broken content aside.") from error
        assert isinstance(table, pl.DataFrame)
        if table.height:
            return part, table.select(pl.col("example_id"), _text(table.columns).alias("text"))
    return "dev", _EMPTY


def _text(columns: Sequence[str]) -> pl.Expr:
    """All text of an example, whatever kind of task it is of (model/task_kinds.py); answers stand in their context."""
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


def _result(part: str, texts: pl.DataFrame, words: pl.DataFrame, corpus: _Corpus, length: int) -> dict[str, Any]:
    """One task's entry: `words` has the row (of `texts`) of every word, and the hash of the run that begins there."""
    measurable = words.filter(pl.col("hash") != 0)["row"].n_unique()
    found = pl.Series(list(corpus.first), dtype=pl.UInt64)
    places = words.with_columns(place=pl.int_range(pl.len()).over("row"))
    shared = places.filter(pl.col("hash").is_in(found.implode()))
    touched = shared.unique("row", keep="first", maintain_order=True)
    sample = [
        {
            "example_id": texts["example_id"][row],
            "words": " ".join(spelled(texts["text"][row])[place : place + length]),
            "doc_id": corpus.first[run],
        }
        for row, place, run in touched.head(SAMPLE).select("row", "place", "hash").iter_rows()
    ]
    return {
        "part": part,
        "texts": texts.height,
        "measurable": measurable,
        "touched": touched.height,
        "share": float(f"{touched.height / measurable:.6g}") if measurable else None,
        "sample": sample,
    }


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
        "dropped": {},
    }
