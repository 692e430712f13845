"""The settings of a fine-tuning as people read them: those that do something for its kind of task, as they were set."""

from collections.abc import Mapping, Sequence
from typing import Any

from model.reporting.shown_numbers import number
from pipeline.config import WINDOWED

TITLES = (
    *("encoder", "layers read", "BiLSTM", "pooling", "long texts", "learning rate", "epochs", "batch", "warm-up"),
    *("weight decay", "bias correction", "dropout", "early exit", "precision"),
)
"""in the order in which they are shown"""
_TOKENS = ("tagging", "span")
"""kinds that read single tokens: nothing is pooled"""
_POOLED = {"ends": "both ends of the BiLSTM"}


def settings(kind: str, set_to: Mapping[str, Any], cut: int | None = None) -> dict[str, str]:
    """title → value, in the order of TITLES.

    set_to: `hyperparameters` of scores.json; what it does not hold is not shown. cut: examples of train that were too long.
    """
    known = {name: value for name, value in set_to.items() if value is not None}
    found: dict[str, str] = {}

    def told(title: str, name: str, applies: bool = True) -> None:
        if applies and name in known:
            found[title] = number(known[name])

    told("encoder", "encoder")
    if "layers" in known:
        found["layers read"] = known["layers"].replace("_", " ")
    if "bilstm" in known:
        found["BiLSTM"] = f"{known['bilstm']['layers']} layers of {number(known['bilstm']['hidden'])}"
    if "pooling" in known and kind not in _TOKENS:
        found["pooling"] = _POOLED.get(known["pooling"], known["pooling"])
    if "max_length" in known:
        found["long texts"] = _long_texts(kind, known, cut)
    told("learning rate", "learning_rate")
    told("epochs", "epochs")
    told("batch", "batch_size")
    if "warmup" in known:
        found["warm-up"] = f"{100 * known['warmup']:g} %"
    told("weight decay", "weight_decay")
    if "bias_correction" in known:
        found["bias correction"] = "yes" if known["bias_correction"] else "no"
    told("dropout", "dropout")
    if "early_exit" in known:
        found["early exit"] = f"after epoch {known['early_exit']}"
    told("precision", "precision")
    return found


def table(rows: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Titles that any row has, and the values of each row; – where it has none."""
    titles = [title for title in TITLES if any(title in row for row in rows)]
    return titles, [[row.get(title, "–") for title in titles] for row in rows]


def _long_texts(kind: str, known: Mapping[str, Any], cut: int | None) -> str:
    """What becomes of texts of more than max_length tokens."""
    length = f"{number(known['max_length'])} tokens"
    if kind == "span":
        return f"windows of {length}"
    if kind == "tagging":
        return f"rows of {length}"
    if kind in WINDOWED and known.get("long_texts") == "windows":
        return f"windows of {length}, {known['max_windows']} of a text in a step at most"
    return f"cut off at {length}" + ("" if cut is None else f" ({cut:,} of train)")
