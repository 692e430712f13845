"""The walls of the house: who may import whom (DESIGN section 3), and that loading the graph stays light."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import errors
from tests.conftest import ROOT

FOLDERS = ("pipeline", "model", "assets")
# What a folder may import of the others, and where the heavy or foreign libraries may stand.
ALLOWED_OF_PIPELINE_IN_MODEL = {
    *(
        "recipe",
        "config",
        "store",
        "content",
        "errors",
        "progress",
        "settings",
        "stage",
        "atomic",
        "shard_schema",
        "tokenizer",
    ),
    *("shard_reader", "masking", "streams", "ragged"),  # rows of shards, and masks that are drawn when they are loaded
    *("schemas", "sources", "tables"),  # contamination reads documents, tasks read files as every source does
    *("compressed", "jsonl", "kinds"),  # a task's own files are read as those of own corpora are
    "iob",  # what tags of entities are: tasks, and recipes that name them
    "ngrams",  # what documents are compared by
    *("checkpoint_folder", "wheels"),  # what recipe and stage both look for in an imported model, and where it may lie
    "lineage",  # a decision asks what the champion was trained on
    "unpacked",  # archives of tasks and of checkpoints are opened with the same care
    "foreign_json",  # what lies in the folder of a model made elsewhere
    "tfrecord",  # checksums as TensorFlow writes them
    "units",  # sizes as people read them
    "sampling",  # what a rehearsal reads of a task
}
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.BertError)}
HEAVY = {"torch", "apache_beam", "great_expectations", "transformers", "sklearn", "matplotlib", "pandas"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported module of a file, and whether at module level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, id(node) in top
            yield from ((f"{node.module}.{alias.name}", id(node) in top) for alias in node.names)


def file_of(module: str) -> Path | None:
    """The file of a module of this repository; None of a folder, or of a name inside a module."""
    path = ROOT / (module.replace(".", "/") + ".py")
    return path if path.is_file() else None


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"{folder} is empty"
    return found


@pytest.mark.parametrize("path", [p for f in FOLDERS for p in files(f)], ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    folder = path.relative_to(ROOT).parts[0]
    for module, top in imports(path):
        package = module.partition(".")[0]
        where = f"{path.relative_to(ROOT)} imports {module}"
        if folder == "pipeline":
            assert package not in ("model", "assets", "dagster", "torch"), where
        if folder == "model":
            assert package not in ("assets", "dagster", "apache_beam"), where
            if package == "pipeline" and (imported := file_of(module)):
                assert imported.stem in ALLOWED_OF_PIPELINE_IN_MODEL, where
        if folder == "assets":
            assert package not in ("torch", "apache_beam"), where
            assert not (top and package in HEAVY), (
                f"{where} at module level: every step is a process that would pay for it"
            )
        if package == "apache_beam":
            assert path.name.endswith("_beam.py"), where
        if package == "pickle":
            pytest.fail(f"{where}: artifacts are Parquet, safetensors and JSON")


@pytest.mark.parametrize("path", [p for f in FOLDERS for p in files(f)], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_error_has_a_next_step(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            made = node.exc
            if node.exc.func.id in ERRORS and not any(isinstance(argument, ast.Starred) for argument in made.args):
                assert len(made.args) + len(made.keywords) >= 2, f"{path.name}:{node.lineno} says only what is wrong"


def test_loading_the_definitions_is_light() -> None:
    """Neither torch nor Beam nor Great Expectations; each Dagster step is a process that loads this again."""
    code = "import sys, json, assets.definitions; print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "dagster" in loaded
    assert not loaded & HEAVY


def test_the_graph_needs_no_dagster() -> None:
    code = "import sys, assets.graph, assets.commands.reading; print('dagster' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]
