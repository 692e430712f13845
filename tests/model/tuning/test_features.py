"""Hidden states of a frozen encoder that are kept: against transformers, and what happens to a folder of them."""

import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.bert import BertForPretraining, initialize
from model.devices import open_device
from model.layers.bilstm import BiLSTM
from model.layers.layer_choices import ChosenLayers, needed
from model.processes.child import Stop
from model.task_files.task_kinds import SCHEMAS
from model.tuning import features
from model.tuning.examples import Examples, read_examples
from model.tuning.features import BATCH_TOKENS, Kept, check_room, keep, reading_of, token_batches
from model.tuning.tagged_words import read_words
from pipeline import tokenizer
from pipeline.config import Architecture
from pipeline.errors import StoreError
from pipeline.stage import ROOT
from tests.model.test_bert import reference_of
from tests.model.tiny import VOCABULARY, write_vocabulary
from tests.model.trainings import StopAfter, content

ARCHITECTURE = Architecture(layers=5, hidden=16, heads=2, max_positions=32, dropout=0.5)
LAYERS = (0, 2, 5)
LONG = "the cat sat on a mat in paris , running dogs sat on the running cat ."
"""17 words: more pieces than go into a row of 12 tokens"""
SENTENCES = [
    ("the dogs sat", [0, 1, 0]),
    (LONG, [0] * 17),
    ("paris", [1]),
    ("", []),
    ("dogs running on dogs", [1, 0, 0, 1]),
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def words(tmp_path: Path) -> Examples:
    """Sentences in rows of at most 12 tokens."""
    rows = [{"example_id": str(n), "words": text.split(), "tags": tags} for n, (text, tags) in enumerate(SENTENCES)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["tagging"]), tmp_path / "words.parquet")
    found = read_words(tmp_path / "words.parquet", tokenizer.load(write_vocabulary(tmp_path / "vocabulary")), 12)
    assert found.counts["windowed_sentences"] == 1
    return found


@pytest.fixture
def pairs(tmp_path: Path) -> Examples:
    texts = [("the cat sat", "a dog"), ("paris is a mat .", None), ("dogs", "running on the mat")]
    rows = [{"example_id": str(n), "text_a": a, "text_b": b, "label": n % 2} for n, (a, b) in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMAS["pair_classification"]), tmp_path / "pairs.parquet")
    return read_examples(tmp_path / "pairs.parquet", tokenizer.load(write_vocabulary(tmp_path / "vocabulary")), 12)


