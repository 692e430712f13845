"""The Beam pipeline that reads a dump; `pipeline.extraction` plans it and adds it up.

    part of the dump → its template pages                                 templates/  one file per part
    all of those → redirects and wrappers of the whole dump               templates/rules.json, found.json
    part of the dump → its articles, ascending by page id                 runs/       mostly one file per part
                       and what was counted                               results/    one file per part

What flows through Beam are numbers of parts; the payload goes through files in a scratch folder that every worker must see,
as in `pipeline.shards_beam`. A part's result appears by one rename, and names the files that go with it.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apache_beam as beam

from pipeline.common_beam import Counting, pipeline_options, replaced, reported, write_json
from pipeline.config import WikipediaTextConfig
from pipeline.dump_parts import (
    DOUBTFUL,
    TEMPLATE,
    Doubtful,
    Part,
    PartReader,
    template_pages,
    templates_of_streams,
)
from pipeline.extraction import SAMPLE_PAGES, Plan, Result, result_path
from pipeline.runs import RunWriter
from pipeline.template_rules import DumpTemplates, Rules, read_templates, rules_for, to_text, unhandled
from pipeline.wikipedia import Page
from pipeline.wikitext import Site, is_disambiguation

LICENCE = "CC-BY-SA-4.0"
EXAMPLE_CHARACTERS = 200
NAME_CHARACTERS = 100


def run(plan_json: str) -> None:
    """Read the dump of a `pipeline.extraction.Plan`.

    Raises:
        RecipeError: the settings ask for a mode that loses data.
    """
    plan = Plan.model_validate_json(plan_json)
    with beam.Pipeline(options=pipeline_options(plan.beam, plan.workers)) as pipeline:
        build(pipeline, plan)


def build(pipeline: beam.Pipeline, plan: Plan) -> None:
    """Add the transforms to a pipeline."""
    if plan.templates == "known":
        numbers = pipeline | "Parts to do" >> beam.Create(plan.todo)
    else:
        numbers = (
            pipeline
            | "Parts" >> beam.Create(range(len(plan.parts)))
            | "Spread parts" >> beam.Reshuffle()
            | "Find templates" >> beam.Map(find_templates, plan)
            | "All templates" >> beam.GroupByKey()
            | "Join templates" >> beam.FlatMap(join_templates, plan)
        )
    numbers | "Spread parts to do" >> beam.Reshuffle() | "Extract" >> beam.ParDo(Extract(plan))


# ── templates ────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_templates(number: int, plan: Plan) -> tuple[str, int]:
    """Write templates/PART.jsonl: title and wikitext of the pages of namespace 10 that begin in the part."""
    part = plan.parts[number]
    with reported(plan.scratch, plan.out):
        count = Counting(plan.scratch / "progress" / f"templates-{result_path(plan, part).stem}")
        site = plan.site(part)
        if number in plan.streams:
            pages = templates_of_streams(part.path, plan.streams[number], site)
        else:
            pages = template_pages(part, site, plan.templates == "parse", count)
        with replaced(_template_file(plan, part)) as temporary, temporary.open("w", encoding="utf-8") as file:
            for page in pages:
                file.write(json.dumps([page.page_id, page.title, page.text]) + "\n")
        count(part.end - part.start, final=True)
    return "", number


def join_templates(element: tuple[str, Iterable[int]], plan: Plan) -> Iterator[int]:
    """Write templates/rules.json and found.json from all files; give the numbers of the parts to extract."""
    found = [0, 0]

    def pages() -> Iterator[tuple[str, str]]:
        for part in plan.parts:
            with _template_file(plan, part).open(encoding="utf-8") as file:
                for line in file:
                    page_id, title, text = json.loads(line)
                    found[0] += 1
                    found[1] += page_id
                    yield title, text

    with reported(plan.scratch, plan.out):
        read = read_templates(pages(), plan.site(plan.parts[0]))
        rules = {"redirects": dict(read.redirects), "wrappers": dict(read.wrappers)}
        write_json(plan.scratch / "templates" / "rules.json", rules)
        write_json(plan.scratch / "templates" / "found.json", found)
        for part in plan.parts:
            _template_file(plan, part).unlink()
    yield from plan.todo


def _template_file(plan: Plan, part: Part) -> Path:
    return plan.scratch / "templates" / f"{result_path(plan, part).stem}.jsonl"


# ── articles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Extract(beam.DoFn):
    """Number of a part → its files in runs/ and results/."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.templates: DumpTemplates | None = None

    def process(self, number: int) -> Iterator[None]:
        """Extract one part."""
        plan = self.plan
        with reported(plan.scratch, plan.out):
            if self.templates is None:
                held = json.loads((plan.scratch / "templates" / "rules.json").read_text(encoding="utf-8"))
                self.templates = DumpTemplates(redirects=held["redirects"], wrappers=held["wrappers"])
            extract_part(plan, plan.parts[number], self.templates)
        yield from ()


