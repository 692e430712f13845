"""`bert audit` answers from records, as JSON, text and a page; Dagster's asset pages lead there."""

import copy as copies
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from assets.audits.audit_page import audit_page
from assets.audits.audit_text import audit_text
from assets.audits.auditing import audited
from pipeline.store import Record
from tests.assets.bertcli import World
from tests.conftest import ROOT

_EMPTY = ("meta", "rect", "path", "br")


class Page(HTMLParser):
    """Tags with their attributes, and the visible text; fails for what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def pointed(world: World, asset: str) -> Record:
    record = world.store.pointer("tiny", asset)
    assert record is not None
    return record


@pytest.fixture(scope="module")
def found(made: World) -> dict[str, Any]:
    return dict(made.json("audit", "tiny/benchmark_report"))


def test_the_bytes_the_sources_and_the_books(made: World, found: Mapping[str, Any]) -> None:
    files = {file["name"]: file for file in found["files"]}
    text = made.folder / "text"
    for name in ("tinywiki.xml.bz2", "book3.txt", "places.csv"):
        (path,) = text.rglob(name)
        assert files[name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert files[name]["size_bytes"] == path.stat().st_size
    sources = {source["source"]: source for source in found["sources"]}
    assert sources["wikipedia"]["licences"] == ["CC-BY-SA-4.0"] and sources["books"]["licences"] == ["public domain"]
    assert sources["wikipedia"]["documents_kept"] == 40, "tests/tiny.py: 40 articles, a redirect, a talk page"
    (shelf,) = found["books"]
    assert shelf["licences"] == {"public domain": 8} and len(shelf["books"]) == 8


def test_every_account_comes_to_zero_and_waivers_are_none_recorded(found: Mapping[str, Any]) -> None:
    accounts = {(each["asset"], each["source"]): each for each in found["removed"]}
    assert all(each["adds_up"] is True for each in accounts.values())
    assert accounts["wikipedia_text", ""]["removed"] == {"other_namespace": 1, "redirect": 1}
    assert accounts["pretraining_shards_32", ""]["out"] == 48
    assert all(each["lost_in_between"] in (None, 0) for each in accounts.values())
    assert all(each["checks"] and not each["waivers"] for each in found["checks"])
    assert "waivers: none recorded" in audit_text(dict(found))


def test_training_code_and_what_is_unknown(made: World, found: Mapping[str, Any]) -> None:
    training = {each["asset"]: each for each in found["training"]}
    assert set(training) == {"pretrained_32", "pretrained_64", "finetuned_places"}, "CoLA has no data"
    first = training["pretrained_32"]
    assert (first["begun"], first["steps"], first["resume_count"], first["loss_spikes"]) == ("scratch", 30, 0, 0)
    (start,) = first["timeline"]["starts"]
    assert start["step"] == 0 and start["resumed"] is False and start["device"] == "cpu"
    assert first["timeline"]["checkpoints"]["last_step"] == 30
    workings = {each["asset"]: each for each in found["workings"]}
    record = pointed(made, "documents")
    assert workings["documents"]["libraries"] == record.body["libraries"]
    assert workings["documents"]["commit"] == (record.body["git"]["commit"] or "unknown")
    assert "source wikipedia: date" in found["unknown"], "a local dump has no date of its own"


def test_what_is_made_of_a_source_is_named(made: World, found: Mapping[str, Any]) -> None:
    assert found["affected"] == ["tiny/benchmark_report"]
    below = made.json("audit", "tiny/books_files")["affected"]
    everything = {f"tiny/{path.stem}" for path in (made.home / "assets" / "tiny").glob("*.json")}
    others = {"wikipedia_dump", "wikipedia_text", "task_data_places", "task_data_cola"}
    assert set(below) == everything - {f"tiny/{name}" for name in others}


def test_contamination_comes_with_scores(found: Mapping[str, Any]) -> None:
    parts = {(row["task"], row["part"]): row for row in found["contamination"]}
    assert set(parts) == {("places", "test"), ("places", "dev")}, "CoLA has no data"
    assert (parts["places", "test"]["texts"], parts["places", "dev"]["texts"]) == (36, 9)
    assert parts["places", "test"]["all"] == parts["places", "test"]["untouched"] is not None
    assert parts["places", "test"]["alone"] is parts["places", "dev"]["all"] is None, "0 and 9 examples are too few"
    assert "accuracy: all " in audit_text(dict(found)) and "the touched alone too few to say" in audit_text(dict(found))


def test_an_old_record_without_timeline_says_so(made: World) -> None:
    told = audited(made.store, pointed(made, "release"))
    for training in told["training"]:
        training["timeline"] = "unknown"
    assert "timeline unknown: the record is of before timelines were kept" in audit_text(told)


def test_the_page_needs_nothing_else_and_shows_everything(made: World, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    assert made.bert("audit", "tiny/benchmark_report", "--html", str(file)).strip() == str(file)
    page = Page(file.read_text(encoding="utf-8"))
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        links = [attributes.get(name) for name in ("href", "src") if name in attributes]
        assert all(link and link.startswith("#") for link in links), links
        assert not any(name.startswith("on") for name in attributes)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {link["href"] for link in page.named("a")} <= {f"#{each}" for each in ids}
    assert len(page.named("rect")) == 16, "a box for every artifact of the chain but the release, which is not in it"
    record = pointed(made, "benchmark_report")
    for shown in (record.version, record.digest, "redirect 1", "comes to 0", "None recorded", "began at step 0"):
        assert shown in page.text, shown
    assert file.read_text(encoding="utf-8").count("http") == 1, "the name of SVG's namespace"


def test_text_from_data_is_escaped_and_isolated(made: World) -> None:
    told = copies.deepcopy(audited(made.store, pointed(made, "benchmark_report")))
    hostile, arabic = "</text><script>alert(1)</script>", "ويكيبيديا"
    for step in told["chain"]:
        if step["asset"] == "wikipedia_dump":
            step["asset"], step["user"] = arabic, hostile
        if step["asset"] == "books_files":
            step["recipe"] = hostile
    told["files"][0]["name"] = f"{hostile}{arabic}"
    told["checks"][0]["waivers"] = [
        {"check": "c", "reason": f"{hostile} {arabic}", "by": "ann", "time": "now", "recorded_in": "records/x.json"}
    ]
    text = audit_page(told)
    page = Page(text)
    assert page.named("script") == [] and "alert(1)" in page.text
    assert f"\u2068{arabic}\u2069" in text, "in SVG, which has no <bdi>"
    assert f"<bdi>{arabic}</bdi>" in text
    assert text.count("<bdi>") == text.count("</bdi>") >= 3
    assert "None recorded" not in page.text


def test_an_account_that_does_not_add_up_is_seen_at_once(made: World) -> None:
    told = copies.deepcopy(audited(made.store, pointed(made, "documents")))
    told["removed"][1] |= {"out": 41, "difference": -1, "adds_up": False}
    assert "wikipedia_text, pages: DOES NOT ADD UP: -1 pages" in audit_text(told)
    assert "1 do not" in Page(audit_page(told)).text


def test_the_answers_need_no_dagster_and_no_content_but_the_list_of_books(made: World, tmp_path: Path) -> None:
    world = made.copy(tmp_path / "copy")
    before = world.json("audit", "tiny/release")
    for folder in (world.home / "store").glob("*/*"):
        for path in folder.rglob("*"):
            if path.is_file() and path.name not in ("manifest.json", "books.parquet"):
                path.unlink()
    assert world.json("audit", "tiny/release") == before


def test_a_page_of_documents_is_refused(made: World, tmp_path: Path) -> None:
    told = made.bert("audit", "tiny/release", "--document", "x", "--html", str(tmp_path / "a.html"), code=1)
    assert "--html is of a whole audit" in told and not (tmp_path / "a.html").exists()
    missing = made.bert("audit", "tiny/release", "--html", "/proc/none/a.html", code=1)
    assert "error: " in missing and "Traceback" not in missing


def test_the_pages_of_assets_in_dagster_name_the_audit(made: World) -> None:
    code = (
        "import dagster as dg, json\n"
        "with dg.DagsterInstance.get() as i:\n"
        "    events = {a: i.get_latest_materialization_event(dg.AssetKey(['tiny', a])).asset_materialization\n"
        "              for a in ('release', 'benchmark_report', 'documents')}\n"
        "    shown = {a: {n: v.value for n, v in e.metadata.items() if n.startswith('audit')} for a, e in events.items()}\n"
        "    tags = {a: e.tags['dagster/data_version'] for a, e in events.items()}\n"
        "print(json.dumps([shown, tags]))"
    )
    environment = {**made.environment, "DAGSTER_HOME": str(made.home / "dagster")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    shown, versions = json.loads(done.stdout.splitlines()[-1])
    assert {name: each["audit"] for name, each in shown.items()} == {n: f"bert audit tiny/{n}" for n in shown}
    assert "audit_page" not in shown["documents"]
    for name in ("release", "benchmark_report"):
        record = pointed(made, name)
        page = Path(shown[name]["audit_page"])
        assert page.name == f"{name}-{record.digest[:12]}.html"
        assert record.version in page.read_text(encoding="utf-8")
        assert versions[name] == record.version
