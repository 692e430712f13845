"""The summary of training content that Article 53(1)(d) of the EU's AI Act asks for, in the sections of the Commission's template
(C(2025) 8311, annex), as values: model/exporting/data_summary_page.py writes them for people.

Records know the text, not the provider's contracts: what they can't tell is UNKNOWN, and `provider` of settings.yaml is asked.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.attestations.chain import (
    DOCUMENTS,
    UNKNOWN,
    Chain,
    Source,
    Work,
    made_elsewhere,
    name_elsewhere,
    originals,
    sources,
)

FILE = "data-summary.json"
RANGES = ((1_000.0, "less than 1 billion tokens"), (10_000_000.0, "1 billion to 10 trillion tokens"))
"""bounds in millions of tokens, as the template has them for text"""
PUBLIC = ("Wikimedia dump", "package")
"""origins that everybody can get at; of a disk's files, or of a URL that may be anyone's, records don't tell"""
LARGEST = "more than 10 trillion tokens"

Plain = dict[str, Any]


def data_summary(chain: Chain, provider: Mapping[str, str]) -> Plain:
    """The summary. provider: the section `provider` of the settings, "" where nothing is stated."""

    def asked(name: str) -> str:
        return provider.get(name) or f"{UNKNOWN}: for the provider to state (provider.{name} in settings.yaml)"

    told = sources(chain)
    public = [source for source in told if source.origin in PUBLIC]
    others = [source for source in told if source.origin not in PUBLIC]
    return {
        "template": "C(2025) 8311",
        "general_information": {
            "provider": {
                "name": asked("name"),
                "contact": asked("contact"),
                "authorised_representative": asked("representative"),
            },
            "model": {
                "name": chain.model.record.recipe,
                "version": chain.model.record.version,
                "depends_on": [_elsewhere(work) for work in made_elsewhere(chain)],
                "placed_on_the_market": asked("placed_on_market"),
            },
            "training_data": _training_data(chain, told),
        },
        "data_sources": {
            "public_datasets": {"used": _yes(public), "datasets": [_source(source) for source in public]},
            "not_classified": {
                "used": _yes(others),
                "datasets": [_source(source) for source in others],
                "what_they_are": asked("other_files") if others else "none",
            },
            "licensed_by_rightsholders": asked("licensed_data"),
            "private_from_third_parties": asked("private_data"),
            "crawled": asked("crawled_data"),
            "user_data": asked("user_data"),
            "synthetic": asked("synthetic_data"),
            "other": asked("other_data"),
        },
        "data_processing": {
            "reservations_of_rights": asked("reserved_rights"),
            "withdrawals": _withdrawals(chain),
            "illegal_content": asked("illegal_content"),
            "measures": _measures(chain),
            "removed": _removed(chain),
        },
    }


def _yes(found: list[Source]) -> str:
    return "yes" if found else "no"


def _elsewhere(work: Work) -> Plain:
    files = [{"name": file.name, **file.digests} for file in originals(work)]
    return {"name": name_elsewhere(work), "files": files, "its_training_content": UNKNOWN}


def _training_data(chain: Chain, told: list[Source]) -> Plain:
    documents = chain.of(DOCUMENTS)
    sizes = [work.statistics.get("tokens_millions") for work in documents]
    known = [size for size in sizes if size is not None]
    total = sum(known) if known and len(known) == len(sizes) and not made_elsewhere(chain) else None
    return {
        "modalities": ["text"] if told else [UNKNOWN],
        "size": {
            "range": UNKNOWN if total is None else _range(total),
            "tokens_millions_estimated_from_characters": UNKNOWN if total is None else round(total, 6),
            "training_documents": _sum([source.train for source in told]),
        },
        "types_of_content": [f"{source.name}: {source.kind}" for source in told] or [UNKNOWN],
        "latest_acquisition": _latest(told),
        "languages": _languages(documents, told),
    }


