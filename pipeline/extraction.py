"""Stage `wikipedia_text`: the articles of a dump as plain documents, `S_text` of kind wikipedia.

Here is the plan (parts, workers), what follows when parts do not fit together, the table and the sum; the work is a Beam
pipeline, `pipeline.extraction_beam`. Parts follow from the files alone and the table from the pages alone, so that it is the
same bytes for any number of workers, any runner, and however the dump is compressed.
"""

import json
import shutil
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import beam_process, progress
from pipeline.config import Frozen, WikipediaTextConfig
from pipeline.dump_parts import Part, Seam, cut, gaps, index_of, template_streams
from pipeline.errors import DataError, StoreError
from pipeline.runs import Merge, Run
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, write_dropped, write_parts
from pipeline.settings import BeamSettings, settings
from pipeline.stage import Stage
from pipeline.wikipedia import dump_files, read_site
from pipeline.wikitext import Site

STAGE = Stage(
    name="wikipedia_text",
    function="pipeline.extraction:extract_text",
    version="2",
    sources=(
        "pipeline/extraction.py",
        "pipeline/extraction_beam.py",
        "pipeline/common_beam.py",
        "pipeline/dump_parts.py",
        "pipeline/bz2_blocks.py",
        "pipeline/runs.py",
        "pipeline/wikipedia.py",
        "pipeline/wikitext*.py",
        "pipeline/template_rules.py",
        "pipeline/schemas.py",
    ),
)

WORK_PER_WORKER = 12 << 20
"""Bytes of .bz2 below which one more worker process costs more than it saves."""
DISK_PER_BZ2 = 2.0
"""Bytes on the way and of the table together, for each byte of .bz2."""
SAMPLE_PAGES = 8
"""Templates without a rule are looked for in pages whose id is a multiple of this."""
SHOWN_TEMPLATES = 50

Templates = Literal["search", "parse", "known"]


class Result(Frozen):
    """What reading a part gave."""

    first: int | None
    following: int | None
    """places, see PartReader"""
    pages: int
    dropped: dict[str, int]
    runs: tuple[Run, ...]
    streams: int
    """that end in the part"""
    template_pages: int
    template_ids: int
    """number of pages of namespace 10, and the sum of their ids"""
    unhandled: dict[str, tuple[int, int, str]]
    """template without a rule → (uses, pages, example), of the sample"""


class Plan(Frozen):
    """All that the Beam pipeline must know. Folders are absolute."""

    parts: tuple[Part, ...]
    sites: tuple[str, ...]
    """of each file, as JSON"""
    scratch: Path
    out: Path
    config: WikipediaTextConfig
    templates: Templates
    """how to find the dump's own templates: by their tags, by parsing every page, or they lie in scratch already"""
    streams: dict[int, tuple[tuple[int, int], ...]]
    """number of a part → the streams in it that an index says hold templates; parts that are not named are searched"""
    todo: tuple[int, ...]
    """numbers of the parts to extract"""
    beam: BeamSettings
    workers: int

    def site(self, part: Part) -> Site:
        """What the part's file says of its wiki."""
        said = json.loads(self.sites[part.file])
        return Site(**{**said, "namespaces": tuple((int(n), name) for n, name in said["namespaces"])})


def extract_text(inputs: Mapping[str, Path], config: WikipediaTextConfig, out: Path) -> dict[str, Any]:
    """Write the articles of the dump in `inputs["dump"]`, by page id, and dropped.json.

    Articles are pages of namespace 0 that are no redirects, no disambiguation pages and have prose.

    Raises:
        SourceError: a broken file, or a folder without a dump; then nothing is left in `out`.
        RecipeError: the Beam settings ask for a mode that loses data.
        StoreError: the disk can't hold what is forecast.
    """
    files, others = dump_files(inputs["dump"])
    sites = [read_site(path) for path in files]
    parts = cut([path.resolve() for path in files])
    _check_disk(parts, out)
    for left in out.glob(".scratch-*"):  # of a run that was killed
        shutil.rmtree(left)
    scratch = Path(tempfile.mkdtemp(prefix=".scratch-", dir=out)).resolve()
    indexes = {number: index for number, path in enumerate(files) if (index := index_of(path, others))}
    beam = settings().beam
    plan = Plan(
        parts=tuple(parts),
        sites=tuple(json.dumps(vars(site)) for site in sites),
        scratch=scratch,
        out=out.resolve(),
        config=config,
        templates="search",
        streams=_indexed_streams(parts, indexes, sites),
        todo=tuple(range(len(parts))),
        beam=beam,
        workers=useful_workers(beam, parts),
    )
    try:
        for folder in ("templates", "runs", "results", "progress"):
            (scratch / folder).mkdir()
        plan, results = _read_all(plan)
        found = _write(plan, results, out)
    except BaseException:
        for path in out.glob("part-*.parquet"):
            path.unlink()
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    unknown = [path.name for path in others if path not in set(indexes.values())]
    return found | {
        "wiki": sites[-1].name,
        "files": len(files),
        "ignored_files": unknown,
        "indexes": len(indexes),
        "dump_megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 3),
    }


def _check_disk(parts: Sequence[Part], out: Path) -> None:
    needed, free = sum(part.work for part in parts) * DISK_PER_BZ2, shutil.disk_usage(out).free
    if needed > free:
        raise StoreError(
            f"{out}: the articles need about {needed / 1e9:.1f} GB on the way, {free / 1e9:.1f} GB are free",
            "Free space, or move the store (home in settings.yaml).",
        )


