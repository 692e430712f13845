"""What a pretraining process is given, and what it knows of itself: config.json of its folder, and the state it saves."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model.training.guard import Batches
from pipeline.config import TrainConfig
from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings

METRICS = "metrics.jsonl"
"""of the run folder"""
STABLE = "stable"
"""folder with the weights and the optimizer of where a constant learning rate begins to fall"""


@dataclass(frozen=True)
class Job:
    """RUN_DIR/config.json."""

    config: TrainConfig
    vocabulary_size: int
    vocabulary: Path
    shards: Path
    previous: Path | None
    training: TrainingSettings

    @staticmethod
    def read(path: Path) -> "Job":
        """Read the file. Raises TrainingError when it is not what the stage writes."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return Job(
                config=TrainConfig.model_validate(plain["config"]),
                vocabulary_size=plain["vocabulary_size"],
                vocabulary=Path(plain["vocabulary"]),
                shards=Path(plain["shards"]),
                previous=Path(plain["previous"]) if plain["previous"] else None,
                training=TrainingSettings.model_validate(plain["training"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{path} can't be used: {error!r}", "The pretrained stage writes this file.") from None

    def with_micro_batch_tokens(self, tokens: int) -> "Job":
        """The job with what was found for `auto`."""
        return replace(self, training=self.training.model_copy(update={"micro_batch_tokens": tokens}))


@dataclass
class Window:
    """Sums over the steps since the last row of metrics.jsonl."""

    steps: int = 0
    loss: float = 0.0
    mlm_loss: float = 0.0
    nsp_loss: float = 0.0
    words: int = 0
    words_right: int = 0
    sentences: int = 0
    sentences_right: int = 0
    gradient_norm: float = 0.0
    padding_share: float = 0.0

    def means(self) -> dict[str, float | None]:
        """Means per step, accuracies per prediction; None where nothing was counted."""
        return {
            "loss": mean(self.loss, self.steps),
            "mlm_loss": mean(self.mlm_loss, self.steps),
            "nsp_loss": mean(self.nsp_loss, self.steps) if self.sentences else None,
            "mlm_accuracy": mean(self.words_right, self.words),
            "nsp_accuracy": mean(self.sentences_right, self.sentences),
            "gradient_norm": mean(self.gradient_norm, self.steps),
            "padding_share": mean(self.padding_share, self.steps),
        }


@dataclass
class State:
    """What a checkpoint holds beside tensors."""

    step: int = 0
    """steps done, of this phase"""
    evaluated: int = 0
    """the last step that was evaluated"""
    skipped: int = 0
    """steps without a finite gradient"""
    skipped_in_a_row: int = 0
    updates: int = 0
    """of the optimizer, all phases"""
    window: Window = field(default_factory=Window)
    passed_over: tuple[Batches, ...] = ()
    """batches that the run went back and around (model/training/guard.py)"""
    recent: list[float] = field(default_factory=list)
    """losses of the last steps, that a spike is measured against"""
    best: float | None = None
    """lowest held-out masked-word loss so far"""
    best_step: int | None = None

    @staticmethod
    def of(saved: Mapping[str, Any]) -> "State":
        """The state that `dataclasses.asdict` made plain."""
        passed_over = tuple((int(first), int(end)) for first, end in saved["passed_over"])
        return State(**{**saved, "window": Window(**saved["window"]), "passed_over": passed_over})


def rows_at_once(rows: int, length: int, micro_batch_tokens: int | str | None) -> int:
    """The most rows of `length` tokens in a part of `rows` rows; all of them without a limit, or while it is not found."""
    return min(rows, max(1, micro_batch_tokens // length)) if isinstance(micro_batch_tokens, int) else rows


def mean(total: float, count: float) -> float | None:
    """total / count; None where nothing was counted."""
    return total / count if count else None
