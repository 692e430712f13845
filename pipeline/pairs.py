"""Which tokens stand together in an instance: next-sentence pairs, or spans of one document.

The pairs follow Devlin et al. 2019, appendix A.2, in the way of google-research/bert create_pretraining_data.py: one
target length per document and pass, sentences gathered up to it, A the first few of them, B the rest or, with
probability one half, text from another document, the rest then being used again. Two things are said plainly:

- B never comes from A's own document (the original gives up after ten tries, which a corpus of few documents shows).
- A chunk of one sentence has no rest, so its B is always random, as in the original; hence more than half of all pairs
  are random, and half only among chunks of two or more sentences.

B is drawn from the documents of A's *pool* (a part of the corpus chosen by hash), not from the whole corpus.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import DataError


@dataclass(frozen=True)
class Pool:
    """Tokenised documents, none empty."""

    doc_ids: Sequence[str]
    tokens: npt.NDArray[np.integer]
    """[all tokens], one document after the other"""
    bounds: Sequence[Sequence[int]]
    """per document: index in `tokens` of the start of every sentence, and the end of the last"""
    repeats: Sequence[float]
    """per document: how often a pass over the corpus visits it"""


class Span(NamedTuple):
    """One instance as ranges of `Pool.tokens`."""

    document: int
    a_start: int
    a_end: int
    other: int
    """document of B; `document` itself where B is the rest of the chunk or there is no B"""
    b_start: int
    b_end: int
    random: int
    """1: B is random; 0: it follows A"""
    sentences: int
    """of the chunk, before it was split and truncated"""


def target_length(rng: np.random.Generator, max_tokens: int, short_seq_prob: float) -> int:
    """`max_tokens`, or with probability `short_seq_prob` uniform in 2 … max_tokens."""
    return int(rng.integers(2, max_tokens + 1)) if rng.random() < short_seq_prob else max_tokens


def next_sentence_pairs(pool: Pool, document: int, target: int, rng: np.random.Generator) -> list[Span]:
    """All pairs of a document, A first, before truncation.

    Raises:
        DataError: the pool holds no other document, so that no random B exists.
    """
    if len(pool.doc_ids) < 2:
        raise DataError(
            f"{pool.doc_ids[document]} is the only document with text in its part of the corpus; next-sentence pairs "
            "need a second one to draw from",
            "Add documents, hold out a larger share (corpus.held_out), or set shards.sentence_task: none.",
        )
    bounds = pool.bounds[document]
    last = len(bounds) - 1
    draws = rng.random((last, 4)).tolist()  # every instance uses up at least one sentence
    spans: list[Span] = []
    start = 0
    while start < last:
        u_split, u_random, u_other, u_first = draws[len(spans)]
        end = bisect_left(bounds, bounds[start] + target, start + 1, last)
        sentences = end - start
        a_end = start + 1 + int(u_split * (sentences - 1))
        if sentences == 1 or u_random < 0.5:
            other = int(u_other * (len(pool.doc_ids) - 1))
            other += other >= document
            theirs = pool.bounds[other]
            first = int(u_first * (len(theirs) - 1))
            wanted = target - (bounds[a_end] - bounds[start])
            b_end = bisect_left(theirs, theirs[first] + wanted, first + 1, len(theirs) - 1)
            b_range = theirs[first], theirs[b_end]
            spans.append(Span(document, bounds[start], bounds[a_end], other, *b_range, 1, sentences))
            start = a_end  # the rest of the chunk is used again
        else:
            spans.append(
                Span(document, bounds[start], bounds[a_end], document, bounds[a_end], bounds[end], 0, sentences)
            )
            start = end
    return spans


def document_spans(pool: Pool, document: int, target: int, max_tokens: int) -> list[Span]:
    """A document cut into runs of whole sentences that fit in `target` tokens (Liu et al. 2019, DOC-SENTENCES).

    A sentence longer than the target stands alone; one longer than `max_tokens` is first cut every `max_tokens`.
    """
    sentences = pool.bounds[document]
    bounds = [sentences[0]]
    for end in sentences[1:]:
        bounds.extend(range(bounds[-1] + max_tokens, end, max_tokens))
        bounds.append(end)
    spans = []
    start = 0
    while start < len(bounds) - 1:
        end = start + 1
        while end + 1 < len(bounds) and bounds[end + 1] - bounds[start] <= target:
            end += 1
        spans.append(Span(document, bounds[start], bounds[end], document, 0, 0, 0, end - start))
        start = end
    return spans


def truncated(spans: npt.NDArray[np.int64], max_tokens: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The spans ([n, 8], columns of `Span`) with A and B cut to `max_tokens` together.

    The original takes single tokens from the longer of the two (B on a tie), each from the front or the back by the
    toss of a coin; how many go from each is known beforehand, and of k tokens a binomial number goes from the front.
    """
    a_start, a_end, b_start, b_end = spans[:, 1], spans[:, 2], spans[:, 4], spans[:, 5]
    a, b = a_end - a_start, b_end - b_start
    excess = np.maximum(a + b - max_tokens, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b
    from_a += rest // 2
    from_b += (rest + 1) // 2
    front_a, front_b = rng.binomial(from_a, 0.5), rng.binomial(from_b, 0.5)
    result = spans.copy()
    result[:, 1] += front_a
    result[:, 2] -= from_a - front_a
    result[:, 4] += front_b
    result[:, 5] -= from_b - front_b
    return result
