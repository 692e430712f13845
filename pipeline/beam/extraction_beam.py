"""The Beam pipeline that reads a dump; `pipeline.extraction` plans it and adds it up.

    part of the dump → wikitext of its articles                           pages/      one file per part
                       its templates, and what was counted                templates/, read/
    all parts        → parts that did not fit together, read again as one
                       redirects and wrappers of the whole dump           templates/rules.json
    part             → prose of its articles, ascending by page id        runs/       mostly one file per part
                       and what was counted                               extracted/

The wikitext waits in files because a template may stand anywhere in a dump, and decompressing twice would cost most of the
time: zstd is some ten times as fast as bz2. What flows through Beam are numbers and names of parts; the payload goes
through files in a scratch folder that every worker must see, on a disk or in an object store, as in
`pipeline.beam.shards_beam`.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apache_beam as beam
import pyarrow as pa

from pipeline.beam.common_beam import Counting, reported
from pipeline.beam.options_beam import pipeline_options
from pipeline.config import WIKIPEDIA_LICENCE, WikipediaTextConfig
from pipeline.extraction import SAMPLE_PAGES, Extracted, Plan, Reading, read_all, stem_of
from pipeline.system import places
from pipeline.wiki.dump_parts import DOUBTFUL, Doubtful, Part, PartReader, Seam, gaps
from pipeline.wiki.runs import RunWriter
from pipeline.wiki.wikitext_templates import DumpTemplates, Rules, read_templates, rules_for, unhandled
from pipeline.wikipedia import Page
from pipeline.wikitext import Site, is_blank, is_disambiguation, to_text

TEMPLATE = 10
"""The namespace of templates, on every wiki."""
EXAMPLE_CHARACTERS = 200
NAME_CHARACTERS = 100


def run(plan_json: str) -> None:
    """Read the dump of a `pipeline.extraction.Plan`.

    Raises:
        RecipeError: of `pipeline.beam.options_beam`.
    """
    plan = Plan.model_validate_json(plan_json)
    with beam.Pipeline(options=pipeline_options(plan.beam, plan.workers)) as pipeline:
        build(pipeline, plan)


def build(pipeline: beam.Pipeline, plan: Plan, extract: "type[Extract] | None" = None) -> None:
    """Add the transforms to a pipeline; `extract` stands in for Extract in measurements."""
    (
        pipeline
        | "Parts" >> beam.Create(range(len(plan.parts)))
        | "Spread parts" >> beam.Reshuffle()
        | "Read" >> beam.Map(read_numbered, plan)
        | "All parts" >> beam.GroupByKey()
        | "Settle" >> beam.FlatMap(lambda element: settle(plan))
        | "Spread pages" >> beam.Reshuffle()
        | "Extract" >> beam.ParDo((extract or Extract)(plan))
    )


def read_numbered(number: int, plan: Plan) -> tuple[str, int]:
    """Read a part; all get the same key, so that what follows waits for all."""
    read_part(plan, plan.parts[number])
    return "", number


# ── dump → wikitext of articles ──────────────────────────────────────────────────────────────────────────────────────


def read_part(plan: Plan, part: Part) -> None:
    """Write pages/PART-….arrow, the articles that begin in a part, templates/PART.jsonl, its templates, and read/PART.json."""
    stem = stem_of(part)
    count = Counting(plan.scratch / "progress" / f"read-{stem}")
    reader = PartReader(part, plan.site(part))
    dropped: Counter[str] = Counter()
    pages = template_pages = 0
    seam = DOUBTFUL
    name = f"{stem}-{uuid.uuid4().hex[:8]}.arrow"
    with (
        reported(plan.scratch, plan.out),
        places.replaced(plan.scratch / "templates" / f"{stem}.jsonl") as temporary,
        temporary.open("w", encoding="utf-8") as templates,
        BatchWriter(plan.scratch / "pages" / name) as batches,
    ):
        with suppress(Doubtful):
            for page in reader.pages(count):
                pages += 1
                if page.namespace == TEMPLATE:
                    template_pages += 1
                    templates.write(json.dumps([page.title, page.text]) + "\n")
                reason = no_article(page)
                if reason:
                    dropped[reason] += 1
                else:
                    batches.add(page)
            seam = Seam(reader.first, reader.following)
        reading = Reading(
            part=part,
            first=seam.first,
            following=seam.following,
            pages=pages,
            dropped=dropped,
            streams=reader.streams,
            template_pages=template_pages,
            batches=name,
        )
        places.write_json(plan.scratch / "read" / f"{stem}.json", reading.plain())
        count(part.end - part.start, final=True)


def no_article(page: Page) -> str:
    """Why a page is no article, or "": what can be said before its markup is looked at."""
    if page.namespace != 0:
        return "other_namespace"
    if page.redirect is not None:
        return "redirect"
    if page.model != "wikitext":
        return "other_model"
    if page.deleted:
        return "deleted"
    return "empty" if is_blank(page.text) else ""


BATCH_CHARACTERS = 4_000_000
BATCH_SCHEMA = pa.schema(
    [
        pa.field("title", pa.string()),
        pa.field("page_id", pa.int64()),
        pa.field("revision_id", pa.int64()),
        pa.field("timestamp", pa.string()),
        pa.field("text", pa.string()),
    ]
)


class BatchWriter:
    """Writes pages to a file in batches of about 4 million characters."""

    def __init__(self, path: Path) -> None:
        self._rows: list[dict[str, Any]] = []
        self._size = 0
        self._open = ExitStack()
        written = self._open.enter_context(places.replaced(path))
        sink = self._open.enter_context(pa.OSFile(str(written), "wb"))
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
        self._writer = self._open.enter_context(pa.ipc.new_file(sink, BATCH_SCHEMA, options=options))

    def add(self, page: Page) -> None:
        """Take a page."""
        self._rows.append({name: getattr(page, name) for name in BATCH_SCHEMA.names})
        self._size += len(page.text)
        if self._size >= BATCH_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=BATCH_SCHEMA))
        self._rows, self._size = [], 0

    def __enter__(self) -> "BatchWriter":
        return self

    def __exit__(self, *error: Any) -> None:
        self._flush()
        self._open.close()


def settle(plan: Plan) -> Iterator[str]:
    """When all parts are read: read what did not fit together again as one, write templates/rules.json, give the stems of
    the parts."""
    with reported(plan.scratch, plan.out):
        readings = read_all(plan.scratch / "read", Reading)
        while joined := gaps([r.part for r in readings], [Seam(r.first, r.following) for r in readings]):
            for first, last in joined:
                for reading in readings[first : last + 1]:
                    (plan.scratch / "pages" / reading.batches).unlink()
                    for folder, suffix in (("read", "json"), ("templates", "jsonl")):
                        (plan.scratch / folder / f"{stem_of(reading.part)}.{suffix}").unlink()
                read_part(plan, readings[first].part.to(readings[last].part))
            readings = read_all(plan.scratch / "read", Reading)
        site = plan.site(readings[0].part)
        templates = read_templates(_template_sources(plan), _spoken(site, plan.config), plan.config.templates)
        rules = {"redirects": dict(templates.redirects), "wrappers": dict(templates.wrappers)}
        places.write_json(plan.scratch / "templates" / "rules.json", rules)
    yield from (stem_of(reading.part) for reading in readings)


def _template_sources(plan: Plan) -> Iterator[tuple[str, str]]:
    folder = plan.scratch / "templates"
    for name in places.names(folder, "*.jsonl"):
        with (folder / name).open(encoding="utf-8") as file:
            for line in file:
                title, text = json.loads(line)
                yield title, text


# ── wikitext → text ──────────────────────────────────────────────────────────────────────────────────────────────────


class Extract(beam.DoFn):
    """Stem of a part → its files in runs/ and extracted/."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rules: dict[str, Rules] = {}  # by language

    def process(self, stem: str) -> Iterator[None]:
        """Extract one part."""
        plan = self.plan
        with reported(plan.scratch, plan.out):
            reading = Reading.model_validate_json((plan.scratch / "read" / f"{stem}.json").read_bytes())
            site = _spoken(plan.site(reading.part), plan.config)
            if site.language not in self.rules:
                held = json.loads((plan.scratch / "templates" / "rules.json").read_text(encoding="utf-8"))
                dump = DumpTemplates(redirects=held["redirects"], wrappers=held["wrappers"])
                self.rules[site.language] = rules_for(site.language, plan.config.templates, dump)
            extract_part(plan, reading, site, self.rules[site.language])
        yield from ()