def network(seed: int = 7) -> BertForPretraining:
    """Far from its initial values: every bias counts."""
    model = BertForPretraining(ARCHITECTURE, 101, "nsp")  # the vocabulary of `reference_of`
    initialize(model, seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return model


def kept_in(folder: Path, examples: Examples, model: BertForPretraining, stop: Stop | None = None) -> Kept | None:
    return keep(folder, model.encoder, open_device("cpu", 1), examples, LAYERS, "fp32", stop or Stop())


def expected_states(model: BertForPretraining, examples: Examples) -> list[list[torch.Tensor]]:
    """transformers' hidden states of every row, a row at a time."""
    reference, found = reference_of(model).bert, []
    for ids, second in zip(examples.input_ids, examples.second_starts, strict=True):
        row = torch.from_numpy(ids.astype(np.int64))[None]
        types = (torch.arange(row.shape[1]) >= int(second)).long()[None]
        with torch.inference_mode():
            states = reference(row, token_type_ids=types, output_hidden_states=True).hidden_states
        found.append([state[0] for state in states])
    return found


def test_words_are_kept_at_their_first_piece_sentence_by_sentence(words: Examples, tmp_path: Path) -> None:
    """Every word's state, found by its number, is transformers' at the token where it begins, in the row in which it is read;
    the long sentence, which is read in rows, is one sequence."""
    model = network()
    kept = kept_in(tmp_path / "features" / "dev", words, model)
    assert kept is not None and words.asked is not None
    lengths = [3, 17, 1, 4]  # the fourth has no words
    assert kept.lengths.tolist() == lengths and len(words.input_ids) > 4
    theirs = expected_states(model, words)
    for row, (places, numbers) in enumerate(zip(words.asked.places, words.asked.numbers, strict=True)):
        for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
            piece = VOCABULARY[words.input_ids[row][place]]
            assert piece in ("[UNK]", "run", words.asked.words[number].removesuffix("s"), words.asked.words[number])
            for layer in LAYERS:
                expected = theirs[row][layer][place].numpy()
                np.testing.assert_allclose(kept.states[layer][number], expected, atol=1e-5)
    states, rows = kept.batch(np.array([3, 1]))
    assert (rows.lengths, rows.longest) == ([4, 17], 17)
    for layer in LAYERS:
        whole = np.concatenate([kept.states[layer][21:25], kept.states[layer][3:20]])
        assert states[layer].dtype == torch.float32 and np.array_equal(states[layer].numpy(), whole)


def test_of_texts_all_tokens_are_kept_row_by_row(pairs: Examples, tmp_path: Path) -> None:
    model = network()
    kept = kept_in(tmp_path / "features" / "dev", pairs, model)
    assert kept is not None
    assert kept.lengths.tolist() == [len(ids) for ids in pairs.input_ids]
    for row, states in enumerate(expected_states(model, pairs)):
        found, _ = kept.batch(np.array([row]))
        for layer in LAYERS:
            torch.testing.assert_close(found[layer], states[layer], atol=1e-5, rtol=0)


def test_they_are_computed_once_and_told(words: Examples, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, model = tmp_path / "features" / "dev", network()
    kept_in(folder, words, model)
    said = capfd.readouterr().err
    assert f"features of 25 tokens, 3 layers of 16: 4.8 kB in {folder}" in said  # 25 · 3 · 16 · 4 bytes
    tokens = sum(map(len, words.input_ids))
    assert f"{tokens}/{tokens} tokens encoded" in said
    assert sorted(path.name for path in folder.iterdir()) == [
        *("identity.json", "layer-00.npy", "layer-02.npy", "layer-05.npy", "manifest.json")
    ]
    before = content(folder), folder.stat().st_ino
    kept = kept_in(folder, words, model)
    assert (content(folder), folder.stat().st_ino) == before
    assert capfd.readouterr().err == ""
    again = kept_in(tmp_path / "again" / "dev", words, network())
    assert kept is not None and again is not None
    for layer in LAYERS:
        assert np.array_equal(kept.states[layer], again.states[layer])


def test_those_of_something_else_or_broken_are_computed_anew(
    words: Examples, pairs: Examples, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, model = tmp_path / "features" / "dev", network()
    whole = content_of(kept_in(folder, words, model))
    for change, said in (("encoder", "other encoder"), ("rows", "other rows, tokens"), ("bytes", "SHA-256")):
        if change == "bytes":
            path = folder / "layer-02.npy"
            path.write_bytes(path.read_bytes()[:-1] + b"\x07")
        elif change == "encoder":
            kept_in(folder, words, network(8))
        else:
            kept_in(folder, pairs, model)
        capfd.readouterr()
        assert content_of(kept_in(folder, words, model)) == whole
        found = capfd.readouterr().err
        assert said in found and "they are computed anew" in found


def content_of(kept: Kept | None) -> list[bytes]:
    assert kept is not None
    return [array.tobytes() for array in kept.states.values()]


def test_a_pooler_that_nobody_reads_changes_nothing(
    words: Examples, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, model = tmp_path / "features" / "dev", network()
    kept_in(folder, words, model)
    with torch.no_grad():
        model.encoder.pooler.weight.zero_()
    capfd.readouterr()
    kept_in(folder, words, model)
    assert capfd.readouterr().err == ""


def test_asked_to_stop_it_leaves_nothing(words: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "BATCH_TOKENS", 12)  # several batches
    folder, model = tmp_path / "features" / "dev", network()
    assert kept_in(folder, words, model, StopAfter(2)) is None
    assert list(folder.parent.iterdir()) == []
    assert kept_in(folder, words, model) is not None


KILLED = """
import sys
from pathlib import Path
import numpy as np
from model.bert import Bert
from model.processes.child import Stop
from model.devices import open_device
from model.tuning.examples import Examples
from model.tuning.features import keep
from pipeline.config import Architecture

row = np.ones(32, np.int32)
rows = 60_000
examples = Examples(("a",) * rows, (), (row,) * rows, np.full(rows, 32), np.zeros(rows, np.int64), 0)
encoder = Bert(Architecture(layers=1, hidden=16, heads=2, max_positions=32), 5)
keep(Path(sys.argv[1]), encoder, open_device("cpu", 1), examples, [1], "fp32", Stop())
"""


def test_what_a_killed_process_left_is_not_used_and_goes(words: Examples, tmp_path: Path) -> None:
    folder = tmp_path / "features" / "dev"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while process.poll() is None and not list(folder.parent.glob("tmp.*/layer-01.npy")):
        time.sleep(0.01)
    time.sleep(0.2)
    process.kill()
    _, said = process.communicate()
    assert process.returncode == -9, said
    assert not folder.exists() and list(folder.parent.glob("tmp.*/layer-01.npy"))
    kept = kept_in(folder, words, network())
    assert kept is not None and [path.name for path in folder.parent.iterdir()] == ["dev"]


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(tmp_path: Path) -> None:
    """A billion tokens more than would fit."""
    count = shutil.disk_usage(tmp_path).free // (3 * 16 * 4) + 10**9
    with pytest.raises(StoreError, match=r"features of [\d,]+ tokens, 3 layers of 16: .* but .* are free") as refused:
        check_room(tmp_path / "features", count, 3, 16)
    assert "choose fewer layers" in refused.value.todo


def test_a_part_without_examples_has_none(words: Examples, tmp_path: Path) -> None:
    empty = Examples((), (), (), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
    kept = kept_in(tmp_path / "features" / "test", empty, network())
    assert kept is not None and kept.lengths.tolist() == []
    assert not (tmp_path / "features" / "test").exists()


def test_batches_hold_every_row_once_and_few_tokens() -> None:
    lengths = np.random.default_rng(1).integers(1, 600, 300)
    lengths[7] = BATCH_TOKENS + 5
    batches = token_batches(lengths)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    assert batches[0].tolist() == [7]
    assert all(lengths[rows].sum() <= BATCH_TOKENS for rows in batches[1:])
    assert all(lengths[a].sum() + lengths[b[0]] > BATCH_TOKENS for a, b in pairwise(batches))
    assert token_batches(np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("choice", ["embeddings", "weighted_last_four", "concat_last_four"])
def test_a_bilstm_learns_words_by_heart_from_what_is_kept(words: Examples, tmp_path: Path, choice: str) -> None:
    """With the encoder gone: chosen layers, two layers of LSTMs, a linear layer; every word that can be told is right."""
    layers = needed([choice], ARCHITECTURE.layers)  # type: ignore[list-item]
    encoder = network().encoder
    kept = keep(tmp_path / "features" / "train", encoder, open_device("cpu", 1), words, layers, "fp32", Stop())
    assert kept is not None
    chosen = ChosenLayers(choice, ARCHITECTURE.layers)  # type: ignore[arg-type]
    values = 16 * (4 if choice == "concat_last_four" else 1)
    model = nn.ModuleDict({"chosen": chosen, "bilstm": BiLSTM(values, 16, 2), "head": nn.Linear(32, 2)})
    initialize(model, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    states, rows = kept.batch(np.arange(len(kept.lengths)))
    labels = torch.from_numpy(words.labels)
    for _ in range(60):
        logits = model["head"](model["bilstm"](chosen(states), rows))
        optimizer.zero_grad()
        F.cross_entropy(logits, labels).backward()
        optimizer.step()
    assert torch.equal(logits.argmax(1), labels)
    assert reading_of(words).starts.tolist() == [0, 3, 20, 21, 25]
