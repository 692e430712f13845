"""Questions about documents that are longer than the model's input: windows of a document, and where answers stand in them.

As in google-research/bert run_squad.py: `[CLS] question [SEP] window [SEP]`; windows begin every `doc_stride` tokens until
one reaches the document's end; a token counts in the window where it has most context; a window that does not hold an
answer whole is taught to point at [CLS]. Unlike there, the places of tokens are characters of the document as it was
written, so that an answer is found and cut out by characters, and no text is ever tokenised or aligned again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import DataError
from pipeline.ragged import places, ranges
from pipeline.tokenizer import Located, Tokenizer

MAX_LENGTH = 384
"""tokens of an input; Devlin et al. 2019 and run_squad.py, as are the next two"""
DOC_STRIDE = 128
"""tokens from the beginning of one window to that of the next"""
MAX_QUERY_LENGTH = 64
"""tokens of a question; what is behind them is cut off"""
SPECIAL = 3
"""[CLS], [SEP], [SEP]"""
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Characters = tuple[int, int]
"""an answer is `context[start:end]`"""


@dataclass(frozen=True)
class SpanWindows:
    """Windows of a list of questions, in the order of the questions, then of the document."""

    documents: tuple[Located, ...]
    """the different contexts with their tokens"""
    document_of: Ints
    """[questions] index into `documents`"""
    bounds: Ints
    """[questions + 1] question q has the windows `bounds[q]` … `bounds[q + 1] - 1`, one at least"""
    input_ids: tuple[npt.NDArray[np.int32], ...]
    """[windows] of [tokens], at most max_length: [CLS] question [SEP] window [SEP]"""
    second_starts: Ints
    """[windows] place in `input_ids` of the first token of the document"""
    first_tokens: Ints
    """[windows] which token of the document stands there"""
    counts: Ints
    """[windows] tokens of the document; 0 where it has none"""
    context_starts: Ints
    """[windows] first token of the document that has its maximum context in this window"""
    context_ends: Ints
    """[windows] the token after the last one of these"""
    cut_questions: int
    """questions of more than max_query_length tokens"""

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def lengths(self) -> Ints:
        """Tokens of every input: [windows]."""
        return self.second_starts + self.counts + 1

    @property
    def question_of(self) -> Ints:
        """Index of the question of every window: [windows]."""
        return np.repeat(np.arange(len(self.document_of)), np.diff(self.bounds))


def span_windows(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int = MAX_LENGTH,
    doc_stride: int = DOC_STRIDE,
    max_query_length: int = MAX_QUERY_LENGTH,
) -> SpanWindows:
    """The windows of questions, each with its context. A document without any token has one window without any.

    Raises:
        DataError: no room for a token of the document beside a question of max_query_length, a stride below 1.
    """
    if max_length < max_query_length + SPECIAL + 1 or doc_stride < 1:
        raise DataError(
            f"inputs of {max_length} tokens with questions of up to {max_query_length} and windows every {doc_stride} leave "
            "out tokens of documents",
            f"max_length must be max_query_length + {SPECIAL + 1} at least, doc_stride 1.",
        )
    numbers = {text: number for number, text in enumerate(dict.fromkeys(contexts))}
    documents = tuple(tokenizer.encode_located(list(numbers)))
    document_of = np.fromiter(map(numbers.__getitem__, contexts), np.int64, len(contexts))
    ids, at = tokenizer.encode_flat(questions)
    asked = np.minimum(np.diff(at), max_query_length)  # [questions] tokens

    tokens = np.array([len(document) for document in documents], np.int64)[document_of]  # [questions]
    room = max_length - SPECIAL - asked
    step = np.minimum(room, doc_stride)
    windows = 1 + -(-np.maximum(tokens - room, 0) // step)
    question_of = np.repeat(np.arange(len(asked)), windows)
    first_tokens = places(windows) * step[question_of]
    counts = np.minimum(room[question_of], tokens[question_of] - first_tokens)
    context_starts, context_ends = _maximum_contexts(windows, first_tokens, counts, tokens)

    cls, sep = np.array([tokenizer.cls_id], np.int32), np.array([tokenizer.sep_id], np.int32)
    heads = [
        np.concatenate([cls, ids[start : start + count], sep])
        for start, count in zip(at.tolist(), asked.tolist(), strict=False)
    ]
    return SpanWindows(
        documents=documents,
        document_of=document_of,
        bounds=np.concatenate([[0], np.cumsum(windows)]),
        input_ids=tuple(
            np.concatenate([heads[question], documents[document].ids[first : first + count], sep])
            for question, document, first, count in zip(
                question_of.tolist(),
                document_of[question_of].tolist(),
                first_tokens.tolist(),
                counts.tolist(),
                strict=True,
            )
        ),
        second_starts=asked[question_of] + 2,
        first_tokens=first_tokens,
        counts=counts,
        context_starts=context_starts,
        context_ends=context_ends,
        cut_questions=int((np.diff(at) > max_query_length).sum()),
    )


def _maximum_contexts(windows: Ints, first_tokens: Ints, counts: Ints, tokens: Ints) -> tuple[Ints, Ints]:
    """Which tokens of the document have their maximum context in a window: those from … up to, [windows] each.

    That is where min(tokens to its left, tokens to its right) + 0.01 · tokens of the window is largest, of equal ones in
    the first. They stand side by side, because the later of two windows gains on the earlier one from left to right.
    """
    starts, ends = first_tokens.copy(), first_tokens + counts
    shared = np.flatnonzero(np.repeat(windows > 1, windows))  # windows of questions that have others
    if not len(shared):
        return starts, ends
    sizes, first = counts[shared], first_tokens[shared]
    base = np.cumsum(tokens) - tokens
    base_of = np.repeat(base, windows)[shared]
    window, place = np.repeat(np.arange(len(shared)), sizes), places(sizes)  # [tokens of all windows]
    context = np.minimum(place, sizes[window] - 1 - place) + 0.01 * sizes[window]
    token = base_of[window] + first[window] + place  # counted through all questions
    most = np.full(int(tokens.sum()), -1.0)
    np.maximum.at(most, token, context)
    candidates = np.flatnonzero(context == most[token])[::-1]
    owner = np.full(len(most), -1)
    owner[token[candidates]] = window[candidates]  # from the last to the first: the first window stays
    owned = np.flatnonzero(owner >= 0)
    inside = owned - base_of[owner[owned]]
    least, past = np.full(len(shared), np.iinfo(np.int64).max), np.zeros(len(shared), np.int64)
    np.minimum.at(least, owner[owned], inside)
    np.maximum.at(past, owner[owned], inside + 1)
    starts[shared], ends[shared] = np.minimum(least, past), past  # none: from 0 to 0
    return starts, ends


@dataclass(frozen=True)
class SpanTargets:
    """What every window is taught, and what became of the answers."""

    starts: Ints
    """[windows] place in `input_ids` of the answer's first token; 0, the [CLS], where the window holds no answer whole"""
    ends: Ints
    """[windows] of its last token"""
    usable: npt.NDArray[np.bool_]
    """[windows] False: the question has answers, but none of them has a token. It must not be taught as unanswerable"""
    widened: int
    """answers that do not begin and end with a token: they were widened to whole ones"""
    without_token: int
    """answers of nothing but characters that are no part of any token"""
    in_no_window: int
    """questions whose answers have tokens, but none is whole in a window: all windows point at [CLS]"""


