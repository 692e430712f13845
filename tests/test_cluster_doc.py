"""docs/cluster.md is true: its settings load, Beam knows every option, and names, sizes and versions agree."""

import re
from pathlib import Path
from typing import Any

import apache_beam
import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from ruamel.yaml import YAML

from pipeline.beam.options_beam import known_options
from pipeline.settings import BeamSettings
from tests.conftest import ROOT

DOC = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS: list[dict[str, Any]] = [
    YAML(typ="safe", pure=True).load(text) for text in re.findall(r"```yaml\n(.*?)```", DOC, re.S)
]
SETTINGS = [block for block in BLOCKS if "beam" in block]
FLINK = next(block for block in SETTINGS if "flink_version" in block["beam"]["options"])
DEPLOYMENT = next(block for block in BLOCKS if block.get("kind") == "FlinkDeployment")
JOB = next(block for block in BLOCKS if block.get("kind") == "Job")
DOCKERFILE = (ROOT / "docker" / "beam-worker.Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", SETTINGS, ids=lambda block: block["beam"]["runner"])
def test_settings_load_and_beam_knows_every_option(block: dict[str, Any]) -> None:
    beam = BeamSettings.model_validate(block["beam"])
    assert set(beam.options) <= known_options()
    values = PipelineOptions.from_dictionary(beam.options).get_all_options(drop_default=True)
    for name, value in beam.options.items():
        assert str(values[name]) == str(value)
    assert re.fullmatch(r"(s3|gs)://my-bucket/bertworks", block.get("store", "s3://my-bucket/bertworks"))


def test_options_of_the_table_are_known() -> None:
    rows = re.findall(r"^\| (\w+Runner) \|.*\|([^|]*)\|$", DOC, re.M)
    assert {name for name, _ in rows} >= {block["beam"]["runner"] for block in SETTINGS}
    named = {option for _, cell in rows for option in re.findall(r"`(\w+)`", cell)}
    assert named and named <= known_options()


def test_flink_agrees_with_its_settings() -> None:
    options, spec = FLINK["beam"]["options"], DEPLOYMENT["spec"]
    name = DEPLOYMENT["metadata"]["name"]
    assert options["flink_master"] == f"http://{name}-rest:8081"
    slots = int(spec["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert options["sdk_worker_parallelism"] == slots
    assert options["parallelism"] == slots * spec["taskManager"]["replicas"]
    pool = next(c for c in spec["taskManager"]["podTemplate"]["spec"]["containers"] if c["name"] == "beam-worker-pool")
    assert options["environment_config"] == "localhost:{}".format(pool["ports"][0]["containerPort"])
    image = JOB["spec"]["template"]["spec"]["containers"][0]["image"]
    assert pool["image"] == image and image in DOC.split("## Flink")[0]
    version = options["flink_version"]
    assert version in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    assert spec["image"] == f"flink:{version}" and spec["flinkVersion"] == "v" + version.replace(".", "_")
    jar = f"beam-runners-flink-{version}-job-server-{apache_beam.__version__}.jar"
    assert Path(options["flink_job_server_jar"]).name == jar
    mounts = {
        each["name"]: each["mountPath"] for each in JOB["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    }
    assert mounts["jars"] == str(Path(options["flink_job_server_jar"]).parent)
    assert mounts["home"] == FLINK["home"]
    assert set(mounts) == {volume["name"] for volume in JOB["spec"]["template"]["spec"]["volumes"]}


def test_the_version_of_beam_is_the_locked_one() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert f"apache-beam=={apache_beam.__version__}\n" in lock
    images = re.findall(r"apache/beam_\w[\w.]*:([\d.]+)", DOC + DOCKERFILE)
    assert set(images) == {apache_beam.__version__}
    assert "apache/beam_python3.11_sdk" in DOCKERFILE and "FROM python:3.11-slim" in DOCKERFILE


@pytest.mark.parametrize(
    "path", re.findall(r"\]\(([^)#:]+)\)|\b((?:tests|benchmarks|docker|pipeline)/[\w./-]+\w)", DOC)
)
def test_every_file_that_it_names_exists(path: tuple[str, str]) -> None:
    assert (ROOT / (path[1] or f"docs/{path[0]}")).exists()