def extract_part(plan: Plan, part: Part, templates: DumpTemplates) -> None:
    """Write the articles that begin in a part, and its result."""
    site, config = plan.site(part), plan.config
    rules = rules_for(site.language or config.language, getattr(config, "templates", {}), templates)
    stem = result_path(plan, part).stem
    count = Counting(plan.scratch / "progress" / f"text-{stem}")
    reader = PartReader(part, site)
    writer = RunWriter(plan.scratch / "runs", f"{stem}-{uuid.uuid4().hex[:8]}")
    without_rule = _WithoutRule(rules)
    dropped: Counter[str] = Counter()
    pages = template_pages = template_ids = 0
    doubtful = False
    try:
        for page in reader.pages(count):
            pages += 1
            if page.namespace == TEMPLATE:
                template_pages += 1
                template_ids += page.page_id
            reason, text = article(page, site, rules)
            if reason:
                dropped[reason] += 1
                continue
            writer.add(_row(page, text, site, config))
            if page.page_id % SAMPLE_PAGES == 0:
                without_rule.look(page.text)
    except Doubtful:
        doubtful = True
    runs = writer.close()
    dropped["duplicate_page_id"] += writer.duplicates
    result = Result(
        first=DOUBTFUL.first if doubtful else reader.first,
        following=None if doubtful else reader.following,
        pages=pages,
        dropped=+dropped,
        runs=tuple(runs),
        streams=reader.streams,
        template_pages=template_pages,
        template_ids=template_ids,
        unhandled=without_rule.found,
    )
    write_json(result_path(plan, part), result.plain())
    count(part.end - part.start, final=True)


def article(page: Page, site: Site, rules: Rules) -> tuple[str, str]:
    """(why the page is dropped, or "", its prose)"""
    if page.namespace != 0:
        return "other_namespace", ""
    if page.redirect is not None:
        return "redirect", ""
    if page.model != "wikitext":
        return "other_model", ""
    if page.deleted:
        return "deleted", ""
    if not page.text.strip():
        return "empty", ""
    if is_disambiguation(page.text, site, page.title):
        return "disambiguation", ""
    text = to_text(page.text, site, rules)
    return ("" if text else "no_prose"), text


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


def _row(page: Page, text: str, site: Site, config: WikipediaTextConfig) -> dict[str, Any]:
    address = site.base.rpartition("/")[0]
    return {
        "doc_id": f"{site.name or config.source}:{page.page_id}",
        "source": config.source,
        "title": page.title,
        "url": f"{address}/{quote(page.title.replace(' ', '_'), safe=_URL_SAFE)}" if address else None,
        "revision_id": str(page.revision_id) if page.revision_id is not None else None,
        "language": config.language,
        "licence": config.licence or LICENCE,
        "date": page.timestamp[:10] or None,
        "text": text,
        "page_id": page.page_id,
        "wikitext_characters": len(page.text),
    }


_URL_SAFE = "/:@!$*(),;'~"
