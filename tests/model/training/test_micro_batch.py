"""`micro_batch_tokens: auto`: what is chosen, and that a run keeps it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.processes import lines
from model.processes.child import Stop
from model.training import micro_batch
from model.training.micro_batch import rows_that_fit, settled
from model.training.pretraining_job import Job, rows_at_once
from model.training.pretraining_loop import train
from model.training.trial import largest
from model.training.trial_questions import Question, ask
from pipeline.errors import TrainingError
from pipeline.stage import ROOT
from pipeline.system.owners import Owner
from tests.model.test_pretraining import StopAt, config_of, files, job
from tests.model.tiny import ARCHITECTURE, write_shards

WIDE = ARCHITECTURE.model_copy(update={"hidden": 256, "heads": 4, "intermediate": 1024, "dropout": 0.0})
"""rows that cost half a megabyte each, so that they can be told from noise"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(tmp_path_factory.mktemp("shards"))


def wide(folder: Path, shards: Path, tokens: int | str | None, layers: int = 2) -> Path:
    architecture = WIDE.model_copy(update={"layers": layers})
    short = {"steps": 12, "schedule_steps": 12, "log_every": 1, "evaluate_every": 5, "learning_rate": 1e-3}
    config = config_of(architecture=architecture, batch_size=64, bias_correction=True, **short)
    return job(folder, shards, config, micro_batch_tokens=tokens)


def room_for(rows: int, folder: Path) -> int:
    """Bytes that are available where about so many rows of `folder`'s job fit."""
    given = Job.read(folder / "config.json")
    question = Question("memory", given.config, given.vocabulary_size, given.training, 64, 16, budget_bytes=1 << 60)
    (told,) = ask([question], 120, lambda _: None)
    (none, before), (small, low), (double, high) = told["peaks"]
    assert (none, small, double) == (0, 32, 64) and before < low < high
    wanted = high - (64 - rows) * (high - low) / 32
    return int((wanted + 12 * told["parameters"]) / micro_batch.CPU_SHARE)


