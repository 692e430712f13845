"""What the card of a model says of its training, as values: model/exporting/training_card.py writes them."""

from collections.abc import Mapping
from typing import Any

from pipeline.attestations.chain import DOCUMENTS, PRETRAINED, UNKNOWN, Chain, made_elsewhere, sources

_STATED = ("sequence_length", "steps", "batch_size", "optimizer", "learning_rate", "warmup_steps", "precision", "seed")


def training(chain: Chain, provider: Mapping[str, str]) -> dict[str, Any]:
    """Sources, phases and checks of the chain. provider: the section `provider` of the settings."""
    told = sources(chain)
    documents = chain.last(DOCUMENTS)
    failed = [f"{work.record.asset}: {r['name']}" for work in chain.works for r in work.results if not r["passed"]]
    return {
        "version": chain.model.record.version,
        "licence": provider.get("model_licence", ""),
        "languages": sorted({source.language for source in told} - {UNKNOWN}),
        "sources": [
            {
                "name": source.name,
                "kind": source.kind,
                "origin": source.origin,
                "link": source.url or UNKNOWN,
                "dated": source.date or UNKNOWN,
                "language": source.language,
                "licences": ", ".join(source.licences) or UNKNOWN,
                "documents": UNKNOWN if source.train is None else source.train,
            }
            for source in told
        ],
        "documents": documents.record.version if documents else UNKNOWN,
        "phases": [
            {
                "phase": work.record.asset,
                **{name: work.config.get(name, UNKNOWN) for name in _STATED},
                "begun": work.statistics.get("begun", UNKNOWN),
                "device": work.statistics.get("device_name", UNKNOWN),
            }
            for work in chain.of(PRETRAINED)
        ],
        "made_elsewhere": bool(made_elsewhere(chain)),
        "checks": sum(len(work.results) for work in chain.works),
        "failed": failed,
        "waived": [
            {"asset": work.record.asset, "check": str(waiver["check"]), "reason": str(waiver["reason"])}
            for work in chain.works
            for waiver in work.record.body.get("waivers") or ()
        ],
    }
