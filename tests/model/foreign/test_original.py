"""The original BERT's checkpoints: read as transformers reads them by TensorFlow; what does not fit is named.

tests/data/original_bert is what the original's programs save, written by TensorFlow, beside it what transformers made of it
(tests/data/make_original_bert.py).
"""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from model.bert import BertForPretraining
from model.checkpoint import load_tensors
from model.imported import import_checkpoint
from model.layers.weights import read_hugging_face, read_original
from pipeline.config import ImportedConfig
from pipeline.errors import DataError
from pipeline.tokenizer import load
from tests.hostile.archives import patched_zip, write, zip_of
from tests.model.foreign.test_tensor_bundle import HEADER, block, entry, table
from tests.model.tiny import VOCABULARY
from tests.pipeline.badserver import serving

ORIGINAL = Path(__file__).parents[2] / "data" / "original_bert"
FILES = ("bert_config.json", "vocab.txt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")


def original(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    for name in FILES:
        shutil.copyfile(ORIGINAL / name, folder / name)
    config = json.loads((folder / "bert_config.json").read_text())
    (folder / "bert_config.json").write_text(json.dumps(config | changes))
    return folder


def converted(folder: Path, form: str) -> Path:
    """The same model as transformers keeps it."""
    folder.mkdir()
    config = json.loads((ORIGINAL / "bert_config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    shutil.copyfile(ORIGINAL / "vocab.txt", folder / "vocab.txt")
    if form == "model.safetensors":
        shutil.copyfile(ORIGINAL / "converted.safetensors", folder / form)
    else:
        torch.save(load_tensors(ORIGINAL / "converted.safetensors"), folder / form)
    return folder


def imported(folder: Path, out: Path, **changes: Any) -> dict[str, Any]:
    out.mkdir()
    config = {"folder": {"path": str(folder)}, "longest": 16, "lowercase": True} | changes
    return import_checkpoint({}, ImportedConfig.model_validate(config), out)


def rewritten(folder: Path, values: dict[str, torch.Tensor]) -> Path:
    """The folder with these variables as its checkpoint."""
    data, pairs = b"", [HEADER]
    for name, tensor in sorted(values.items()):
        content = tensor.numpy().tobytes()
        pairs.append((name.encode(), entry(content, tensor.shape, len(data))))
        data += content
    (folder / FILES[2]).write_bytes(table(block(pairs)))
    (folder / FILES[3]).write_bytes(data)
    return folder


def variables() -> dict[str, torch.Tensor]:
    """Those of the tiny model, without the optimizer's."""
    from model.foreign.tensor_bundle import entries, value

    found = entries(ORIGINAL / FILES[2])
    kept = {name: each for name, each in found.items() if not name.endswith(("/adam_m", "/adam_v", "global_step"))}
    return {name: torch.from_numpy(value(each).copy()) for name, each in kept.items()}


def test_every_weight_is_what_transformers_reads_by_tensorflow(tmp_path: Path) -> None:
    found = read_original(ORIGINAL)
    expected = read_hugging_face(converted(tmp_path / "theirs", "model.safetensors"))
    assert found.weights.keys() == expected.weights.keys()
    assert all(torch.equal(weight, expected.weights[name]) for name, weight in found.weights.items())
    assert (found.architecture, found.vocabulary_size) == (expected.architecture, expected.vocabulary_size)
    assert (found.missing, found.ignored) == ((), ())
    # 46 variables with two moments each, and the count of steps
    assert len(found.weights) == 46 and found.training_state == 2 * 46 + 1


def test_it_computes_what_transformers_computes(tmp_path: Path) -> None:
    import transformers

    found = read_original(ORIGINAL)
    model = BertForPretraining(found.architecture, found.vocabulary_size, "nsp").eval()
    model.load_state_dict(found.weights)
    theirs = transformers.BertForPreTraining.from_pretrained(converted(tmp_path / "theirs", "model.safetensors")).eval()
    ids = torch.randint(0, len(VOCABULARY), (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        hidden = model.encoder(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))
        expected = theirs.bert(ids).last_hidden_state
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)


def test_three_forms_of_one_model_arrive_byte_for_byte_equal(tmp_path: Path) -> None:
    folders = {
        "original": original(tmp_path / "original"),
        "safetensors": converted(tmp_path / "safetensors", "model.safetensors"),
        "pickled": converted(tmp_path / "pickled", "pytorch_model.bin"),
    }
    told = {name: imported(folder, tmp_path / f"out {name}") for name, folder in folders.items()}
    files = {name: {path.name: path.read_bytes() for path in (tmp_path / f"out {name}").iterdir()} for name in folders}
    assert files["pickled"] == files["safetensors"]
    notes = {name: json.loads(files[name].pop("told.json")) for name in folders}
    assert files["original"] == files["safetensors"] and "model.safetensors" in files["original"]
    assert notes["original"] == notes["safetensors"] | {"layout": "original", "training_state_left_out": 93}
    assert told["original"]["root"] == {"folder": "original"}
    assert load(tmp_path / "out original").vocabulary == VOCABULARY


def test_an_original_vocabulary_alone_does_not_say_whether_texts_are_lowercased(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="says whether texts are lowercased"):
        imported(original(tmp_path / "original"), tmp_path / "out", lowercase=None)


def test_heads_of_fine_tuning_are_left_out_by_name_and_pretraining_heads_may_be_missing(tmp_path: Path) -> None:
    values = {name: tensor for name, tensor in variables().items() if name.startswith("bert/")}
    heads = {"output_weights": torch.ones(2, 8), "output_bias": torch.ones(2), "cls/squad/output_bias": torch.ones(2)}
    found = read_original(rewritten(original(tmp_path / "original"), values | heads))
    assert found.missing == ("masked_words", "next_sentence") and found.training_state == 0
    assert found.ignored == ("cls/squad/output_bias", "output_bias", "output_weights")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_act": "relu"}, "bert_config.json: hidden_act is 'relu'"),
        ({"hidden_size": None}, "hidden: Input should be a valid integer"),
        ({"vocab_size": 21}, r"bert/embeddings/word_embeddings has shape \[20, 8\], bert_config.json says \[21, 8\]"),
        (
            {"intermediate_size": 16},
            r"layer_0/intermediate/dense/\w+(, transposed,)? has shape .* bert_config.json says",
        ),
        ({"num_hidden_layers": 1}, "bert/encoder/layer_1/.* there is no such layer"),
        ({"num_hidden_layers": 3}, "has no bert.encoder.layer.2.attention.self.query.weight, .* and 13 more weights"),
        ({"max_position_embeddings": 32}, r"position_embeddings has shape \[16, 8\], bert_config.json says \[32, 8\]"),
        ({"type_vocab_size": 16}, "type_vocab_size is 16, not 2"),
    ],
)
def test_sizes_that_are_not_the_configurations_are_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = original(tmp_path / "original", **changes)
    with pytest.raises(DataError, match=said) as refused:
        read_original(folder)
    assert str(folder) in refused.value.what and refused.value.todo


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "bert/encoder/layer_0/attention/self/gate/kernel",
            "bert/encoder/layer_0/attention/self/gate/kernel, transposed",
        ),
        ("bert/encoder/embedding_hidden_mapping_in/bias", "is no weight of a BERT with pretraining heads"),
    ],
)
def test_a_weight_that_is_none_of_berts_is_refused_by_its_own_name(tmp_path: Path, name: str, said: str) -> None:
    folder = rewritten(original(tmp_path / "original"), {**variables(), name: torch.ones(8, 8)})
    with pytest.raises(DataError, match=said):
        read_original(folder)