def _spoken(site: Site, config: WikipediaTextConfig) -> Site:
    """The site, with the recipe's language where the dump names none."""
    return site if site.language else replace(site, language=config.language)


def extract_part(plan: Plan, reading: Reading, site: Site, rules: Rules) -> None:
    """Write the articles of a part that was read: runs/STEM-….arrow and extracted/STEM.json."""
    stem = stem_of(reading.part)
    count = Counting(plan.scratch / "progress" / f"text-{stem}")
    size = reading.part.end - reading.part.start
    writer = RunWriter(plan.scratch / "runs", f"{stem}-{uuid.uuid4().hex[:8]}")
    without_rule = _WithoutRule(rules)
    dropped: Counter[str] = Counter()
    with places.opened(plan.scratch / "pages" / reading.batches) as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            for page in file.get_batch(number).to_pylist():
                reason, text = prose(page["text"], page["title"], site, rules)
                if reason:
                    dropped[reason] += 1
                    continue
                writer.add(_row(page, text, site, plan.config))
                if page["page_id"] % SAMPLE_PAGES == 0:
                    without_rule.look(page["text"])
            count(size * (number + 1) // file.num_record_batches)
    runs = writer.close()
    dropped["duplicate_page_id"] += writer.duplicates
    extracted = Extracted(dropped=+dropped, runs=tuple(runs), unhandled=without_rule.found)
    places.write_json(plan.scratch / "extracted" / f"{stem}.json", extracted.plain())
    count(size, final=True)


def prose(wikitext: str, title: str, site: Site, rules: Rules) -> tuple[str, str]:
    """(why the article is dropped, or "", its prose)"""
    if is_disambiguation("", site, title):
        return "disambiguation", ""
    text = to_text(wikitext, site, rules)  # "" for what the page itself says is one
    if text:
        return "", text
    return ("disambiguation" if is_disambiguation(wikitext, site) else "no_prose"), ""


class _WithoutRule:
    """Counts templates without a rule."""

    def __init__(self, rules: Rules) -> None:
        self.found: dict[str, tuple[int, int, str]] = {}
        """name → (uses, pages, first example)"""
        self._rules = rules

    def look(self, wikitext: str) -> None:
        """Add those of a page."""
        on_page: set[str] = set()
        for name, example in unhandled(wikitext, self._rules):
            short = name[:NAME_CHARACTERS]
            uses, pages, first = self.found.get(short, (0, 0, example[:EXAMPLE_CHARACTERS]))
            self.found[short] = (uses + 1, pages + (short not in on_page), first)
            on_page.add(short)


def _row(page: dict[str, Any], text: str, site: Site, config: WikipediaTextConfig) -> dict[str, Any]:
    address = site.base.rpartition("/")[0]
    return {
        "doc_id": f"{site.name or config.source}:{page['page_id']}",
        "source": config.source,
        "title": page["title"],
        "url": f"{address}/{quote(page['title'].replace(' ', '_'), safe=_URL_SAFE)}" if address else None,
        "revision_id": str(page["revision_id"]) if page["revision_id"] is not None else None,
        "language": config.language,
        "licence": config.licence or WIKIPEDIA_LICENCE,
        "date": page["timestamp"][:10] or None,
        "text": text,
        "page_id": page["page_id"],
        "wikitext_characters": len(page["text"]),
    }


_URL_SAFE = "/:@!$*(),;'~"
