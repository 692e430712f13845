"""Keys of a task that would do nothing, or can't be: refused when the recipe is loaded, with file, line and what to do."""

from pathlib import Path

import pytest

from model.tuning.heads import HEADS, scored_by
from pipeline.config import METRICS_OF
from pipeline.recipe import load_recipes
from pipeline.recipes.task_rules import SCORED_BY
from tests.pipeline.test_recipe import SMALL


def refusal(tmp_path: Path, *lines: str, section: str = "") -> str:
    """What is said of a recipe with a task of these lines, the first on line 13; "" where it loads."""
    task = "".join(f"      {line}\n" for line in lines)
    text = f"{SMALL}finetuning:\n  tasks: [mine]\n  define:\n    mine:\n{task}{section}"
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    return "\n".join(str(error) for error in load_recipes(tmp_path).errors.values())


CSV, TSV, JSONL = (f"files: {{train: {{path: a.{ending}}}}}" for ending in ("csv", "tsv", "jsonl"))
COLUMNS, SQUAD = "files: {train: {path: a.conll}}", "files: {train: {path: a.json}}"
SCORED = "files: {train: {path: a.csv}, dev: {path: b.csv}}"
TESTED = "files: {train: {path: a.csv}, test: {path: b.csv}}"
ROW = "{system: S, split: dev, metric: %s, points: %s}"


@pytest.mark.parametrize(
    ("lines", "key", "said"),
    [
        # of another kind
        ((CSV, "choices: [a, b]"), "choices", "says nothing of a task of kind classification, but of multiple_choice"),
        ((CSV, "words: w"), "words", "but of tagging"),
        ((CSV, "tags: t"), "tags", "but of tagging"),
        ((CSV, "question: q"), "question", "but of span"),
        ((CSV, "answer_start: q"), "answer_start", "but of span"),
        ((CSV, "negative: q"), "negative", "but of sentence_similarity"),
        ((CSV, "kind: regression", "labels: [a, b]"), "labels", "but of classification, pair_classification, tagging"),
        (
            (CSV, "kind: multiple_choice", "choices: [a, b]", "text_b: c"),
            "text_b",
            "says nothing of a task of kind mult",
        ),
        ((COLUMNS, "kind: tagging", "text: t"), "text", "says nothing of a task of kind tagging"),
        ((COLUMNS, "kind: tagging", "label: t"), "label", "Remove the key"),
        ((SQUAD, "kind: span", "label: t"), "label", "says nothing of a task of kind span"),
        # of other files
        ((CSV, "quotes: false"), "quotes", "is of .tsv files, and a .csv file is read otherwise (it is false)"),
        (("files: {train: {path: a.tab}}", "quotes: false"), "quotes", "a .tab file is read otherwise"),
        (("files: {train: {path: a.tsv.gz}, dev: {path: a.csv.gz}}", "quotes: false"), "quotes", "a .csv file"),
        ((JSONL, "quotes: false"), "quotes", "is of .tsv files, and there is none"),
        ((COLUMNS, "kind: tagging", "quotes: false"), "quotes", "and there is none"),
        (
            (JSONL, "header: [text, label]"),
            "header",
            "names the columns of .csv, .tsv and column files, and there is none",
        ),
        ((SQUAD, "kind: span", "header: [question, context]"), "header", "and there is none"),
        (
            ("files: {train: {path: a.tab}}", "header: [text, label]"),
            "header",
            "whose first three lines name the columns",
        ),
        ((COLUMNS, "kind: tagging", "words: w"), "words", "a column file has no names without `header`"),
        ((COLUMNS, "kind: tagging", "tags: w"), "tags", "Write header"),
        ((SQUAD, "kind: span", "context: text"), "context", "a .json file of SQuAD's form is none (it is text)"),
        (("files: {train: {path: a.csv}, dev: {wiki: enwiki}}",), "files.dev", "is a wiki's dump, which is no table"),
        # shares
        ((SCORED, "dev_share: 0.2"), "dev_share", "changes nothing beside files.dev, which is that part (it is 0.2)"),
        ((TESTED, "test_share: 0.2"), "test_share", "changes nothing beside files.test"),
        ((CSV, "dev_share: 0.5", "test_share: 0.5"), "test_share", "makes 1 or more with dev_share 0.5"),
        ((CSV, "test_share: 0.9"), "test_share", "makes 1 or more with dev_share 0.1"),
        # labels and scores
        ((CSV, "metric: f1", "labels: [a, b, c]"), "metric", "F1 of label number 1 of two, and `labels` has 3"),
        ((CSV, "labels: [a]"), "labels", "is one label, and a classifier needs two (it is a)"),
        ((CSV, f"published: [{ROW % ('accuracy', 400)}]"), "published.0.points", "accuracy has 0 to 100 points"),
        ((CSV, f"published: [{ROW % ('accuracy', -1)}]"), "published.0.points", "(it is -1"),
        ((CSV, f"published: [{ROW % ('f1', 70)}]"), "published.0.metric", "scored by: accuracy, macro_f1 (it is f1)"),
        ((CSV, f"published: [{ROW % ('entity_f1', 70)}]"), "published.0.metric", "accuracy, f1, macro_f1, matthews"),
        (
            (CSV, "kind: regression", f"published: [{ROW % ('accuracy', 70)}]"),
            "published.0.metric",
            "spearman, pearson",
        ),
    ],
)
def test_keys_that_do_nothing_are_refused_where_they_stand(
    tmp_path: Path, lines: tuple[str, ...], key: str, said: str
) -> None:
    message = refusal(tmp_path, *lines)
    line = 13 + next(n for n, each in enumerate(lines) if each.startswith(key.partition(".")[0]))
    assert f"small.yaml:{line}: finetuning.define.mine.{key}: " in message
    assert said in message and "\n  → " in message


