"""Column files: separators, documents, schemes of tags."""

from pathlib import Path

import pytest

from model.task_files.conll import iob2, read_sentences
from pipeline.errors import DataError
from tests.conftest import shared


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "eng.train"
    path.write_bytes(data)
    return path


def test_conll_2003_with_documents_bom_and_windows_line_ends(tmp_path: Path) -> None:
    data = (
        b"\xef\xbb\xbf-DOCSTART- -X- -X- O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n \t \r\n"
        b"Peter NNP I-NP I-PER\r\n\r\n\r\n-DOCSTART- -X- -X- O\r\nBONN NNP I-NP I-LOC"
    )
    found = [(s.line, s.document, s.words, s.tags) for s in read_sentences(written(tmp_path, data))]
    assert found == [
        (3, 1, ["EU", "rejects"], ["I-ORG", "O"]),
        (6, 1, ["Peter"], ["I-PER"]),
        (10, 2, ["BONN"], ["I-LOC"]),
    ]
    chunks = [s.tags for s in read_sentences(written(tmp_path, data), word=0, tag=2)]
    assert chunks == [["I-NP", "I-VP"], ["I-NP"], ["I-NP"]]


def test_words_between_tabs_keep_their_spaces_and_odd_characters(tmp_path: Path) -> None:
    data = "New York\tB-LOC\n\u00a0\tO\n\u2028x\x85\tO\n\t\nEnd\tO\n".encode()
    first, second = read_sentences(written(tmp_path, data))
    assert (first.words, first.tags) == (["New York", "\u00a0", "\u2028x\x85"], ["B-LOC", "O", "O"])
    assert second.words == ["End"]


def test_a_file_of_words_only(tmp_path: Path) -> None:
    (sentence,) = read_sentences(written(tmp_path, b"One\nTwo\n"))
    assert (sentence.words, sentence.tags, sentence.document) == (["One", "Two"], None, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"EU NNP O\nrejects O\n", "line 2: 2 columns, but the lines before have 3: 'rejects O'"),
        (b"EU\tO\n\tO\n", "line 2: no word"),
        (b"EU O\nM\xfcller O\n", "line 2: not UTF-8"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_sentences(written(tmp_path, data)))


def test_iob1_becomes_iob2() -> None:
    """Tjong Kim Sang and Veenstra 1999: in IOB1, B- only begins an entity right after another of its type."""
    one = ["I-PER", "I-PER", "B-PER", "O", "I-ORG", "I-LOC", "I-LOC", "O", "B-ORG", "I-ORG"]
    two = ["B-PER", "I-PER", "B-PER", "O", "B-ORG", "B-LOC", "I-LOC", "O", "B-ORG", "I-ORG"]
    assert iob2(one) == two
    assert iob2(two) == two
    assert iob2([]) == []


@pytest.mark.parametrize(
    ("file", "sentences", "words"),
    [
        # sentences: huggingface/datasets; words: lines with more than white space; wikigold: Balasuriya et al. 2009
        ("wnut17train.conll", 3_394, 62_730),
        ("emerging.dev.conll", 1_009, 15_733),
        ("emerging.test.annotated", 1_287, 23_394),
        ("wikigold.conll.txt", 1_696, 39_007),
    ],
)
def test_public_files_have_the_published_numbers(file: str, sentences: int, words: int) -> None:
    found = list(read_sentences(shared(f"data/finetune/ner/{file}")))
    assert (len(found), sum(len(sentence.words) for sentence in found)) == (sentences, words)
