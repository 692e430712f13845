"""Beam's engines that one machine can run, as pieces of settings.yaml: {name: the value of `beam`}.

local      Beam's local runner, in one process and in several
portable   Beam's Job API, as Flink's and Spark's runners use it: a job server in a process of its own (Beam's, in
           Python) and workers in the process that submits (LOOPBACK) or of a worker pool in another (EXTERNAL)
spark      Apache Spark, two executors in processes of their own; needs Java and, installed without their dependencies,
           pip install --no-deps pyspark==3.5.1 py4j==0.10.9.7 beam-pyspark-runner==0.0.3
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.stage import ROOT

Engine = Mapping[str, Any]
START_SECONDS = 60
SPARK = "benchmarks.spark.ReshufflingRunner"


def local(workers: int) -> Engine:
    """The local runner, in one process or in several."""
    return {"workers": workers}


@contextmanager
def portable(workers: int) -> Iterator[dict[str, Engine]]:
    """A job server and a worker pool, which end with the block."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        pool = _free_port()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}  # the pool starts workers as `python`
        commands = (
            ["apache_beam.runners.portability.local_job_service_main", "--port_file", str(port_file)],
            ["apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"],
        )
        started = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in commands
        ]
        try:
            _wait(lambda: port_file.exists() and port_file.read_text() and _listens(pool))
            options = {"job_endpoint": f"localhost:{port_file.read_text()}", "direct_num_workers": workers}
            yield {
                "portable, LOOPBACK": {
                    "runner": "PortableRunner",
                    "options": {**options, "environment_type": "LOOPBACK"},
                },
                "portable, EXTERNAL": {
                    "runner": "PortableRunner",
                    "options": {
                        **options,
                        "environment_type": "EXTERNAL",
                        "environment_config": f"localhost:{pool}",
                    },
                },
            }
        finally:
            for process in started:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # whoever started us may ignore SIGTERM; and its workers
                process.wait()


def spark_is_missing() -> str:
    """What Spark lacks on this machine; empty if nothing."""
    missing = [name for name in ("pyspark", "beam_pyspark_runner") if not find_spec(name)]
    return ", ".join([*missing, *([] if shutil.which("java") else ["java"])])


@contextmanager
def spark(executors: int) -> Iterator[dict[str, Engine]]:
    """Spark with so many executors."""
    before = dict(os.environ)
    os.environ |= {
        "PYSPARK_SUBMIT_ARGS": f"--master local-cluster[{executors},1,1024] pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
    try:
        yield {"Spark": {"runner": SPARK}}
    finally:
        os.environ.clear()
        os.environ |= before


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(ready: Any) -> None:
    limit = time.monotonic() + START_SECONDS
    while not ready():
        if time.monotonic() > limit:
            raise TimeoutError("Beam's job server or worker pool did not start")
        time.sleep(0.1)
