"""Windows of long documents: every token in one, as the original cuts them and as transformers does; what they are taught."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.task_files.squad import read_squad
from model.tuning.span_windows import Characters, SpanWindows, span_targets, span_windows
from pipeline.errors import DataError
from pipeline.tokenizer import SPECIAL_TOKENS, Tokenizer, make, read_vocabulary
from tests.conftest import shared

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPELLING = make(
    (*SPECIAL_TOKENS, *LETTERS, *(f"##{each}" for each in LETTERS), *".,-中文ᄒ", "##ᅡ", "##ᆫ"),
    lowercase=True,
    strip_accents=True,
)
"""letter by letter: many tokens of a short text"""
HOSTILE = st.text("abc dé\u0301中文한ﬁİ\x00\u200d\u00ad\ufffd👩🏽.,\n\u3000", max_size=60) | st.text(max_size=60)
SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 12), st.integers(1, 14))
"""max_query_length, tokens of the document beside a question of that length, doc_stride"""


def starts_of(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first token, tokens) of every window, one after the other: the next begins a stride on, until the end is reached."""
    found = []
    start = 0
    while True:
        count = min(tokens - start, room)
        found.append((start, count))
        if start + count == tokens:
            return found
        start += min(count, stride)


def window_of_most_context(token: int, windows: list[tuple[int, int]]) -> int:
    """google-research/bert run_squad.py: min(left, right) + 0.01 * length is largest, the first of equals."""
    best, found = -1.0, -1
    for number, (start, count) in enumerate(windows):
        if start <= token < start + count:
            context = min(token - start, start + count - 1 - token) + 0.01 * count
            if context > best:
                best, found = context, number
    return found


@settings(deadline=None)
@given(asked=st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4), shape=SHAPES)
@example(asked=[("who", "")], shape=(4, 3, 2))
@example(asked=[("who", "\x00\u0301 \n")], shape=(4, 3, 2))  # characters, but no token
@example(asked=[("", "abc" * 20)], shape=(4, 3, 3))  # no question, no spaces
@example(asked=[("a" * 300, "b" * 300 + " b")], shape=(4, 3, 2))  # words of more than 200 characters
@example(asked=[("abcdefghij", "中文" * 20)], shape=(4, 5, 9))  # a long question, windows without overlap
@example(asked=[("who", "ab" * 20), ("whom", "ab" * 20)], shape=(8, 10, 1))  # two questions of one document
def test_every_token_is_in_a_window_and_has_its_context_in_one(
    asked: list[tuple[str, str]], shape: tuple[int, int, int]
) -> None:
    limit, beside, stride = shape
    questions, contexts = [q for q, _ in asked], [c for _, c in asked]
    found = span_windows(questions, contexts, SPELLING, limit + beside + 3, stride, limit)
    assert len(found.documents) == len(set(contexts))
    assert found.cut_questions == sum(len(ids) > limit for ids in SPELLING.encode_ids(questions))
    for number, (question, context) in enumerate(asked):
        mine = range(found.bounds[number], found.bounds[number + 1])
        head, ids = SPELLING.encode_ids([question, context])
        head = head[:limit]
        expected = starts_of(len(ids), limit + beside - len(head), stride)
        assert [(found.first_tokens[w], found.counts[w]) for w in mine] == expected
        for window, (start, count) in zip(mine, expected, strict=True):
            whole = [SPELLING.cls_id, *head, SPELLING.sep_id, *ids[start : start + count], SPELLING.sep_id]
            assert found.input_ids[window].tolist() == whole
            assert len(whole) == found.lengths[window] <= limit + beside + 3
            assert found.second_starts[window] == len(head) + 2
            assert found.question_of[window] == number
        owners = [
            [w for w in mine if found.context_starts[w] <= token < found.context_ends[w]] for token in range(len(ids))
        ]
        assert owners == [[mine[window_of_most_context(token, expected)]] for token in range(len(ids))]
        document = found.documents[found.document_of[number]]
        assert (document.text, document.ids.tolist()) == (context, ids.tolist())


