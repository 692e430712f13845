"""Which tokens stand together in an instance: next-sentence pairs, ordered pairs, or spans of running text.

Pairs follow Devlin et al. 2019, appendix A.2, in the way of google-research/bert create_pretraining_data.py: one target
length per document and pass, sentences gathered up to it, A the first few of them, B the rest or, with probability one
half, text from another document, the rest then being used again.

A chunk of one sentence has no rest. The original then always takes a random B, so that more than half of its pairs are
random; and it takes B from A's own document if ten draws in a row hit it. `original=True` does the same. Otherwise half of
the pairs are random, as the paper says: B of a lone sentence is the sentence behind it, or, at a document's end, A is the
one before it; a document of one sentence gives no pair (it still serves as random B), and B is never of A's document.

B is drawn from the documents of A's *pool* (a part of the corpus chosen by hash), not from the whole corpus.

All visits to documents are made in step: the first instance of each, then the second of each, with numpy over all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.errors import DataError
from pipeline.ragged import places
from pipeline.streams import Keys, drawn, substreams

Ints = npt.NDArray[np.int64]
Draws = Callable[[Ints, int], npt.NDArray[np.float64]]
"""(numbers of visits, number of the instance in each) → numbers in [0, 1) of shape [visits, `NUMBERS`]"""
NUMBERS = 5
"""that an instance uses up: how long A is; the coin; which document, where in it; whether ten draws hit A's own"""
TRIES = 10
"""of the original, for another document than A's"""


@dataclass(frozen=True)
class Pool:
    """Tokenised documents, none empty, and no empty sentence."""

    doc_ids: Sequence[str]
    keys: Keys
    """[documents] a hash of each doc_id"""
    tokens: npt.NDArray[np.integer]
    """[all tokens], one document after the other"""
    bounds: Ints
    """[sentences + 1] where in `tokens` every sentence begins, and the end of the last"""
    documents: Ints
    """[documents + 1] which sentence every document begins with, and the number of all"""
    repeats: npt.NDArray[np.floating]
    """[documents] how often a pass over the corpus visits it"""


