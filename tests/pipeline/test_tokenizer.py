"""The tokenizer gives the original's ids, and control tokens in text stay text."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.tokenizer import SPECIAL_TOKENS, Tokenizer, load, make, read_vocabulary, tokenizer_json
from tests.conftest import shared

LETTERS = [*"abcdefghijklmnopqrstuvwxyz[]#", "é"]
VOCABULARY = (
    *SPECIAL_TOKENS,
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "mask",
    "un",
    "##want",
    "##ed",
    "[unused1]",
)
KNOWING = make(VOCABULARY, lowercase=True, strip_accents=True)


@pytest.mark.parametrize(
    ("name", "differences"),
    [("bert-base-uncased", 1), ("bert-base-cased", 0), ("bert-base-multilingual-cased", 0)],
)
def test_ids_equal_those_of_the_original_tokenizer(name: str, differences: int) -> None:
    golden = shared("data/reference/tokenization_golden.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, golden) if record["vocab"] == name]
    assert len(records) == 437
    lower = records[0]["lower"]
    tokenizer = make(read_vocabulary(shared(f"data/reference/vocab-{name}.txt")), lowercase=lower, strip_accents=lower)
    ids = tokenizer.encode_ids([record["text"] for record in records])
    for record in records:
        assert [tokenizer.vocabulary[number] for number in record["ids"]] == record["google"]
    different = [record["text"] for record, got in zip(records, ids, strict=True) if got.tolist() != record["ids"]]
    assert len(different) == differences
    assert all("ΣΊΣΥΦΟΣ" in text for text in different), "the only known difference is the final capital sigma"


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "bert-base-multilingual-cased"])
def test_the_released_tokenizer_differs_where_the_model_card_says(name: str) -> None:
    golden = shared("data/reference/tokenization_golden.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, golden) if record["vocab"] == name]
    lower = records[0]["lower"]
    vocabulary = read_vocabulary(shared(f"data/reference/vocab-{name}.txt"))
    released = tokenizers.Tokenizer.from_str(tokenizer_json(vocabulary, lowercase=lower, strip_accents=lower))
    for record in records:
        same = released.encode(record["text"], add_special_tokens=False).ids == record["ids"]
        said = any(token in record["text"] for token in SPECIAL_TOKENS) or (lower and "ΣΊΣΥΦΟΣ" in record["text"])
        assert same != said, record["text"]


@pytest.fixture(scope="module", autouse=True)
def known_words() -> Iterator[None]:
    """Words are looked up, as they are without nanotoken (its tests: test_fast_tokens)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.words.fast_tokens.encoder", lambda *_: None)
        yield


