"""What is said about a release: made from its records, and of the recipe's current report where that is of this model.

attestations    the set, by file name
attest          kept under the home: attestations/VERSION/
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.commands.results import CARD, scored_release
from model.exporting import data_summary_page, results_card
from model.exporting.training_card import with_training
from pipeline.attestations import bill_of_materials, card, croissant, data_summary, kept, openlineage, provenance
from pipeline.attestations.chain import chain_of
from pipeline.settings import settings
from pipeline.store import Record, Store

FACET = "openlineage-run-facet.schema.json"


def attest(store: Store, record: Record) -> Path:
    """Make the set of a release, keep it as what is said of its version, and return its folder.

    An equal set stays as it is, another one is kept as an older one. Raises StoreError where the chain can't be proven, the
    release's content is gone, or the home can't be written.
    """
    return kept.keep(store, record.version, attestations(store, record))


def attestations(store: Store, record: Record) -> dict[str, bytes]:
    """File name → bytes: the same for the same records, report and section `provider` of the settings. Raises StoreError."""
    folder = store.folder(record.stage, record.version)
    provider = settings().provider.plain()
    scored, _ = scored_release(store, record)
    chain = chain_of(store, record)
    full = chain_of(store, record, scored.record) if scored else chain
    entries = scored.entries if scored else []

    text = with_training((folder / CARD).read_text(encoding="utf-8"), card.training(chain, provider))
    files: dict[str, bytes] = {}
    if scored and any(entry["rows"] for entry in entries):
        whose = results_card.Source(record.recipe, record.version, scored.date)
        text = results_card.of_release(text, entries, whose)
        results = results_card.eval_results(entries, whose)
        files = {f"{results_card.EVAL_RESULTS}/{name}": each.encode() for name, each in results.items()}
    summary = data_summary.data_summary(chain, provider)
    metrics = bill_of_materials.performance_metrics(entries)
    files |= {
        CARD: text.encode(),
        croissant.FILE: _json(croissant.croissant(chain, provider["name"])),
        bill_of_materials.FILE: _json(bill_of_materials.bill_of_materials(chain, metrics, provider["name"])),
        openlineage.FILE: openlineage.openlineage(full),
        FACET: openlineage.SCHEMA.read_bytes(),
        data_summary.FILE: _json(summary),
        data_summary_page.FILE: data_summary_page.data_summary_page(summary).encode(),
    }
    own = {file["path"]: file["sha256"] for file in chain.model.files or ()}
    listed = own | {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    subjects = [{"path": name, "sha256": digest} for name, digest in sorted(listed.items())]
    return {**files, provenance.FILE: provenance.provenance(full, subjects)}


def _json(value: Mapping[str, Any]) -> bytes:
    """Without a <, which JSON has in strings only: hubs put JSON-LD into a page, where `</script>` in a licence would end it."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text.replace("<", "\\u003c") + "\n").encode()