def _range(millions: float) -> str:
    return next((name for bound, name in RANGES if millions < bound), LARGEST)


def _sum(counts: list[int | None]) -> int | str:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else UNKNOWN


def _latest(told: list[Source]) -> str:
    """Month of the newest download; of files on a disk nobody knows when they were acquired."""
    local = [source for source in told if source.origin in ("local files", UNKNOWN)]
    known = [source.acquired for source in told if source not in local and source.acquired != UNKNOWN]
    if local or not known:
        return f"{UNKNOWN}: of local files no record tells; downloads until {max(known)[:7]}" if known else UNKNOWN
    return max(known)[:7]


def _languages(documents: list[Work], told: list[Source]) -> list[Plain]:
    """Declared and detected language of the documents, with counts; without a count what the sources declare."""
    table = [dict(row) for work in documents for row in (work.statistics.get("languages") or {}).get("table", [])]
    return table or [{"declared": language} for language in sorted({source.language for source in told})]


def _source(source: Source) -> Plain:
    return {
        "name": source.name,
        "kind": source.kind,
        "origin": source.origin,
        "wiki": source.wiki or "none",
        "link": source.url or UNKNOWN,
        "period": f"dump of {source.date}" if source.date else UNKNOWN,
        "read_or_downloaded": source.acquired,
        "language": source.language,
        "licences": list(source.licences) or [UNKNOWN],
        "documents_read": UNKNOWN if source.read is None else source.read,
        "training_documents": UNKNOWN if source.train is None else source.train,
        "tokens_millions_estimated_from_characters": UNKNOWN
        if source.tokens_millions is None
        else source.tokens_millions,
        "files": len(source.files.files)
        if source.files and source.files.files is not None
        else (source.files.statistics.get("file_count", UNKNOWN) if source.files else UNKNOWN),
        "digest_of_all_files": source.files.record.version if source.files else UNKNOWN,
    }


def _withdrawals(chain: Chain) -> str:
    """What became of `corpus.exclude`."""
    lists = [work.statistics["withdrawals"] for work in chain.of(DOCUMENTS) if work.statistics.get("withdrawals")]
    if not lists:
        return UNKNOWN
    lines = sum(each["lines"] for each in lists)
    if not lines:
        return "No list of withdrawn documents was given."
    return f"{sum(each['documents'] for each in lists):,} documents were withheld by a list of {lines:,} withdrawals."


def _measures(chain: Chain) -> list[str]:
    """What was done to the documents, in words."""
    found = []
    for work in chain.of(DOCUMENTS):
        config = work.config
        if not config:
            continue
        near = config.get("near_duplicates", UNKNOWN)
        found += [
            f"Documents of fewer than {config.get('min_characters', UNKNOWN)} characters are left out.",
            "Equal documents are kept once."
            + ("" if near == 1 else f" So are those whose word 5-grams have a Jaccard similarity of {near} or more."),
            f"A share of {config.get('held_out', UNKNOWN)} of the documents is held out from training.",
        ]
        filters = config.get("filters") or {}
        named = (("boilerplate", 1.0, "at most"), ("repetition", 1.0, "at most"), ("language", 0.0, "at least"))
        for name, off, bound in named:
            if filters.get(name, off) != off:
                found.append(f"Filter {name}: {bound} {filters[name]}.")
        if config.get("decontaminate"):
            found.append(
                f"Documents that share a word 13-gram with {', '.join(sorted(config['decontaminate']))} are left out."
            )
        if config.get("licence_required"):
            found.append("Only documents that name a licence are used.")
    return found or [UNKNOWN]


def _removed(chain: Chain) -> Plain:
    """Source → [step, documents]: from what was read to what is in the corpus."""
    found: Plain = {}
    for work in chain.of(DOCUMENTS):
        found |= {str(name): steps for name, steps in (work.statistics.get("waterfall") or {}).items()}
    return found
