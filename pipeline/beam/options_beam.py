"""The options of the Beam runner that settings.yaml names, checked before anything runs.

Beam itself says of an option that it doesn't know no more than a line in a log, and goes on without it.
"""

import argparse
import contextlib
import io
import shutil
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import grpc
from apache_beam.options.pipeline_options import JobServerOptions, PipelineOptions, PortableOptions, PrismRunnerOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline.errors import RecipeError
from pipeline.settings import BeamSettings

JOB_SERVER_SECONDS = 20
"""How long a job server may take to answer."""

REFUSED = {
    "daskrunner": (
        "reports success with missing output (Beam 2.77)",
        "Use FnApiRunner, or a Flink, Spark or Dataflow runner.",
    ),
    "directrunner": (
        "downloads another runner (Prism) where it can, and says nothing where it can't",
        "Use FnApiRunner on one machine, or PrismRunner with prism_location.",
    ),
}
REFUSED["switchingdirectrunner"] = REFUSED["directrunner"]


def pipeline_options(settings: BeamSettings, workers: int) -> PipelineOptions:
    """Options of the named runner; those of the settings win over ours.

    Raises:
        RecipeError: multi_threading, DaskRunner or DirectRunner; a runner that can't be loaded; an option that nobody
            knows or with a value that can't be; a job server that doesn't answer; Java that is missing.
    """
    runner = _runner(settings.runner)
    ours: dict[str, Any] = {
        "direct_running_mode": "in_memory" if workers == 1 else "multi_processing",
        "direct_num_workers": workers,
    }
    asked = {**(ours if isinstance(runner, FnApiRunner) else {}), **settings.options}
    if asked.get("direct_running_mode") == "multi_threading":
        raise RecipeError(
            "settings.yaml: beam.options.direct_running_mode: multi_threading loses elements silently (Beam 2.77)",
            "Remove it: more than one worker then means multi_processing.",
        )
    options = _parsed(settings.runner, asked)
    _check_names(asked, isinstance(runner, PortableRunner))
    if isinstance(runner, PortableRunner):
        _check_job_server(runner, options)
    return options


def _runner(name: str) -> PipelineRunner:
    reason = REFUSED.get(name.rpartition(".")[2].lower()) or REFUSED.get(f"{name.lower()}runner")
    if reason:
        raise RecipeError(f"settings.yaml: beam.runner: {name} {reason[0]}", reason[1])
    try:
        runner: PipelineRunner = create_runner(name)
        if "dataflow" in name.lower():
            from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401  only with Google's packages
    except ValueError:
        raise RecipeError(
            f"settings.yaml: beam.runner: Beam has no runner {name}",
            "It has FnApiRunner, FlinkRunner, SparkRunner, DataflowRunner, PrismRunner and PortableRunner; others are named in "
            "full: package.module.Class.",
        ) from None
    except (ImportError, AttributeError) as error:
        extra = "gcp" if "dataflow" in name.lower() else "interactive" if "interactive" in name.lower() else None
        raise RecipeError(
            f"settings.yaml: beam.runner: {name} can't be loaded: {error}",
            f'pip install "apache-beam[{extra}]"' if extra else "Install the package that has it, or correct the name.",
        ) from None
    return runner


def _parsed(runner: str, asked: dict[str, Any]) -> PipelineOptions:
    """As if they stood on a command line: so they reach a job server, which has options of its own."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = PipelineOptions.from_dictionary({**asked, "runner": runner})
            options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        raise RecipeError(
            f"settings.yaml: beam.options: {said.getvalue().strip().rpartition('error: ')[2]}", "Correct its value."
        ) from None
    return options


def known_options() -> frozenset[str]:
    """The names of all options that the installed Beam, and runners that were loaded, know."""
    found: set[str] = set()

    def note(parser: argparse.ArgumentParser) -> None:
        found.update(name[2:] for action in parser._actions for name in action.option_strings)

    PipelineOptions([]).get_all_options(add_extra_args_fn=note)
    return frozenset(found)


def _check_names(asked: dict[str, Any], has_job_server: bool) -> None:
    known = known_options()
    for name in asked:
        if name in known:
            continue
        similar = get_close_matches(name, known, n=1, cutoff=0.8)
        if similar or not has_job_server:  # a job server has options that only it knows
            raise RecipeError(
                f"settings.yaml: beam.options: Beam knows no option {name}, and would leave it out silently",
                f"Is it {similar[0]}?" if similar else "Remove it, or look its name up in Beam's PipelineOptions.",
            )


def _check_job_server(runner: PortableRunner, options: PipelineOptions) -> None:
    name = type(runner).__name__
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint and endpoint != "embed":
        with grpc.insecure_channel(endpoint) as channel:
            try:
                grpc.channel_ready_future(channel).result(timeout=JOB_SERVER_SECONDS)
            except grpc.FutureTimeoutError:
                raise RecipeError(
                    f"settings.yaml: beam.options.job_endpoint: no job server answers at {endpoint}",
                    "Start it, or correct the address.",
                ) from None
    if not endpoint and name == "PortableRunner":
        raise RecipeError(
            "settings.yaml: beam.runner: PortableRunner needs beam.options.job_endpoint", "Name a job server."
        )
    prism = options.view_as(PrismRunnerOptions).prism_location
    if name == "PrismRunner" and not endpoint and not prism:
        raise RecipeError(
            "settings.yaml: beam.runner: PrismRunner without beam.options.prism_location would download a program",
            "Name the prism program of this Beam (docs/cluster.md).",
        )
    if name == "PrismRunner" and prism and "://" not in prism and not Path(prism).is_file():
        raise RecipeError(f"settings.yaml: beam.options.prism_location: there is no file {prism}", "Correct the path.")
    uber = options.get_all_options().get(f"{name.lower().removesuffix('runner')}_submit_uber_jar")
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if name in ("FlinkRunner", "SparkRunner") and not endpoint and not uber and not shutil.which(java):
        raise RecipeError(
            f"settings.yaml: beam.runner: {name} starts Beam's job server, a Java program, and there is no {java} here",
            "Install a Java runtime, name a running job server as beam.options.job_endpoint, or have the jar submitted "
            "(docs/cluster.md).",
        )
