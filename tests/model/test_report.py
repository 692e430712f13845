"""The benchmark report: right numbers, honest words, and nothing in the data that can become markup."""

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import markdown
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import metrics, report
from model.exporting import results_card
from model.reporting import report_words
from model.reporting.pages import escape_markdown
from model.reporting.report_task import not_official, task_result, verdict
from pipeline.config import Architecture, ReportConfig
from pipeline.errors import DataError
from tests.model import made_up

HELD_OUT = {
    "step": 450,
    "sequences": 280,
    "masked_words": 4941,
    "mlm_loss": 5.21,
    "mlm_accuracy": 0.124,
    "nsp_loss": 0.69,
    "nsp_accuracy": 0.543,
    "baselines": {
        "most_frequent_token_id": 9,
        "most_frequent_token_accuracy": 0.0465,
        "nsp_majority_accuracy": 0.532,
    },
}


def pretrained(folder: Path, sentence_task: str = "nsp") -> Path:
    folder.mkdir(parents=True)
    plain = Architecture(layers=2, hidden=192, heads=4).plain()
    described = {"architecture": plain, "vocabulary_size": 6000, "sentence_task": sentence_task}
    (folder / "config.json").write_text(json.dumps(described))
    rows: list[dict[str, Any]] = []
    nsp = sentence_task == "nsp"
    for step in range(10, 460, 10):
        loss = 5.0 + 4 / (1 + step / 60)
        sentences = {"nsp_loss": 0.7 if nsp else None, "nsp_accuracy": 0.5 + step / 9000 if nsp else None}
        words = {"loss": loss + 0.7, "mlm_loss": loss, "mlm_accuracy": 0.13 - 0.1 / (1 + step / 60)}
        rows.append({"step": step, **words, **sentences})
        if step % 100 == 0 or step == 450:
            scores = {**words, "mlm_loss": loss + 0.05, **sentences}
            del scores["loss"]
            rows.append({"step": step, "held_out": scores})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    held_out = HELD_OUT if nsp else {**HELD_OUT, "nsp_loss": None, "nsp_accuracy": None}
    (folder / "held_out.json").write_text(json.dumps(held_out))
    return folder


def predicted(path: Path, share: float, examples: int, labels: tuple[str, ...], known: bool) -> None:
    """Predictions of which exactly a share is right, the wrong ones first."""
    wrong = examples - round(share * examples)
    truth = [labels[at % len(labels)] for at in range(examples)]
    given = [labels[(at + (at < wrong)) % len(labels)] for at in range(examples)]
    shown = truth if known or path.name.startswith("dev") else [None] * examples
    ids = [f"{path.name[:4].strip('-')}:{at}" for at in range(examples)]
    probabilities = {f"p_{label}": [0.9] * examples for label in labels}
    columns = {"example_id": ids, "label": pa.array(shown, pa.string()), "prediction": given, **probabilities}
    pq.write_table(pa.table(columns), path)


