"""Multiple choice: every choice of an example as a row of its own, [CLS] context [SEP] choice [SEP].

A row gets one number, and a softmax over the rows of an example says which choice is right (Devlin et al. 2019, section
4.4). Examples need not have equally many.
"""

from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from model.tuning.examples import UNKNOWN, Examples, as_row, read_columns
from pipeline.tokenizer import Tokenizer


def read_choices(path: Path, tokenizer: Tokenizer, max_length: int) -> Examples:
    """Read train, dev or test.parquet of a multiple-choice task. Raises DataError where it can't be read."""
    ids, contexts, choices, labels = read_columns(path, "example_id", "text_a", "choices", "label")
    first, second = tokenizer.encode_ids(contexts), tokenizer.encode_ids(list(chain.from_iterable(choices)))
    starts = np.array([0, *accumulate(map(len, choices))], np.int64)
    owners = np.repeat(np.arange(len(ids)), np.diff(starts))
    rows = [as_row(first[owner], each, tokenizer, max_length) for owner, each in zip(owners, second, strict=True)]
    cut = np.array([row[2] for row in rows], bool)
    return Examples(
        example_ids=tuple(ids),
        texts=(),
        input_ids=tuple(row[0] for row in rows),
        second_starts=np.array([row[1] for row in rows], np.int64),
        labels=np.array([UNKNOWN if label is None else label for label in labels], np.int64),
        truncated=len(np.unique(owners[cut])),
        choices=starts,
        counts={"choices": len(rows), "cut_choices": int(cut.sum())},
    )
