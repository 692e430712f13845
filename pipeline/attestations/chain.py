"""The chain behind a model, as its attestations read it: from records and manifests alone.

Nothing here opens content: what was removed from the store is still named, by its version. What no record tells is UNKNOWN.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipeline.errors import StoreError
from pipeline.lineage import reuses, root_of
from pipeline.storage.manifest import Entry
from pipeline.storage.record import Record
from pipeline.store import Store

UNKNOWN = "unknown"
FILES, DOCUMENTS, SHARDS, PRETRAINED, IMPORTED = (
    *("files", "documents", "pretraining_shards"),
    *("pretrained", "imported_checkpoint"),
)
"""names of stages"""
TEXTS = {"wikipedia_text": "wikipedia", "books_text": "books", "own_text": "own text"}
"""stage of a source's text → what it is"""
ORIGINS = {"path": "local files", "url": "download", "wheel": "package", "wikimedia": "Wikimedia dump"}
"""as `pipeline.sources` names where files came from → in words"""


@dataclass(frozen=True)
class Work:
    """One artifact of the chain."""

    record: Record
    made: Record | None
    """the record of the run that made the content: another one where this one reuses it; None: that is lost"""
    inputs: Mapping[str, "Work"]
    files: Sequence[Entry] | None
    """of its manifest; None: the content was removed"""

    @property
    def config(self) -> Mapping[str, Any]:
        """What the stage was configured with, defaults and all."""
        return dict(self.record.body.get("config") or {})

    @property
    def statistics(self) -> Mapping[str, Any]:
        """What the stage measured."""
        return dict(self.record.body.get("statistics") or {})

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """Its validation."""
        return list((self.record.body.get("validation") or {}).get("results") or [])

    @property
    def times(self) -> tuple[str, str] | None:
        """(started, finished) of the run that made it, ISO 8601 with Z; None where that record is lost."""
        if self.made is None:
            return None
        return zulu(self.made.body["started"]), zulu(self.made.body["finished"])

    @property
    def urn(self) -> str:
        """Its name for other programs: the content, wherever it lies."""
        return f"urn:bertworks:version:{self.record.stage}:{self.record.version}"


@dataclass(frozen=True)
class Chain:
    """Everything that a model came from, each after its inputs, and what was made of it besides."""

    works: tuple[Work, ...]
    model: Work

    def of(self, *stages: str) -> list[Work]:
        """Its artifacts of these stages."""
        return [work for work in self.works if work.record.stage in stages]

    def last(self, stage: str) -> Work | None:
        """The last of a stage."""
        return next(iter(reversed(self.of(stage))), None)


def chain_of(store: Store, record: Record, *others: Record) -> Chain:
    """The chain behind the record of a model, and those behind `others`. A model that training began from is followed too, where
    the store has its record.

    Raises StoreError where a record that is named as an input is missing or altered: then nothing can be attested.
    """
    done: dict[tuple[str, str, str], Work] = {}
    works: list[Work] = []

    def visit(each: Record) -> Work:
        key = (each.recipe, each.asset, each.version)
        if key not in done:
            inputs = {name: visit(store.record(digest)) for name, digest in sorted(each.inputs.items())}
            root = root_of(store, each)
            inputs |= {"root": visit(root)} if root else {}
            done[key] = Work(each, _made(store, each), inputs, _files(store, each))
            works.append(done[key])
        return done[key]

    model = visit(record)
    for other in others:
        visit(other)
    return Chain(tuple(works), model)


def _made(store: Store, record: Record) -> Record | None:
    try:
        return list(reuses(store, record))[-1]
    except StoreError:
        return None


def _files(store: Store, record: Record) -> Sequence[Entry] | None:
    try:
        return list(store.manifest(record.stage, record.version)["files"])
    except StoreError:
        return None


def zulu(time: str) -> str:
    """A time of a record, which is in UTC, as all tools read it."""
    return time.replace("+00:00", "Z")


def rows(work: Work) -> int | None:
    """Documents or instances of a table; None for what is no table."""
    told = work.statistics
    if work.record.stage == SHARDS:
        return sum(told["instances"].values()) if "instances" in told else None
    if work.record.stage == DOCUMENTS or work.record.stage in TEXTS:
        count = told.get("row_count", told.get("kept"))
        return int(count) if count is not None else None
    return None


# ── what came from the outside ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Original:
    """A file that no stage made."""

    name: str
    digests: Mapping[str, str]
    """sha1, sha256; what the site states and what was measured"""
    size_bytes: int | None = None
    uri: str = ""
    """where it was downloaded from, or the package that holds it; "" where no record tells"""
    member: str = ""
    """of a package: what was read out of it"""


def originals(work: Work) -> list[Original]:
    """The files from outside that an artifact was made of, as its record tells: those of the origin that the recipe names, and
    any other that it named (lists of withdrawals, a vocabulary, a task's files)."""
    told = work.statistics
    measured = {entry["path"]: entry for entry in work.files or ()} if work.record.stage == FILES else {}
    found = []
    for each in _named(work.record.body.get("asked")):
        if "wheel_sha256" in each:
            wheel, member = str(told.get("wheel", "")), str(each.get("member", ""))
            name = wheel or member
            found.append(Original(name, {"sha256": each["wheel_sha256"]}, None, _package(wheel), member))
            continue
        name = str(each.get("path", each.get("name", "")))
        entry = measured.get(name, each)
        digests = {kind: str(said[kind]) for said in (entry, each) for kind in ("sha1", "sha256") if kind in said}
        size = entry.get("size_bytes")
        found.append(Original(name, digests, None if size is None else int(size), _address(told, name)))
    return found