def span_targets(windows: SpanWindows, answers: Sequence[Sequence[Characters]]) -> SpanTargets:
    """What to teach. answers: of every question, in characters of its context; none where it can't be answered.

    Of several answers that a window holds, it is taught one that begins and ends with a token, if there is, of these the one
    given most often, of these the first.
    """
    flat = np.array([answer for given in answers for answer in given], np.int64).reshape(-1, 2)  # [answers, 2]
    given = np.fromiter(map(len, answers), np.int64, len(answers))
    question = np.repeat(np.arange(len(answers)), given)
    first, last, widened = _tokens_of(windows.documents, windows.document_of[question], flat)
    found = first <= last
    _, same, counted = np.unique(np.stack([question, first, last]), axis=1, return_inverse=True, return_counts=True)
    often = counted[same.ravel()]  # how often an answer was given

    sizes = np.diff(windows.bounds)[question]
    answer = np.repeat(np.arange(len(flat)), sizes)  # every answer with every window of its question
    window = ranges(windows.bounds[question], sizes)
    begin = windows.first_tokens[window]
    whole = found[answer] & (first[answer] >= begin) & (last[answer] < begin + windows.counts[window])
    answer, window = answer[whole], window[whole]
    order = np.lexsort((answer, -often[answer], widened[answer], window))
    chosen, at = np.unique(window[order], return_index=True)
    shift = windows.second_starts[chosen] - windows.first_tokens[chosen]
    starts, ends = np.zeros(len(windows), np.int64), np.zeros(len(windows), np.int64)
    starts[chosen] = first[answer[order][at]] + shift
    ends[chosen] = last[answer[order][at]] + shift

    has_tokens = np.zeros(len(answers), bool)
    has_tokens[question[found]] = True
    taught = np.zeros(len(answers), bool)
    taught[windows.question_of[chosen]] = True
    usable = (has_tokens | (given == 0))[windows.question_of]
    return SpanTargets(starts, ends, usable, int(widened.sum()), int((~found).sum()), int((has_tokens & ~taught).sum()))


def _tokens_of(documents: Sequence[Located], document: Ints, answers: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """(first token, last token, whether they reach beyond the answer) of answers, [answers] each; first > last: no token.

    document: [answers]; answers: [answers, 2] characters.
    """
    # One search for all: the characters of all documents one after the other, a gap of one between them.
    base = np.cumsum([0, *(len(each.text) + 1 for each in documents)])
    token_base = np.cumsum([0, *map(len, documents)])
    starts = _joined([each.starts + base[n] for n, each in enumerate(documents)])
    ends = _joined([each.ends + base[n] for n, each in enumerate(documents)])
    begin, end = answers[:, 0] + base[document], answers[:, 1] + base[document]
    first = np.searchsorted(ends, begin, side="right")  # the first token that ends behind the answer's beginning
    last = np.searchsorted(starts, end, side="left") - 1
    last = np.where(begin < end, last, first - 1)
    found = np.flatnonzero(first <= last)
    widened = np.zeros(len(answers), bool)
    widened[found] = (starts[first[found]] < begin[found]) | (ends[last[found]] > end[found])
    return first - token_base[document], last - token_base[document], widened


def _joined(parts: list[Numbers]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])
