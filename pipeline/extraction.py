"""Stage `wikipedia_text`: the articles of a dump as plain documents, `S_text` of kind wikipedia.

Here is the plan (parts, workers), what follows when parts do not fit together, the table and the sum; the work is a Beam
pipeline, `pipeline.beam.extraction_beam`. Parts follow from the files alone and the table from the pages alone, so that it is the
same bytes for any number of workers, any runner, and however the dump is compressed.
"""

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline import progress
from pipeline.beam import beam_process
from pipeline.config import Frozen, WikipediaTextConfig
from pipeline.errors import SourceError
from pipeline.schemas import TEXT_SCHEMA, describe_lengths, write_dropped, write_parts
from pipeline.selection.sampling import fetched_share
from pipeline.settings import BeamSettings, settings
from pipeline.stage import Stage
from pipeline.system import disk, places
from pipeline.system.places import Place, is_url, make, shared, unhurried
from pipeline.wiki.dump_parts import Part, beginning, cut
from pipeline.wiki.runs import Merge, Run
from pipeline.wikipedia import dump_files, read_site
from pipeline.wikitext import Site

STAGE = Stage(
    name="wikipedia_text",
    function="pipeline.extraction:extract_text",
    version="5",
    sources=(
        "pipeline/extraction.py",
        "pipeline/beam/extraction_beam.py",
        "pipeline/beam/common_beam.py",
        "pipeline/system/places.py",
        "pipeline/wiki/dump_parts.py",
        "pipeline/wiki/bz2_blocks.py",
        "pipeline/wiki/runs.py",
        "pipeline/wikipedia.py",
        "pipeline/wikitext.py",
        "pipeline/wiki/wikitext_*.py",
        "pipeline/wiki/templates/*.toml",
        "pipeline/selection/sampling.py",
        "pipeline/schemas.py",
    ),
)

PIPELINE = "pipeline.beam.extraction_beam:run"
WORK_PER_WORKER = 12 << 20
"""Bytes of .bz2 below which one more worker process costs more than it saves."""
DISK_PER_BZ2 = 3.0
"""Bytes on the way and of the table together, for each byte of .bz2: wikitext of articles (zstd) 1.1, text (lz4) 0.9, the
table 0.6, measured on English."""
TABLE_PER_BZ2 = 0.7
"""The same of the table alone: what is on the way lies in the object store where workers see that."""
SAMPLE_PAGES = 8
"""Templates without a rule are looked for in pages whose id is a multiple of this."""
SHOWN_TEMPLATES = 50
FOLDERS = ("pages", "templates", "read", "runs", "extracted", "progress")
"""Of scratch; the names of files in them begin with `stem_of` their part."""
Model = TypeVar("Model", bound=Frozen)


def stem_of(part: Part) -> str:
    """Names a part; ascends in the dump's order."""
    return f"{part.file:05d}-{part.start:014d}"


class Reading(Frozen):
    """What reading a part gave."""

    part: Part
    first: int | None
    following: int | None
    """places, see PartReader"""
    pages: int
    dropped: dict[str, int]
    streams: int
    """that end in the part"""
    template_pages: int
    batches: str
    """file of scratch/pages: the articles' wikitext"""


class Extracted(Frozen):
    """What the articles of a part gave."""

    dropped: dict[str, int]
    runs: tuple[Run, ...]
    unhandled: dict[str, tuple[int, int, str]]
    """template without a rule → (uses, pages, example), of the sample"""


