"""The vocabulary: merges by hand, equal bytes on every run, exact size or a refusal, special tokens in place."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers

from pipeline.config import PathFrom, VocabularyConfig
from pipeline.errors import DataError
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts
from pipeline.stage import ROOT
from pipeline.store import open_store
from pipeline.suites import SUITES, validate
from pipeline.tokenizer import SPECIAL_TOKENS, load, make
from pipeline.vocabulary import coverage, train_vocabulary
from pipeline.vocabulary import learn as learn_words
from pipeline.words.word_counts import Words
from tests.conftest import shared
from tests.pipeline.words.test_merges import of_library as trained_by_library
from tests.pipeline.words.test_word_counts import of_library

# The example of Hugging Face's course on BPE: ug 20, un 16, h + ug 15; then by hand p + un 12,
# p + ug, hug + s, b + un
HUGS = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
HUGS_TOKENS = [*"bghnpsu", "##g", "##n", "##s", "##u", "##ug", "##un", "hug", "pun"]


def counted(words: Mapping[str, int]) -> Words:
    return Words(pa.array(list(words), pa.large_string()), np.array(list(words.values()), np.int64))


def learn(words: Mapping[str, int], config: VocabularyConfig) -> list[str]:
    return learn_words(counted(words), config)


def config(size: int, **others: Any) -> VocabularyConfig:
    return VocabularyConfig.model_construct(**{**VocabularyConfig(**others).plain(), "size": size})


def documents(folder: Path, texts: list[str], held_out: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True)
    rows = [
        {"doc_id": f"s:{i}", "source": "s", "text": text, "split": split, "sentence_ends": [len(text)], "repeat": 1.0}
        for split, part in (("train", texts), ("held_out", held_out))
        for i, text in enumerate(part)
    ]
    write_parts(rows, DOCUMENTS_SCHEMA, folder)
    return folder


def babble(seed: int, words: int) -> list[str]:
    """Texts in which very many pairs occur equally often: where an order that is not pinned would show."""
    generator = random.Random(seed)
    stems = [
        "".join(generator.choices("abcdefghijklmnopqrstuvwxyzäöüéñß", k=generator.randint(1, 9))) for _ in range(900)
    ]
    return [" ".join(generator.choices(stems, k=100)) for _ in range(words // 100)]


GIVEN = [*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), "the"]


def test_a_vocabulary_that_is_named_is_taken_as_it_is_and_measured(tmp_path: Path) -> None:
    texts = documents(tmp_path / "documents", ["the hat"], ("the cat sat",))
    file = tmp_path / "vocab.txt"
    file.write_bytes("".join(f"{token}\r\n" for token in ["[unused0]", *GIVEN]).encode("utf-8-sig"))
    (tmp_path / "out").mkdir()
    asked = VocabularyConfig(file=PathFrom(path=str(file)))
    found = train_vocabulary({"documents": texts}, asked, tmp_path / "out")
    tokenizer = load(tmp_path / "out")
    assert tokenizer.vocabulary == ("[unused0]", *GIVEN)
    assert tokenizer.special_ids == (1, 2, 3, 4, 5)
    assert found["size"] == len(GIVEN) + 1
    # the; c ##a ##t; s ##a ##t: 7 pieces of 3 words, 4 of them continue
    assert (found["pieces_per_word"], found["continued_share"]) == (round(7 / 3, 6), round(4 / 7, 6))
    assert {r.name: r.passed for r in validate("wordpiece_vocab", tmp_path / "out", asked, found)} == {
        check.name: True for check in SUITES["wordpiece_vocab"].checks
    }
    file.write_text("".join(f"{token}\n" for token in GIVEN if token != "[MASK]"))
    with pytest.raises(DataError, match=r"vocab.txt lacks \[MASK\]"):
        train_vocabulary({"documents": texts}, asked, tmp_path / "out")


def test_a_version_of_the_store_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    with open_store().staging() as staged:
        (staged / "vocab.txt").write_text("".join(f"{token}\n" for token in GIVEN))
        version = open_store().publish("wordpiece_vocab", staged)
    texts = documents(tmp_path / "documents", ["the hat"], ("the cat sat",))
    (tmp_path / "out").mkdir()
    train_vocabulary({"documents": texts}, VocabularyConfig.model_validate({"from": version}), tmp_path / "out")
    assert load(tmp_path / "out").vocabulary == tuple(GIVEN)
    with pytest.raises(DataError, match="no vocabulary of version 0000"):
        train_vocabulary({"documents": texts}, VocabularyConfig.model_validate({"from": "0" * 64}), tmp_path / "out")


def test_merges_by_hand() -> None:
    assert learn(HUGS, config(5 + 15)) == [*SPECIAL_TOKENS, *HUGS_TOKENS]


def test_berts_own_layout() -> None:
    vocabulary = learn(HUGS, config(104 + 15, layout="bert"))
    assert [vocabulary.index(token) for token in SPECIAL_TOKENS] == [0, 100, 101, 102, 103]
    assert (vocabulary[1], vocabulary[99]) == ("[unused0]", "[unused98]")
    assert vocabulary[104:] == HUGS_TOKENS


def test_a_text_that_is_too_small_names_its_ceiling() -> None:
    with pytest.raises(DataError, match="at most 23 tokens") as caught:
        learn(HUGS, config(200))
    assert caught.value.todo == "Lower vocabulary.min_frequency, or add text."  # no recipe may ask for 23
    assert len(learn(HUGS, config(23))) == 23
    words = {f"{first}{second}": 1 for first in "abcdefghijklm" for second in "nopqrstuvw"}
    with pytest.raises(
        DataError, match="at most 168 tokens"
    ) as caught:  # 5 special, 23 characters, 10 inside, 130 words
        learn(words, config(200, min_frequency=1))
    assert caught.value.todo == "Set vocabulary.size to 168 or less, or add text."
    assert len(learn(words, config(168, min_frequency=1))) == 168


def test_a_size_without_room_for_words_is_refused() -> None:
    with pytest.raises(DataError, match="already 16"):
        learn(HUGS, config(16))


def test_where_every_word_is_one_character_the_alphabet_is_a_vocabulary() -> None:
    """As in Chinese text without a number or a Latin word."""
    words = {"\u6211": 3, "\u4f60": 2}
    assert learn(words, config(7)) == [*SPECIAL_TOKENS, "\u4f60", "\u6211"]
    with pytest.raises(DataError, match="already 7"):
        learn(words, config(6))


def test_the_alphabet_is_limited_to_the_most_frequent_characters() -> None:
    vocabulary = learn({**HUGS, "xug": 1, "zz": 1}, config(5 + 15, alphabet_limit=7))
    assert vocabulary == [*SPECIAL_TOKENS, *HUGS_TOKENS]


def test_rare_pairs_are_not_merged() -> None:
    assert learn(HUGS, config(5 + 15, min_frequency=12))[-1] == "pun"
    with pytest.raises(DataError, match="at most 19 tokens .* 13 times or more"):
        learn(HUGS, config(5 + 15, min_frequency=13))


def train(folder: Path, out: Path, **options: Any) -> tuple[bytes, bytes, dict[str, Any]]:
    out.mkdir()
    statistics = train_vocabulary({"documents": folder}, VocabularyConfig(**options), out)
    return (out / "vocab.txt").read_bytes(), (out / "tokenizer.json").read_bytes(), statistics


def test_the_same_bytes_on_every_run_with_any_threads_and_in_any_order(tmp_path: Path) -> None:
    texts = babble(1, 20_000)
    first = train(documents(tmp_path / "a", texts), tmp_path / "out_a", size=1500)
    random.Random(2).shuffle(texts)
    shuffled = documents(tmp_path / "b", texts)
    assert train(shuffled, tmp_path / "out_b", size=1500) == first
    program = (
        "import sys; from pathlib import Path; from pipeline.words import word_counts; from pipeline.vocabulary import *\n"
        "word_counts.WORK_PER_WORKER = word_counts.TASK_BYTES = 10_000\n"
        "train_vocabulary({'documents': Path(sys.argv[1])}, VocabularyConfig(size=1500), Path(sys.argv[2]))"
    )
    parts = documents(tmp_path / "parts", [])
    for number in range(8):
        part = documents(tmp_path / f"part{number}", texts[number::8]) / "part-00000.parquet"
        part.rename(parts / f"part-{number:05d}.parquet")
    for folder, threads, workers in ((shuffled, 2, 1), (parts, 1, 2), (parts, 2, 8)):
        out = tmp_path / f"out_{threads}_{workers}"
        out.mkdir()
        (tmp_path / "settings.yaml").write_text(f"beam: {{workers: {workers}}}\n")
        environment = {
            "RAYON_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
            "PYTHONHASHSEED": str(workers),
            "BERT_SETTINGS": str(tmp_path / "settings.yaml"),
        }
        command = [sys.executable, "-c", program, str(folder), str(out)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True, timeout=300)
        assert ((out / "vocab.txt").read_bytes(), (out / "tokenizer.json").read_bytes()) == first[:2]
        assert sorted(path.name for path in out.iterdir()) == ["tokenizer.json", "vocab.txt"]


def test_golden_bytes(tmp_path: Path) -> None:
    vocabulary, described, _ = train(documents(tmp_path / "a", babble(3, 5_000)), tmp_path / "out", size=1000)
    # If this changes, raise STAGE.version of pipeline/vocabulary.py
    assert hashlib.sha256(vocabulary).hexdigest()[:16] == "88936cb9540d281d"
    assert hashlib.sha256(described).hexdigest()[:16] == "94108e1a262ae48f"


def test_only_train_documents_are_learned_and_held_out_ones_measured(tmp_path: Path) -> None:
    texts = [" ".join([word] * count) for word, count in HUGS.items()] * 3 + ["".join(map(chr, range(0x1400, 0x1440)))]
    folder = documents(tmp_path / "documents", [*texts, *babble(4, 2_000)], held_out=("Hugs hug bug ŋ",))
    vocabulary, described, statistics = train(folder, tmp_path / "out", size=400)
    tokens = vocabulary.decode().split("\n")
    assert tokens.pop() == ""
    assert len(tokens) == len(set(tokens)) == statistics["size"] == 400
    assert tokens[:5] == list(SPECIAL_TOKENS)
    assert "ŋ" not in tokens
    assert (statistics["measured_on"], statistics["words_millions"]) == ("held_out", 4e-6)
    assert statistics["unknown_rate"] == 0.25
    tokenizer = load(tmp_path / "out")
    pieces = tokenizer.tokens(tokenizer.encode_ids(["Hugs hug bug ŋ"])[0])
    assert pieces[:2] == ["hugs", "hug"]
    assert statistics["pieces_per_word"] == len(pieces) / 4
    assert statistics["continued_share"] == pytest.approx(
        sum(p.startswith("##") for p in pieces) / len(pieces), abs=1e-6
    )
    assert json.loads(described)["model"]["vocab"] == {token: number for number, token in enumerate(tokens)}


def test_the_same_bytes_as_the_trainer_of_the_library(tmp_path: Path) -> None:
    """Where the trainer is told the numbers of all characters beforehand; else it gives another order in every run."""
    texts = babble(8, 5_000)
    vocabulary = train(documents(tmp_path / "a", texts), tmp_path / "out", size=900)[0].decode().splitlines()
    words = of_library(texts, lowercase=True, strip_accents=True)
    pinned = [token for token in vocabulary if len(token.removeprefix("##")) == 1 or token in SPECIAL_TOKENS]
    assert vocabulary == trained_by_library(words, pinned, 900, 2)


def test_a_vocabulary_to_compare_with_is_measured_on_the_same_text(tmp_path: Path) -> None:
    texts = documents(tmp_path / "documents", ["the hat"] * 9 + babble(9, 500), ("the cat sat, the dog",))
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{token}\n" for token in (*GIVEN, ",", "cat")))
    plain = train(texts, tmp_path / "out", size=200)
    vocabulary, described, found = train(texts, tmp_path / "out2", size=200, compared=PathFrom(path=str(other)))
    assert (vocabulary, described) == plain[:2]
    assert {name: value for name, value in found.items() if name != "compared"} == plain[2]
    # the, cat, s ##a ##t, "," the d ##o ##g: 10 pieces of 6 words, 4 of them continue
    compared = found["compared"]
    assert compared["size"] == len(GIVEN) + 2
    assert (compared["pieces_per_word"], compared["continued_share"]) == (round(10 / 6, 6), 0.4)
    assert (compared["unknown_rate"], compared["whole_word_share"]) == (0, round(4 / 6, 6))
    assert compared["words_by_pieces"] == {"[UNK]": 0, "1": 4, "2": 0, "3": 2, "4": 0, "5 or more": 0}
    assert (compared["longest_tokens"]["the"], compared["longest_tokens"]["cat"]) == (2, 1)
    other.write_text("".join(f"{token}\n" for token in GIVEN if token != "[SEP]"))
    with pytest.raises(DataError, match=r"other.txt lacks \[SEP\]"):
        train(texts, tmp_path / "out3", size=200, compared=PathFrom(path=str(other)))


@pytest.mark.parametrize(
    ("name", "lowercase", "said"),
    [
        ("cased", True, r"is cased: 8,\d\d\d of its 28,996 tokens have capital letters"),
        ("multilingual-cased", True, "is cased"),
        ("uncased", False, "is uncased: none of its 30,522 tokens has a capital letter"),
    ],
)
def test_the_original_vocabularies_want_their_own_case(tmp_path: Path, name: str, lowercase: bool, said: str) -> None:
    texts = documents(tmp_path / "documents", ["The hat."], ("The cat sat.",))
    file = PathFrom(path=str(shared(f"data/reference/vocab-bert-base-{name}.txt")))
    for number, key in enumerate(("file", "compared")):
        with pytest.raises(DataError, match=said) as caught:
            train(texts, tmp_path / f"a{number}", **{key: file, "size": 100, "lowercase": lowercase})
        assert ("lowercase: false" if lowercase else "lowercase: true") in caught.value.todo
    right = {"lowercase": not lowercase, "strip_accents": not lowercase}
    _, _, found = train(texts, tmp_path / "b", file=file, **right)
    assert found["unknown_rate"] == 0
    assert found["tokens_out_of_reach"] <= 3  # "..." and <S>, <T>: punctuation is split


def test_accents_that_are_stripped_are_counted_not_refused(tmp_path: Path) -> None:
    texts = documents(tmp_path / "documents", ["the hat"], ("the cat sat",))
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{token}\n" for token in (*GIVEN, "é", "##ö", "don't", "[unused7]")))
    asked = VocabularyConfig(file=PathFrom(path=str(file)))
    (tmp_path / "out").mkdir()
    found = train_vocabulary({"documents": texts}, asked, tmp_path / "out")
    assert found["tokens_out_of_reach"] == 3
    failed = {r.name for r in validate("wordpiece_vocab", tmp_path / "out", asked, found) if not r.passed}
    assert failed == {"tokens_in_reach"}


def test_pinned_characters_are_ordinary_tokens_in_tokenizer_json(tmp_path: Path) -> None:
    _, described, _ = train(documents(tmp_path / "a", babble(5, 2_000)), tmp_path / "out", size=300)
    assert [token["content"] for token in json.loads(described)["added_tokens"]] == list(SPECIAL_TOKENS)
    library = tokenizers.Tokenizer.from_str(described.decode())
    ids = library.encode("qzq").ids
    assert library.decode(ids, skip_special_tokens=True) == "qzq"
    assert "##a" not in library.encode("x ##a").tokens


def test_words_that_are_too_long_are_unknown_and_teach_nothing(tmp_path: Path) -> None:
    long = "qz" * 101
    folder = documents(tmp_path / "a", [*babble(10, 2_000), f"{long} {long}"], held_out=(f"a {long} b b",))
    *_, found = train(folder, tmp_path / "out", size=300)
    assert (found["train_words_too_long"], found["unknown_rate"], found["pieces_per_word"]) == (2, 0.25, 1)
    assert "qz" not in (tmp_path / "out" / "vocab.txt").read_text().split()


def test_without_held_out_text_the_train_text_is_measured(tmp_path: Path) -> None:
    *_, statistics = train(documents(tmp_path / "a", babble(6, 2_000)), tmp_path / "out", size=300)
    assert statistics["measured_on"] == "train"
    assert statistics["unknown_rate"] == 0


def test_no_train_text_is_refused(tmp_path: Path) -> None:
    folder = documents(tmp_path / "a", [], held_out=("Words.",))
    with pytest.raises(DataError, match="no words in its train part"):
        train(folder, tmp_path / "out", size=300)


def test_coverage_by_hand() -> None:
    vocabulary = learn(HUGS, config(5 + 15))
    tokenizer = make(vocabulary, lowercase=True, strip_accents=True)
    # hug: 1 piece, bug: b ##ug, xyz: [UNK]
    assert coverage(counted({"hug": 5, "bug": 3, "xyz": 2}), tokenizer) == {
        "words_millions": 1e-5,
        "unknown_rate": 0.2,
        "whole_word_share": 0.5,
        "pieces_per_word": 1.3,
        "continued_share": round(3 / 13, 6),
        "tokens_used": 3,
        "words_by_pieces": {"[UNK]": 2, "1": 5, "2": 3, "3": 0, "4": 0, "5 or more": 0},
        "longest_tokens": {"hug": 5, "pun": 0, "##ug": 3, "##un": 0}
        | {"##g": 0, "##n": 0, "##s": 0, "##u": 0, "b": 3, "g": 0, "h": 0, "n": 0, "p": 0, "s": 0, "u": 0},
    }
