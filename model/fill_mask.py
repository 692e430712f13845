"""What a released model puts in the place of [MASK]."""

from pathlib import Path

import torch

from model.bert import BertForPretraining
from model.layers.weights import read_hugging_face
from pipeline.errors import DataError
from pipeline.tokenizer import load


def load_release(folder: Path) -> BertForPretraining:
    """The model of a release folder, with both heads, ready to predict. Raises DataError where the folder is no such."""
    found = read_hugging_face(folder)
    if found.missing:
        raise DataError(f"{folder} has no {', '.join(found.missing)}", "Name a folder with both pretraining heads.")
    model = BertForPretraining(found.architecture, found.vocabulary_size, "nsp")
    model.load_state_dict(found.weights)
    return model.eval()


@torch.inference_mode()
def fill_mask(folder: Path, text: str, top: int = 5) -> list[list[tuple[str, float]]]:
    """For each [MASK] in `text`, the `top` most probable tokens with their probability, the best first.

    Raises:
        DataError: the text has no [MASK], or is longer than the model's positions.
    """
    model, tokenizer = load_release(folder), load(folder)
    ids = torch.tensor([[tokenizer.cls_id, *tokenizer.encode_prompt(text).tolist(), tokenizer.sep_id]])
    masks = (ids[0] == tokenizer.mask_id).nonzero().flatten()
    if len(masks) == 0:
        raise DataError(f"there is no [MASK] in {text!r}", "Write [MASK] where a word is to be guessed.")
    limit = model.encoder.architecture.max_positions
    if ids.shape[1] > limit:
        raise DataError(f"the text has {ids.shape[1]} tokens, the model reads {limit}", "Shorten the text.")
    positions, places = masks[None], torch.arange(len(masks))  # all that is asked for, in one row
    logits, _ = model(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool), positions, places)
    best = logits.softmax(1).topk(min(top, logits.shape[1]))
    return [
        list(zip(tokenizer.tokens(words.tolist()), shares.tolist(), strict=True))
        for shares, words in zip(best.values, best.indices, strict=True)
    ]