@pytest.mark.parametrize(
    "lines",
    [
        (CSV, "header: [text, label]", "quotes: true", "dev_share: 0.1", "test_share: 0.3"),
        (TSV, "header: [text, label]", "quotes: false", "text_b: b"),
        ("files: {train: {path: a.tsv}, dev: {path: b.jsonl}}", "header: [text, label]", "quotes: false"),
        ("files: {train: {path: a.txt}}", "header: [text, label]", "quotes: false"),
        ("files: {train: {path: a.zip}}", "header: [text, label]", "quotes: false"),
        (COLUMNS, "kind: tagging", "header: [a, b]", "words: a", "tags: b"),
        (JSONL, "kind: tagging", "words: a", "tags: b"),
        (JSONL, "kind: span", "context: a", "id: b"),
        (JSONL, "kind: sentence_similarity", "positive_score: 4", "label: x", "dev_share: 0.3"),
        (
            CSV,
            "metric: matthews",
            "labels: [a, b, c]",
            f"published: [{ROW % ('matthews', -3)}, {ROW % ('macro_f1', 3)}]",
        ),
        (CSV, "metric: f1", f"published: [{ROW % ('f1', 70)}]"),
        (COLUMNS, "kind: tagging", f"published: [{ROW % ('macro_f1', 70)}]"),
    ],
)
def test_keys_that_do_something_are_not(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert refusal(tmp_path, *lines) == ""


def test_a_folder_tells_nothing_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "data.csv").mkdir()
    assert refusal(tmp_path, "files: {train: {path: data.csv}}", "quotes: false") == ""


def test_an_inherited_share_beside_a_file_can_be_deleted(tmp_path: Path) -> None:
    assert refusal(tmp_path, CSV, "dev_share: 0.2") == ""
    child = "name: child\nextends: small\nfinetuning: {define: {mine: {files: {dev: {path: b.csv}}%s}}}\n"
    (tmp_path / "child.yaml").write_text(child % "")
    assert "dev_share is inherited; `null` deletes it" in str(load_recipes(tmp_path).errors["child"])
    (tmp_path / "child.yaml").write_text(child % ", dev_share: null")
    assert load_recipes(tmp_path).errors == {}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("early_exit: 3", "early_exit: ends no run: after 3 epochs the longest has ended by itself (it is 3)"),
        ("early_exit: 2\n  epochs: 2\n  overrides: {mine: {epochs: 1}}", "after 1 epoch the longest"),
        ("early_exit: 4\n  grid: {epochs: [2, 4]}", "after 4 epochs"),
        ("early_exit: 4\n  grid: {epochs: [2, 5]}", ""),
        ("early_exit: 4\n  grid: {epochs: [2, 5]}\n  overrides: {mine: {grid: {}}}", "after 3 epochs"),
        ("early_exit: 2\n  epochs: 2\n  overrides: {mine: {epochs: 3}}", ""),
    ],
)
def test_an_early_exit_that_comes_too_late(tmp_path: Path, section: str, said: str) -> None:
    message = refusal(tmp_path, CSV, section=f"  {section}\n")
    assert said in message and bool(said) == bool(message)


def test_a_test_set_that_another_model_answers_has_nothing_to_override(tmp_path: Path) -> None:
    tasks = "finetuning: {tasks: [mnli, ax], overrides: {ax: {epochs: 2}}}\n"
    (tmp_path / "small.yaml").write_text(SMALL + tasks)
    said = str(load_recipes(tmp_path).errors["small"])
    assert "small.yaml:9: finetuning.overrides.ax: changes nothing: ax is answered by the model of mnli" in said


def test_what_is_published_can_be_scored() -> None:
    """Of tagging, entities and other tags are scored differently; which of them, labels say."""
    assert set(SCORED_BY) == set(METRICS_OF)
    for kind, metrics in SCORED_BY.items():
        found = set[str]()
        for labels in (["O", "B-PER"], ["NN", "VB"]):
            found |= set(scored_by(HEADS[kind], {"metric": METRICS_OF[kind][0], "metrics": [], "labels": labels}))
        assert set(metrics) <= found
        assert found - set(metrics) <= {"precision", "recall"}
