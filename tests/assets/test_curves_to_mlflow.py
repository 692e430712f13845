"""Curves at a real MLflow server: live, whole after every interruption, and never in the way of a training."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets.curves_to_mlflow import NOTE, Following, params, points
from model import finetuning, pretraining
from pipeline.build import Node
from pipeline.config import FinetuneConfig, Frozen, PretrainConfig
from pipeline.settings import MlflowSettings, settings
from pipeline.stage import Stage
from tests.assets.bertcli import World, kill_tree

CONFIG = PretrainConfig(
    architecture=None,
    sequence_length=32,
    steps=30,
    schedule_steps=30,
    warmup_steps=4,
    batch_size=8,
    learning_rate=1e-3,
    max_predictions_per_seq=5,
)


def node(stage: Stage = pretraining.STAGE, config: Frozen = CONFIG) -> Node:
    return Node("mine", "pretrained_32", stage, config, config.digest())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`mlflow server` as a process of its own, that can be stopped like one that hangs."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"http://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", self.uri.rpartition(":")[2]]
        quiet = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--backend-store-uri", (folder / "store").as_uri()],
                cwd=folder,
                env={**os.environ, **quiet},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, 120)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return True
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def client(self) -> Any:
        from mlflow.tracking import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def runs(self, experiment: str) -> list[Any]:
        found = self.client().get_experiment_by_name(experiment)
        return list(self.client().search_runs([found.experiment_id])) if found else []

    def curve(self, run: Any, name: str) -> list[tuple[int, float]]:
        return sorted((point.step, point.value) for point in self.client().get_metric_history(run.info.run_id, name))


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for name in ("mlflow", "flask_cors"):
        pytest.importorskip(name, reason=f"needs {name} (requirements-dev.lock)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        made = Server(tmp_path_factory.mktemp("mlflow"))
        yield made
        kill_tree(made.process.pid)
        made.process.wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assets.curves_to_mlflow.POLL_SECONDS", 0.3)
    monkeypatch.setattr("assets.curves_to_mlflow.END_SECONDS", 30.0)  # of a busy machine


def trained(folder: Path, first: int, last: int) -> None:
    """Rows of steps first … last, as pretraining appends them; the last has an evaluation."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for step in range(first, last + 1):
            file.write(json.dumps({"step": step, "loss": 9 - step / 10, "nsp_loss": None, "skipped_steps": 0}) + "\n")
        file.write(json.dumps({"step": last, "held_out": {"mlm_loss": 8.0 + last}}) + "\n")


def test_points_arrive_while_it_trains_and_once(server: Server, tmp_path: Path) -> None:
    said: list[str] = []
    with Following(node(), MlflowSettings(uri=server.uri, experiment="live"), said.append) as following:
        following.begin(tmp_path)
        trained(tmp_path, 1, 5)
        until(lambda: bool((found := server.runs("live")) and len(server.curve(found[0], "loss")) == 5))
        assert server.runs("live")[0].info.status == "RUNNING"
        trained(tmp_path, 6, 9)
        following.version = "f" * 64
    (run,) = server.runs("live")
    assert server.curve(run, "loss") == [(step, 9 - step / 10) for step in range(1, 10)]
    assert server.curve(run, "held_out.mlm_loss") == [(5, 13.0), (9, 17.0)]
    assert set(run.data.metrics) == {"loss", "held_out.mlm_loss", "skipped_steps"}
    assert run.info.status == "FINISHED" and run.info.run_name == "mine/pretrained_32"
    tags = {name: run.data.tags.get(f"bertworks.{name}") for name in ("recipe", "asset", "version")}
    assert tags == {"recipe": "mine", "asset": "pretrained_32", "version": "f" * 64}
    assert run.data.params["steps"] == "30" and run.data.params["learning_rate"] == "0.001"
    assert said == []


def test_a_training_that_goes_on_continues_its_curves_without_double_points(server: Server, tmp_path: Path) -> None:
    chosen = MlflowSettings(uri=server.uri, experiment="resumed")
    with pytest.raises(KeyboardInterrupt), Following(node(), chosen, print) as following:
        following.begin(tmp_path)
        trained(tmp_path, 1, 7)
        raise KeyboardInterrupt
    (run,) = server.runs("resumed")
    assert run.info.status == "KILLED" and len(server.curve(run, "loss")) == 7
    # It goes on from a checkpoint at step 4: the file was cut back, and the same rows come again.
    rows = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(rows[:4]), encoding="utf-8")
    with Following(node(), chosen, print) as following:
        following.begin(tmp_path)
        trained(tmp_path, 5, 7)
        trained(tmp_path, 8, 12)
    (run,) = server.runs("resumed")
    assert server.curve(run, "loss") == [(step, 9 - step / 10) for step in range(1, 13)]
    assert run.info.status == "FINISHED"


