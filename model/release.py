"""`release`: the folder that people load with transformers, and the card that says what it is."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model import checkpoint
from model.artifact import read_json
from model.layers.weights import config_to_hugging_face, to_hugging_face
from model.reporting.pages import escape_markdown
from pipeline.config import Architecture, ReleaseConfig
from pipeline.errors import DataError
from pipeline.stage import Stage
from pipeline.tokenizer import Tokenizer, load

STAGE = Stage(
    name="release",
    function="model.release:make_release",
    version="4",  # 4: the description is text, not markup; 3: what the vector of a sentence is; 2: how tokens differ
    sources=("model/release.py", "model/layers/weights.py", "model/reporting/pages.py"),
)


SENTENCE_VECTORS = (
    "The vector of a sentence is the mean of the last hidden states of its tokens: [CLS] and the pooler mean nothing by "
    "themselves as long as a model is not fine-tuned (Devlin et al. 2019, section 3.1)."
)
"""what everybody should know who takes a pretrained model for vectors"""


def make_release(inputs: Mapping[str, Path], config: ReleaseConfig, out: Path) -> dict[str, Any]:
    """Write config.json, model.safetensors, vocab.txt, tokenizer.json, tokenizer_config.json and README.md into `out`.

    Reads `pretrained` and `wordpiece_vocab`. Without a sentence task the next-sentence head is written as zeros, since
    transformers' BertForPreTraining wants one; the card says so.

    Raises:
        DataError: the vocabulary is not the one that the model was trained with, by its size.
    """
    from safetensors.numpy import load_file, save_file

    words = inputs["wordpiece_vocab"]
    trained = read_json(inputs["pretrained"] / "config.json")
    scores = read_json(inputs["pretrained"] / "held_out.json")
    architecture = Architecture.model_validate(trained["architecture"])
    tokenizer = load(words)
    if len(tokenizer.vocabulary) != trained["vocabulary_size"]:
        raise DataError(
            f"the vocabulary has {len(tokenizer.vocabulary)} tokens, the model {trained['vocabulary_size']}",
            "Materialize pretrained and release again, from one vocabulary.",
        )
    begun = inputs["pretrained"] / "begun.json"
    imported = begun.exists() and read_json(begun)["imported"]
    weights = to_hugging_face(load_file(inputs["pretrained"] / "model.safetensors"))
    if trained["sentence_task"] == "none":
        weights["cls.seq_relationship.weight"] = np.zeros((2, architecture.hidden), np.float32)
        weights["cls.seq_relationship.bias"] = np.zeros(2, np.float32)
    # transformers takes the framework from this entry.
    with checkpoint.writing(out / "model.safetensors"):
        save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for name in ("vocab.txt", "tokenizer.json"):
        shutil.copyfile(words / name, out / name)
    write_json(out / "config.json", model_config(architecture, tokenizer))
    write_json(out / "tokenizer_config.json", tokenizer_config(architecture, tokenizer))
    parameters = sum(weight.size for weight in weights.values())
    (out / "README.md").write_text(
        _card(config, architecture, tokenizer, trained, scores, parameters, imported), encoding="utf-8"
    )
    return {
        "parameters": parameters,
        "vocabulary_size": len(tokenizer.vocabulary),
        "size_bytes": sum(path.stat().st_size for path in out.iterdir()),
        "held_out": scores,
    }


def model_config(architecture: Architecture, tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json as transformers reads it."""
    return {
        "architectures": ["BertForPreTraining"],
        "pad_token_id": tokenizer.pad_id,
        **config_to_hugging_face(architecture, len(tokenizer.vocabulary)),
    }


def tokenizer_config(architecture: Architecture, tokenizer: Tokenizer) -> dict[str, Any]:
    """tokenizer_config.json as transformers reads it."""
    return {
        # BertTokenizer would build one of its own from vocab.txt, with other limits than tokenizer.json.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": architecture.max_positions,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }


def _card(
    config: ReleaseConfig,
    architecture: Architecture,
    tokenizer: Tokenizer,
    trained: Mapping[str, Any],
    scores: Mapping[str, Any],
    parameters: int,
    imported: bool,
) -> str:
    guesses = scores["baselines"]
    rows = [
        ("masked-word loss (nats)", scores["mlm_loss"], None),
        ("masked-word accuracy", scores["mlm_accuracy"], guesses["most_frequent_token_accuracy"]),
    ]
    if trained["sentence_task"] != "none":
        rows.append(("next-sentence loss (nats)", scores["nsp_loss"], None))
        rows.append(("next-sentence accuracy", scores["nsp_accuracy"], guesses["nsp_majority_accuracy"]))
    table = "\n".join(
        f"| {name} | {value:.4f} | {'' if guess is None else f'{guess:.4f}'} |" for name, value, guess in rows
    )
    head = (
        "It was trained on masked words only: the next-sentence head that the file layout asks for holds zeros, and the "
        "pooler is as it was initialised.\n"
        if trained["sentence_task"] == "none"
        else "It was trained on masked words and next sentences (Devlin et al. 2019).\n"
    )
    if imported:
        head += (
            "\nIts training began with the weights of another model, made elsewhere: what that one had learned, and from which "
            "text, is not told here.\n"
        )
    sigma = (
        "\n- A capital Σ at the end of a word becomes σ, in the training text too, where the original has ς."
        if tokenizer.lowercase
        else ""
    )
    return f"""---
library_name: transformers
pipeline_tag: fill-mask
tags:
- bert
---
# {config.recipe}

{escape_markdown(config.description) or "A BERT encoder."}

{architecture.layers} layers, hidden size {architecture.hidden}, {architecture.heads} heads, {parameters:,} parameters,
vocabulary of {trained["vocabulary_size"]:,} WordPiece tokens, up to {architecture.max_positions} positions.
{head}
## Scores on text that training never saw

{scores["sequences"]:,} sequences with {scores["masked_words"]:,} masked words, after {scores["step"]:,} steps. The guess
is always the masked word, and the sentence label, that is most frequent in training.

| measure | this model | guess |
|---|---:|---:|
{table}

## Tokens

Text gets the ids that the tokenizer of google-research/bert gives it, but for:

- `[MASK]`, `[CLS]`, `[SEP]`, `[UNK]` and `[PAD]` in a text are these tokens, so that one can ask for a masked word. In the
  training text they were words as any other, as in the original.{sigma}

## Use

```python
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained(folder)
encoder = AutoModel.from_pretrained(folder)
pipeline("fill-mask", folder)("The capital of France is [MASK].")
```

{SENTENCE_VECTORS}
"""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A file of a released folder: the same bytes for the same content."""
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