def flat_equals_library(tokenizer: Tokenizer, texts: list[str]) -> None:
    ids, starts = tokenizer.encode_flat(texts)
    assert len(starts) == len(texts) + 1
    for number, expected in enumerate(tokenizer.encode_ids(texts)):
        assert ids[starts[number] : starts[number + 1]].tolist() == expected.tolist(), texts[number]


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "bert-base-multilingual-cased"])
def test_words_that_are_looked_up_have_the_ids_of_the_library(name: str) -> None:
    golden = shared("data/reference/tokenization_golden.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [record["text"] for record in map(json.loads, golden)]
    lower = "uncased" in name
    tokenizer = make(read_vocabulary(shared(f"data/reference/vocab-{name}.txt")), lowercase=lower, strip_accents=lower)
    for _ in "ab":  # the second time all words are known
        flat_equals_library(tokenizer, texts)


@given(st.lists(st.text(st.sampled_from("abné.[]#,'- \t\n\x00\x0b\x1c\x85\xa0\u0301\u200b\u2028漢ß"), max_size=30)))
@settings(max_examples=300, deadline=None)
def test_looking_up_changes_nothing_on_any_text(texts: list[str]) -> None:
    flat_equals_library(KNOWING, texts)


def test_a_full_memory_of_words_forgets_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.tokenizer.MAX_KNOWN_WORDS", 5)
    tokenizer = make(VOCABULARY, lowercase=True, strip_accents=True)
    for text in ("a b c", "d e f", "a b. c, d!", "a"):
        flat_equals_library(tokenizer, [text, "", text + " x"])


def test_no_text_has_no_ids() -> None:
    ids, starts = make(VOCABULARY, lowercase=True, strip_accents=True).encode_flat(["", "  "])
    assert (ids.tolist(), starts.tolist()) == ([], [0, 0, 0])


def test_greedy_longest_match_by_hand() -> None:
    tokenizer = make(VOCABULARY, lowercase=True, strip_accents=True)
    (ids,) = tokenizer.encode_ids(["UNwantéd 漢"])
    assert tokenizer.tokens(ids) == ["un", "##want", "##ed", "[UNK]"]
    assert tokenizer.decode(ids) == "unwanted [UNK]"


def test_accents_and_case_are_separate_choices() -> None:
    def pieces(text: str, lowercase: bool, strip_accents: bool) -> list[str]:
        tokenizer = make(VOCABULARY, lowercase=lowercase, strip_accents=strip_accents)
        return tokenizer.tokens(tokenizer.encode_ids([text])[0])

    assert pieces("É", lowercase=True, strip_accents=False) == ["é"]
    assert pieces("É", lowercase=True, strip_accents=True) == ["e"]
    assert pieces("é", lowercase=False, strip_accents=True) == ["e"]
    assert pieces("E", lowercase=False, strip_accents=False) == ["[UNK]"]


@pytest.mark.parametrize("text", ["[MASK]", "[CLS]", "[SEP] a [PAD]", "##a", "[unused1]", "x[MASK]y [mask]"])
def test_control_tokens_in_running_text_never_become_control_ids(text: str) -> None:
    tokenizer = make(VOCABULARY, lowercase=False, strip_accents=False)
    (ids,) = tokenizer.encode_ids([text])
    control = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, VOCABULARY.index("[unused1]")}
    assert control.isdisjoint(ids.tolist())
    assert tokenizer.tokens(ids)[0] != "##a"


def test_a_prompt_may_ask_for_masks() -> None:
    tokenizer = make(VOCABULARY, lowercase=True, strip_accents=True)
    assert tokenizer.tokens(tokenizer.encode_prompt("a [MASK] b[MASK]")) == ["a", "[MASK]", "b", "[MASK]"]
    assert tokenizer.tokens(tokenizer.encode_prompt("a b")) == ["a", "b"]


def write(folder: Path, vocabulary: tuple[str, ...], described: str) -> Path:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    (folder / "tokenizer.json").write_text(described, encoding="utf-8")
    return folder


def test_a_folder_loads_with_its_normalisation(tmp_path: Path) -> None:
    tokenizer = load(write(tmp_path, VOCABULARY, tokenizer_json(VOCABULARY, lowercase=True, strip_accents=False)))
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, False)
    assert tokenizer.vocabulary == VOCABULARY
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)


def test_the_json_registers_the_five_as_special_tokens_and_nothing_else(tmp_path: Path) -> None:
    folder = write(tmp_path, VOCABULARY, tokenizer_json(VOCABULARY, lowercase=True, strip_accents=True))
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    assert [token["content"] for token in described["added_tokens"]] == list(SPECIAL_TOKENS)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert library.get_vocab_size() == len(VOCABULARY)
    encoded = library.encode("unwanted", "a [MASK]")
    assert encoded.tokens == ["[CLS]", "un", "##want", "##ed", "[SEP]", "a", "[MASK]", "[SEP]"]
    assert encoded.type_ids == [0, 0, 0, 0, 0, 1, 1, 1]
    assert library.decode(encoded.ids) == "unwanted a"


