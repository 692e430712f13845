"""A job of fine-tuning: what is to be trained, as runs, and where it stands. Pure data, read from and kept in its folder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.config import FinetuneConfig, Variant
from pipeline.errors import TrainingError
from pipeline.settings import TrainingSettings

PRETRAINED, UNTRAINED = "pretrained", "untrained"


@dataclass(frozen=True)
class Job:
    """RUN_DIR/config.json."""

    config: FinetuneConfig
    task_data: Path
    pretrained: Path
    wordpiece_vocab: Path
    training: TrainingSettings

    @staticmethod
    def read(path: Path) -> "Job":
        """Read the file. Raises TrainingError when it is not what the stage writes."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            return Job(
                config=FinetuneConfig.model_validate(plain["config"]),
                task_data=Path(plain["task_data"]),
                pretrained=Path(plain["pretrained"]),
                wordpiece_vocab=Path(plain["wordpiece_vocab"]),
                training=TrainingSettings.model_validate(plain["training"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{path} can't be used: {error!r}", "The finetuned stage writes this file.") from None


@dataclass(frozen=True)
class Run:
    """One network, one combination of the grid, one seed."""

    network: str
    number: int
    """of the combination, from 0"""
    variant: Variant
    seed: int
    steps_per_epoch: int
    first_step: int
    """of the job, counted through all runs"""

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.network}-{self.number}-{self.seed}"

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return self.steps_per_epoch * self.variant.epochs


def runs_of(config: FinetuneConfig, examples: int) -> list[Run]:
    """The runs of a job in their order: network by network, combination by combination, seed by seed.

    examples: of the training part, as batches count them.
    """
    networks = (PRETRAINED, UNTRAINED) if UNTRAINED in config.baselines else (PRETRAINED,)
    runs: list[Run] = []
    for network in networks:
        for number, variant in enumerate(config.variants):
            for seed in range(config.seed, config.seed + config.seeds):
                first = runs[-1].first_step + runs[-1].steps if runs else 0
                runs.append(Run(network, number, variant, seed, -(-examples // variant.batch_size), first))
    return runs


@dataclass
class State:
    """What a checkpoint of a run holds beside tensors."""

    step: int = 0
    """steps done, of this run"""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """per finished epoch: mean training loss, dev loss and scores"""
    best_epoch: int = 0
    """counted from 1; 0: none yet"""
    ended: str = ""
    """why the run ends before its last step"""
    skipped: int = 0
    skipped_in_a_row: int = 0
    window_steps: int = 0
    window_loss: float = 0.0
    """sum over the steps since the last row of metrics.jsonl"""
    epoch_steps: int = 0
    epoch_loss: float = 0.0


Found = Mapping[str, Any]
"""run.json of a finished run"""


@dataclass(frozen=True)
class Ranking:
    """How results are compared: by a metric of the dev part, of equal ones by the smaller loss."""

    metric: str
    loss: str | None
    """None: there is none on dev"""

    def of(self, dev: Mapping[str, float]) -> tuple[float, float]:
        """Of scores on dev: better is larger."""
        return dev[self.metric], 0.0 if self.loss is None else -dev[self.loss]

    def best_seed(self, runs: Sequence[Run], found: Mapping[Run, Found]) -> Run:
        """The best of some runs, the first of equals."""
        return max(runs, key=lambda run: self.of(found[run]["dev"]))

    def best_variant(self, network: str, found: Mapping[Run, Found]) -> int:
        """Of a network's combinations, the one with the best median over its seeds, the first of equals."""

        def middle(number: int) -> tuple[float, float]:
            ranks = [self.of(f["dev"]) for run, f in found.items() if run.network == network and run.number == number]
            return tuple(median(rank[at] for rank in ranks) for at in range(2))  # type: ignore[return-value]

        return max(sorted({run.number for run in found if run.network == network}), key=middle)

    def may_be_published(self, runs: Sequence[Run], found: Mapping[Run, Found]) -> set[Run]:
        """Of the finished runs, those whose weights may still be the ones that are published: the best seed of the best whole
        combination, and of the one that is not whole yet."""
        kept: set[Run] = set()
        whole: dict[Run, Found] = {}
        for number in sorted({run.number for run in runs if run.network == PRETRAINED}):
            mine = [run for run in runs if run.network == PRETRAINED and run.number == number]
            done = [run for run in mine if run in found]
            if len(done) == len(mine):
                whole |= {run: found[run] for run in mine}
            elif done:
                kept.add(self.best_seed(done, found))
        if whole:
            number = self.best_variant(PRETRAINED, whole)
            kept.add(self.best_seed([run for run in whole if run.number == number], found))
        return kept