def finetuned(
    folder: Path,
    title: str,
    *,
    ours: list[float],
    untrained: float | None,
    tfidf: float | None,
    tests: int = 2000,
    labels: tuple[str, ...] = ("no", "yes"),
    metric: str = "accuracy",
    test_labels: bool = True,
) -> Path:
    folder.mkdir(parents=True)

    def scored(value: float) -> dict[str, Any]:
        return {
            "dev": {metric: value - 0.02, "cross_entropy": 0.3},
            "test": {metric: value} if test_labels else None,
        }

    def summary(values: list[float]) -> dict[str, Any]:
        found = {}
        for part, less in (("dev", 0.02), ("test", 0.0)):
            spread = metrics.spread([value - less for value in values])
            found[part] = {metric: vars(spread)} if part == "dev" or test_labels else None
        return found

    baselines: dict[str, Any] = {"majority": {"label": labels[0], **scored(0.5)}}
    if untrained is not None:
        baselines["untrained"] = {"seeds": [], "summary": summary([untrained])}
    if tfidf is not None:
        baselines["tfidf"] = scored(tfidf)
    count = len(labels)
    scores = {
        "task": "x",
        "title": title,
        "kind": "classification",
        "metric": metric,
        "labels": list(labels),
        "sizes": {"train": 4920, "dev": 560, "test": tests},
        "truncated": {"train": 2810, "dev": 0, "test": 0},
        "hyperparameters": {
            "learning_rate": 1e-3,
            "epochs": 1,
            "batch_size": 32,
            "max_length": 64,
            "warmup": 0.1,
            "weight_decay": 0.01,
            "dropout": 0.0,
            "precision": "fp32",
            "pooling": "mean",
            "seeds": 2,
            "seed": 42,
        },
        "seeds": [{"seed": 42 + n, "best_epoch": 1, **scored(value)} for n, value in enumerate(ours)],
        "summary": summary(ours),
        "published_seed": 42,
        "confusion": {
            "part": "test",
            "counts": [
                [tests // count - 9 * a if a == b else 3 * ((a + b) % 4) for b in range(count)] for a in range(count)
            ],
        },
        "baselines": baselines,
    }
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "predictions").mkdir()
    for number, value in enumerate(ours):
        for part, share, examples in (("dev", value - 0.02, 560), ("test", value, tests)):
            predicted(
                folder / "predictions" / f"{part}-seed-{42 + number}.parquet", share, examples, labels, test_labels
            )
    rows = [
        {"step": step, "run_step": step, "network": network, "seed": 42, "loss": 2 / (1 + step / rate)}
        for network, rate in (("pretrained", 20), ("untrained", 40))
        for step in range(20, 160, 20)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def not_run(folder: Path, title: str = "CoLA") -> Path:
    folder.mkdir(parents=True)
    wanted = {"task": "cola", "title": title, "why": "the recipe names no files for it", "wants": ["train: train.tsv"]}
    (folder / "not_run.json").write_text(json.dumps(wanted))
    return folder


def failed(folder: Path, title: str, why: str) -> Path:
    folder.mkdir(parents=True)
    wanted = {"task": "x", "title": title, "why": why, "wants": [], "failed": True}
    (folder / "not_run.json").write_text(json.dumps(wanted))
    return folder


def contamination(folder: Path, *tasks: str, words: str = "one two three") -> Path:
    folder.mkdir(parents=True)
    sample = [{"example_id": "test:7", "words": words, "doc_id": "enwiki:12"}]
    counts = {"texts": 2000, "measurable": 1500, "touched": 3, "share": 0.002}
    entry = {"part": "test", **counts, "sample": sample, "parts": {"test": counts}}
    touched = [{"task": task, "part": "test", "example_id": f"test:{n}"} for task in tasks for n in (7, 70, 700)]
    schema = pa.schema([(name, pa.string()) for name in ("task", "part", "example_id", "words", "doc_id")])
    pq.write_table(pa.Table.from_pylist(touched, schema=schema), folder / "touched.parquet")
    (folder / "contamination.json").write_text(json.dumps({"ngram_words": 13, "tasks": dict.fromkeys(tasks, entry)}))
    return folder


def make(base: Path, tasks: dict[str, Path], nsp: str = "nsp", words: str = "one two three", **config: str) -> Path:
    out = base / "out"
    out.mkdir()
    inputs = {
        "pretrained": pretrained(base / "pretrained", nsp),
        "contamination": contamination(base / "contamination", *tasks, words=words),
        **{f"finetuned_{task}": folder for task, folder in tasks.items()},
    }
    statistics = report.make_report(inputs, ReportConfig(recipe="demo", tasks=tuple(tasks), **config), out)
    (base / "statistics.json").write_text(json.dumps(statistics))
    return out


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("demo")
    topics = ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")
    tasks = {
        "r8": finetuned(
            base / "r8", "Reuters R8", ours=[0.941, 0.937, 0.94], untrained=0.939, tfidf=0.968, labels=topics
        ),
        "books": finetuned(base / "books", "Book excerpts", ours=[0.83], untrained=0.60, tfidf=0.81, tests=150),
        "sst2": finetuned(
            base / "sst2",
            "SST-2",
            ours=[0.8],
            untrained=0.82,
            tfidf=None,
            tests=1821,
            labels=("negative", "positive"),
            test_labels=False,
        ),
        "cola": not_run(base / "cola"),
    }
    return make(base, tasks, description="Tiny BERT.")


def test_numbers(demo: Path) -> None:
    found = json.loads((demo / "report.json").read_text())
    r8, books, sst2, cola = found["tasks"]
    row = r8["rows"][0]
    # the share of 2,000 drawings that are right, each with probability 0.94: 0.94 ± 1.96 · √(0.94 · 0.06 / 2000), within four
    # standard errors of a quantile of 1,000 resamples. All seeds are wrong about the same examples.
    assert (row["low"], row["high"]) == (pytest.approx(94.0 - 1.04, abs=0.2), pytest.approx(94.0 + 1.04, abs=0.2))
    shown = {"ours": 94.0, "lowest": 93.7, "highest": 94.1, "seeds": [94.1, 93.7, 94.0]}
    interval = {"low": row["low"], "high": row["high"]}
    assert row == {
        "part": "test",
        "examples": 2000,
        "drawn": 2000,
        "drawn_unit": "texts",
        **shown,
        **interval,
        "untrained": 93.9,
        "untouched": None,
        "tfidf": 96.8,
        "majority": 50.0,
        # always one of eight labels: 1.96 √(1/8 · 7/8 / 2000)
        "chance": pytest.approx(1.45, abs=0.1),
        "metrics": {"accuracy": {"title": "accuracy", **shown, **interval}},
        "not_official": "",
    }
    assert [row["part"] for row in r8["rows"]] == ["test", "dev"]
    assert [row["part"] for row in sst2["rows"]] == ["dev"]  # its test labels are not known
    assert r8["contamination"]["touched"] == 3
    assert cola["wants"] == ["train: train.tsv"]
    assert {row["system"] for row in cola["published"]} >= {"BERT-base", "BERT-large"}
    by_part = {(row["system"], row["split"]): row["difference"] for row in sst2["published"]}
    assert by_part["BERT-base", "dev"] == pytest.approx(78.0 - 92.7)
    assert by_part["BERT-base", "test"] is None  # dev is not compared with test
    assert books["published"] == []


def test_words_say_when_pretraining_did_not_help(demo: Path) -> None:
    words = json.loads((demo / "report.json").read_text())["in_words"]
    masked, pairs, r8, touched, books, touched_books, sst2, together, missing = words
    # examples 7, 70 and 700 are touched, and the two first of them are wrong (all seeds: 120, 126 and 118 or more are)
    assert "3 of 2,000 texts of test share a long run of words" in touched
    assert "Without them it gets 94.1 (9" in touched and "too few to say anything" in touched
    assert "2 of 150 texts of test share" in touched_books
    assert "guesses 12.4 % of the masked words: 2.7 times as many as always guessing" in masked
    assert "not measurably more than" in pairs  # 54.3 against 53.2 % of 280 pairs
    # 94.0 and 93.9 % of 2,000: 1.96 · √((0.94 · 0.06 + 0.939 · 0.061) / 2000) = 1.5 points
    assert "made no measurable difference" in r8
    assert "with 2,000 texts a difference of 0.1 is within chance (up to 1.5)" in r8
    assert "knows no word order, gets more: 96.8" in r8
    assert "Pretraining helped: the same network without it gets 60.0" in books
    assert "gets as much, within chance: 81.0" in books
    assert re.match(r"SST-2: 78.0 points of accuracy on dev \(95 % interval 7\d\.\d–8\d\.\d\)\.", sst2)
    assert together == "So pretraining helped measurably on 1 of 3 tasks: Book excerpts."
    assert missing.startswith("1 task was not run")


@pytest.mark.parametrize(
    ("ours", "untrained", "said"),
    [(0.90, 0.95, "hurt"), (0.95, 0.90, "helped"), (0.95, 0.945, "same"), (0.95, None, None)],
)
def test_verdict(ours: float, untrained: float | None, said: str | None) -> None:
    row = {
        "part": "test",
        "examples": 1000,
        "ours": 100 * ours,
        "lowest": 100 * ours,
        "highest": 100 * ours,
        "untrained": None if untrained is None else 100 * untrained,
        "tfidf": None,
    }
    found = verdict(row, "accuracy", "classification")
    assert found["pretraining"] == said
    assert found["tfidf"] is None


def test_when_nothing_helps_the_held_out_curve_is_named(tmp_path: Path) -> None:
    tasks = {"a": finetuned(tmp_path / "a", "A", ours=[0.9], untrained=0.9, tfidf=0.95)}
    out = make(tmp_path, tasks)
    last = json.loads((out / "report.json").read_text())["in_words"][-1]
    assert "on none of these tasks did pretraining help measurably" in last
    assert "held-out curve" in last


def test_markdown_tables_hold_together(demo: Path) -> None:
    text = (demo / "report.md").read_text()
    rendered = markdown.markdown(text, extensions=["tables"])
    for title in ("Reuters R8", "Book excerpts", "SST-2", "CoLA"):
        assert f"<td>{title}</td>" in rendered
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table
    assert re.search(
        r"\| 94\.0 \| 9\d\.\d–9\d\.\d \| 93\.7–94\.1 \| 3 \| 93\.9 \| 96\.8 \| 50\.0 \| 3 of 1,500 \(0\.2 %\) \|", text
    )
    assert "train: train.tsv" in text


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(out: Path) -> Page:
    page = Page()
    page.feed((out / "report.html").read_text())
    return page


def test_page_stands_alone_and_shows_every_plot(demo: Path) -> None:
    page = read_page(demo)
    # four curves of pretraining, the comparison, and the loss and the spread of each task that ran
    assert page.tags.count("svg") == 4 + 1 + 2 * 3
    assert len(page.ids) == len(set(page.ids))
    source = (demo / "report.html").read_text()
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "#010203" not in source
    assert "url(http" not in source
    assert len(source) < 400_000


def test_the_same_bytes_again(demo: Path) -> None:
    base = demo.parent
    inputs = {"pretrained": base / "pretrained", "contamination": base / "contamination"}
    tasks = ("r8", "books", "sst2", "cola")
    again = base / "again"
    again.mkdir()
    inputs |= {f"finetuned_{task}": base / task for task in tasks}
    report.make_report(inputs, ReportConfig(recipe="demo", description="Tiny BERT.", tasks=tasks), again)
    written = sorted(path.relative_to(again).as_posix() for path in again.rglob("*") if path.is_file())
    assert written == [
        *(f"examples/{task}.parquet" for task in ("books", "r8", "sst2")),
        "leaderboards/glue.zip",
        *("report.html", "report.json", "report.md"),
    ]
    for name in written:
        assert (again / name).read_bytes() == (demo / name).read_bytes()


HOSTILE = '<script>alert("1")</script> | `x` **b** [l](javascript:0) $\\frac{1}$ & ü\n# h'


def test_text_from_data_is_never_markup(tmp_path: Path) -> None:
    tasks = {
        "a": finetuned(tmp_path / "a", HOSTILE, ours=[0.9], untrained=0.9, tfidf=0.9, labels=(HOSTILE, "ok")),
        "b": not_run(tmp_path / "b", HOSTILE),
    }
    out = make(tmp_path, tasks, words=HOSTILE, description=HOSTILE)
    page = read_page(out)
    assert "script" not in page.tags
    assert page.text.count(HOSTILE.split("\n")[0]) >= 6
    rendered = markdown.markdown((out / "report.md").read_text(), extensions=["tables"])
    for markup in ("<script", "<strong>", "<a ", "<code>x", "<h1>h"):
        assert markup not in rendered
    assert rendered.count("alert(") >= 4
    widths = [line.count("<td") for line in rendered.split("<tr>") if "alert(" in line and "<td" in line]
    assert widths and set(widths) <= {12, 11, 14, 4, 3, 7}  # a title with | stays in its own cell


def test_a_task_that_failed_is_named_with_its_reason(tmp_path: Path) -> None:
    why = "tickets.csv has no column 'text'"
    tasks = {
        "tickets": failed(tmp_path / "a", "Tickets", why),
        "rte": failed(tmp_path / "b", "RTE", why),
        "cola": not_run(tmp_path / "c"),
    }
    out = make(tmp_path, tasks)
    found = json.loads((out / "report.json").read_text())
    assert [task["failed"] for task in found["tasks"]] == [True, True, False]
    assert found["in_words"][-3:-1] == [f"Tickets failed: {why}.", f"RTE failed: {why}."]
    assert found["in_words"][-1].startswith("1 task was not run")
    assert found["leaderboards"]["glue"]["missing"]["RTE.tsv"] == f"failed: {why}"
    assert found["leaderboards"]["glue"]["missing"]["CoLA.tsv"].startswith("not run: ")
    text = (out / "report.md").read_text()
    assert "| Tickets | failed |" in text and "| CoLA | not run |" in text and "## Not run, or failed\n" in text
    assert "Not run, or failed" in read_page(out).text
    statistics = json.loads((out.parent / "statistics.json").read_text())
    assert (statistics["tasks_not_run"], statistics["tasks_failed"]) == (3, 2)
    assert [row["score"] for row in statistics["table"]] == ["failed", "failed", "not run"]


def test_without_sentence_pairs_and_without_tasks(tmp_path: Path) -> None:
    out = make(tmp_path, {}, nsp="none")
    text = (out / "report.md").read_text()
    assert "sentence pairs" not in text
    assert "## Tasks" not in text
    assert read_page(out).tags.count("svg") == 2


def test_statistics_for_the_ui(demo: Path) -> None:
    statistics = json.loads((demo.parent / "statistics.json").read_text())
    assert (statistics["tasks_not_run"], statistics["tasks_failed"]) == (1, 0)
    assert statistics["r8_accuracy"] == 94.0
    assert [row["score"] for row in statistics["table"]] == [94.0, 83.0, 78.0, "not run"]
    assert len({tuple(row) for row in statistics["table"]}) == 1  # every row has the columns of the first
    assert statistics["table"][2]["published"] == "92.7 (BERT-base)"


def test_a_missing_input_is_named(tmp_path: Path) -> None:
    inputs = {"pretrained": pretrained(tmp_path / "p"), "contamination": contamination(tmp_path / "c")}
    with pytest.raises(DataError, match="no input finetuned_rte"):
        report.make_report(inputs, ReportConfig(recipe="demo", tasks=("rte",)), tmp_path)
    (tmp_path / "p" / "held_out.json").unlink()
    with pytest.raises(DataError, match=r"held_out\.json can't be read"):
        report.make_report(inputs, ReportConfig(recipe="demo"), tmp_path)


def test_what_a_recipe_says_was_published_stands_beside_its_task(tmp_path: Path) -> None:
    folder = finetuned(tmp_path / "mine", "Mine", ours=[0.8], untrained=None, tfidf=None)
    row = {"system": "ESIM", "split": "test", "metric": "accuracy", "points": 71.5, "source": "our paper"}
    path = folder / "scores.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"published": [row]}))
    found = json.loads((make(tmp_path, {"mine": folder}) / "report.json").read_text())
    ((shown,),) = (task["published"] for task in found["tasks"])
    assert (shown["system"], shown["points"], shown["difference"]) == ("ESIM", 71.5, pytest.approx(8.5))


# ── every kind of task ───────────────────────────────────────────────────────────────────────────────────────────────


def grid(metric: str, medians: list[float]) -> dict[str, Any]:
    variants = [
        {
            "settings": {"learning_rate": rate, "batch_size": 32, "epochs": 3},
            "seeds": [
                {"seed": 42},
                {"seed": 43, "diverged": "no loss below that of chance"} if rate > 4e-5 else {"seed": 43},
            ],
            "summary": {"dev": {metric: vars(metrics.spread([median, median - 0.02, median + 0.01]))}, "test": None},
        }
        for rate, median in zip((5e-5, 3e-5, 2e-5), medians, strict=True)
    ]
    return {"variants": variants, "chosen": 1}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six kinds of tasks with their data, on a model made elsewhere."""
    base = tmp_path_factory.mktemp("kinds")
    nli = ["entailment", "neutral", "contradiction"]
    f1 = {"metric": "f1", "names": ("f1", "accuracy"), "pairs": True}
    folders = [
        made_up.classes(
            base, "cola", "CoLA", ["no", "ok"], (0.8, 0.9, 0.5), {"dev": 300}, **grid("accuracy", [0.7, 0.8, 0.75])
        ),
        made_up.classes(base, "mrpc", "MRPC", ["no", "yes"], (0.8, 0.85), {"dev": 200, "test": 300}, **f1),
        made_up.classes(base, "mnli", "MNLI (matched)", nli, (0.8,), {"dev": 300, "dev_mismatched": 310}, pairs=True),
        made_up.scores(base, "stsb", "STS-B", (0.7, 0.9), {"dev": 200}),
        made_up.classes(base, "swag", "SWAG", ["0", "1", "2", "3"], (0.7, 0.8), {"dev": 200}, choices=True),
        made_up.tags(base, "people", "People", (0.95, 0.97), {"dev": 300, "test": 100}),
        made_up.spans(base, "squad1_1", "SQuAD 1.1", (0.8, 0.7), 600),
        made_up.spans(base, "squad2_0", "SQuAD 2.0", (0.8,), 400),
    ]
    diverged = folders[0] / "scores.json"
    plain = json.loads(diverged.read_text())
    plain["seeds"][2]["diverged"] = "it learned nothing"
    diverged.write_text(json.dumps(plain))
    imported = base / "imported"
    imported.mkdir()
    described = {"architecture": Architecture().plain(), "vocabulary_size": 30522, "sentence_task": "none"}
    (imported / "config.json").write_text(json.dumps(described))
    (imported / "told.json").write_text("{}")
    inputs = {"pretrained": imported} | {path.name: path for path in (*folders, *base.glob("task_data_*"))}
    # AX: the model of another task predicts it, and nobody knows the answers
    ax = base / "finetuned_ax"
    (ax / "predictions").mkdir(parents=True)
    nothing = {"task": "ax", "title": "AX", "kind": "pair_classification", "metric": "matthews", "labels": nli}
    scores = {**nothing, "sizes": {"test": 1104}, "summary": {"test": None}, "seeds": [], "model_of": "mnli"}
    (ax / "scores.json").write_text(json.dumps(scores))
    table = pa.table({"example_id": [str(n) for n in range(1104)], "prediction": ["neutral"] * 1104})
    pq.write_table(table, ax / "predictions" / "test-seed-42.parquet")
    inputs["finetuned_ax"] = ax
    out = base / "out"
    out.mkdir()
    tasks = tuple(name.removeprefix("finetuned_") for name in inputs if name.startswith("finetuned_"))
    statistics = report.make_report(inputs, ReportConfig(recipe="kinds", tasks=tasks), out)
    (base / "statistics.json").write_text(json.dumps(statistics))
    return out


def entries(out: Path) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in json.loads((out / "report.json").read_text())["tasks"]}


def test_every_kind_has_its_scores_intervals_and_errors(kinds: Path) -> None:
    found = entries(kinds)
    for name, task in found.items():
        for row in task["rows"]:
            for metric, score in row["metrics"].items():
                assert score["low"] < score["ours"] < score["high"], (name, row["part"], metric)
        assert name == "ax" or len(task["errors"]) == 10
    drawn = {
        name: (task["rows"][0]["drawn"], task["rows"][0]["drawn_unit"]) for name, task in found.items() if task["rows"]
    }
    assert drawn == {
        "cola": (300, "texts"),
        "mrpc": (300, "pairs of texts"),
        "mnli": (300, "pairs of texts"),
        "stsb": (200, "examples"),
        "swag": (200, "questions"),
        "people": (100, "sentences"),  # ten documents are too few to be drawn
        "squad1_1": (24, "articles"),
        "squad2_0": (400, "questions"),
    }
    assert [row["part"] for row in found["mnli"]["rows"]] == ["dev", "dev_mismatched"]
    assert [row["drawn"] for row in found["people"]["rows"]] == [100, 30]
    assert set(found["mrpc"]["rows"][0]["metrics"]) == {"f1", "accuracy"}
    # the paper's dev score of MRPC is an accuracy, so it stands beside our accuracy, not our F1
    (beside,) = (row for row in found["mrpc"]["published"] if row["split"] == "dev")
    assert beside["ours"] == found["mrpc"]["rows"][1]["metrics"]["accuracy"]["ours"]


def test_a_task_without_known_answers_is_predicted_and_said_so(kinds: Path) -> None:
    assert entries(kinds)["ax"]["rows"] == []
    content = json.loads((kinds / "report.json").read_text())
    by = "AX: predicted by the model of MNLI (matched), but not scored, since the answers are not known."
    assert by in content["in_words"]
    shown = json.loads((kinds.parent / "statistics.json").read_text())
    row = next(row for row in shown["table"] if row["task"] == "AX")
    assert (row["part"], row["score"]) == ("test", "predicted by the model of MNLI (matched), answers not known")
    assert shown["tasks_not_run"] == 0
    assert content["leaderboards"]["glue"]["files"] == ["AX.tsv"]
    assert content["leaderboards"]["glue"]["missing"]["MRPC.tsv"] == "300 of its 1,725 test examples are predicted"
    assert not (kinds / "examples" / "ax.parquet").exists()
    assert pq.read_metadata(kinds / "examples" / "mnli.parquet").num_rows == 610


def test_a_grid_and_what_diverged_are_shown(kinds: Path) -> None:
    variants = entries(kinds)["cola"]["variants"]
    assert [(row["median"], row["chosen"], len(row["diverged"])) for row in variants["rows"]] == [
        (70.0, False, 1),
        (80.0, True, 0),
        (75.0, False, 0),
    ]
    text = (kinds / "report.md").read_text()
    assert "| learning rate | batch size | epochs | dev | lowest–best | seeds | diverged | |" in text
    assert "| 3e-05 | 32 | 3 | 80.0 | 78.0–81.0 | 2 |  | chosen |" in text
    assert "CoLA: 1 of 3 seeds diverged (seed 44: it learned nothing)." in " ".join(read_page(kinds).text.split())


def test_a_class_token_that_was_never_trained_is_warned_of(kinds: Path, demo: Path, tmp_path: Path) -> None:
    warnings = json.loads((kinds / "report.json").read_text())["warnings"]
    assert sum("[CLS] may never have been trained before fine-tuning" in warning for warning in warnings) == 1
    assert json.loads((demo / "report.json").read_text())["warnings"] == []  # pooling: mean


def test_words_fit_every_kind(kinds: Path) -> None:
    told = {name: (task["constant"], task["no_tfidf"]) for name, task in entries(kinds).items()}
    assert told["stsb"][0] == "always 2.53, the mean of the scores in train: a constant has no correlation"
    assert told["people"][0] == "every word is O, the most frequent tag in train"
    assert told["swag"][0] == "always choice 0, where the right one stands most often in train"
    assert told["squad1_1"][0] == "there is no answer that fits every question"
    assert told["cola"][1] == "the recipe does not ask for it (baselines: [tfidf])"
    assert told["swag"][1].endswith("no answer to a task of multiple choice")
    for text in ((kinds / "report.md").read_text(), read_page(kinds).text):
        assert "most frequent label" in text and "it labels whole texts one by one" in text
        assert "GLUE average" in text


def test_glue_averages_name_what_is_missing(kinds: Path) -> None:
    glue = json.loads((kinds / "report.json").read_text())["glue"]
    (paper,) = (row for row in glue["dev"] if row["name"] == "paper")
    assert paper["points"] is None
    assert set(paper["missing"]) == {"QQP", "QNLI", "SST-2", "CoLA", "RTE"}  # CoLA has no Matthews correlation here


def test_questions_and_answers_are_never_markup(tmp_path: Path) -> None:
    folder = made_up.spans(tmp_path, "squad1_1", "SQuAD 1.1", (0.5,), 100)
    data = tmp_path / "task_data_squad1_1"
    rows = pq.read_table(data / "dev.parquet").to_pylist()
    pq.write_table(pa.Table.from_pylist([row | {"question": HOSTILE} for row in rows]), data / "dev.parquet")
    path = folder / "predictions" / "dev-seed-42.parquet"
    predicted = [row | {"prediction": HOSTILE, "answers": [HOSTILE]} for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(predicted), path)
    out = tmp_path / "out"
    out.mkdir()
    report.make_report(
        {"finetuned_squad1_1": folder, data.name: data}, ReportConfig(recipe="spans", tasks=("squad1_1",)), out
    )
    page = read_page(out)
    assert "script" not in page.tags
    assert page.text.count('<script>alert("1")</script>') == 3 * 10
    rendered = markdown.markdown((out / "report.md").read_text(), extensions=["tables"])
    for markup in ("<script", "<strong>", "<a ", "<h1>h"):
        assert markup not in rendered
    assert rendered.count("alert(") == 3 * 3
    assert {line.count("<td") for line in rendered.split("<tr>") if "alert(" in line} == {4}


def test_the_worst_errors_stand_in_markdown_too(kinds: Path) -> None:
    text = (kinds / "report.md").read_text()
    for title, task in ((task["title"], task) for task in entries(kinds).values() if task["errors"]):
        section = text.partition(f"## {title}: what of dev seed {task['published_seed']} got most wrong")[2]
        rows = [line for line in section.partition("\n\n")[2].partition("\n\n")[0].splitlines() if line[:1] == "|"]
        assert len(rows) == 2 + 3
        for row, found in zip(rows[2:], task["errors"], strict=False):
            assert escape_markdown(found["answer"]) in row and escape_markdown(found["prediction"]) in row
            assert all(escape_markdown(words) in row for words in found["texts"]) and found["how"] in row
        assert f"3 of the 10 in report.html; of every example and seed: `examples/{task['task']}.parquet`." in section


def test_a_bound_of_chance_counts_what_is_independent(kinds: Path) -> None:
    """Words of a sentence are not independent: the bound comes of resampled sentences, not of the number of words."""
    row = entries(kinds)["people"]["rows"][0]
    low, high = row["metrics"]["accuracy"]["low"], row["metrics"]["accuracy"]["high"]
    seeds = row["metrics"]["accuracy"]["seeds"]
    told = {**row, **row["metrics"]["accuracy"], "untrained": row["metrics"]["accuracy"]["ours"] - 0.5, "chance": 0.1}
    found = verdict(told, "accuracy", "tagging")
    ours = told["ours"]
    assert found["noise"] == pytest.approx(
        max(2**0.5 * (high - low) / 2, max(seeds) - ours, ours - min(seeds)), abs=0.01
    )


def test_the_loss_is_that_of_the_chosen_combination(tmp_path: Path) -> None:
    folder = finetuned(tmp_path / "a", "A", ours=[0.9], untrained=0.8, tfidf=None)
    path = folder / "scores.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | grid("accuracy", [0.7, 0.9, 0.8])))
    rows = [
        {"run_step": 10, "network": network, "variant": variant, "seed": seed, "loss": 1.0 + variant + seed / 10}
        for network in ("pretrained", "untrained")
        for variant in range(3)
        for seed in (0, 2)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curves = report._loss_curves(folder)
    assert curves == {"pretrained": [(10, pytest.approx(2.1))], "untrained": [(10, pytest.approx(1.1))]}


def test_a_sub_sample_of_a_public_task_is_compared_with_nothing(tmp_path: Path) -> None:
    """SST-2's dev has 872 examples officially; a part that was split off from train is none of it either."""
    told = {"official_counts": {"train": 67349, "dev": 872}, "counts": {"train": 4920, "dev": 560, "test": 2000}}
    dropped = {"dev: empty text": 2, "dev: malformed record": 9}
    assert not_official({**told, "dropped": dropped}) == {
        "train": "4,920 examples, officially 67,349",
        "dev": "562 examples, officially 872",
        "test": "2,000 examples, split off from train",
    }
    exact = {"official_counts": {"train": 4920, "dev": 562}, "counts": {"train": 4920, "dev": 560, "test": 0}}
    assert not_official({**exact, "dropped": dropped}) == {}
    assert not_official({"counts": {"dev": 9}, "dropped": {}}) == {}, "a task of one's own"
    folder = finetuned(tmp_path / "finetuned_sst2", "SST-2", ours=[0.9], untrained=None, tfidf=None, test_labels=False)
    data = tmp_path / "task_data_sst2"
    data.mkdir()
    (data / "task.json").write_text(json.dumps({**told, "dropped": {}}))
    ids = pq.read_table(folder / "predictions" / "dev-seed-42.parquet")["example_id"]
    texts = pa.array(["a text"] * len(ids))
    pq.write_table(
        pa.table({"example_id": ids, "text_a": texts, "text_b": pa.nulls(len(ids), pa.string())}), data / "dev.parquet"
    )
    result = task_result("sst2", {"finetuned_sst2": folder, "task_data_sst2": data}, {})
    assert result.measured == {}, "so it counts in no average"
    assert all(row["difference"] is None for row in result.entry["published"])
    assert any(row["split"] == "dev" for row in result.entry["published"])
    (warning,) = report_words.warnings([result.entry], {})
    assert "dev is not the official one (560 examples, officially 872). No published score is its peer" in warning
    source = results_card.Source(recipe="mine", release="", date="")
    assert results_card.eval_results([result.entry], source) == {}
    card = results_card.of_finetuned(result.entry, source, "")
    assert "dev, not the official one: 560 examples, officially 872" in card
    assert "nyu-mll/glue" not in card
    diverged = {**result.entry, "diverged": [{"seed": 42, "why": "not finite"}]}
    assert "SST-2: 1 of 1 seeds diverged (seed 42: not finite)." in results_card.of_finetuned(diverged, source, "")


def test_negative_scores_and_intervals_are_readable_everywhere(tmp_path: Path) -> None:
    """A hyphen, or a dash before a minus sign, would read as another number."""
    opposite = made_up.scores(tmp_path, "mine", "Mine", (0.7, 0.9), {"dev": 60}, train=90)
    scores = json.loads((opposite / "scores.json").read_text())
    for run in scores["seeds"]:
        table = pq.read_table(opposite / "predictions" / f"dev-seed-{run['seed']}.parquet").to_pydict()
        table["prediction"] = [-value for value in table["prediction"]]
        pq.write_table(pa.table(table), opposite / "predictions" / f"dev-seed-{run['seed']}.parquet")
        run["dev"] = {name: -value for name, value in run["dev"].items()}
    for name in ("spearman", "pearson"):
        values = [run["dev"][name] for run in scores["seeds"]]
        scores["summary"]["dev"][name] = vars(metrics.spread(values))
    (opposite / "scores.json").write_text(json.dumps(scores))
    out = tmp_path / "out"
    out.mkdir()
    inputs = {"finetuned_mine": opposite, "task_data_mine": tmp_path / "task_data_mine"}
    statistics = report.make_report(inputs, ReportConfig(recipe="mine", tasks=("mine",)), out)
    (entry,) = entries(out).values()
    row = entry["rows"][0]
    told = f"−{abs(row['low']):.1f} to −{abs(row['high']):.1f}"
    shown = re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]*>", " ", (out / "report.html").read_text(), flags=re.DOTALL)
    card = results_card.of_finetuned(entry, results_card.Source("mine", "", ""), "").partition("---\n# ")[2]
    for text in (shown, (out / "report.md").read_text(), card):
        assert told in text and f"−{abs(row['ours']):.1f}" in text
        assert not re.search(r"(?<![\w:])[–-]\d|–−|[–-]-\d", text)
    assert statistics["table"][0]["interval"] == told


