"""Text that runs from right to left moves nothing beside it, in pages and in Markdown."""

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model import comparison, report
from model.exporting import results_card
from model.reporting.isolated import in_page, isolated, moves
from pipeline.config import ComparisonConfig, ReportConfig
from tests.model import made_up
from tests.model.test_comparison import finetuned
from tests.model.test_report import make

HEBREW, ARABIC = "משימה 12 (א)", "مهمة ٣: نعم"
OVERRIDE = "\u202eabc\u2069 \u2067"
"""turns round what follows, ends an isolation that it did not begin, and begins one that it does not end"""


class Apart(html.parser.HTMLParser):
    """Collects text that runs from right to left and stands neither in <bdi> nor alone in an element of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loose: list[str] = []
        self.isolated: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "use", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "bdi" in self.open and moves(outside(data)):
            self.isolated.append(data)
        # a <text> of a plot and a page's <title> hold nothing else
        if not {"bdi", "text", "title"} & set(self.open) and moves(outside(data)):
            self.loose.append(data)


def outside(text: str) -> str:
    """What stands outside all isolations."""
    kept, depth = "", 0
    for character in text:
        depth += character in "\u2066\u2067\u2068"
        kept += "" if depth else character
        depth -= character == "\u2069"
    assert depth == 0, f"an isolation that does not end, or that nothing began: {text!a}"
    return kept


def read_apart(path: Path) -> Apart:
    page = Apart()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def renamed(folder: Path, title: str, labels: dict[str, str], **more: Any) -> Path:
    """The same task under another title and other labels."""
    scores = json.loads((folder / "scores.json").read_text())
    scores |= {"title": title, "labels": [labels.get(label, label) for label in scores["labels"]], **more}
    if label := scores["baselines"].get("majority", {}).get("label"):
        scores["baselines"]["majority"]["label"] = labels.get(label, label)
    (folder / "scores.json").write_text(json.dumps(scores))
    for path in (folder / "predictions").iterdir():
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            for name in ("label", "prediction"):
                row[name] = labels.get(row[name], row[name])
        named = [{name.replace("p_no", f"p_{HEBREW}"): value for name, value in row.items()} for row in rows]
        pq.write_table(pa.Table.from_pylist(named), path)
    return folder


@pytest.mark.parametrize("title", [HEBREW, ARABIC, OVERRIDE])
def test_nothing_in_a_report_is_moved(tmp_path: Path, title: str) -> None:
    published = [{"system": title, "split": "dev", "metric": "accuracy", "points": 71.5, "source": title}]
    tasks = {
        "a": made_up.classes(tmp_path, "a", title, ["no", "yes"], (0.8, 0.7), {"dev": 60}),
        "b": made_up.tags(tmp_path, "b", title, (0.9,), {"dev": 60}),
        "c": made_up.spans(tmp_path, "c", title, (0.5,), 60),
    }
    renamed(tasks["a"], title, {"no": HEBREW}, published=published)
    renamed(tasks["b"], title, {"B-PER": "B-אדם", "I-PER": "I-אדם"})
    (tmp_path / "d").mkdir()
    wanted = {"title": title, "why": title, "wants": [title, ARABIC]}
    (tmp_path / "d" / "not_run.json").write_text(json.dumps(wanted))
    data = tmp_path / "task_data_c"
    rows = [row | {"question": title} for row in pq.read_table(data / "dev.parquet").to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows), data / "dev.parquet")
    out = make(tmp_path, {**tasks, "d": tmp_path / "d"}, words=title, description=title)
    page = read_apart(out / "report.html")
    assert page.loose == [] and len(page.isolated) > 20
    # where more is said in one element, the text from data is isolated once more
    assert set(page.isolated) <= {title, HEBREW, "\u202eabc "}
    for line in (out / "report.md").read_text().splitlines():
        assert not moves(outside(line)), ascii(line)
    for entry in json.loads((out / "report.json").read_text())["tasks"][:3]:
        card = results_card.of_finetuned(entry, results_card.Source("mine", "", ""), "").split("---\n")[2]
        assert not moves(outside(card))


def test_nothing_in_a_comparison_is_moved(tmp_path: Path) -> None:
    columns = [{"name": "a", "title": HEBREW, "metric": "tasks.mnli.dev.accuracy", "format": "points"}]
    rows = [{"label": ARABIC, "recipes": ["x"], "published": {"a": 1.5}}]
    told = {"name": "n", "title": HEBREW, "description": OVERRIDE, "source": HEBREW, "columns": columns, "rows": rows}
    config = ComparisonConfig.model_validate_json(json.dumps(told))
    comparison.make_comparison({"x/finetuned_mnli": finetuned(tmp_path / "x", 0.9)}, config, tmp_path)
    page = read_apart(tmp_path / "comparison.html")
    assert page.loose == [] and len(page.isolated) >= 6
    assert not moves(outside((tmp_path / "comparison.md").read_text()))


def test_what_moves_nothing_stands_as_it_is() -> None:
    for text in ("", "abc 12", "日本語", "é – 95 %"):
        assert isolated(text) == text and in_page(text) == text
    assert in_page(12) == 12
    assert in_page(f"<b>{HEBREW}") == f"<bdi>&lt;b&gt;{HEBREW}</bdi>"
    assert not re.search("[\u2066-\u2069]", in_page(OVERRIDE)) and "\u202e" in in_page(OVERRIDE), "closed by </bdi>"
    assert isolated(isolated(HEBREW) + " 12") == f"\u2068\u2068{HEBREW}\u2069 12\u2069"


def test_a_page_made_of_a_title_with_numbers_behind_it(tmp_path: Path) -> None:
    folder = made_up.classes(tmp_path, "a", HEBREW, ["no", "yes"], (0.8,), {"dev": 60})
    report.make_report({"finetuned_a": folder}, ReportConfig(recipe="demo", tasks=("a",)), tmp_path)
    (sentence, *_) = json.loads((tmp_path / "report.json").read_text())["in_words"]
    assert sentence.startswith(f"\u2068{HEBREW}\u2069: ")