def _named(asked: Any) -> Iterator[Mapping[str, Any]]:
    """Every file that stands in what was asked for, at any depth, in the forms of `pipeline.sources.resolve`."""
    if isinstance(asked, Mapping):
        if "wheel_sha256" in asked or (("path" in asked or "name" in asked) and ("sha256" in asked or "sha1" in asked)):
            yield asked
            return
        for _, value in sorted(asked.items()):
            yield from _named(value)
    elif isinstance(asked, list):
        for value in asked:
            yield from _named(value)


def _address(told: Mapping[str, Any], name: str) -> str:
    if told.get("origin") == "wikimedia" and told.get("url"):
        return f"{_iri(told['url'])}/{quote(name)}"
    return _iri(told.get("url", "")) if told.get("origin") == "url" else ""


def _iri(url: Any) -> str:
    """A URL as a person wrote it, without what may not stand in one."""
    return quote(str(url), safe="%/:=&?~#+!$,;'@()*[]")


def _package(wheel: str) -> str:
    """Package URL of a wheel, from its file name `name-version-tags.whl` (PEP 427); "" where there is none."""
    parts = wheel.split("-")
    return f"{library(parts[0].replace('_', '-'), parts[1])}?file_name={quote(wheel)}" if len(parts) >= 5 else ""


def library(name: str, version: str) -> str:
    """Package URL of a Python distribution (github.com/package-url/purl-spec)."""
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}"


# ── sources of text ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Source:
    """One source of the training text."""

    name: str
    kind: str
    """wikipedia, books, own text"""
    text: Work
    files: Work | None
    origin: str
    """one of ORIGINS, or UNKNOWN"""
    wiki: str
    """of a Wikimedia dump; "" else"""
    date: str
    """of the dump, YYYY-MM-DD; "" where no record tells"""
    url: str
    """where it was downloaded from; "" where no record tells"""
    acquired: str
    """day of the download, or on which local files were read, YYYY-MM-DD, or UNKNOWN"""
    language: str
    licences: tuple[str, ...]
    """as declared; empty: unknown"""
    read: int | None
    """documents, and how many of them are in the corpus, and in its training part"""
    kept: int | None
    train: int | None
    tokens_millions: float | None
    """an estimate from characters"""


def sources(chain: Chain) -> list[Source]:
    """Where the text of a model came from, by name; of a model that began from one of our own, that one's sources too."""
    documents = chain.of(DOCUMENTS)
    found = [_source(text, documents) for text in chain.of(*TEXTS)]
    return sorted(found, key=lambda source: (source.name, source.text.record.version))


def _source(text: Work, documents: Sequence[Work]) -> Source:
    files = next(iter(text.inputs.values()), None)
    told = files.statistics if files else {}
    name = str(text.config.get("source") or text.record.asset.removesuffix("_text"))
    counted: Mapping[str, Any] = next(
        (each.statistics for each in documents if any(read is text for read in each.inputs.values())), {}
    )
    splits = counted.get("documents", {}).get(name, {})
    date = str(told.get("dump_date") or "").replace("-", "")
    licence = text.config.get("licence")
    stated = text.statistics.get("licences") or ([licence] if licence else [])
    return Source(
        name=name,
        kind=TEXTS[text.record.stage],
        text=text,
        files=files,
        origin=ORIGINS.get(str(told.get("origin")), UNKNOWN),
        wiki=str(told.get("wiki") or text.statistics.get("wiki") or ""),
        date=f"{date[:4]}-{date[4:6]}-{date[6:]}" if len(date) == 8 else "",
        url=_iri(told.get("url") or ""),
        acquired=files.times[1][:10] if files and files.times else UNKNOWN,
        language=str(text.config.get("language") or UNKNOWN),
        licences=tuple(str(each) for each in stated if each != "none"),
        read=text.statistics.get("read"),
        kept=sum(splits.values()) if splits else None,
        train=splits.get("train"),
        tokens_millions=counted.get("tokens_millions_by_source", {}).get(name),
    )


def licences(chain: Chain) -> list[str]:
    """Every licence that is declared for a part of the text, sorted; with UNKNOWN where a source declares none."""
    return sorted({licence for source in sources(chain) for licence in source.licences or (UNKNOWN,)})


def name_elsewhere(work: Work) -> str:
    """What the record of a model made elsewhere calls it."""
    told = work.statistics.get("root") or {}
    return next((str(told[key]) for key in ("asset", "folder", "archive", "wheel") if told.get(key)), UNKNOWN)


def made_elsewhere(chain: Chain) -> list[Work]:
    """Models in the chain whose training no record tells."""
    return [work for work in chain.of(IMPORTED) if "root" not in work.inputs]
