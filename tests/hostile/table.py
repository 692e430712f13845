"""`python -m tests.hostile.table`: writes docs/hostile-inputs.md, the table of all hostile inputs and of what becomes of them."""

from collections.abc import Iterator, Mapping

from model.reporting.pages import escape_markdown
from tests.conftest import ROOT
from tests.hostile.cases import CASES

FILE = ROOT / "docs" / "hostile-inputs.md"
WORDS: Mapping[int, tuple[str, str]] = {
    30: ("titles and names: `../../etc/passwd`, `CON`, 300 letters, a trailing dot, right-to-left override", "kept as words in tables; no file is named by them; a book keeps its own name"),
    31: ("`<script>`, `<img onerror>`, `[x](javascript:)`, pipes and headings of Markdown, in titles, names, labels, licences", "escaped in report, card, pages and the UI's values; rows keep their columns"),
    32: ("`=cmd|`, `@SUM`, `+1` as ids, titles and labels", "no cell of a CSV begins so: an id stands behind its source's name"),
    33: ("newlines and escape codes of terminals in titles, names and reasons", "written out (`\\x1b`) in everything that is printed"),
    34: ("`---`, `!!python/object` in titles, licences and the recipe's description", "the head of README.md is YAML of known keys; the description is one line of text"),
    35: ("`</script>`, `<!--` in licences and names", "croissant.json has no `<`: it may stand in a page"),
}  # fmt: skip
"""number → (input, what happens); of a whole run: tests/hostile/test_words.py"""
DOORS: Mapping[str, str] = {
    "dump": "a dump, `wikipedia_text`",
    "dump_here": "a dump, `wikipedia_text` in process",
    "books": "books, `books_text`",
    "text": "own text, `kind: text`",
    "jsonl": "own text, `kind: jsonl`",
    "csv": "own text, `kind: csv`",
    "parquet": "own text, `kind: parquet`",
    "checkpoint": "a model, `imported_checkpoint`",
    "vocabulary": "`vocabulary: {from: vocab.txt}`",
    "tfrecord": "`bert import-tfrecord`",
    "shards": "shards, read by training",
    "recipes": "a recipe",
    "site": "Wikimedia's site",
}
HEAD = """# Hostile inputs

What somebody may put into a dump, a book, a table, a model or a title to do harm, and what becomes of it. Every row is a test
(`tests/hostile`): the input is made, goes in by the door that a user's data takes, and has to end within 30 seconds of processor
time and 1 GiB of memory, without a request, a program that runs, or a file outside that is read or written. `refused` is one error
that names the file; `dropped` is left out and counted, and its good neighbours stay; `kept` is taken as plain text. "In process": Beam's
pipeline runs in the process of the test and not in one of its own, which takes seconds to start; what it does is the same.

This page is written by `python -m tests.hostile.table`. What is trusted, and what is not, is told in [security.md](security.md).

| number | input | by | what happens |
|---:|---|---|---|
"""


def lines() -> Iterator[str]:
    """The rows, by number."""
    rows = [
        (
            case.number,
            escape_markdown(case.name),
            DOORS[case.door],
            f"{case.expected.what}{_words(case.expected.shown)}",
        )
        for case in CASES
    ]
    rows += [(number, name, "a whole run", happens) for number, (name, happens) in WORDS.items()]
    for number, name, door, happens in sorted(rows, key=lambda row: row[0]):
        yield f"| {number} | {name} | {door} | {happens} |"


def _words(words: str) -> str:
    return f": {escape_markdown(words)}" if words else ""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(lines()) + "\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
