"""`bert audit ASSET`: the chain behind an artifact and what it answers, as plain values. From records and manifests alone, and
the list of books: Dagster's database may be gone, and the store may be read-only.

audit_text is in assets/audits/audit_text.py, the page in assets/audits/audit_page.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.audits.affected import made_of
from assets.commands.named import named
from pipeline import lineage
from pipeline.attestations.chain import UNKNOWN, chain_of, made_elsewhere
from pipeline.audits import checked, origins, overlap, removed, trained, workings
from pipeline.store import Record, Store, open_store

Plain = dict[str, Any]


def audit(target: str) -> Plain:
    """Everything that `bert audit` says of `RECIPE/ASSET` (its current record) or of the digest of a record. Raises StoreError if
    its chain can't be proven, RecipeError if the asset was never made."""
    store = open_store()
    return audited(store, named(store, target))


def audited(store: Store, record: Record) -> Plain:
    """As `audit`, of a record."""
    works = chain_of(store, record)
    found = {
        **chain(store, record),
        "files": origins.files(works),
        "sources": origins.texts(works),
        "books": origins.books(store, works),
        "workings": workings.workings(works),
        "removed": removed.accounts(works),
        "checks": checked.checked(works),
        "training": trained.trained(works),
        "contamination": overlap.overlap(works),
        "affected": made_of(store, record.stage, record.version),
        "made_elsewhere": [work.record.path for work in made_elsewhere(works)],
    }
    return {**found, "unknown": list(_unknown(found))}


def chain(store: Store, record: Record) -> Plain:
    """Asset, version and every record of the chain with its files: what an export carries, and `bert restore` reads."""
    return {
        "asset": record.path,
        "version": record.version,
        "chain": [step.plain() for step in lineage.audit(store, record)],
    }


def trace(target: str, documents: Sequence[str]) -> Plain:
    """What is known of documents behind an artifact (assets/audits/traced.py). Raises as `audit` does, and DataError where it was not
    made from documents."""
    from assets.audits.traced import traced

    store = open_store()
    return traced(store, named(store, target), documents)


# ── what no record tells ─────────────────────────────────────────────────────────────────────────────────────────────


def _unknown(found: Mapping[str, Any]) -> Iterator[str]:
    """Of every section what it does not know, a sentence each."""
    yield from _of_files(found["files"])
    for source in found["sources"]:
        missing = [name.replace("_", " ") for name, value in source.items() if value in (UNKNOWN, [UNKNOWN])]
        missing.remove("date") if source["kind"] != "wikipedia" and "date" in missing else None
        if missing:
            yield f"source {source['source']}: {', '.join(missing)}"
    for books in found["books"]:
        if books["why"]:
            yield f"{books['asset']}: the books and their licences ({books['why']})"
            continue
        if UNKNOWN in books["licences"]:
            yield f"{books['asset']}: the licence of {books['licences'][UNKNOWN]:,} books"
        for name in ("title", "author"):
            count = sum(not book[name] for book in books["books"])
            if count:
                yield f"{books['asset']}: the {name} of {count:,} books"
    for step in found["workings"]:
        missing = [name.replace("_", " ") for name, value in step.items() if value == UNKNOWN]
        if missing:
            yield f"{step['asset']}: {', '.join(missing)}"
    for account in found["removed"]:
        if removed.sound(account) == UNKNOWN:
            of = f" of {account['source']}" if account["source"] else ""
            yield f"{account['asset']}{of}: whether what was read and removed adds up ({removed.verdict(account)})"
    for training in found["training"]:
        missing = [name.replace("_", " ") for name, value in training.items() if value == UNKNOWN]
        if missing:
            yield f"{training['asset']}: {', '.join(missing)}"
    looked = {(row["task"], row["part"]) for row in found["contamination"]}
    if not looked and any(step["stage"] == "finetuned" for step in found["chain"]):
        yield "contamination of the tasks: this chain holds no record that tells it"
    yield from (
        f"{name}: how that model was trained, and on what: it was made elsewhere" for name in found["made_elsewhere"]
    )
    for step in found["chain"]:
        if not step["files"]:
            yield f"{step['asset']}: its files: neither content nor tombstone is in the store"


def _of_files(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One sentence for each asset and thing: a corpus may have thousands of files."""
    missing: dict[tuple[str, str], list[str]] = {}
    for file in files:
        for name in ("url", "sha1", "sha256", "size_bytes", *(["date"] if file["origin"] == "Wikimedia dump" else [])):
            if file[name] == UNKNOWN:
                missing.setdefault((file["asset"], name), []).append(file["name"])
    for (asset, name), of in missing.items():
        yield f"{asset}: {name.replace('_', ' ')} of {of[0] if len(of) == 1 else f'{len(of):,} files'}"