def test_the_middle_of_two_windows_has_its_context_in_the_first() -> None:
    """Windows of 4 over 6 tokens, every 2: token 2 has 1 on its right in the first and 0 on its left in the second, token 3
    the other way round; the last window of 3 counts a little less."""
    assert [window_of_most_context(t, [(0, 4), (2, 4)]) for t in range(6)] == [0, 0, 0, 1, 1, 1]
    found = span_windows(["q"], ["abcdef"], SPELLING, 8, 2, 1)
    assert (found.context_starts.tolist(), found.context_ends.tolist()) == ([0, 3], [3, 6])


def test_the_defaults_are_those_of_the_paper() -> None:
    """384 tokens, a window every 128, 64 tokens of the question: 317 tokens of the document at first."""
    found = span_windows(["a" * 100], ["b " * 700], SPELLING)
    assert found.first_tokens.tolist() == [0, 128, 256, 384]
    assert found.counts.tolist() == [317, 317, 317, 316]
    assert (found.lengths.max(), found.second_starts.tolist(), found.cut_questions) == (384, [66] * 4, 1)


@pytest.mark.parametrize(("max_length", "stride", "limit"), [(67, 128, 64), (384, 0, 64)])
def test_windows_that_would_leave_tokens_out_are_refused(max_length: int, stride: int, limit: int) -> None:
    with pytest.raises(DataError, match="leave out tokens") as refused:
        span_windows(["a"], ["b"], SPELLING, max_length, stride, limit)
    assert "max_length must be max_query_length + 4" in refused.value.todo


def uncased() -> Tokenizer:
    path = shared("data/reference/vocab-bert-base-uncased.txt")
    return make(read_vocabulary(path), lowercase=True, strip_accents=True)