def test_a_weight_that_is_missing_is_named(tmp_path: Path) -> None:
    values = {name: tensor for name, tensor in variables().items() if name != "bert/pooler/dense/kernel"}
    with pytest.raises(DataError, match=r"bert_model.ckpt.index has no bert\.pooler\.dense\.weight"):
        read_original(rewritten(original(tmp_path / "original"), values))


def test_a_flipped_byte_of_a_weight_is_found(tmp_path: Path) -> None:
    folder = original(tmp_path / "original")
    data = bytearray((folder / FILES[3]).read_bytes())
    data[8] ^= 16  # the first variable by name is a weight
    (folder / FILES[3]).write_bytes(bytes(data))
    with pytest.raises(
        DataError, match=r"bert_model.ckpt.data-00000-of-00001: bert/embeddings/LayerNorm/beta: its check"
    ):
        imported(folder, tmp_path / "out")


def test_a_checkpoint_of_another_name_is_found_and_of_several_none(tmp_path: Path) -> None:
    folder = original(tmp_path / "original")
    for name in FILES[2:]:
        (folder / name).rename(folder / name.replace("bert_model.ckpt", "model.ckpt-7"))
    assert len(read_original(folder).weights) == 46
    (folder / "model.ckpt-9.index").write_bytes(b"")
    with pytest.raises(DataError, match=r"has several checkpoints: model.ckpt-7.index, model.ckpt-9.index"):
        imported(folder, tmp_path / "out")


# ── archives ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def contents(folder: Path) -> dict[str, bytes]:
    """path → bytes"""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def inside(folder: Path, top: str = "") -> dict[str, bytes]:
    """The files of a folder under another name."""
    return {f"{top}{name}": content for name, content in contents(folder).items()}


BESIDE = {
    "__MACOSX/uncased_L-2/._vocab.txt": b"\0",
    "uncased_L-2/.DS_Store": b"\0",
    "uncased_L-2/bert_model.ckpt.meta": b"a graph",
}


