"""The curves of a training, sent to an MLflow server while it trains (`mlflow` in settings.yaml).

The training process knows nothing of it: a thread of the step that follows it reads metrics.jsonl in the run folder, which is the queue,
and sends what the server lacks. A server that does not answer costs nothing but its curves: one warning, then tries that grow rarer.

    mlflow.json   in the run folder: the run of MLflow, so that a training that goes on continues its curves
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from model.processes import lines
from pipeline.build import Node
from pipeline.settings import MlflowSettings
from pipeline.system.atomic import write_json

NOTE = "mlflow.json"
INSTALL = "Install it: pip install -c requirements.lock -e '.[mlflow]'"
POLL_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 120.0
END_SECONDS = 20.0
"""A training that has ended waits no longer for its last points to arrive."""
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""What MLflow's client reads from the environment, where nobody has set it: it would try for minutes, and tell its makers of its use."""
MOST_METRICS, MOST_PARAMS = 1000, 100
"""of one request (MLflow's REST API, Log Batch)"""
LONGEST_PARAM = 6000
Point = tuple[str, float, int]
"""(metric, value, step)"""


class Following:
    """A context around the making of an asset: what trains within is sent, and its end.

        with Following(node, settings().mlflow, warn) as following:
            outcome = build(…, began=following.begin)
            following.version = outcome.record.version

    Nothing is raised here, whatever becomes of the server.
    """

    def __init__(self, node: Node, chosen: MlflowSettings | None, warn: Callable[[str], None]) -> None:
        self.version = ""
        """what was published"""
        self._node, self._chosen, self._warn = node, chosen, warn
        self._sender: _Sender | None = None

    def begin(self, folder: Path) -> None:
        """A training begins, or goes on, in this run folder."""
        if self._chosen is None:
            return
        if find_spec("mlflow") is None:
            self._warn(f"no curves are sent to MLflow: mlflow-skinny is not installed. {INSTALL}")
            return
        self._sender = _Sender(self._chosen, self._node, folder, self._warn)
        self._sender.start()

    def __enter__(self) -> "Following":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sender is not None:
            interrupted = kind is not None and not issubclass(kind, Exception)
            self._sender.end("KILLED" if interrupted else "FAILED" if kind else "FINISHED", self.version)


class _Sender(threading.Thread):
    """Sends what metrics.jsonl has and the server lacks, until it is told the end."""

    def __init__(self, chosen: MlflowSettings, node: Node, folder: Path, warn: Callable[[str], None]) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._chosen, self._node, self._folder, self._warn = chosen, node, folder, warn
        self._file = folder / "metrics.jsonl"
        self._ended = threading.Event()
        self._end = ("", "")
        self._warned = False
        self._client: Any = None
        self._run_id = ""
        self._sent: dict[str, int] = {}
        """metric → its last step at the server"""

    def end(self, status: str, version: str) -> None:
        """Send what is left and that the training has ended; gives up after END_SECONDS."""
        self._end = (status, version)
        self._ended.set()
        self.join(END_SECONDS)
        if self.is_alive():
            self._tell("it does not answer in time")

    def run(self) -> None:
        """Of the thread."""
        pause = POLL_SECONDS
        while True:
            last = self._ended.is_set()
            try:
                self._send(last)
                pause = POLL_SECONDS
            except Exception as error:  # whatever it is, the training goes on
                self._client = None  # what arrived is asked for anew
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                self._tell(str(error) or type(error).__name__)
            if last:
                return
            self._ended.wait(pause)

    def _tell(self, why: str) -> None:
        """Once: what is wrong, without what may hold a secret."""
        if not self._warned:
            self._warned = True
            reason = why.splitlines()[0][:300]
            self._warn(
                f"MLflow: curves of {self._node.path} are not sent as they should be, training goes on: {reason}"
            )

    def _send(self, last: bool) -> None:
        if self._client is None:
            self._connect()
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        new = [point for row in lines.read(self._file) for point in points(row) if self._is_new(point)]
        for start in range(0, len(new), MOST_METRICS):
            part = new[start : start + MOST_METRICS]
            self._client.log_batch(self._run_id, [Metric(name, value, now, step) for name, value, step in part])
            for name, _, step in part:
                self._sent[name] = max(step, self._sent.get(name, -1))
        if last:
            status, version = self._end
            if version:
                self._client.set_tag(self._run_id, "bertworks.version", version)
            self._client.set_terminated(self._run_id, status)

    def _is_new(self, point: Point) -> bool:
        name, _, step = point
        return step > self._sent.get(name, -1)

    def _connect(self) -> None:
        """Find the run that this folder has, or begin one; learn what it has. Raises what MLflow's client raises."""
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        client = MlflowClient(tracking_uri=self._chosen.uri)
        known = self._known(client)
        if known is None:
            found = client.get_experiment_by_name(self._chosen.experiment)
            experiment = found.experiment_id if found else client.create_experiment(self._chosen.experiment)
            node = self._node
            tags = {"bertworks.recipe": node.recipe, "bertworks.asset": node.name}
            self._run_id = client.create_run(experiment, tags=tags, run_name=node.path).info.run_id
            write_json(self._folder / NOTE, {"run_id": self._run_id, **self._chosen.plain()})
            self._sent = {}
        else:
            self._run_id = known.info.run_id
            client.update_run(self._run_id, status="RUNNING")
            histories = {name: client.get_metric_history(self._run_id, name) for name in known.data.metrics}
            self._sent = {name: max(point.step for point in some) for name, some in histories.items() if some}
        asked = [Param(name, value) for name, value in params(self._node.config.asked())]
        for start in range(0, len(asked), MOST_PARAMS):  # again, too: the first time may have failed half-way
            client.log_batch(self._run_id, params=asked[start : start + MOST_PARAMS])
        self._client = client

    def _known(self, client: Any) -> Any:
        """The run that the folder notes, if the server that the settings name still has it."""
        from mlflow.exceptions import MlflowException

        try:
            note = json.loads((self._folder / NOTE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if {name: note.get(name) for name in self._chosen.plain()} != self._chosen.plain():
            return None
        try:
            found = client.get_run(note["run_id"])
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise
        return found if found.info.lifecycle_stage == "active" else None


def points(row: Mapping[str, Any]) -> Iterator[Point]:
    """The numbers of a row of metrics.jsonl. In rows of fine-tuning each network, combination and seed has curves of its own."""
    values = dict(row)
    step, before = values.pop("step"), ""
    if "seed" in values:
        network, variant, seed = (values.pop(name) for name in ("network", "variant", "seed"))
        step, before = values.pop("run_step"), f"{network}/{variant}/seed_{seed}/"
    for name, value in _flat(values):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            yield before + name, float(value), int(step)


def params(asked: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the recipe asks for, as texts under dotted names."""
    for name, value in _flat(asked):
        text = value if isinstance(value, str) else json.dumps(value)
        yield name, text[:LONGEST_PARAM]


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