def test_settings_of_every_task_stand_in_page_and_markdown(tmp_path: Path) -> None:
    people = made_up.tags(tmp_path, "people", "People", (0.95,), {"dev": 60})
    cola = made_up.classes(tmp_path, "cola", "CoLA", ["no", "ok"], (0.8,), {"dev": 100})
    frozen = {"encoder": "frozen", "layers": "last", "bilstm": {"hidden": 64, "layers": 2}, "pooling": "tokens"}
    path = people / "scores.json"
    scores = json.loads(path.read_text())
    path.write_text(json.dumps({**scores, "hyperparameters": {**scores["hyperparameters"], **frozen}}))
    out = make(tmp_path, {"people": people, "cola": cola})
    page = re.sub(r"<[^>]*>", " ", (out / "report.html").read_text())
    for text in (page, (out / "report.md").read_text()):
        of_settings = re.sub(r"[\s|]+", " ", text.partition("Data and settings")[2])
        assert (
            "encoder layers read BiLSTM pooling long texts learning rate epochs batch warm-up weight decay"
            in of_settings
        )
        assert "frozen last 2 layers of 64 – rows of 128 tokens 3e-05 3 32 10 % 0.01 0.1 fp32" in of_settings
        assert "– – – cls cut off at 128 tokens (17 of train) 3e-05 3 32 10 % 0.01 0.1 fp32" in of_settings
