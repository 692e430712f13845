"""`bert new`: the recipe that is written loads, asks for what is there, and its comments are true."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import DocumentsConfig, OwnTextConfig, VocabularyConfig
from pipeline.documents import build_documents
from pipeline.errors import BertError, DataError, RecipeError
from pipeline.own_text import extract_text
from pipeline.recipe import Recipe, load_recipes
from pipeline.recipes.yamlfile import read
from pipeline.schemas import iter_rows
from pipeline.starting import text_measure
from pipeline.starting.new_recipe import Written, new_recipe
from pipeline.starting.recipe_writing import scalar
from pipeline.vocabulary import train_vocabulary as make_vocabulary
from tests import tiny
from tests.conftest import ROOT

GERMAN = ROOT / "examples" / "german"


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    return folder


def made(recipes: Path, text: Path, language: str = "en", name: str = "mine") -> tuple[Written, Recipe]:
    written = new_recipe(name, text, language, recipes, lambda _: None)
    loaded = load_recipes(recipes)
    assert loaded.errors == {}
    return written, loaded.get(name)


def refused(recipes: Path, text: Path, language: str = "en", name: str = "mine") -> BertError:
    before = sorted(recipes.iterdir())
    with pytest.raises(BertError) as caught:
        new_recipe(name, text, language, recipes, lambda _: None)
    assert caught.value.todo and sorted(recipes.iterdir()) == before, "nothing is written"
    return caught.value


def books(folder: Path, count: int = 8) -> Path:
    folder.mkdir(exist_ok=True)
    for n in range(count):
        (folder / f"book{n}.txt").write_text("\n\n".join(tiny.paragraphs(100 + n, 8)), encoding="utf-8")
    return folder


def test_the_worked_example_becomes_the_recipe_that_a_person_would_write(recipes: Path) -> None:
    written, recipe = made(recipes, GERMAN, "de")
    assert recipe.corpus is not None and recipe.pretraining is not None
    by_hand = load_recipes(ROOT / "recipes").get("german")
    assert by_hand.corpus is not None
    assert {(s.kind, s.from_, s.language) for s in recipe.corpus.sources.values()} == {
        (s.kind, s.from_, s.language) for s in by_hand.corpus.sources.values()
    }
    assert recipe.corpus.sources["articles"].columns == by_hand.corpus.sources["articles"].columns
    assert (recipe.vocabulary.lowercase, recipe.vocabulary.strip_accents) == (False, False)
    assert written.left == (GERMAN / "README.md",) and written.text.documents == 59


def test_paths_inside_the_checkout_are_relative_to_the_recipe(recipes: Path, tmp_path: Path) -> None:
    made(recipes, GERMAN, "de")
    assert f"path: {GERMAN}" in (recipes / "mine.yaml").read_text(encoding="utf-8"), "recipes lie elsewhere"
    inside = ROOT / "build" / "test_new_recipe"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    try:
        _, recipe = made(inside, GERMAN, "de")
        assert "path: ../../examples/german/tales" in (inside / "mine.yaml").read_text(encoding="utf-8")
        assert recipe.corpus is not None and recipe.corpus.sources["tales"].from_.path == str(GERMAN / "tales")  # type: ignore[union-attr]
    finally:
        shutil.rmtree(inside)


def test_the_held_out_part_is_the_one_that_is_told(recipes: Path, tmp_path: Path) -> None:
    """As the stages choose it, document by document."""
    folder = books(tmp_path / "books")
    written, recipe = made(recipes, folder)
    assert recipe.corpus is not None
    texts, out = tmp_path / "texts", tmp_path / "documents"
    texts.mkdir(), out.mkdir()
    extract_text({"files": folder}, OwnTextConfig(source="books", kind="text"), texts)
    build_documents({"books": texts}, DocumentsConfig(held_out=recipe.corpus.held_out), out)
    splits = [row["split"] for row in iter_rows(out)]
    assert 2 <= splits.count("held_out") == written.text.held_out_documents <= 6 and len(splits) == 8
    words = re.search(r"by: (\d+)\s+#?\s*documents, ([\d,]+)", flat(recipes / "mine.yaml"))
    assert words is not None and int(words[1]) == splits.count("held_out")


CHINESE = [
    "长江是亚洲第一长河，发源于青藏高原。",
    "北京是中华人民共和国的首都，也是全国的政治中心。",
    "他昨天在图书馆里读了一本很有意思的书。",
    "科学家们发现了一种新的植物，它只生长在高山上。",
    "春天来了，公园里的花都开了，孩子们在草地上玩耍。",
    "这座古老的城市有两千多年的历史，吸引了许多游客。",
    "经济学家认为，2024 年和 2025 年的物价可能会继续上涨。",
]


def chinese(folder: Path) -> Path:
    """Three hundred documents with some 1,800 characters, a few of them rare."""
    folder.mkdir()
    drawn = random.Random(4)
    rare = [chr(code) for code in range(0x4E00, 0x4E00 + 1800)]
    for n in range(300):
        parts = ("".join(drawn.sample(CHINESE, 4)) + "".join(drawn.sample(rare, 8)) + "。" for _ in range(4))
        (folder / f"{n}.txt").write_text("\n\n".join(parts), encoding="utf-8")
    return folder


def characters(folder: Path) -> Path:
    """Chinese and nothing else: no word has two characters, so that a vocabulary is its alphabet."""
    folder.mkdir()
    drawn = random.Random(5)
    signs = sorted(set("".join(CHINESE)) - set("，。 0123456789"))
    for n in range(60):
        parts = ("".join(drawn.choices(signs, k=30)) + "。" for _ in range(6))
        (folder / f"{n}.txt").write_text("\n\n".join(parts), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["books", "german tales", "chinese", "characters"])
def test_the_text_gives_the_vocabulary_that_the_recipe_asks_for(kind: str, recipes: Path, tmp_path: Path) -> None:
    """By the stages themselves, which refuse a size that the text does not give."""
    makers = {"books": books, "german tales": lambda _: GERMAN / "tales", "chinese": chinese, "characters": characters}
    folder = makers[kind](tmp_path / "files")
    language = {"books": "en", "german tales": "de", "chinese": "zh", "characters": "zh"}[kind]
    written, recipe = made(recipes, folder, language)
    texts, documents, out = (tmp_path / name for name in ("texts", "documents", "vocabulary"))
    for place in (texts, documents, out):
        place.mkdir()
    (source,) = (config for name, config in recipe.configs().items() if isinstance(config, OwnTextConfig))
    extract_text({"files": folder}, source, texts)
    build_documents({source.source: texts}, recipe.config_for("documents"), documents)  # type: ignore[arg-type]
    config = recipe.config_for("wordpiece_vocab")
    assert isinstance(config, VocabularyConfig)
    found = make_vocabulary({"documents": documents}, config, out)
    assert found["size"] == written.text.vocabulary and found["unknown_rate"] < 0.05
    assert (config.alphabet_limit > 1000) == (kind == "chinese")


def flat(file: Path) -> str:
    """The file with its comments on one line."""
    return re.sub(r"\n\s*# +", " ", file.read_text(encoding="utf-8"))


def test_comments_say_what_the_text_is(recipes: Path, tmp_path: Path) -> None:
    folder = books(tmp_path / "books")
    written, recipe = made(recipes, folder)
    said = flat(recipes / "mine.yaml")
    characters = sum(len(path.read_text(encoding="utf-8")) for path in folder.iterdir())
    assert f"8 documents, {characters:,} characters" in said
    # BERT's own words: the text is ASCII, so they are runs of letters or digits, and marks.
    held_out = written.text.held_out_words
    count = sum(len(re.findall(r"\w+|[^\w\s]", path.read_text(encoding="utf-8"))) for path in folder.iterdir())
    assert written.text.train_words + held_out == count
    assert f"{written.text.train_words:,} words and punctuation marks to train on, {held_out:,} held out" in said
    assert recipe.pretraining is not None
    (phase,) = recipe.pretraining.phases
    assert f"{phase.steps} steps: about {round(written.sizes.passes)} passes" in said
    seen = phase.steps * recipe.pretraining.batch_size * phase.sequence_length * 0.92
    assert written.sizes.passes == pytest.approx(
        seen / (written.text.train_words * written.text.pieces_per_word), rel=1e-3
    )
    assert "An estimate" not in said
    assert max(map(len, (recipes / "mine.yaml").read_text(encoding="utf-8").splitlines())) <= 120


def test_a_large_text_is_estimated_and_said_to_be(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = books(tmp_path / "books", 300)
    whole, _ = made(recipes, folder, name="whole")
    monkeypatch.setattr(text_measure, "SAMPLE_BYTES", 200_000)
    part, recipe = made(recipes, folder, name="part")
    assert part.text.share_read < 0.4 and "An estimate" in flat(recipes / "part.yaml")
    for field in ("documents", "characters", "train_words"):
        assert getattr(part.text, field) == pytest.approx(getattr(whole.text, field), rel=0.1)
    assert recipe.corpus is not None and recipe.corpus.held_out >= 10 / 300, "ten are expected, so that two are sure"


@pytest.mark.parametrize(
    ("name", "what"),
    [("mine", "there is a recipe mine already"), ("Deep", "there is a recipe deep already"), ("broken", "broken.yaml"), ("a-b", "can't be"), ("", "can't be"), ("comparisons", "compares recipes")],
)  # fmt: skip
def test_names_that_are_taken_or_are_none(name: str, what: str, recipes: Path, tmp_path: Path) -> None:
    (recipes / "folder").mkdir()
    rest = "corpus: {sources: {a: {kind: text, from: {path: a}}}}\npretraining: {warmup_steps: 1, phases: [{sequence_length: 64, steps: 9}]}\n"
    (recipes / "mine.yaml").write_text(f"name: mine\n{rest}", encoding="utf-8")
    (recipes / "folder" / "deep.yaml").write_text(f"name: deep\n{rest}", encoding="utf-8")
    (recipes / "folder" / "broken.yaml").write_text("name: [", encoding="utf-8")
    error = refused(recipes, books(tmp_path / "books"), name=name)
    assert isinstance(error, RecipeError) and what in error.what


@pytest.mark.parametrize(
    ("language", "todo"),
    [("german", "Did you mean de?"), ("english", "en"), ("xq", "ISO 639"), ("", "ISO 639"), ("de; x: y", "ISO 639")],
)
def test_a_language_is_a_code(language: str, todo: str, recipes: Path, tmp_path: Path) -> None:
    assert todo in refused(recipes, books(tmp_path / "books"), language).todo


def test_text_in_another_language_is_refused(recipes: Path) -> None:
    assert "only 0% of the documents are in en" in refused(recipes, GERMAN, "en").what


def rows(folder: Path, values: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return folder


def test_text_that_no_stage_would_publish_is_refused(recipes: Path, tmp_path: Path) -> None:
    few = refused(recipes, books(tmp_path / "few", 3))
    assert isinstance(few, DataError) and "there are 3 documents" in few.what
    single = [{"text": tiny.sentence(random.Random(n)) + f" Number {n}"} for n in range(50)]
    single = [{"text": row["text"].replace(". N", ", n")} for row in single]
    assert "are a single sentence" in refused(recipes, rows(tmp_path / "single", single)).what
    same = [{"text": "\n\n".join(tiny.paragraphs(1, 3)), "id": n} for n in range(9)]
    assert "there is 1 document (dropped: duplicate_text 8)" in refused(recipes, rows(tmp_path / "same", same)).what
    short = [{"text": "\n\n".join(tiny.paragraphs(n, 1))} for n in range(8)]
    assert re.search(
        r"of the documents, has about \d{3} tokens, and what has fewer than 500",
        refused(recipes, rows(tmp_path / "short", short)).what,
    )
    mixed = books(tmp_path / "mixed", 4)
    for n in range(5):
        (mixed / f"{n}.pdf").write_bytes(b"%PDF")
    assert "holds 5 files beside the 4" in refused(recipes, mixed).what


def test_names_of_files_and_columns_are_written_as_yaml_reads_them(recipes: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'o\'no: "x" # ü\t{y}'
    values = [{"the: text": "\n\n".join(tiny.paragraphs(n, 4)), "no": 1} for n in range(9)]
    _, recipe = made(recipes, rows(folder, values))
    assert recipe.corpus is not None
    (source,) = recipe.corpus.sources.values()
    assert source.from_.path == str(folder / "a.jsonl")  # type: ignore[union-attr]
    assert source.columns is not None and source.columns.text == "the: text"


@pytest.mark.parametrize("value", ["plain", "a b", "null", "1e3", "007", "yes", "~", "a: b", "x #y", "-", "ü\n\x7f\u2028", "", ".5", "a.", "'q'"])  # fmt: skip
def test_scalars_come_back_as_they_were(value: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"a: {{b: {scalar(value)}}}\n", encoding="utf-8")
    assert read(file).value["a"].value["b"].value == value