def test_a_server_that_hangs_slows_nothing_and_gets_all_points_once_it_is_back(server: Server, tmp_path: Path) -> None:
    said: list[str] = []
    with Following(node(), MlflowSettings(uri=server.uri, experiment="hanging"), said.append) as following:
        following.begin(tmp_path)
        trained(tmp_path, 1, 3)
        until(lambda: bool((found := server.runs("hanging")) and len(server.curve(found[0], "loss")) == 3))
        server.signal(signal.SIGSTOP)
        try:
            trained(tmp_path, 4, 6)
            until(lambda: bool(said))
        finally:
            server.signal(signal.SIGCONT)
    (run,) = server.runs("hanging")
    assert server.curve(run, "loss") == [(step, 9 - step / 10) for step in range(1, 7)], "a request may have arrived"
    assert len(said) == 1 and "training goes on" in said[0]


def test_a_run_that_somebody_deleted_is_begun_anew(server: Server, tmp_path: Path) -> None:
    chosen = MlflowSettings(uri=server.uri, experiment="deleted")
    with Following(node(), chosen, print) as following:
        following.begin(tmp_path)
        trained(tmp_path, 1, 3)
    (first,) = server.runs("deleted")
    server.client().delete_run(first.info.run_id)
    with Following(node(), chosen, print) as following:
        following.begin(tmp_path)
    (second,) = server.runs("deleted")
    assert second.info.run_id != first.info.run_id and len(server.curve(second, "loss")) == 3
    assert json.loads((tmp_path / NOTE).read_text(encoding="utf-8"))["run_id"] == second.info.run_id


def test_without_a_server_there_is_one_warning(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs mlflow-skinny (requirements-dev.lock)")
    said: list[str] = []
    chosen = MlflowSettings(uri=f"http://127.0.0.1:{free_port()}")
    with Following(node(), chosen, said.append) as following:
        following.begin(tmp_path)
        trained(tmp_path, 1, 3)
        until(lambda: bool(said), 60)
        began = time.monotonic()
    assert time.monotonic() - began < 15
    assert len(said) == 1 and said[0].startswith("MLflow: curves of mine/pretrained_32 are not sent")
    assert not (tmp_path / NOTE).exists()


def test_without_its_package_there_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as where it is not installed
    said: list[str] = []
    with Following(node(), MlflowSettings(uri="http://127.0.0.1:9"), said.append) as following:
        following.begin(tmp_path)
    assert len(said) == 1 and "'.[mlflow]'" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_without_settings_nothing_is_sent_or_noted(tmp_path: Path) -> None:
    with Following(node(), None, pytest.fail) as following:
        following.begin(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_each_seed_has_curves_of_its_own() -> None:
    row = {
        "step": 110,
        "run_step": 10,
        "network": "pretrained",
        "variant": 1,
        "seed": 43,
        "loss": 0.5,
        "dev": {"f1": 1},
    }
    before = "pretrained/1/seed_43/"
    assert list(points(row)) == [(f"{before}loss", 0.5, 10), (f"{before}dev.f1", 1.0, 10)]
    assert list(points({"step": 3, "passed_over": [1, 2], "spike": True, "told": "x", "none": None})) == []


def test_what_was_asked_for_are_texts_under_dotted_names() -> None:
    config = FinetuneConfig.model_validate(
        {"task": "cola", "grid": {"learning_rate": [1e-5, 2e-5]}, "baselines": ["tfidf"]}
    )
    told = dict(params(node(finetuning.STAGE, config).config.asked()))
    assert told == {"task": "cola", "grid.learning_rate": "[1e-05, 2e-05]", "baselines": '["tfidf"]'}


@pytest.mark.slow
def test_a_recipe_is_followed_and_no_record_says_so(server: Server, tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    with (world.folder / "settings.yaml").open("a", encoding="utf-8") as file:
        file.write(f"mlflow: {{uri: '{server.uri}', experiment: chain}}\n")
    assert "is up to date" in world.bert("run", "tiny/pretrained_32")
    (run,) = server.runs("chain")
    made = world.store.pointer("tiny", "pretrained_32")
    assert made is not None and run.data.tags["bertworks.version"] == made.version
    content = world.store.folder(made.stage, made.version) / "metrics.jsonl"
    rows = [json.loads(line) for line in content.read_text(encoding="utf-8").splitlines()]
    assert server.curve(run, "loss") == [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert run.info.status == "FINISHED" and run.data.params["architecture.hidden"] == "32"
    records = b"".join(path.read_bytes() for path in (world.home / "records").rglob("*") if path.is_file())
    assert records and server.uri.encode() not in records
    (check,) = [check for check in world.json("doctor") if check["name"] == "mlflow"]
    assert check["state"] == "ok"


@pytest.mark.parametrize("uri", ["http://me:secret@host", "nothing", "http://a b"])
def test_a_uri_with_a_password_is_refused_and_not_shown(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.errors import RecipeError

    file = tmp_path / "settings.yaml"
    file.write_text(f"mlflow: {{uri: '{uri}'}}\n", encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(file))
    with pytest.raises(RecipeError, match="mlflow") as caught:
        settings()
    assert "secret" not in str(caught.value) and ("MLFLOW_TRACKING_TOKEN" in str(caught.value)) == ("secret" in uri)