@dataclass(frozen=True)
class Spans:
    """Instances as ranges of `Pool.tokens`, columns of equal length."""

    visit: Ints
    """number of the visit that made it, and `step`: its number among those of the visit"""
    step: Ints
    document: Ints
    a_start: Ints
    a_end: Ints
    other: Ints
    """document of B; `document` itself where B is of the same or there is no B"""
    b_start: Ints
    b_end: Ints
    label: Ints
    """nsp: 1: B is random, 0: it follows A; sop: 1: the two are swapped"""
    sentences: Ints
    """of the chunk, before it was split and truncated"""

    def __len__(self) -> int:
        return len(self.visit)

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> "Spans":
        return Spans(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def joined(steps: Sequence[Spans]) -> Spans:
    """All instances of all steps."""
    names = Spans.__dataclass_fields__
    return Spans(*(np.concatenate([np.empty(0, np.int64), *(getattr(s, name) for s in steps)]) for name in names))


def target_lengths(numbers: npt.NDArray[np.float64], max_tokens: int, short_seq_prob: float) -> Ints:
    """`max_tokens`, or with probability `short_seq_prob` uniform in 2 … max_tokens; `numbers`: [n, 2] in [0, 1)."""
    short = 2 + (numbers[:, 1] * (max_tokens - 1)).astype(np.int64)
    return np.where(numbers[:, 0] < short_seq_prob, short, max_tokens)


def next_sentence_pairs(pool: Pool, documents: Ints, targets: Ints, draws: Draws, original: bool = False) -> Spans:
    """All pairs of visits to these documents with these target lengths, before truncation.

    Raises:
        DataError: the pool holds no other document, so that no random B exists.
    """
    if len(pool.doc_ids) < 2 and not original:
        raise DataError(
            f"{pool.doc_ids[0]} is the only document with text in its part of the corpus; next-sentence pairs need a "
            "second one to draw from",
            "Add documents, hold out a larger share (corpus.held_out), or set shards.sentence_task: none.",
        )
    made: list[Spans] = []
    where = _Places(pool, documents)
    while len(where.visits):
        numbers = draws(where.visits, where.step)
        start, end = where.chunks(targets)
        sentences = end - start
        middle = start + 1 + (numbers[:, 0] * (sentences - 1)).astype(np.int64)
        random = numbers[:, 1] < 0.5
        useful = np.ones(len(start), bool)
        if original:
            random |= sentences == 1
        else:
            useful, start, middle, end = where.widened(start, middle, end, needs_rest=~random)
        other = _others(len(pool.doc_ids), where.documents, numbers[:, 2], numbers[:, 4], original)
        b_first, b_last = _random_spans(pool, other, targets[where.visits], start, middle, numbers[:, 3])
        made.append(
            where.spans(
                useful,
                (start, middle),
                (np.where(random, b_first, middle), np.where(random, b_last, end)),
                other=np.where(random, other, where.documents),
                label=random.astype(np.int64),
                sentences=sentences,
            )
        )
        where.move(np.where(random, middle, end))  # behind a random B the rest of the chunk is used again
    return joined(made)


def ordered_pairs(pool: Pool, documents: Ints, targets: Ints, draws: Draws) -> Spans:
    """Pairs of text that stands together, half of them swapped (Lan et al. 2020, section 3.1), before truncation.

    A lone sentence is paired as for the next-sentence task; a document of one sentence gives nothing.
    """
    made: list[Spans] = []
    where = _Places(pool, documents)
    while len(where.visits):
        numbers = draws(where.visits, where.step)
        start, end = where.chunks(targets)
        middle = start + 1 + (numbers[:, 0] * (end - start - 1)).astype(np.int64)
        sentences = end - start
        useful, start, middle, end = where.widened(start, middle, end, needs_rest=np.ones(len(start), bool))
        swapped = numbers[:, 1] < 0.5
        made.append(
            where.spans(
                useful,
                (np.where(swapped, middle, start), np.where(swapped, end, middle)),
                (np.where(swapped, start, middle), np.where(swapped, middle, end)),
                other=where.documents,
                label=swapped.astype(np.int64),
                sentences=sentences,
            )
        )
        where.move(end)
    return joined(made)


def document_spans(pool: Pool, documents: Ints, targets: Ints, max_tokens: int) -> Spans:
    """Documents cut into runs of whole sentences that fit in the target (Liu et al. 2019, DOC-SENTENCES).

    A sentence longer than the target stands alone; one longer than `max_tokens` is first cut every `max_tokens`.
    """
    made: list[Spans] = []
    where = _Places(cut(pool, max_tokens), documents)
    while len(where.visits):
        start, end = where.runs(targets)
        nothing = np.zeros(len(start), np.int64)
        every = np.ones(len(start), bool)
        made.append(where.spans(every, (start, end), (nothing, nothing), where.documents, nothing, end - start))
        where.move(end)
    return joined(made)


def cut(pool: Pool, max_tokens: int) -> Pool:
    """The pool with every sentence longer than `max_tokens` cut every `max_tokens`."""
    lengths = np.diff(pool.bounds)
    pieces = -(-lengths // max_tokens)
    if pieces.max(initial=1) == 1:
        return pool
    before = np.concatenate([[0], np.cumsum(pieces)])
    starts = np.repeat(pool.bounds[:-1], pieces) + places(pieces) * max_tokens
    return replace(pool, bounds=np.append(starts, pool.bounds[-1]), documents=before[pool.documents])


class _Places:
    """Where every visit stands in its document; those that have reached the end are left out."""

    def __init__(self, pool: Pool, documents: Ints) -> None:
        self.pool = pool
        self.documents = documents
        self.visits = np.arange(len(documents))
        self.first, self.last = pool.documents[documents], pool.documents[documents + 1]
        self.current = self.first
        self.step = 0

    def chunks(self, targets: Ints) -> tuple[Ints, Ints]:
        """(first sentence, end) of the next chunk: as many sentences as reach the target, or all that are left."""
        bounds = self.pool.bounds
        end = np.searchsorted(bounds, bounds[self.current] + targets[self.visits])
        return self.current, np.minimum(np.maximum(end, self.current + 1), self.last)

    def runs(self, targets: Ints) -> tuple[Ints, Ints]:
        """(first sentence, end) of the next run: as many sentences as fit in the target, one at least."""
        bounds = self.pool.bounds
        end = np.searchsorted(bounds, bounds[self.current] + targets[self.visits], side="right") - 1
        return self.current, np.minimum(np.maximum(end, self.current + 1), self.last)

    def widened(
        self, start: Ints, middle: Ints, end: Ints, needs_rest: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], Ints, Ints, Ints]:
        """Chunks of one sentence that need a rest take the sentence behind them, or, as the rest, stand behind the one
        before; (False for documents of one sentence, start, middle, end)."""
        useful = self.last - self.first > 1
        lone = (end - start == 1) & needs_rest & useful
        forward = lone & (end < self.last)
        backward = lone & ~forward
        return useful, start - backward, middle - backward, end + forward

    def spans(
        self, useful: npt.NDArray[np.bool_], a: tuple[Ints, Ints], b: tuple[Ints, Ints], other: Ints, label: Ints,
        sentences: Ints,
    ) -> Spans:  # fmt: skip
        """The instances of this step from ranges of sentences."""
        bounds = self.pool.bounds
        step = np.full(len(self.visits), self.step)
        columns = (self.visits, step, self.documents, bounds[a[0]], bounds[a[1]], other, bounds[b[0]], bounds[b[1]])
        return Spans(*(column[useful] for column in (*columns, label, sentences)))

    def move(self, current: Ints) -> None:
        """Go to these sentences."""
        on = current < self.last
        self.step += 1
        self.current = current[on]
        self.documents, self.visits = self.documents[on], self.visits[on]
        self.first, self.last = self.first[on], self.last[on]


def _others(
    count: int, documents: Ints, which: npt.NDArray[np.float64], hit: npt.NDArray[np.float64], original: bool
) -> Ints:
    """Another document for each, uniform; the original takes the same one where all of its draws hit that."""
    other = (which * (count - 1)).astype(np.int64)
    other += other >= documents
    return np.where(hit < float(count) ** -TRIES, documents, other) if original else other


def _random_spans(
    pool: Pool, other: Ints, targets: Ints, start: Ints, middle: Ints, where: npt.NDArray[np.float64]
) -> tuple[Ints, Ints]:
    """(first sentence, end) of B in another document: from anywhere, until A and B reach the target."""
    bounds = pool.bounds
    begin, last = pool.documents[other], pool.documents[other + 1]
    first = begin + (where * (last - begin)).astype(np.int64)
    wanted = targets - (bounds[middle] - bounds[start])
    end = np.searchsorted(bounds, bounds[first] + wanted)
    return first, np.minimum(np.maximum(end, first + 1), last)


def truncated(spans: Spans, max_tokens: int, keys: Keys) -> Spans:
    """The spans with A and B cut to `max_tokens` together; `keys`: [n] a stream for each.

    The original takes single tokens from the longer of the two (B on a tie), each from the front or the back by the
    toss of a coin; how many go from each is known beforehand, and of k tokens a binomial number goes from the front.
    """
    a, b = spans.a_end - spans.a_start, spans.b_end - spans.b_start
    excess = np.maximum(a + b - max_tokens, 0)
    from_a = np.minimum(excess, np.maximum(a - b, 0))
    from_b = np.minimum(excess, np.maximum(b - a, 0))
    rest = excess - from_a - from_b
    from_a += rest // 2
    from_b += (rest + 1) // 2
    front_a, front_b = heads(substreams(keys, "A"), from_a), heads(substreams(keys, "B"), from_b)
    return replace(
        spans,
        a_start=spans.a_start + front_a,
        a_end=spans.a_end - (from_a - front_a),
        b_start=spans.b_start + front_b,
        b_end=spans.b_end - (from_b - front_b),
    )


def heads(keys: Keys, tosses: Ints) -> Ints:
    """How many of so many fair coins show heads: the ones among that many random bits of each stream."""
    some = np.flatnonzero(tosses)
    words = -(-tosses[some] // 64)
    ends = np.cumsum(words)
    bits = drawn(np.repeat(keys[some], words), places(words))
    surplus = 64 * words - tosses[some]
    bits[ends - 1] >>= surplus.astype(np.uint64)
    ones = np.concatenate([[0], np.cumsum(np.bitwise_count(bits), dtype=np.int64)])
    counted = np.zeros(len(tosses), np.int64)
    counted[some] = ones[ends] - ones[ends - words]
    return counted
