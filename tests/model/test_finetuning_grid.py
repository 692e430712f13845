"""Grids, runs that diverge or are given up, and the weights that are kept meanwhile."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from model import checkpoint
from model.processes import lines
from model.processes.child import Stop
from model.tuning.finetuning_job import PRETRAINED, Ranking, Run, runs_of
from model.tuning.finetuning_loop import train
from pipeline import progress
from pipeline.config import FinetuneConfig, Grid, Variant
from pipeline.errors import TrainingError
from tests.model.test_finetuning import CONFIG, made  # noqa: F401
from tests.model.trainings import content, run_folder, run_stage

pytestmark = pytest.mark.usefixtures("one_thread_of_the_cpu")
SHORT = CONFIG.model_copy(update={"epochs": 1, "batch_size": 50, "baselines": ()})


def tried(config: FinetuneConfig, **grid: tuple[Any, ...]) -> FinetuneConfig:
    return config.model_copy(update={"grid": Grid(**grid)})


def scores_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "scores.json").read_text())
    return found


def test_the_papers_grid_has_every_combination() -> None:
    """Devlin et al. 2019, appendix A.3: 2 batch sizes, 3 learning rates, 3 epochs."""
    config = FinetuneConfig(
        task="x", grid=Grid(batch_size=(16, 32), learning_rate=(5e-5, 3e-5, 2e-5), epochs=(2, 3, 4)), seeds=2
    )
    assert len(set(config.variants)) == 18
    assert config.variants[:4] == tuple(
        Variant(learning_rate=rate, batch_size=16, epochs=epochs)
        for rate, epochs in ((5e-5, 2), (5e-5, 3), (5e-5, 4), (3e-5, 2))
    )
    runs = runs_of(config, 100)
    assert [run.seed for run in runs[:4]] == [42, 43, 42, 43]
    assert [run.steps for run in runs[:6:2]] == [14, 21, 28]  # 100 / 16, rounded up, each epoch
    assert [run.first_step for run in runs[:4]] == [0, 14, 28, 49]
    assert len({run.name for run in runs}) == len(runs) == 36


def test_the_combination_with_the_best_median_on_dev_is_published(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config = tried(SHORT, learning_rate=(1e-6, 1e-2), epochs=(1, 2))
    _, out = run_stage(made, tmp_path, config)
    scores = scores_of(out)
    shown = [variant["settings"] for variant in scores["variants"]]
    assert [(each["learning_rate"], each["epochs"]) for each in shown] == [(1e-6, 1), (1e-6, 2), (1e-2, 1), (1e-2, 2)]
    medians = [variant["summary"]["dev"]["accuracy"]["median"] for variant in scores["variants"]]
    assert medians[scores["chosen"]] == max(medians) > medians[0]
    chosen = scores["variants"][scores["chosen"]]
    assert (scores["seeds"], scores["summary"]) == (chosen["seeds"], chosen["summary"])
    assert {name: scores["hyperparameters"][name] for name in shown[0]} == chosen["settings"]
    for run in scores["seeds"]:
        frame = pl.read_parquet(out / "predictions" / f"dev-seed-{run['seed']}.parquet")
        assert (frame["label"] == frame["prediction"]).mean() == pytest.approx(run["dev"]["accuracy"], rel=1e-5)
    # a combination is what it would be alone
    alone = SHORT.model_copy(update=chosen["settings"])
    (tmp_path / "alone").mkdir()
    _, single = run_stage(made, tmp_path / "alone", alone)
    assert scores_of(single)["seeds"] == scores["seeds"]
    assert (single / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


def test_a_grid_that_was_stopped_goes_on_and_keeps_few_weights(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config = tried(SHORT, learning_rate=(1e-2, 1e-3, 1e-6))
    (tmp_path / "whole").mkdir()
    _, whole = run_stage(made, tmp_path / "whole", config)
    run = run_folder(made, tmp_path, config)

    class After(Stop):
        """Asks to stop when so many runs are finished."""

        finished = 0
        asked = property(lambda self: len(list(run.glob("runs/*"))) >= self.finished)  # type: ignore[assignment]

    for After.finished in (1, 3, 5):
        assert not train(run, After())
        kept = sorted(path.name for path in (run / "weights").iterdir())
        assert len(kept) <= 2, kept
    # weights that are needed and broken are made again
    needed = run / "weights" / "pretrained-0-42"
    other = run / "weights" / "pretrained-0-43"
    file = next(folder / "model.safetensors" for folder in (needed, other) if folder.exists())
    file.write_bytes(file.read_bytes()[:-1])
    _, out = run_stage(made, tmp_path, config)
    assert content(out) == content(whole)
    assert not (run / "weights").exists()


def test_progress_says_which_run_it_is_and_its_last_score(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    heard: list[progress.Progress] = []
    config = tried(SHORT, learning_rate=(1e-3, 1e-2)).model_copy(update={"epochs": 2, "baselines": ("untrained",)})
    with progress.listen(heard.append):
        _, out = run_stage(made, tmp_path, config)
    told = [row["where"] for row in lines.read(tmp_path / "run" / "timing.jsonl") if "where" in row]
    assert told[0] == "seed 42, epoch 1 of 2, learning_rate 0.001 (1 of 2)"
    scores = scores_of(out)["variants"][1]["seeds"][1]["epochs"]
    for number, epoch in enumerate(scores, 1):
        said = f"seed 43, epoch {min(number + 1, 2)} of 2, learning_rate 0.01 (2 of 2), dev accuracy"
        assert f"{said} {epoch['dev']['accuracy']:.4g}" in told
    assert told[-1].startswith("untrained, seed 43, epoch 2 of 2, learning_rate 0.01 (2 of 2), dev accuracy ")
    assert heard[-1].where == told[-1] and told[-1] in str(heard[-1])


def test_without_a_grid_no_combination_is_named(made: dict[str, Path], tmp_path: Path) -> None:  # noqa: F811
    run_stage(made, tmp_path, SHORT.model_copy(update={"seeds": 1, "baselines": ()}))
    told = [row["where"] for row in lines.read(tmp_path / "run" / "timing.jsonl") if "where" in row]
    assert told[0] == f"seed 42, epoch 1 of {SHORT.epochs}"


def test_a_run_that_diverges_is_named_and_the_others_are_published(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config = tried(SHORT, learning_rate=(1e30, 1e-2)).model_copy(update={"epochs": 2, "batch_size": 8})
    _, out = run_stage(made, tmp_path, config)
    scores = scores_of(out)
    bad, good = scores["variants"]
    for run in bad["seeds"]:
        assert "not finite" in run["diverged"]
        assert np.isfinite(run["dev"]["accuracy"])
    assert scores["chosen"] == 1
    assert not any("diverged" in run for run in good["seeds"])


def test_where_every_run_diverges_the_job_fails_with_what_to_do(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config = SHORT.model_copy(update={"learning_rate": 1e30, "batch_size": 8, "epochs": 2})
    with pytest.raises(TrainingError, match=r"pretrained-0-42: .*not finite.*so did the 1 others") as caught:
        train(run_folder(made, tmp_path, config), Stop())
    assert "Lower learning_rate, which is 1e+30: finetuning.learning_rate" in caught.value.todo
    assert "finetuning.overrides.places" in caught.value.todo and "fp32" not in caught.value.todo
    with pytest.raises(TrainingError, match="^pretrained-0-42: ") as told:  # by the stage, whose process it ended
        run_stage(made, tmp_path, config)
    assert told.value.todo.startswith(caught.value.todo) and "again" not in told.value.todo


def test_what_learns_nothing_is_named_and_given_up_only_if_asked(
    made: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    config = SHORT.model_copy(update={"learning_rate": 1e-12, "epochs": 3, "pooling": "cls", "seeds": 1})
    for early, epochs in ((None, 3), (1, 1)):
        folder = tmp_path / str(early)
        folder.mkdir()
        _, out = run_stage(made, folder, config.model_copy(update={"early_exit": early}))
        (run,) = scores_of(out)["seeds"]
        assert len(run["epochs"]) == epochs
        assert "that of a guess that reads nothing" in run["diverged"]
        assert run["diverged"].startswith("given up after epoch 1: ") == (early == 1)


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def found(dev: float, loss: float = 1.0) -> dict[str, Any]:
    return {"dev": {"accuracy": dev, "cross_entropy": loss}}


def test_only_weights_that_may_be_published_are_kept() -> None:
    config = FinetuneConfig(task="x", seeds=3, grid=Grid(epochs=(1, 2, 3)), baselines=("untrained",))
    runs = runs_of(config, 32)
    ranking = Ranking("accuracy", "cross_entropy")
    done: dict[Run, Any] = {}

    def after(*devs: float) -> list[tuple[int, int]]:
        for dev in devs:
            done[runs[len(done)]] = found(dev)
        return sorted((run.number, run.seed) for run in ranking.may_be_published(runs, done))

    assert after() == []
    assert after(0.5) == [(0, 42)]
    assert after(0.7) == [(0, 43)]
    assert after(0.6) == [(0, 43)]
    assert after(0.9) == [(0, 43), (1, 42)]  # the second combination may be better
    assert after(0.5, 0.5) == [(0, 43)]  # its median is not
    assert after(0.6, 0.8, 0.8) == [(2, 43)]
    assert after(0.99) == [(2, 43)]  # the network without pretraining is never published
    assert ranking.best_variant(PRETRAINED, done) == 2
    tied = {run: found(0.5, loss) for run, loss in zip(runs[:2], (0.3, 0.2), strict=True)}
    assert ranking.best_seed(runs[:2], tied) == runs[1]


def test_a_checkpoint_of_a_run_is_in_its_own_folder(made: dict[str, Path], tmp_path: Path) -> None:  # noqa: F811
    config = tried(SHORT, learning_rate=(1e-2, 1e-3))
    run = run_folder(made, tmp_path, config, checkpoint_seconds=0.001)

    class InTheThird(Stop):
        asked = property(lambda self: bool(list(run.glob("current/pretrained-1-42/step-*"))))  # type: ignore[assignment]

    assert not train(run, InTheThird())
    assert [path.name for path in (run / "current").iterdir()] == ["pretrained-1-42"]
    newest = checkpoint.newest(run / "current" / "pretrained-1-42")
    assert newest is not None
    assert newest.step > 0
