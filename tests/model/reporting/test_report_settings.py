"""The settings that a report shows: all that were set and do something, and none that do not."""

from typing import Any

import pytest

from model.reporting.report_settings import TITLES, settings, table
from pipeline.config import Bilstm, FinetuneConfig


def of(kind: str, pooling: str, **more: Any) -> dict[str, str]:
    """As scores.json has them (model/tuning/finetuning_result.py)."""
    config = FinetuneConfig(task="mine", **more)
    return settings(kind, config.plain() | config.variants[0].plain() | {"pooling": pooling}, 17)


COMMON = {
    "learning rate": "2e-05",
    "epochs": "3",
    "batch": "32",
    "warm-up": "10 %",
    "weight decay": "0.01",
    "bias correction": "yes",
    "dropout": "0.1",
    "precision": "fp32",
}


def test_a_text_task() -> None:
    first = {"encoder": "trained", "pooling": "cls", "long texts": "cut off at 128 tokens (17 of train)"}
    assert of("classification", "cls") == {**first, **COMMON}


def test_a_frozen_encoder_under_a_bilstm() -> None:
    found = of("tagging", "tokens", encoder="frozen", layers=("weighted_last_four",), bilstm=Bilstm(), early_exit=2)
    assert found == {
        "encoder": "frozen",
        "layers read": "weighted last four",
        "BiLSTM": "2 layers of 768",
        "long texts": "rows of 128 tokens",
        **COMMON,
        "early exit": "after epoch 2",
    }


@pytest.mark.parametrize(
    ("kind", "pooling", "more", "long_texts"),
    [
        ("span", "tokens", {"max_length": 384}, "windows of 384 tokens"),
        ("regression", "mean", {"long_texts": "windows", "max_windows": 4}, "windows of 128 tokens, 4 of a text in a step at most"),
        ("multiple_choice", "cls", {}, "cut off at 128 tokens (17 of train)"),
    ],
)  # fmt: skip
def test_long_texts_of_other_kinds(kind: str, pooling: str, more: dict[str, Any], long_texts: str) -> None:
    found = of(kind, pooling, **more)
    assert found["long texts"] == long_texts
    assert found.get("pooling") == (None if kind == "span" else pooling)
    assert set(found) - {"encoder", "pooling", "long texts"} == set(COMMON), "no setting that does nothing"


def test_what_old_scores_do_not_tell_is_not_made_up() -> None:
    assert settings("classification", {"epochs": 3, "bilstm": None}) == {"epochs": "3"}


def test_rows_side_by_side() -> None:
    rows = [{"pooling": "cls", "epochs": "3"}, {"encoder": "frozen", "BiLSTM": "2 layers of 8", "epochs": "4"}, {}]
    assert table(rows) == (
        ["encoder", "BiLSTM", "pooling", "epochs"],
        [["–", "–", "cls", "3"], ["frozen", "2 layers of 8", "–", "4"], ["–"] * 4],
    )
    every = of("tagging", "tokens", encoder="frozen", bilstm=Bilstm(), early_exit=2) | of("regression", "mean")
    assert set(every) == set(TITLES)
