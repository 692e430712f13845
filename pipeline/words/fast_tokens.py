"""`nanotoken`, an optional package that gives the ids of `tokenizers` some twenty times as fast as a table of known words.

It is used only in the version that was compared with `tokenizers` on every character, golden texts and random ones
(tests/pipeline/words/test_fast_tokens.py), and only where it agrees on `probes` with the tokenizer at hand. So the ids, and with
them the bytes of shards, are the same with and without it, and it is no part of any key.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import numpy.typing as npt

COMPARED = "0.1.0"
"""the version of nanotoken that was compared"""
Flat = Callable[[Sequence[str]], tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]]
Encode = Callable[[Sequence[str]], list[npt.NDArray[np.int32]]]


def encoder(described: str, encode: Encode, vocabulary: Sequence[str]) -> Flat | None:
    """A function from texts to (their ids, where each begins), or None where `tokenizers` has to do it.

    Args:
        described: the tokenizer as JSON, without added tokens.
        encode: what `tokenizers` gives.
        vocabulary: its tokens.
    """
    try:
        installed = version("nanotoken")
    except PackageNotFoundError:
        return None
    if installed != COMPARED:
        return _not_used(f"version {installed} was not compared with tokenizers, {COMPARED} was")
    try:
        from nanotoken.nanotoken_rs import WordPieceTokenizer

        fast = WordPieceTokenizer.from_json(described)
    except (ImportError, ValueError) as error:
        return _not_used(str(error))

    def flat(texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        ids, starts = fast.encode_batch(list(texts), add_special_tokens=False, parallel=False)
        return ids.astype(np.int32), starts.astype(np.int64)

    return flat if agrees(flat, encode, probes(vocabulary)) else _not_used("it gives other ids than tokenizers")


def probes(vocabulary: Sequence[str]) -> list[str]:
    """Texts on which the two are compared at the start: all characters below U+3000 and some above, words around the longest
    that are no [UNK], control tokens, and the whole vocabulary."""
    return list(_probes(vocabulary))


def _probes(vocabulary: Sequence[str]) -> Iterator[str]:
    some = [*range(0x3000), *range(0x3000, 0xD800, 61), *range(0xE000, 0x110000, 997)]
    yield from (f"xa{chr(code)}b {chr(code)} ." for code in some)
    yield from (letter * length for letter in ("a", "é", "e\u0301", "中") for length in (99, 100, 101, 200, 201, 400))
    yield from (
        "",
        " ",
        "[MASK] [CLS]x ##a [UNK]",
        "ΌΣΟΣ ΣΑΣ",
        "don't e\u0301\u0327 x\u200dy \U0001f469\u200d\U0001f52c",
    )
    yield from (" ".join(vocabulary[first : first + 100]) for first in range(0, len(vocabulary), 100))


def agrees(flat: Flat, encode: Encode, texts: Sequence[str]) -> bool:
    """Whether the two give the same ids for all texts."""
    expected = encode(texts)
    ids, starts = flat(texts)
    lengths = np.fromiter(map(len, expected), np.int64, len(expected))
    return np.array_equal(np.diff(starts), lengths) and np.array_equal(ids, np.concatenate([[], *expected]))


def _not_used(reason: str) -> Flat | None:
    logging.getLogger(__name__).warning("nanotoken is installed but not used: %s", reason)
    return None
