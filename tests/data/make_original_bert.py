"""Made original_bert/ and bundle/ beside it, once, with programs that are none of bertworks' requirements.

    python tests/data/make_original_bert.py        # tensorflow-cpu 2.15.1, transformers 4.44.2, torch 2.13.0

`original_bert/` is a tiny BERT as run_pretraining.py of google-research/bert saves it: its variables with the moments of its
optimizer, by tf.train.Saver; `converted.safetensors` in it is what transformers makes of them (load_tf_weights_in_bert).
`bundle/` has values of several types in two shards, by the operations SaveV2 and MergeV2Checkpoints.
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.torch import save_file
from transformers import BertConfig, BertForPreTraining
from transformers.models.bert.modeling_bert import load_tf_weights_in_bert

HERE = Path(__file__).parent
WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "sat", "on", "mat", "dog", "##s", "run", "##ning", "paris", "is", ".", ",", "a", "##b"),
)
LAYERS, HIDDEN, INNER, POSITIONS = 2, 8, 12, 16
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": 2,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": len(WORDS),
}


def shapes() -> dict[str, tuple[int, ...]]:
    """The variables that modeling.py and run_pretraining.py make."""
    found: dict[str, tuple[int, ...]] = {}

    def norm(scope: str) -> None:
        found.update({f"{scope}/LayerNorm/beta": (HIDDEN,), f"{scope}/LayerNorm/gamma": (HIDDEN,)})

    def dense(scope: str, inner: int, outer: int) -> None:
        found.update({f"{scope}/kernel": (inner, outer), f"{scope}/bias": (outer,)})

    for kind, count in (("word", len(WORDS)), ("token_type", 2), ("position", POSITIONS)):
        name = f"bert/embeddings/{kind}_embeddings"
        found[name] = (count, HIDDEN)
    norm("bert/embeddings")
    for layer in range(LAYERS):
        scope = f"bert/encoder/layer_{layer}"
        for kind in ("query", "key", "value"):
            dense(f"{scope}/attention/self/{kind}", HIDDEN, HIDDEN)
        dense(f"{scope}/attention/output/dense", HIDDEN, HIDDEN)
        norm(f"{scope}/attention/output")
        dense(f"{scope}/intermediate/dense", HIDDEN, INNER)
        dense(f"{scope}/output/dense", INNER, HIDDEN)
        norm(f"{scope}/output")
    dense("bert/pooler/dense", HIDDEN, HIDDEN)
    dense("cls/predictions/transform/dense", HIDDEN, HIDDEN)
    norm("cls/predictions/transform")
    found["cls/predictions/output_bias"] = (len(WORDS),)
    found |= {"cls/seq_relationship/output_weights": (2, HIDDEN), "cls/seq_relationship/output_bias": (2,)}
    return found


def original_bert(folder: Path) -> None:
    random = np.random.default_rng(7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, shape in shapes().items():
            for slot in ("", "/adam_m", "/adam_v"):
                value = np.square(random.normal(0, 0.2, shape)) if slot == "/adam_v" else random.normal(0, 0.2, shape)
                tf.compat.v1.get_variable(name + slot, initializer=value.astype(np.float32))
        tf.compat.v1.get_variable("global_step", initializer=np.int64(7))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver()
        saver.save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False, write_state=False)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    model = BertForPreTraining(BertConfig(**CONFIG))
    load_tf_weights_in_bert(model, model.config, str(folder / "bert_model.ckpt"))
    weights = {name: each.detach().clone().contiguous() for name, each in model.named_parameters()}
    save_file(weights, folder / "converted.safetensors")


def bundle(folder: Path) -> None:
    numbers = np.arange(6).reshape(2, 3)
    shards = [
        {"a/float": tf.constant(numbers / 2, tf.float32), "a/double": tf.constant(numbers / 4, tf.float64)},
        {
            "b/half": tf.constant(numbers, tf.float16),
            "b/bfloat16": tf.constant(numbers, tf.bfloat16),
            "b/int64": tf.constant(-numbers, tf.int64),
            "b/scalar": tf.constant(7, tf.int32),
            "b/string": tf.constant([b"ab", b"c"]),
            "b/empty": tf.zeros([0, 3], tf.float32),
        },
    ]
    parts = [str(folder / f"part{number}") for number in range(len(shards))]
    for part, values in zip(parts, shards, strict=True):
        tf.raw_ops.SaveV2(
            prefix=part, tensor_names=list(values), shape_and_slices=[""] * len(values), tensors=list(values.values())
        )
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(folder / "two.ckpt"))


if __name__ == "__main__":
    for make in (original_bert, bundle):
        place = HERE / make.__name__
        place.mkdir(exist_ok=True)
        make(place)