@pytest.mark.parametrize(("max_length", "stride"), [(384, 128), (128, 32)])
def test_windows_are_those_of_transformers(max_length: int, stride: int) -> None:
    """Ids, and characters of the tokens, of SQuAD's dev set. Their stride is the overlap of two windows."""
    import transformers

    vocabulary = shared("data/reference/vocab-bert-base-uncased.txt")
    reference = transformers.BertTokenizer(vocab=str(vocabulary))
    asked = list(read_squad(shared("data/finetune/squad/dev-v2.0.json")))
    asked = sorted(asked, key=lambda each: len(each.context))[-60:] + asked[::400]
    found = span_windows([q.question for q in asked], [q.context for q in asked], uncased(), max_length, stride)
    assert len(found) > 1.5 * len(asked)
    for number, question in enumerate(asked):
        mine = range(found.bounds[number], found.bounds[number + 1])
        room = max_length - 3 - (int(found.second_starts[mine[0]]) - 2)
        theirs = reference(
            question.question,
            question.context,
            max_length=max_length,
            truncation="only_second",
            stride=room - stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert [found.input_ids[w].tolist() for w in mine] == theirs["input_ids"]
        document = found.documents[found.document_of[number]]
        for row, window in enumerate(mine):
            part = slice(found.first_tokens[window], found.first_tokens[window] + found.counts[window])
            characters = list(zip(document.starts[part].tolist(), document.ends[part].tolist(), strict=True))
            of_context = np.array([kind == 1 for kind in theirs.sequence_ids(row)])
            assert characters == [theirs["offset_mapping"][row][at] for at in np.flatnonzero(of_context)]


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────────

KNOWING = make(
    (*SPECIAL_TOKENS, "who", "the", "cat", "sat", "on", "mat", "##s", "near", "dog", ".", "$", "20"),
    lowercase=True,
    strip_accents=True,
)


def cut(text: str, *contexts: str) -> SpanWindows:
    """Windows of 4 tokens every 2, of a question of one token: the document begins at place 3."""
    return span_windows([text] * len(contexts), contexts, KNOWING, 8, 2, 1)


def test_targets_by_hand() -> None:
    """the cat ##s sat | cat... : tokens 0 the, 1 cat, 2 ##s, 3 sat, 4 on, 5 the, 6 mat; windows 0-3, 2-5, 4-6."""
    found = span_targets(cut("who", *["The cats sat on the mat"] * 5), [[(0, 8)], [(9, 15)], [(16, 23)], [(4, 7)], []])
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == [
        *((3, 5), (0, 0), (0, 0)),  # The cats
        *((0, 0), (4, 5), (0, 0)),  # sat on: the first window ends with "sat"
        *((0, 0), (0, 0), (4, 5)),  # the mat
        *((4, 4), (0, 0), (0, 0)),  # cat, which is a token of its own
        *((0, 0), (0, 0), (0, 0)),  # there is no answer
    ]
    assert found.usable.all()
    assert (found.widened, found.without_token, found.in_no_window) == (0, 0, 0)


@pytest.mark.parametrize(
    ("answers", "target", "counts"),
    [
        ([(4, 6)], (4, 4), (1, 0, 0)),  # "ca" becomes "cat"
        ([(6, 8)], (4, 5), (1, 0, 0)),  # "ts" becomes "cats"
        ([(3, 8)], (4, 5), (0, 0, 0)),  # " cats": no character more
        ([(4, 6), (4, 8)], (4, 5), (1, 0, 0)),  # one that needs no widening comes first
        ([(0, 3), (4, 8), (4, 8)], (4, 5), (0, 0, 0)),  # the one given most often
        ([(4, 8), (0, 3)], (4, 5), (0, 0, 0)),  # else the first
        ([(0, 17), (4, 8)], (4, 5), (0, 0, 0)),  # the window does not hold the first
        ([(0, 17)], (0, 0), (0, 0, 1)),  # too long for any window
        ([(8, 9), (0, 3)], (3, 3), (0, 1, 0)),  # a space
        ([(5, 5), (0, 3)], (3, 3), (0, 1, 0)),  # nothing
    ],
)
def test_answers_become_whole_tokens(
    answers: list[Characters], target: tuple[int, int], counts: tuple[int, int, int]
) -> None:
    found = span_targets(cut("who", "The cats sat near"), [answers])
    assert (found.starts[0], found.ends[0]) == target
    assert found.usable.all()
    assert (found.widened, found.without_token, found.in_no_window) == counts


def test_a_question_whose_answers_have_no_token_is_not_taught_as_unanswerable() -> None:
    windows = cut("who", "the \x00 cat", "the cat")
    found = span_targets(windows, [[(4, 5)], []])
    assert found.usable.tolist() == [False, True]
    assert (found.starts.tolist(), found.without_token) == ([0, 0], 1)


def test_no_questions() -> None:
    windows = span_windows([], [], KNOWING)
    assert len(windows) == len(span_targets(windows, []).starts) == 0


@settings(deadline=None)
@given(context=HOSTILE, data=st.data(), shape=SHAPES)
def test_a_target_holds_the_answer_and_no_token_more(
    context: str, data: st.DataObject, shape: tuple[int, int, int]
) -> None:
    limit, beside, stride = shape
    places = st.integers(0, len(context))
    answers = data.draw(st.lists(st.tuples(places, places).map(lambda pair: (min(pair), max(pair))), max_size=3))
    windows = span_windows(["who", "", "b"], ["a b c d", context, "中 b"], SPELLING, limit + beside + 3, stride, limit)
    found = span_targets(windows, [[(0, 1)], answers, [(0, 1)]])
    document = windows.documents[1]
    touched = [
        [t for t in range(len(document)) if document.starts[t] < end and document.ends[t] > start and start < end]
        for start, end in answers
    ]
    exact = [
        bool(tokens) and bool(document.starts[tokens[0]] >= start and document.ends[tokens[-1]] <= end)
        for tokens, (start, end) in zip(touched, answers, strict=True)
    ]
    assert found.without_token == touched.count([])
    assert found.widened == sum(bool(tokens) and not whole for tokens, whole in zip(touched, exact, strict=True))
    for window in range(windows.bounds[1], windows.bounds[2]):
        first, count = int(windows.first_tokens[window]), int(windows.counts[window])
        held = [n for n, tokens in enumerate(touched) if tokens and first <= tokens[0] and tokens[-1] < first + count]
        held.sort(key=lambda n: (not exact[n], -touched.count(touched[n]), n))
        expected = (0, 0)
        if held:
            shift = int(windows.second_starts[window]) - first
            expected = (touched[held[0]][0] + shift, touched[held[0]][-1] + shift)
        assert (found.starts[window], found.ends[window]) == expected
        assert found.usable[window] == (not answers or any(touched))
