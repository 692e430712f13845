"""Writes instances.tfrecord and instances.tfrecord.gz from instances.json, with TensorFlow as the writer.

Run in an environment that has TensorFlow, which bertworks never needs (`pip install tensorflow-cpu`; the files that are
kept here are of 2.21.0):

    python tests/pipeline/data/write_tfrecord.py

It follows google-research/bert, create_pretraining_data.py: its fields and their order, its padding, its types.
"""

import collections
import json
from pathlib import Path

import tensorflow as tf

HERE = Path(__file__).parent


def integers(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))


def example(row, sequence_length, max_predictions_per_seq):
    padding = [0] * (sequence_length - len(row["input_ids"]))
    unmasked = [0] * (max_predictions_per_seq - len(row["masked_lm_ids"]))
    features = collections.OrderedDict()
    features["input_ids"] = integers(row["input_ids"] + padding)
    features["input_mask"] = integers([1] * len(row["input_ids"]) + padding)
    features["segment_ids"] = integers(row["segment_ids"] + padding)
    features["masked_lm_positions"] = integers(row["masked_lm_positions"] + unmasked)
    features["masked_lm_ids"] = integers(row["masked_lm_ids"] + unmasked)
    features["masked_lm_weights"] = floats([1.0] * len(row["masked_lm_ids"]) + [0.0] * len(unmasked))
    features["next_sentence_labels"] = integers([row["next_sentence_label"]])
    return tf.train.Example(features=tf.train.Features(feature=features))


if __name__ == "__main__":
    told = json.loads((HERE / "instances.json").read_text(encoding="utf-8"))
    for name, options in (("instances.tfrecord", None), ("instances.tfrecord.gz", "GZIP")):
        with tf.io.TFRecordWriter(str(HERE / name), options) as writer:
            for row in told["rows"]:
                made = example(row, told["sequence_length"], told["max_predictions_per_seq"])
                writer.write(made.SerializeToString())
