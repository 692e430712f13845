"""Words that somebody chose to do harm, on their way from titles, names and labels into files, cards, reports, pages and logs."""

import csv
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from tests.hostile.wild import CANARY, FILES, MARKUP, SECRETS, Wild

PAGES = ("audit.html", "report.html")


def texts(ran: Wild, suffix: str) -> list[Path]:
    """The files of this kind that were written for people."""
    of_store = (ran.world.home / "store").glob(f"benchmark_report/*/*{suffix}")
    exported = [path for folder in ("export", "finetuned") for path in (ran.world.folder / folder).rglob(f"*{suffix}")]
    found = [*of_store, *exported, *([ran.page] if ran.page.suffix == suffix else [])]
    assert found, suffix
    return found


class _Tags(HTMLParser):
    """Tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag


def harm(text: str) -> Iterator[str]:
    """What in a page would run a program, or ask another machine for something."""
    for tag, attributes in _Tags(text).found:
        named = tag == "meta" and not set(attributes) - {"charset", "name", "content"}
        if tag in ("script", "iframe", "object", "embed", "link", "base", "form", "meta") and not named:
            yield f"<{tag} {attributes}>"
        for name, value in attributes.items():
            target = (value or "").strip().lower()
            if name.startswith("on") or target.startswith(("javascript:", "data:text")):
                yield f"<{tag} {name}={value!r}>"
            if name == "src" and not target.startswith(("data:image/png;base64,", "#")) and "://" in target:
                yield f"<{tag} {name}={value!r}>"


def test_30_no_title_and_no_name_leads_out_of_its_folder(ran: Wild) -> None:
    """Everything under the home has a name of the program's own; titles are values in tables."""
    for path in ran.world.home.rglob("*"):
        if "views" in path.parts:  # links under the names that a person's own files have
            continue
        assert not any(
            word in path.name for word in ("passwd", "CON", "xxxxx", "trailing", "gpj", "script", "onerror")
        ), path
    titles = {
        row["title"]
        for path in (ran.world.home / "store").glob("documents/*/part-*.parquet")
        for row in pq.read_table(path).to_pylist()
    }
    for word in ("../../etc/passwd", "CON", "trailing dot.", "/etc/passwd", "C:\\nul"):
        assert word in titles


def test_30_every_name_of_a_file_arrives(ran: Wild) -> None:
    (shelf,) = (ran.world.home / "store").glob("books_text/*/books.parquet")
    assert set(FILES) <= {row["path"] for row in pq.read_table(shelf).to_pylist() if not row["dropped"]}


def test_31_pages_run_nothing_and_ask_nobody(ran: Wild) -> None:
    for path in texts(ran, ".html"):
        text = path.read_text(encoding="utf-8")
        assert "alert(" in text, f"{path.name} has hostile words"
        assert list(harm(text)) == [], path


def test_31_markdown_is_text_where_words_are_hostile(ran: Wild) -> None:
    """As a reader of Markdown shows it, with HTML allowed."""
    for path in texts(ran, ".md"):
        text = (
            path.read_text(encoding="utf-8").partition("\n---\n")[2]
            if path.name == "README.md"
            else path.read_text(encoding="utf-8")
        )
        page = markdown.markdown(text, extensions=["tables", "fenced_code"])
        assert list(harm(page)) == [], path
        assert not re.search(r"<a [^>]*href=\"javascript", page)


def test_31_cells_stay_in_their_columns(ran: Wild) -> None:
    for path in texts(ran, ".md"):
        columns = 0
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = re.sub(r"\\.", "", line).count("|") if line.startswith("|") else 0
            assert not (columns and cells) or cells == columns, f"{path.name}: {line}"
            columns = cells


def test_31_dagster_shows_tables_not_markup(ran: Wild) -> None:
    """Values of assets in Dagster's database: Markdown is only what this program wrote, escaped."""
    shown = 0
    for event in _events(ran):
        for entry in _markdown_of(json.loads(event)):
            shown += 1
            page = markdown.markdown(entry, extensions=["tables"])
            assert list(harm(page)) == [], entry[:300]
    assert shown >= 2, "a card and a report"


def _events(ran: Wild) -> Iterator[str]:
    for path in (ran.world.home / "dagster").rglob("*.db"):
        with sqlite3.connect(path) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
            if "event_logs" in tables:
                yield from (event for (event,) in database.execute("select event from event_logs"))


def _markdown_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get("__class__") in ("MarkdownMetadataEntryData", "MarkdownMetadataValue"):
            yield str(value["md_str"])
        for each in value.values():
            yield from _markdown_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from _markdown_of(each)


