"""A world whose text, files and recipe bear hostile words, and whose environment holds secrets: it is run from end to end."""

import bz2
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests import tiny
from tests.assets.bertcli import World

_NAMES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN"),
    *("GITHUB_TOKEN", "OPENAI_API_KEY", "SMTP_PASSWORD", "PGPASSWORD", "MLFLOW_TRACKING_PASSWORD", "DATABASE_URL"),
)
SECRETS = {name: f"canary{number:02d}CANARY{number * 7919:06d}" for number, name in enumerate(_NAMES, start=1)}
"""variable → what must stand nowhere"""
HOOK = "canaryHookCANARY000001"
CANARY = re.compile(rb"canary\w{0,8}CANARY\d{6}")

MARKUP = {
    31: (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "[x](javascript:alert(1))",
        "a | b | c\n|---|---|\n# heading",
        "![x](http://127.0.0.1:9/pixel.png)",
        "<svg/onload=alert(1)>",
        "{{ 7 * 7 }}{% raw %}",
    ),
    32: ("=cmd|' /C calc'!A0", "@SUM(1+1)", "+1+cmd", "-2+3"),
    33: ("new\nline", "\x1b[31mred\x1b[2J", "\r overwritten", "\x9b31m"),
    34: ("---", "---\nlicense: evil\n---", "!!python/object/apply:os.system ['true']", "key: [unclosed"),
    35: ("</script><script>alert(2)</script>", '"}]}', "\\u003c/script\\u003e", "<!--"),
    30: ("../../etc/passwd", "CON", "x" * 300, "trailing dot.", "gnp.\u202egpj", "/etc/passwd", "C:\\nul"),
}
"""number in the list → words"""
WORDS = tuple(word for words in MARKUP.values() for word in words)
FILES = (
    *("<img src=x onerror=alert(1)>.txt", "a|b.txt", "[x](javascript:alert(1)).txt", "=cmd|' !A0.txt", "---.txt"),
    *("CON.txt", f"{'x' * 250}.txt", "dot..txt", "\u202etxt.gpj.txt", "new\nline.txt", "\x1b[31mred\x1b[2J.txt"),
    *('"}]}<!--.txt', "{{ 7 * 7 }}.txt", "@SUM(1).txt", "-rf.txt"),
)
"""names that a folder of books can have; `/` it can't"""
TITLE = "<script>alert(3)</script> | [x](javascript:alert(3)) ---"


@dataclass(frozen=True)
class Wild:
    """The world, and what its commands printed."""

    world: World
    printed: dict[str, str]
    export: Path
    page: Path


class _Secretive(World):
    """Its commands see the secrets."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **SECRETS, "HOOK_URL": f"http://127.0.0.1:9/{HOOK}"}


def make(folder: Path) -> Wild:
    """Lay it out, run it, export it, audit it."""
    tiny.write(_made(folder))
    _title(folder)
    _name(folder)
    _ids(folder)
    _recipe(folder)
    settings = folder / "settings.yaml"
    settings.write_text(
        settings.read_text(encoding="utf-8") + "alerts: {webhook: {url_from: HOOK_URL}}\n", encoding="utf-8"
    )
    world = _Secretive(folder)
    export, page = folder / "export", folder / "audit.html"
    printed = {"run": world.bert("run", "tiny")}
    for name, arguments in {
        "report": ("report", "tiny"),
        "export": ("export", "tiny/release", str(export)),
        "export_finetuned": ("export", "tiny/finetuned_places", str(folder / "finetuned")),
        "audit": ("audit", "tiny/benchmark_report"),
        "page": ("audit", "tiny/benchmark_report", "--html", str(page)),
        "document": ("audit", "tiny/release", "--document", f"mine:{MARKUP[32][0]}", "--document", "tinywiki:3"),
        "promote": ("promote", "tiny", "--reason", "\x1b[31mwhy\x1b[0m"),
    }.items():
        printed[name] = world.bert(*arguments)
    (folder / "text" / "tinywiki.xml.bz2").write_bytes(b"BZh9 no dump")  # and one that fails, which sends an alert
    printed["failed"] = world.bert("run", "tiny", code=1)
    return Wild(world, printed, export, page)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _title(folder: Path) -> None:
    """Titles of articles."""
    file = folder / "text" / "tinywiki.xml.bz2"
    text = bz2.decompress(file.read_bytes()).decode()
    for number, word in enumerate(WORDS, start=2):
        legal = "".join(c for c in word if c.isprintable() or c in "\n\r\t")  # XML has no other characters
        text = text.replace(f"<title>Article {number}</title>", f"<title>{html.escape(legal)}</title>")
    file.write_bytes(bz2.compress(text.encode()))


def _name(folder: Path) -> None:
    """Names of books, and what a manifest says of them."""
    books = folder / "text" / "books"
    for number, name in enumerate(FILES):
        (books / name).write_text("\n\n".join(tiny.paragraphs(300 + number, 4)), encoding="utf-8")
    rows = [
        {"file": name, "title": word, "author": word, "licence": word, "url": f"https://example.org/{number}?q={word}"}
        for number, (name, word) in enumerate(zip(FILES, WORDS, strict=False))
    ]
    (folder / "text" / "shelf.json").write_text(json.dumps(rows), encoding="utf-8")


def _ids(folder: Path) -> None:
    """Documents with ids and titles of their own, and a task whose labels and texts are hostile."""
    rows = [
        {"id": word, "title": word, "text": "\n\n".join(tiny.paragraphs(500 + number, 3)), "licence": word}
        for number, word in enumerate(WORDS)
    ]
    mine = folder / "text" / "mine"
    mine.mkdir()
    (mine / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    places = folder / "text" / "places.csv"
    text = places.read_text(encoding="utf-8")
    text = text.replace(",water\n", ",=cmd|' /C calc'!A0\n").replace(",land\n", ",<b>land</b> | [x](javascript:1)\n")
    text = text.replace('"The ', '"<script>alert(4)</script> | \x1b[31mThe ')
    places.write_text(text, encoding="utf-8")


def _recipe(folder: Path) -> None:
    file = folder / "recipes" / "tiny.yaml"
    text = file.read_text(encoding="utf-8")
    description = json.dumps("<script>alert(5)</script> [x](javascript:alert(5)) | a\n---\nlicense: evil\n## Use\n")
    for old, new in {
        "description: A model of seconds.": f"description: {description}",
        "licence: public domain}": "licence: public domain, manifest: ../text/shelf.json}\n"
        "    mine: {kind: jsonl, from: {path: ../text/mine}, columns: {id: id, title: title, licence: licence}}",
        "title: Places": f"title: {json.dumps(TITLE)}",
        "phases: [{sequence_length: 32, steps: 30}, {sequence_length: 64, steps: 10}]": "phases: "
        "[{sequence_length: 32, steps: 8}]",
        "evaluate_every: 20": "evaluate_every: 8",
        "tasks: [places, cola]": "tasks: [places]",
        "baselines: [untrained, tfidf]": "baselines: []",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    (folder / "recipes" / "tiny_child.yaml").unlink()