@pytest.mark.parametrize(
    ("top", "more"),
    [
        ("uncased_L-2/", {}),  # as BERT-base was released
        ("", {}),  # as the small models of 2020 were
        ("uncased_L-2/", BESIDE),
        ("./models/uncased_L-2/", {"models/README.md": b"mine"}),
        (
            "",
            {"pooling/config.json": b"{}", "checkpoint-7/config.json": b"{}", "checkpoint-7/model.safetensors": b"{}"},
        ),
        ("a/bert/", {"config.json": b"{}"}),  # a configuration without weights is no model
    ],
)
def test_a_released_zip_arrives_as_its_folder_does(tmp_path: Path, top: str, more: Mapping[str, bytes]) -> None:
    folder = original(tmp_path / "uncased_L-2")
    told = imported(folder, tmp_path / "of folder")
    path = write(tmp_path, "uncased_L-2.zip", zip_of({**more, **inside(folder, top)}))
    again = imported(path, tmp_path / "of zip")
    assert contents(tmp_path / "of zip") == contents(tmp_path / "of folder")
    assert [each.name for each in (tmp_path / "of zip").iterdir() if each.is_dir()] == [], "nothing is left of it"
    assert again == told | {"root": {"archive": "uncased_L-2.zip"}}


def test_a_zip_of_hugging_faces_layout_gives_its_safest_weights(tmp_path: Path) -> None:
    folder = converted(tmp_path / "model", "model.safetensors")
    imported(folder, tmp_path / "of folder")
    more = {"model/pytorch_model.bin": b"no pickle", "model/tf_model.h5": b"", "model/onnx/model.onnx": b""}
    imported(write(tmp_path, "model.zip", zip_of({**more, **inside(folder, "model/")})), tmp_path / "of zip")
    assert contents(tmp_path / "of zip") == contents(tmp_path / "of folder")


def test_a_zip_behind_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))
    data = zip_of(inside(ORIGINAL, "bert/"))
    with serving() as site:
        site.files["/bert.zip"] = data
        folder = {"url": f"{site.url}/bert.zip", "sha256": hashlib.sha256(data).hexdigest()}
        (tmp_path / "out").mkdir()
        config = ImportedConfig.model_validate({"folder": folder, "longest": 16, "lowercase": True})
        told = import_checkpoint({}, config, tmp_path / "out")
    assert (told["layout"], told["root"]) == ("original", {"archive": "bert.zip"})


def encrypted(info: zipfile.ZipInfo) -> None:
    info.flag_bits |= 1


def damaged(files: dict[str, bytes]) -> dict[str, bytes]:
    """A weight has another value, and the zip's own checksum is right."""
    data = bytearray(files[f"bert/{FILES[3]}"])
    data[8] ^= 16
    return files | {f"bert/{FILES[3]}": bytes(data)}


def but(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if Path(name).name not in names}


WHOLE = inside(ORIGINAL, "bert/")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zip_of(WHOLE)[:-100], r"mine.zip is no .zip, or is cut off"),
        (
            zip_of({**WHOLE, "../bert/vocab.txt": b"x"}),
            r"mine.zip holds \.\./bert/vocab.txt, which leads out of the archive",
        ),
        (patched_zip(WHOLE, encrypted), r"mine.zip holds bert/\S+, which is encrypted"),
        (
            zip_of({**WHOLE, "bert/vocab.txt": bytes(64 << 20)}),
            r"mine.zip holds bert/vocab.txt, which unpacks to more than 200 times",
        ),
        (zip_of({**WHOLE, **inside(ORIGINAL, "other/")}), r"mine.zip holds several models: bert, other"),
        (zip_of({"bert/notes.txt": b"none"}), r"mine.zip has no config.json and no bert_config.json"),
        (
            zip_of(but(WHOLE, FILES[3])),
            r"mine.zip has bert_model.ckpt.index but no bert_model.ckpt.data-00000-of-00001",
        ),
        (zip_of(but(WHOLE, "vocab.txt")), r"mine.zip has neither vocab.txt nor tokenizer.json"),
        (
            zip_of(damaged(WHOLE)),
            r"mine.zip/bert_model.ckpt.data-00000-of-00001: bert/embeddings/LayerNorm/beta: its check",
        ),
        (zip_of({**WHOLE, "bert/bert_config.json": b"{"}), r"mine.zip/bert_config.json can't be read"),
    ],
)
def test_a_zip_that_can_not_be_used_is_refused_by_its_name(tmp_path: Path, data: bytes, said: str) -> None:
    path = write(tmp_path, "mine.zip", data)
    with pytest.raises(DataError, match=said) as refused:
        imported(path, tmp_path / "out")
    assert str(path) in refused.value.what and "unpacked" not in refused.value.what and refused.value.todo
    assert contents(tmp_path / "out") == {}