def useful_workers(beam: BeamSettings, parts: Sequence[Part]) -> int:
    """The workers of the settings, or fewer where starting them would cost more than they save."""
    work = sum(part.work for part in parts)
    return min(beam.workers, len(parts), 1 + int(work / WORK_PER_WORKER))


def _indexed_streams(
    parts: Sequence[Part], indexes: Mapping[int, Path], sites: Sequence[Site]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """For every part of a file with an index: the streams with templates that begin in it."""
    found = {}
    for file, index in indexes.items():
        own = [(number, part) for number, part in enumerate(parts) if part.file == file and part.kind == "bz2"]
        streams = template_streams(index, parts[own[0][0]].size, sites[file]) if own else None
        if streams is not None:
            for number, part in own:
                found[number] = tuple(stream for stream in streams if part.start <= stream[0] < part.end)
    return found


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_all(plan: Plan) -> tuple[Plan, list[Result]]:
    """Run the pipeline until all parts fit together, and the templates it used are those of the dump."""
    while True:
        beam_process.run("pipeline.extraction_beam:run", plan.model_dump_json(by_alias=True), plan.scratch, _poll(plan))
        results = [read_result(plan, part) for part in plan.parts]
        joined = gaps(plan.parts, [_seam(result) for result in results])
        if joined:
            plan = _join(plan, joined)
            continue
        found = json.loads((plan.scratch / "templates" / "found.json").read_text(encoding="utf-8"))
        held = [sum(r.template_pages for r in results), sum(r.template_ids for r in results)]
        if found == held:
            return plan, results
        if not plan.streams and plan.templates == "parse":
            raise DataError(f"the dump has other templates each time: {found}, {held}", "Please report this.")
        plan = plan.model_copy(
            update={
                "templates": "search" if plan.streams else "parse",
                "streams": {},
                "todo": tuple(range(len(plan.parts))),
            }
        )
        _clear(plan)


def _seam(result: Result) -> Seam:
    return Seam(first=result.first, following=result.following)


def _join(plan: Plan, joined: Sequence[tuple[int, int]]) -> Plan:
    """The same dump with some parts read as one; only those are to do."""
    parts: list[Part] = []
    todo = []
    ends = dict(joined)
    number = 0
    while number < len(plan.parts):
        last = ends.get(number, number)
        if last > number:
            todo.append(len(parts))
            parts.append(plan.parts[number].to(plan.parts[last]))
        else:
            parts.append(plan.parts[number])
        number = last + 1
    return plan.model_copy(update={"parts": tuple(parts), "todo": tuple(todo), "templates": "known", "streams": {}})


def result_path(plan: Plan, part: Part) -> Path:
    """Where the result of a part lies; its files in the other folders of scratch have the same stem."""
    return plan.scratch / "results" / f"{part.file:05d}-{part.start:013d}-{part.end:013d}.json"


def read_result(plan: Plan, part: Part) -> Result:
    """What reading a part gave."""
    return Result.model_validate_json(result_path(plan, part).read_bytes())


def _clear(plan: Plan) -> None:
    for folder in ("templates", "runs", "results", "progress"):
        shutil.rmtree(plan.scratch / folder)
        (plan.scratch / folder).mkdir()


STEPS = {"templates": "bytes searched for templates", "text": "bytes extracted"}
"""Beginning of the names in the folder `progress` → what is shown."""


def _poll(plan: Plan) -> Callable[[], None]:
    """Reports what the workers have written into the folder `progress`; Beam itself says nothing until the end."""
    total = sum(part.end - part.start for part in plan.parts)
    seen: dict[str, int] = {}

    def report() -> None:
        for step, unit in STEPS.items():
            done = min(sum(map(_read_count, (plan.scratch / "progress").glob(f"{step}-*"))), total)
            if done != seen.get(step, 0):
                seen[step] = done
                progress.report(done, total, unit)

    return report


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii") or 0)
    except FileNotFoundError:  # replaced at this moment
        return 0


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(plan: Plan, results: Sequence[Result], out: Path) -> dict[str, Any]:
    """Write the table and dropped.json; return the statistics."""
    merge = Merge(plan.scratch / "runs", [run for result in results for run in result.runs])
    lengths = array("q")
    characters = 0
    sample: list[str] = []

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal characters
        for batch in merge:
            lengths.frombytes(pc.utf8_length(batch.column("text")).cast(pa.int64()).to_numpy().tobytes())
            characters += pc.sum(batch.column("wikitext_characters")).as_py()
            sample.extend(batch.column("title")[: 5 - len(sample)].to_pylist())
            yield batch.select(TEXT_SCHEMA.names)

    kept = write_parts(rows(), TEXT_SCHEMA, out)
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update(result.dropped)
    dropped.update({"duplicate_page_id": merge.duplicates})
    count = write_dropped(out, sum(result.pages for result in results), kept, +dropped)
    return {
        **describe_lengths(lengths),
        **count,
        "wikitext_characters_millions": round(characters / 1e6, 6),
        "sample": sample,
        "parts": len(plan.parts),
        "streams": sum(result.streams for result in results),
        "template_pages": sum(result.template_pages for result in results),
        "unhandled_templates": most_used(results),
    }


def most_used(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The templates without a rule that were used most in the sample; the example is the first in the dump's order."""
    uses: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for result in results:
        for name, (count, of_pages, example) in result.unhandled.items():
            uses[name] += count
            pages[name] += of_pages
            examples.setdefault(name, example)
    most = sorted(uses, key=lambda name: (-uses[name], name))[:SHOWN_TEMPLATES]
    return [{"name": name, "count": uses[name], "example": examples[name], "pages": pages[name]} for name in most]