def test_broken_vocabularies_are_refused_with_line_and_token(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    for text, message in [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\na\n", "'a' stands on line 6 and on line 7"),
        ("[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n", r"vocab\.txt lacks \[UNK\]"),
        ("[PAD]\n[UNK]\n\n[CLS]\n[SEP]\n[MASK]\n", r"token 2 \(line 3\) is empty"),
        (
            f"[PAD]\n[UNK]\n##{'x' * 201}\n[CLS]\n[SEP]\n[MASK]\n",
            r"token 2 \(line 3\), '##x{28}' …, has 203 characters",
        ),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_vocabulary(path)
    path.write_text(f"[PAD]\n[UNK]\n##{'x' * 200}\n[CLS]\n[SEP]\n[MASK]\n", encoding="utf-8")
    assert len(read_vocabulary(path)) == 6
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="can't be read"):
        read_vocabulary(path)
    path.write_bytes(b"\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\n")
    assert read_vocabulary(path) == (*SPECIAL_TOKENS, "a")


@pytest.mark.parametrize("content", [b"a\n" * 1_000_001, b"a" * ((64 << 20) + 1)])
def test_a_file_that_is_larger_than_any_vocabulary_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"vocab\.txt has more than 1,000,000 lines or 64 MiB"):
        read_vocabulary(tmp_path / "vocab.txt")


def test_what_is_no_file_is_no_vocabulary(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(DataError, match="is no file"):
            read_vocabulary(path)


def test_vocab_txt_and_tokenizer_json_must_agree(tmp_path: Path) -> None:
    described = tokenizer_json(VOCABULARY, lowercase=True, strip_accents=True)
    with pytest.raises(DataError, match="different tokens"):
        load(write(tmp_path, (*VOCABULARY, "new"), described))
    with pytest.raises(DataError, match="not the tokenizer"):
        load(write(tmp_path, VOCABULARY, "{}"))


MARKED = make(
    (*VOCABULARY, ",", "cafe", "lait", "##lait", "中", "한", "ᄒ", "##ᅡ", "##ᆫ"), lowercase=True, strip_accents=True
)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Café x", ["Café", "x"]),
        ("cafe\u0301, x", ["cafe\u0301", ",", "x"]),  # the accent belongs to no piece of the library's
        ("e\u0301\u0301 \u0301x", ["e\u0301\u0301", "x"]),  # but one behind a space to nothing
        ("a\x00b c\u00ad", ["a", "b", "c"]),
        ("x" * 201 + " a", ["x" * 201, "a"]),  # [UNK]
        ("中x中", ["中", "x", "中"]),
        ("한", ["한", "한", "한"]),  # three pieces of one character
        ("👩\u200d👧 a", ["👩\u200d👧", "a"]),
        ("[MASK]", ["[", "MASK", "]"]),
        (" \u3000\t", []),
    ],
)
def test_pieces_know_their_characters(text: str, pieces: list[str]) -> None:
    (located,) = MARKED.encode_located([text])
    assert [text[a:b] for a, b in zip(located.starts, located.ends, strict=True)] == pieces


HOSTILE = (
    st.text("ab zé\u0301\u0300\u0323中文한ﬁİßΣ\x00\x7f\u200d\ufe0f\u00ad\ufffd👩🏽ำ\u0928\u094d\u0947.,-\n\u3000\u202f")
    | st.text()
)


@pytest.mark.parametrize("lowercase", [True, False])
@settings(deadline=None)
@given(texts=st.lists(HOSTILE, max_size=3))
def test_no_character_that_counts_is_outside_of_the_pieces(lowercase: bool, texts: list[str]) -> None:
    tokenizer = make(VOCABULARY, lowercase=lowercase, strip_accents=lowercase)
    for located, text, ids in zip(tokenizer.encode_located(texts), texts, tokenizer.encode_ids(texts), strict=True):
        assert located.text == text
        assert located.ids.tolist() == ids.tolist()
        starts, ends = located.starts.tolist(), located.ends.tolist()
        assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True))
        assert starts == sorted(starts) and ends == sorted(ends)
        outside = [text[a:b] for a, b in zip([0, *ends], [*starts, len(text)], strict=True) if a < b]
        assert not any(map(len, tokenizer.encode_ids(outside)))
