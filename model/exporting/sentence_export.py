"""How vectors are taken out of a folder of Hugging Face's layout: the files that the sentence-transformers library reads.

Of a folder without them the library takes the mean of all tokens too, but says that it guesses, and reads as many tokens as the
model has positions. Cosines need no vectors of length 1, so there is no module that makes them so.
"""

from pathlib import Path

from model.artifact import read_json
from pipeline.system import atomic

_MODULES = "sentence_transformers.models"
"""as folders on the hub name the library's modules (all-MiniLM-L6-v2, e5), wherever a version of it keeps them"""


def write_sentence_modules(folder: Path, max_length: int) -> None:
    """Write modules.json, sentence_bert_config.json and 1_Pooling/config.json into `folder`, which holds config.json.

    A vector is the mean over all tokens, [CLS] and [SEP] among them, of at most max_length.
    """
    hidden = read_json(folder / "config.json")["hidden_size"]
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_MODULES}.Pooling"},
    ]
    pooling = {
        "word_embedding_dimension": hidden,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    (folder / "1_Pooling").mkdir()
    atomic.write_json(folder / "modules.json", modules)
    # The tokenizer lowercases by itself.
    atomic.write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    atomic.write_json(folder / "1_Pooling" / "config.json", pooling)