class Plan(Frozen):
    """All that the Beam pipeline must know. Folders are absolute, or URLs."""

    parts: tuple[Part, ...]
    sites: tuple[str, ...]
    """of each file, as JSON"""
    scratch: Place
    out: Place
    config: WikipediaTextConfig
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
        RecipeError: the Beam settings ask for a mode that loses data, or for something that isn't there.
        StoreError: the disk can't hold what is forecast.
    """
    files, others = dump_files(inputs["dump"])
    sites = [read_site(path) for path in files]
    named = {site.name: path.name for path, site in zip(files, sites, strict=True) if site.name}
    if len(named) > 1:
        told = ", ".join(f"{file} is of {name}" for name, file in sorted(named.items()))
        raise SourceError(f"the files are of different wikis: {told}", "Make each wiki a source of its own.")
    whole = cut(files)
    wanted = beginning(whole, min(1.0, config.sample / fetched_share(inputs["dump"])))
    parts = [part.model_copy(update={"path": shared(part.path)}) for part in wanted]
    needed = sum(part.work for part in parts) * (TABLE_PER_BZ2 if is_url(shared(out)) else DISK_PER_BZ2)
    disk.check_room(out, needed, "articles", "Free space, or move the store (home in settings.yaml).")
    beam = settings().beam
    with disk.scratch_folder(out) as scratch:
        plan = Plan(
            parts=tuple(parts),
            sites=tuple(json.dumps(vars(site)) for site in sites),
            scratch=shared(scratch),
            out=shared(out),
            config=config,
            beam=beam,
            workers=useful_workers(beam, parts),
        )
        try:
            for folder in FOLDERS:
                make(plan.scratch / folder)
            beam_process.run(PIPELINE, plan.model_dump_json(by_alias=True), scratch, _poll(plan))
            found = _write(plan.scratch, out)
        except BaseException:
            for path in out.glob("part-*.parquet"):
                path.unlink()
            raise
    read = sum(part.work for part in parts) / sum(part.work for part in whole) * fetched_share(inputs["dump"])
    return found | {
        **({"sample_share": round(read, 9)} if config.sample < 1 else {}),
        "wiki": sites[-1].name,
        "files": len(files),
        "ignored_files": [path.name for path in others],
        "dump_megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 3),
    }


def useful_workers(beam: BeamSettings, parts: Sequence[Part]) -> int:
    """The workers of the settings, or fewer where starting them would cost more than they save."""
    work = sum(part.work for part in parts)
    return min(beam.workers, len(parts), 1 + int(work / WORK_PER_WORKER))


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────

STEPS = {"read": "bytes read", "text": "bytes extracted"}
"""Beginning of the names in the folder `progress` → what is shown."""


def _poll(plan: Plan) -> Callable[[], None]:
    """Reports what the workers have written into the folder `progress`; Beam itself says nothing until the end."""
    total = sum(part.end - part.start for part in plan.parts)
    seen: dict[str, int] = {}

    def report() -> None:
        for step, unit in STEPS.items():
            try:
                counts = places.read_all(plan.scratch / "progress", f"{step}-*")
            except FileNotFoundError:  # parts that were joined
                continue
            done = min(sum(map(int, counts.values())), total)
            if done != seen.get(step, 0):
                seen[step] = done
                progress.report(done, total, unit)

    return unhurried(report, plan.scratch)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(scratch: Path, out: Path) -> dict[str, Any]:
    """Write the table and dropped.json; return the statistics."""
    readings = read_all(scratch / "read", Reading)
    extracted = read_all(scratch / "extracted", Extracted)
    merge = Merge(scratch / "runs", [run for part in extracted for run in part.runs])
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
    for counts in (*(part.dropped for part in readings), *(part.dropped for part in extracted)):
        dropped.update(counts)
    dropped["duplicate_page_id"] += merge.duplicates
    count = write_dropped(out, sum(part.pages for part in readings), kept, +dropped)
    return {
        **describe_lengths(lengths),
        **count,
        "wikitext_characters_millions": round(characters / 1e6, 6),
        "sample": sample,
        "parts": len(readings),
        "streams": sum(part.streams for part in readings),
        "template_pages": sum(part.template_pages for part in readings),
        "unhandled_templates": most_used(extracted),
    }


def read_all(folder: Path, kind: type[Model]) -> list[Model]:
    """The files of a folder of scratch, in the dump's order."""
    return [kind.model_validate_json(data) for data in places.read_all(folder, "*.json").values()]


def most_used(parts: Sequence[Extracted]) -> list[dict[str, Any]]:
    """The templates without a rule that were used most in the sample; the example is the first in the dump's order."""
    uses: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for part in parts:
        for name, (count, of_pages, example) in part.unhandled.items():
            uses[name] += count
            pages[name] += of_pages
            examples.setdefault(name, example)
    most = sorted(uses, key=lambda name: (-uses[name], name))[:SHOWN_TEMPLATES]
    return [{"name": name, "count": uses[name], "example": examples[name], "pages": pages[name]} for name in most]