def test_32_no_cell_of_a_csv_is_a_formula(ran: Wild) -> None:
    """The line that is to be copied into the list of withdrawals, and every table for spreadsheets."""
    line = next(line for line in ran.printed["document"].splitlines() if "=cmd" in line and "withdraw" in line)
    cells = next(csv.reader(io.StringIO(line.partition("names:")[2].strip())))
    assert cells[0].startswith("mine:=cmd")
    tables = [
        path for suffix in (".csv", ".tsv") for path in ran.world.folder.rglob(f"*{suffix}") if "text" not in path.parts
    ]
    for path in tables:
        for row in csv.reader(path.open(encoding="utf-8"), delimiter="," if path.suffix == ".csv" else "\t"):
            assert not [cell for cell in row if cell.startswith(("=", "@", "+", "\t", "\r"))], path


@pytest.mark.parametrize("command", ["run", "report", "export", "audit", "document", "promote", "failed"])
def test_33_nothing_steers_a_terminal_or_begins_a_line_of_its_own(ran: Wild, command: str) -> None:
    printed = ran.printed[command]
    steering = [line for line in printed.splitlines() if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", line)]
    assert steering == []
    assert not re.search(r"^(?:line|license: evil| overwritten)", printed, re.M)


def test_33_nothing_steers_a_terminal_that_shows_a_log(ran: Wild) -> None:
    logs = [path for path in ran.world.home.rglob("*") if path.suffix in (".log", ".out", ".err", ".prom")]
    for path in [*logs, *texts(ran, ".md")]:
        assert not re.search(rb"\x1b|\x9b(?<![\xc2-\xf4]\x9b)(?=\d+m)", path.read_bytes()), path


def test_34_the_head_of_a_card_has_only_what_it_should(ran: Wild) -> None:
    for card in (ran.export / "README.md", ran.world.folder / "finetuned" / "README.md"):
        text = card.read_text(encoding="utf-8")
        assert text.startswith("---\n")
        head = text.split("---\n", 2)[1]
        assert "!!python" not in head
        told = YAML(typ="safe", pure=True).load(head)
        assert isinstance(told, dict) and told.get("license") != "evil", card
        assert set(told) <= {
            "library_name",
            "pipeline_tag",
            "tags",
            "language",
            "license",
            "model-index",
            "base_model",
            "datasets",
            "metrics",
        }


def test_34_sections_of_the_card_stand_where_they_should(ran: Wild) -> None:
    text = (ran.export / "README.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## .*$", text, re.M)
    assert sections.index("## Training text") < sections.index("## Use"), sections
    assert sections.count("## Use") == 1


def test_35_croissant_may_stand_in_a_page(ran: Wild) -> None:
    """Hubs put JSON-LD between <script> and </script>: nothing in it may end that."""
    text = (ran.export / "croissant.json").read_text(encoding="utf-8")
    assert json.loads(text)["@type"] == "sc:Dataset"
    tags = _Tags(f'<script type="application/ld+json">{text}</script><p>after</p>').found
    assert [tag for tag, _ in tags] == ["script", "p"]
    assert "</script" in json.dumps(json.loads(text)), "a licence has the word"
    assert "<!--" not in text


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def contents(path: Path) -> Iterator[bytes]:
    """A file's bytes; of a database also what it keeps packed. What a process removes as it ends holds nothing."""
    try:
        yield path.read_bytes()
    except FileNotFoundError:
        return
    if path.suffix == ".db":
        with sqlite3.connect(path) as database:
            for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
                for row in database.execute(f'select * from "{table}"'):
                    for value in row:
                        if isinstance(value, bytes):
                            try:
                                yield zlib.decompress(value)
                            except zlib.error:
                                yield value


def test_no_secret_of_the_environment_is_written_anywhere(ran: Wild) -> None:
    """Records, metadata, reports, exports, audits, Dagster's database, logs, and what was printed."""
    files = [path for path in ran.world.folder.rglob("*") if path.is_file()]
    assert {"records", "dagster", "store", "assets", "alerts"} <= {path.name for path in ran.world.home.iterdir()}
    assert any(path.suffix == ".db" for path in files)
    told = [
        f"{path}: {found.group()!r}"
        for path in files
        for content in contents(path)
        if (found := CANARY.search(content))
    ]
    assert told == []
    for command, printed in ran.printed.items():
        assert not CANARY.search(printed.encode()), command


def test_the_secrets_were_there_to_be_told(ran: Wild) -> None:
    assert set(SECRETS) <= set(ran.world.environment) and all(CANARY.fullmatch(s.encode()) for s in SECRETS.values())
    assert "was not sent by webhook" in ran.printed["failed"], "the address of the webhook was read"


def test_every_number_of_words_has_its_words() -> None:
    assert set(MARKUP) == set(range(30, 36))
