"""What a measured step is taken from."""

from pathlib import Path

import pytest

from model.devices.cpu import Cpu
from model.training import trial
from model.training.pretraining_job import Job
from model.training.trial import Trial, seconds
from model.training.trial_questions import Question
from tests.model.test_pretraining import config_of, job
from tests.model.tiny import write_shards


class Compiling(Cpu):
    """A CPU that says that it compiles for every shape."""

    fixed_shapes = True


class Listed(Trial):
    """Writes down with how many rows a step was made."""

    made: list[int]

    def step(self, count: int) -> tuple[float, float]:
        self.made = [*getattr(self, "made", []), count]
        return super().step(count)


def test_the_first_step_where_each_shape_is_compiled_is_not_what_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "SECONDS", 0.0)  # every step is a long one
    folder = job(tmp_path / "run", write_shards(tmp_path / "shards"), config_of(batch_size=6))
    given = Job.read(folder / "config.json")
    question = Question("seconds", given.config, given.vocabulary_size, given.training, 6, 16)
    compiling, plain = Listed(question, Compiling()), Listed(question, Cpu())
    assert seconds(compiling, lambda _: None)["rows"] == 6
    assert compiling.made == [6, 6, 6]
    assert seconds(plain, lambda _: None)["rows"] == 1
    assert plain.made == [1]
