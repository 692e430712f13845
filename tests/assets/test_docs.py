"""README.md and docs/ are true: every command is run by a test or says what it would need, every recipe and all settings load,
every link leads somewhere.

tests/doc_blocks.py says how a page marks what is not run here.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown.extensions.toc import slugify
from pydantic import BaseModel

from assets import cli
from docs.tools import reference
from pipeline.beam.options_beam import known_options
from pipeline.config import Comparison, Frozen
from pipeline.recipe import Loaded, Recipe, load_recipes
from pipeline.settings import Settings, settings
from tests import doc_blocks
from tests.assets.bertcli import World
from tests.conftest import ROOT
from tests.doc_blocks import BLOCKS, COMMAND, PAGES, Block

SHELL = doc_blocks.of("sh", "console")
RUN = [block for block in SHELL if not block.mark]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STAND_INS = (
    (r"\b(demo|my_model|bert_base|german|R)\b", "tiny"),
    (r"_128\b", "_32"),
    (r"\bDIR\b", "folder"),
    (r"\b(enwiki:12|tales:grimm\.txt)", "tinywiki:12"),
)
"""What commands of the pages name, and what of recipe `tiny`, which has the demo's shape and takes seconds, stands in."""


def pages(of: list[Block]) -> list[str]:
    return list(dict.fromkeys(block.page for block in of))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_there_is_something_to_test() -> None:
    assert len(PAGES) > 20 and len(RUN) > 5
    assert {block.language for block in BLOCKS} <= {"sh", "console", "yaml", "python", "toml", "text"}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bert` and `python` of this checkout, and a `make` that refuses: what it makes is never a matter of seconds."""
    folder = tmp_path_factory.mktemp("programs")
    for name, line in {
        "bert": f"exec {shlex.quote(sys.executable)} -m assets.command",
        "python": f"exec {shlex.quote(sys.executable)}",
        "make": "echo mark the block: which test runs it, or why none does; exit 1; :",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\n{line} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def twice(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world with two releases of `tiny`: the older is the champion."""
    world = made.copy(tmp_path_factory.mktemp("twice") / "world")
    world.bert("promote", "tiny", "--reason", "the first")
    world.edit("A model of seconds.", "A model of a few seconds.")
    world.bert("run", "tiny")
    return world


@pytest.mark.parametrize("page", pages(RUN))
def test_the_commands_of_a_page_run(page: str, made: World, twice: World, programs: Path, tmp_path: Path) -> None:
    """All of a page that are not marked, in their order, in one copy of the tiny world."""
    world, here = twice.copy(tmp_path / "world"), tmp_path / "here"
    here.mkdir()
    environment = {
        **world.environment,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{world.environment['PYTHONPATH']}",
        "BERT_HOME": str(world.home),
    }
    older = made.store.pointer("tiny", "release")
    assert older is not None
    (here / "scratch").mkdir()
    of_the_world = (
        *((r"\bDIGEST\b", older.digest), (r"\bVERSION\b", older.version)),
        (r"/(?:data|backup)/(?=scratch|restored|bert\.tar)", f"{here}/"),
    )
    for block in (each for each in RUN if each.page == page):
        text = block.text
        for name, stand_in in (*STAND_INS, *of_the_world):
            text = re.sub(name, stand_in, text)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=here,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=500,
        )
        assert done.returncode == 0, f"{block}\n{text}\n{done.stdout}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark == "run by"], ids=str)
def test_a_test_that_is_named_is_there_and_runs_such_commands(block: Block) -> None:
    for named in block.reason.split(", "):
        file, _, name = named.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert name in {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}, named
        for command in re.findall(r"^bert ([\w-]+)", block.text, re.M):
            assert f'"{command}"' in text or "BERT" in text, f"{block}: {file} never runs bert {command}"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.mark == "not run here"], ids=str)
def test_what_is_not_run_says_why(block: Block) -> None:
    assert re.match(r"needs |an example of |writes |takes ", block.reason), f"{block}: {block.reason}"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_no_command_hides_outside_of_a_block_with_its_language(path: Path) -> None:
    indented = [line for line in doc_blocks.prose(path).splitlines() if line.startswith("    ")]
    hidden = [line for line in indented if COMMAND.match(line)]
    plain = [block for block in doc_blocks.blocks(path) if block.language == "text" and not block.mark]
    hidden += [str(block) for block in plain if COMMAND.search(block.text)]
    assert not hidden, "put commands into a block of sh or console"


def flags() -> dict[str, set[str]]:
    """Command of `bert` → its options."""
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    return {name: {opt for each in command.params for opt in each.opts} for name, command in commands.items()}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_commands_in_a_sentence_exist_with_their_options(path: Path) -> None:
    known, targets = flags(), re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    codes = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", doc_blocks.prose(path), re.S)
    in_sentences = [" ".join(code.split()) for _, code in codes]
    in_blocks = [line for block in doc_blocks.blocks(path) if block in SHELL for line in block.text.splitlines()]
    for code in [*in_sentences, *in_blocks]:
        command, *words = code.partition("  #")[0].split() or [""]
        if command == "bert" and words:
            assert words[0] in known, code
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= known[words[0]] | {"--help"}, code
        if command == "make" and words:
            assert words[0] in targets or "=" in words[0], code


# ── YAML, TOML, Python ───────────────────────────────────────────────────────────────────────────────────────────────


def kind(block: Block) -> str:
    """What a block of YAML is: told by its keys."""
    tree = block.tree
    if not isinstance(tree, dict):
        return "nothing known"
    if "apiVersion" in tree and "kind" in tree:
        return "manifest"
    if "rows" in tree and set(tree) <= set(Comparison.model_fields):
        return "comparison"
    if set(tree) <= set(Settings.model_fields):
        return "settings"
    return "recipe" if set(tree) <= {*Recipe.model_fields, "extends"} else "nothing known"


def yaml(of_kind: str) -> list[Block]:
    return [block for block in doc_blocks.of("yaml") if not block.mark and kind(block) == of_kind]


@pytest.mark.parametrize("block", [block for block in doc_blocks.of("yaml") if not block.mark], ids=str)
def test_every_block_of_yaml_is_of_a_kind_that_is_checked(block: Block) -> None:
    assert kind(block) != "nothing known", f"{block}: its keys are those of no recipe, settings, comparison or manifest"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """All recipes of the pages at once, beside those that they extend, with the files that they name."""
    folder = tmp_path_factory.mktemp("pages") / "recipes"
    folder.mkdir()
    for name in ("demo", "bert_base"):
        (folder / f"{name}.yaml").write_bytes((ROOT / "recipes" / f"{name}.yaml").read_bytes())
    for name, text in {
        "withdrawn.csv": "doc_id,reason\n",
        "shelf.csv": "file,title\n",
        "abbreviations.txt": "z.B.\n",
        "my_templates.toml": next(iter(doc_blocks.of("toml"))).text,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("bert-base-cased", "bert-base-uncased"):
        (folder / name).mkdir()
        (folder / name / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    for block in yaml("recipe"):
        (folder / f"{piece(block)}.yaml").write_text(whole(block), encoding="utf-8")
    return load_recipes(folder)


def piece(block: Block) -> str:
    return re.sub(r"\W", "_", str(block))


def whole(block: Block) -> str:
    """A recipe of a piece of one: with a name of its own, and with what else a recipe needs."""
    text, tree = block.text, block.tree
    text = re.sub(r"^name: .*\n", "", text, flags=re.M)
    text = re.sub(r"from: \.\./models/[\w-]+", f"from: {'ab' * 32}", text)  # a model of the store instead of a folder
    if "extends" not in tree and "checkpoint" not in tree:
        if "corpus" not in tree:
            text += "corpus: {sources: {a: {kind: jsonl, from: {path: a}}}}\n"
        elif "sources" not in tree["corpus"]:
            text = text.replace("corpus:\n", "corpus:\n  sources: {a: {kind: jsonl, from: {path: a}}}\n", 1)
        if "phases" not in tree.get("pretraining", {}):
            text = re.sub(r"^pretraining:\n", "", text)
            text += "pretraining: {warmup_steps: 1, phases: [{sequence_length: 64, steps: 9}]}\n"
    return f"name: {piece(block)}\n{text}"


@pytest.mark.parametrize("block", yaml("recipe"), ids=str)
def test_a_recipe_loads(block: Block, loaded: Loaded) -> None:
    assert piece(block) in loaded.recipes, loaded.errors[piece(block)]


@pytest.mark.parametrize("block", yaml("settings"), ids=str)
def test_settings_load_and_beam_knows_every_option(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.yaml").write_text(block.text, encoding="utf-8")
    monkeypatch.setenv("BERT_SETTINGS", str(tmp_path / "settings.yaml"))
    assert set(settings().beam.options) <= known_options()


@pytest.mark.parametrize("block", yaml("comparison"), ids=str)
def test_a_comparison_loads(block: Block) -> None:
    Comparison.model_validate(block.tree)


@pytest.mark.parametrize("block", yaml("manifest"), ids=str)
def test_a_manifest_names_itself(block: Block) -> None:
    assert block.tree["metadata"]["name"]


def test_python_and_toml_are_run_by_a_test() -> None:
    assert all(block.mark == "run by" for block in doc_blocks.of("python", "toml"))


# ── the references ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_tables_are_those_of_the_code(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert text == reference.page(name), "python -m docs.tools.reference"


def stated(model: BaseModel) -> Iterator[tuple[str, str]]:
    """(model, key) of everything that somebody wrote."""
    for name in model.model_fields_set:
        yield type(model).__name__, name
        yield from in_value(getattr(model, name))


def in_value(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        yield from stated(value)
    elif isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from in_value(each)


@pytest.mark.parametrize("name", reference.PAGES)
def test_every_key_has_an_example_that_loads(name: str, loaded: Loaded) -> None:
    blocks = doc_blocks.blocks(ROOT / "docs" / name)
    shown: set[tuple[str, str]] = set()
    for block in (each for each in blocks if each.language == "yaml"):
        model: Frozen = {
            "recipe": lambda block=block: loaded.recipes[piece(block)],
            "settings": lambda block=block: Settings.model_validate(block.tree),
            "comparison": lambda block=block: Comparison.model_validate(block.tree),
        }[kind(block)]()
        shown |= {(each, key) for each, key in stated(model) if f"{key.rstrip('_')}:" in block.text}
    wanted = {
        (model.__name__, key)
        for root in reference.PAGES[name]
        for model in reference.models(root)
        for key in model.model_fields
    }
    assert wanted - shown == set()


# ── links ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs makes them."""
    headings = re.findall(r"^#+ (.+)$", doc_blocks.FENCE.sub("", path.read_text(encoding="utf-8")), re.M)
    return {slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading), "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", doc_blocks.prose(path)):
        file, _, anchor = target.partition("#")
        if ":" in file:
            continue
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


# ── what the README promises ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_exported_model_loads_as_the_readme_says(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.bert("export", "tiny/release", str(tmp_path / "my-model"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    found: dict[str, object] = {}
    exec(code, found)
    assert found["tokenizer"]("the river")["input_ids"]  # type: ignore[operator]


def test_the_recipe_of_the_readme_trains_on_ones_own_text(tmp_path: Path) -> None:
    world = World.make(tmp_path / "world")
    (recipe,) = re.findall(r"```yaml\n# recipes/my_model.yaml\n(.*?)```", README, re.S)
    assert (
        "extends: demo" in recipe and "held_out: 0.1" in recipe and "/data/tales" in recipe and "size: 4000" in recipe
    )
    recipe = (
        recipe.replace("demo", "tiny")
        .replace("/data/tales", str(world.folder / "text" / "books"))
        .replace("4000", "260")
        .replace("held_out: 0.1", "held_out: 0.5")  # of eight books, a tenth by hash is none
    )
    (world.folder / "recipes" / "my_model.yaml").write_text(recipe, encoding="utf-8")
    output = world.bert("run", "my_model", "--dry-run")
    assert "tales_text" in output and "wikipedia" not in output
    assert "my_model is up to date" in world.bert("run", "my_model")