@pytest.fixture(scope="module")
def small_room(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Path:
    """The folder of a run that found that a part of its batch of 64 fits."""
    folder = wide(tmp_path_factory.mktemp("found"), shards, "auto")
    available = room_for(24, folder)
    tokens = settled(folder, Job.read(folder / "config.json"), 1, lambda: False, available)
    assert tokens is not None
    assert 16 <= tokens <= 48 * 16  # 24 rows of 16 tokens, but for noise
    return folder


def test_rows_that_fit_by_hand() -> None:
    # 100 without rows, and 20 more for any part; 4 rows 160, 8 rows 200: 10 a row. 320 − 200 is room for 12 more …
    assert rows_that_fit([(0, 110), (4, 160), (8, 200)], 100, 320) == 20
    # … or for fewer than were tried, down to one.
    assert rows_that_fit([(0, 110), (4, 160), (8, 200)], 100, 155) == 3
    assert rows_that_fit([(0, 110), (4, 160), (8, 200)], 100, 10) == 1
    # The smaller part's peak is that of an earlier moment: not 9 a row but at most (200 − 100) / 8.
    assert rows_that_fit([(0, 164), (4, 164), (8, 200)], 100, 300) == 8 + 8
    # One part only: at most (160 − 100) / 4 a row.
    assert rows_that_fit([(0, 110), (4, 160)], 100, 190) == 4 + 2


@pytest.mark.parametrize("room", [0, 1, 2, 3, 5, 63, 64, 100, 255, 256, 300])
@pytest.mark.parametrize("most", [1, 2, 7, 256])
def test_the_largest_that_fits_is_found_to_an_eighth(room: int, most: int) -> None:
    tried: list[int] = []

    def fits(rows: int) -> bool:
        tried.append(rows)
        return rows <= room

    found = largest(fits, most)
    wanted = min(room, most)
    assert found <= wanted and wanted - found <= found // 8
    assert all(1 <= rows <= most for rows in tried) and len(set(tried)) == len(tried)
    assert all(rows <= max(1, 2 * room) for rows in tried), "memory is never asked for much more than there is"


def test_until_it_is_found_nothing_is_split() -> None:
    assert rows_at_once(256, 128, None) == rows_at_once(256, 128, "auto") == 256
    assert [rows_at_once(256, 128, tokens) for tokens in (1, 1024, 1100, 1 << 20)] == [1, 8, 8, 256]


def test_where_there_is_room_the_batch_stays_whole(
    tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(wide(tmp_path / "auto", shards, "auto"), Stop())
    assert "micro_batch_tokens: auto is 1,024: 64 of 64 rows of 16 tokens at once" in capsys.readouterr().err
    assert train(wide(tmp_path / "whole", shards, None), Stop())
    assert files(tmp_path / "auto" / "result") == files(tmp_path / "whole" / "result")


def test_what_is_found_changes_results_by_rounding_only(tmp_path: Path, shards: Path, small_room: Path) -> None:
    """fp32, without dropout: 2e-6 of the first step's losses and norm, 2e-5 of twelve steps'."""
    folder = wide(tmp_path / "auto", shards, "auto")
    (folder / micro_batch.FILE).write_bytes((small_room / micro_batch.FILE).read_bytes())
    assert train(folder, Stop())
    assert train(wide(tmp_path / "whole", shards, None), Stop())
    one, two = (lines.read(tmp_path / name / "result" / "metrics.jsonl") for name in ("whole", "auto"))
    assert len(one) == len(two)
    for whole, row in zip(one, two, strict=True):
        for name in ("loss", "mlm_loss", "nsp_loss", "gradient_norm"):
            if name in row:
                assert row[name] == pytest.approx(whole[name], rel=2e-6 if row["step"] == 1 else 2e-5)


def test_a_run_keeps_what_it_found_and_is_byte_for_byte_that_of_the_number(
    tmp_path: Path, shards: Path, small_room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in the middle; the machine has more room when it goes on."""
    found = (small_room / micro_batch.FILE).read_bytes()
    folder = wide(tmp_path / "auto", shards, "auto")
    (folder / micro_batch.FILE).write_bytes(found)
    assert not train(folder, StopAt(20))
    assert train(folder, Stop())
    said = capsys.readouterr().err
    assert "goes on from step" in said and "resumed with another" not in said and "looking for" not in said
    assert (folder / micro_batch.FILE).read_bytes() == found
    number = json.loads(found)["micro_batch_tokens"]
    assert train(wide(tmp_path / "number", shards, number), Stop())
    assert files(folder / "result") == files(tmp_path / "number" / "result")


def test_processes_that_train_together_look_for_a_part_of_their_share(tmp_path: Path, shards: Path) -> None:
    folder = wide(tmp_path / "run", shards, "auto")
    assert settled(folder, Job.read(folder / "config.json"), 3, lambda: False) == 22 * 16  # ⌈64 / 3⌉ rows


def test_nothing_is_written_by_a_run_that_is_asked_to_stop(tmp_path: Path, shards: Path) -> None:
    stop = Stop()
    stop.ask("test")
    folder = wide(tmp_path / "run", shards, "auto")
    assert not train(folder, stop)
    assert not (folder / micro_batch.FILE).exists()


def test_a_model_that_no_trial_can_be_made_of_says_what_to_set(tmp_path: Path, shards: Path) -> None:
    folder = wide(tmp_path / "run", shards, "auto")
    given = json.loads((folder / "config.json").read_text())
    given["training"]["hang_seconds"] = 0.002  # too short for any
    (folder / "config.json").write_text(json.dumps(given))
    with pytest.raises(TrainingError, match="auto found no part.*not done within") as caught:
        settled(folder, Job.read(folder / "config.json"), 1, lambda: False)
    assert "Set training.micro_batch_tokens" in caught.value.todo
    assert not (folder / micro_batch.FILE).exists()


@pytest.mark.parametrize(
    "note",
    ["{", "[]", "3", "{}", *(f'{{"micro_batch_tokens": {n}}}' for n in ("0", "-1", "true", "null", '"auto"', "1.5"))],
)
def test_a_broken_note_is_named(note: str, tmp_path: Path, shards: Path) -> None:
    folder = wide(tmp_path / "run", shards, "auto")
    (folder / micro_batch.FILE).write_text(note)
    with pytest.raises(TrainingError, match=r"micro_batch\.json can't be used"):
        train(folder, Stop())


def test_a_trial_ends_with_who_asked_for_it(tmp_path: Path, shards: Path) -> None:
    """A hundred layers take longer than the test waits."""
    folder = wide(tmp_path / "run", shards, "auto", layers=100)
    command = [sys.executable, "-m", "model.pretrain", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and "looking for" in process.stderr.readline()
        while not (children := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()):
            time.sleep(0.05)
        (trial,) = map(Owner.of, map(int, children))
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not trial.surely_dead() and time.monotonic() < deadline:  # one that nobody buries is dead too
        time.sleep(0.05)
    assert trial.surely_dead()
