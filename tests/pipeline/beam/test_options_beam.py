"""Settings of Beam that can't work are refused before anything runs; the others reach Beam as they are."""

import socket

import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, WorkerOptions

from pipeline.beam import options_beam
from pipeline.beam.options_beam import known_options, pipeline_options
from pipeline.errors import RecipeError
from pipeline.settings import BeamSettings


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"options": {"direct_running_mode": "multi_threading"}}, "multi_threading loses elements"),
        ({"runner": "fnapi", "options": {"direct_running_mode": "multi_threading"}}, "multi_threading loses elements"),
        ({"runner": "DaskRunner"}, "DaskRunner reports success"),
        ({"runner": "apache_beam.runners.dask.dask_runner.DaskRunner"}, "DaskRunner reports success"),
        ({"runner": "DirectRunner"}, "downloads another runner"),
        ({"runner": "direct"}, "downloads another runner"),
        ({"runner": "FlinkRuner"}, "Beam has no runner FlinkRuner"),
        ({"runner": "nowhere.to.be.Found"}, "can't be loaded: No module named 'nowhere'"),
        ({"runner": "json.FoundRunner"}, "can't be loaded: module 'json' has no attribute 'FoundRunner'"),
        ({"options": {"direct_numworkers": 3}}, "Beam knows no option direct_numworkers.*\n.*Is it direct_num_workers"),
        ({"options": {"zzz": 3}}, "Beam knows no option zzz.*\n.*Remove it"),
        ({"runner": "FlinkRunner", "options": {"paralelism": 3}}, "no option paralelism.*\n.*Is it parallelism"),
        ({"runner": "FlinkRunner", "options": {"parallelism": "all"}}, "--parallelism: invalid int value: 'all'"),
        ({"runner": "PortableRunner"}, "PortableRunner needs beam.options.job_endpoint"),
        ({"runner": "PrismRunner"}, "PrismRunner without beam.options.prism_location would download a program"),
        ({"runner": "PrismRunner", "options": {"prism_location": "/nowhere/prism"}}, "there is no file /nowhere/prism"),
        (
            {"runner": "SparkRunner", "options": {"job_server_java_launcher": "no-java"}},
            "SparkRunner starts Beam's job server, a Java program, and there is no no-java here",
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(settings, reason):
    with pytest.raises(RecipeError, match=f"(?s)^settings.yaml: .*{reason}") as refused:
        pipeline_options(BeamSettings(**settings), 2)
    assert refused.value.todo


def test_dataflow_without_the_packages_of_google_names_what_to_install():
    try:
        import google.auth  # noqa: F401
    except ImportError:
        with pytest.raises(RecipeError, match="DataflowRunner can't be loaded") as refused:
            pipeline_options(BeamSettings(runner="DataflowRunner"), 2)
        assert refused.value.todo == 'pip install "apache-beam[gcp]"'
    else:
        pytest.skip("Google's packages are installed here")


def test_a_job_server_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(options_beam, "JOB_SERVER_SECONDS", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RecipeError, match=f"no job server answers at {endpoint}"):
            pipeline_options(BeamSettings(runner="PortableRunner", options={"job_endpoint": endpoint}), 2)


def test_runner_and_options_are_passed_on():
    flink = BeamSettings(
        runner="FlinkRunner",
        options={
            "flink_master": "localhost:8081", "flink_submit_uber_jar": True, "parallelism": 8, "experiments": ["a", "b"],
            "use_public_ips": False, "object_reuse": "true",
        },
    )  # fmt: skip
    found = pipeline_options(flink, 2)
    options = found.get_all_options(retain_unknown_options=True)
    assert (options["runner"], options["flink_master"], options["parallelism"]) == ("FlinkRunner", "localhost:8081", 8)
    assert found.view_as(FlinkRunnerOptions).flink_submit_uber_jar is True
    assert found.view_as(WorkerOptions).use_public_ips is False
    assert options["experiments"] == ["a", "b"]
    assert options["object_reuse"] == "true"  # of Flink's job server; Beam for Python doesn't know it
    assert "direct_num_workers" in options and options["direct_num_workers"] == 1  # Beam's default: not ours to set


def test_the_local_runner_gets_processes():
    local = pipeline_options(BeamSettings(), 3).get_all_options()
    assert (local["direct_running_mode"], local["direct_num_workers"]) == ("multi_processing", 3)
    assert pipeline_options(BeamSettings(), 1).get_all_options()["direct_running_mode"] == "in_memory"
    asked = BeamSettings(options={"direct_running_mode": "in_memory"})
    assert pipeline_options(asked, 3).get_all_options()["direct_running_mode"] == "in_memory"


def test_known_options_are_those_of_beam():
    assert {"runner", "parallelism", "region", "temp_location", "environment_type", "experiments"} <= known_options()
    assert "zzz" not in known_options()
