"""A fine-tuned model as others load it: the folder that transformers' AutoModelFor… class reads, with the names of the labels."""

import shutil
from pathlib import Path

from model import checkpoint
from model.artifact import read_json
from model.exporting.sentence_export import write_sentence_modules
from model.layers.weights import to_hugging_face
from model.release import model_config, tokenizer_config, write_json
from model.tasks import NOT_RUN
from pipeline.config import Architecture
from pipeline.system import atomic
from pipeline.tokenizer import load

_CLASSES = {
    "classification": "BertForSequenceClassification",
    "pair_classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "multiple_choice": "BertForMultipleChoice",
    "tagging": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
    "sentence_similarity": "BertModel",
}
"""kind of task → the class of transformers that computes the same"""
_POOLINGS = ("cls", "tokens")
"""what the heads of these classes read (model/layers/classifier.py)"""
_VECTORS = "sentence_similarity"
"""the kind without a head: AutoModel computes the hidden states that sentence-transformers takes the mean of"""
_SCORE = "score"
"""name of the one output of regression: transformers counts outputs by their names"""
_SPAN = ("start", "end")
"""of the two of spans"""


def why_not(folder: Path) -> str:
    """Why a folder of the finetuned stage is nothing that transformers can compute; "" where it is."""
    if (folder / NOT_RUN).exists():
        return "nothing was trained"
    described = read_json(folder / "config.json")
    if described["kind"] not in _CLASSES:
        return f"transformers has no class for tasks of kind {described['kind']}"
    if described.get("encoder") == "frozen":
        return "transformers has no class for layers on top of a frozen encoder, which is not in the folder"
    if described.get("bilstm"):
        return "transformers has no class with a BiLSTM on top of BERT"
    pooling = described["pooling"]
    return (
        ""
        if described["kind"] == _VECTORS or pooling in _POOLINGS
        else f"transformers has no class for pooling {pooling}"
    )


def told_of(folder: Path) -> str:
    """What a person should know of an exported folder that transformers computes; "" where there is nothing."""
    described = read_json(folder / "config.json")
    if described.get("long_texts") != "windows":
        return ""
    return (
        f"scores and predictions are of whole texts, the mean of the logits of windows of {described['max_length']} tokens; "
        "transformers computes one window at a time"
    )


def export_finetuned(folder: Path, vocabulary: Path, out: Path) -> None:
    """Write config.json, model.safetensors, the tokenizer's files, and scores and predictions as they are, into `out`.

    folder, vocabulary: of the stages finetuned and wordpiece_vocab. Raises DataError where they can't be read.
    """
    from safetensors.numpy import load_file, save_file

    described = read_json(folder / "config.json")
    architecture, tokenizer = Architecture.model_validate(described["architecture"]), load(vocabulary)
    atomic.copy_folder(folder, out, without={"config.json", "model.safetensors"})
    weights = load_file(folder / "model.safetensors")
    layer = "qa_outputs" if described["kind"] == "span" else "classifier"
    vectors = described["kind"] == _VECTORS
    head = {} if vectors else {f"{layer}.{name}": weights.pop(f"head.{name}") for name in ("weight", "bias")}
    if described["pooling"] == "tokens":  # transformers' classes have no pooler
        weights = {name: weight for name, weight in weights.items() if not name.startswith("encoder.pooler.")}
    named = to_hugging_face(weights)
    if vectors:  # a model without a head has its weights at the top
        named = {name.removeprefix("bert."): weight for name, weight in named.items()}
    with checkpoint.writing(out / "model.safetensors"):
        save_file({**named, **head}, out / "model.safetensors", metadata={"format": "pt"})
    for name in ("vocab.txt", "tokenizer.json"):
        shutil.copyfile(vocabulary / name, out / name)
    regression = described["kind"] == "regression"
    names = dict(enumerate([_SCORE] if regression else described["labels"] or _SPAN))
    labels = {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }
    config = {
        **model_config(architecture, tokenizer),
        "architectures": [_CLASSES[described["kind"]]],
        **({} if vectors else labels),
        **({"problem_type": "regression"} if regression else {}),
        **{name: described[name] for name in ("long_texts",) if name in described},
    }
    write_json(out / "config.json", config)
    write_json(out / "tokenizer_config.json", tokenizer_config(architecture, tokenizer))
    if vectors:
        write_sentence_modules(out, described["max_length"])
