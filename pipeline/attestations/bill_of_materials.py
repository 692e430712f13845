"""bom.cdx.json: what a model is made of, as a CycloneDX 1.6 bill of materials (cyclonedx.org/docs/1.6/json): its files, the
text with licences, the models that it began from, the libraries, and CycloneDX's model card.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pipeline.attestations.chain import (
    DOCUMENTS,
    PRETRAINED,
    UNKNOWN,
    Chain,
    Source,
    Work,
    library,
    made_elsewhere,
    name_elsewhere,
    originals,
    sources,
)

FILE = "bom.cdx.json"
CARD = "README.md"
"""of a model: an export has another one, with results"""
SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
SPDX = frozenset(
    """
Apache-2.0 MIT CC0-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-SA-2.0 CC-BY-SA-2.5 CC-BY-SA-3.0 CC-BY-SA-4.0
CC-BY-NC-4.0 CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CC-PDDC GFDL-1.2-only GFDL-1.3-only GFDL-1.3-or-later ODbL-1.0 ODC-By-1.0
PDDL-1.0 Unlicense etalab-2.0
""".split()  # noqa: SIM905
)
"""identifiers of licences that texts have (spdx.org/licenses); any other licence is given by name"""

Plain = dict[str, Any]


def bill_of_materials(chain: Chain, scores: Sequence[Mapping[str, Any]], provider: str) -> Plain:
    """The bill. scores: `performance metrics` of its fine-tuned models, in CycloneDX's form; provider: "" unknown."""
    model = chain.model
    told = sources(chain)
    data = [_source(source, f"source-{number}") for number, source in enumerate(told, 1)]
    documents = chain.last(DOCUMENTS)
    text = [_documents(documents, told)] if documents else []
    begun = [_elsewhere(work, f"model-{number}") for number, work in enumerate(made_elsewhere(chain), 1)]
    libraries = list(_libraries(chain))
    reads = [each["bom-ref"] for each in (*text, *begun)] or [each["bom-ref"] for each in data]
    tools = [each["bom-ref"] for each in libraries]
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, model.urn)}",
        "version": 1,
        "metadata": {
            **({"timestamp": model.times[1]} if model.times else {}),
            **({"supplier": {"name": provider}} if provider else {}),
            "component": _model(chain, [*text, *data], scores),
        },
        "components": [*text, *data, *begun, *libraries],
        "dependencies": [
            {"ref": "model", "dependsOn": [*reads, *tools]},
            *({"ref": each["bom-ref"], "dependsOn": [part["bom-ref"] for part in data]} for each in text),
        ],
    }


def performance_metrics(entries: Sequence[Mapping[str, Any]]) -> list[Plain]:
    """Scores of a benchmark report's entries, in points, as CycloneDX writes them."""
    return [
        {
            "type": metric,
            "value": f"{score['ours']:.1f}",
            "slice": f"{entry['title']}, {row['part']}, {len(row['seeds'])} seeds",
            **_interval(score),
        }
        for entry in entries
        for row in entry["rows"]
        for metric, score in row["metrics"].items()
    ]


def _interval(score: Mapping[str, Any]) -> Plain:
    if score["low"] is None:
        return {}
    return {"confidenceInterval": {"lowerBound": f"{score['low']:.1f}", "upperBound": f"{score['high']:.1f}"}}


def _model(chain: Chain, data: Sequence[Plain], scores: Sequence[Mapping[str, Any]]) -> Plain:
    model = chain.model
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": model.record.recipe,
        "version": model.record.version,
        "description": str(model.config.get("description") or UNKNOWN),
        "properties": _properties(chain),
        "components": [
            {
                "type": "file",
                "bom-ref": f"file-{number}",
                "name": entry["path"],
                "hashes": [{"alg": "SHA-256", "content": entry["sha256"]}],
            }
            for number, entry in enumerate(model.files or (), 1)
            if entry["path"] != CARD
        ],
        "modelCard": {
            "modelParameters": {
                "approach": {"type": "self-supervised"},
                "task": "fill-mask",
                "architectureFamily": "transformer",
                "modelArchitecture": "BERT",
                "datasets": [{"ref": each["bom-ref"]} for each in data],
                "inputs": [{"format": "text"}],
                "outputs": [{"format": "token probabilities"}],
            },
            "quantitativeAnalysis": {"performanceMetrics": [*_held_out(model), *scores]},
            "considerations": {
                "technicalLimitations": [
                    "[CLS] and the pooler mean nothing by themselves as long as the model is not fine-tuned.",
                    *(
                        ["Its training began from a model made elsewhere, whose training text is unknown."]
                        if made_elsewhere(chain)
                        else []
                    ),
                ],
                "ethicalConsiderations": [
                    {"name": "personal data in the training text", "mitigationStrategy": UNKNOWN}
                ],
            },
        },
    }


def _properties(chain: Chain) -> list[Plain]:
    """Architecture and hyperparameters of every phase."""
    found = {"parameters": chain.model.statistics.get("parameters", UNKNOWN)}
    for work in chain.of(PRETRAINED):
        for name, value in _flat(work.config):
            found[f"{work.record.asset}.{name}"] = value
    return [{"name": f"bertworks:{name}", "value": str(value)} for name, value in found.items()]


def _flat(config: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in sorted(config.items()):
        if isinstance(value, Mapping):
            yield from _flat(value, f"{at}{name}.")
        elif value is not None:
            yield f"{at}{name}", value


def _held_out(model: Work) -> Iterator[Plain]:
    told = model.statistics.get("held_out") or {}
    for name in ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"):
        if told.get(name) is not None:
            yield {
                "type": name,
                "value": str(told[name]),
                "slice": f"held-out text, {told.get('sequences', UNKNOWN)} sequences",
            }


def _documents(work: Work, told: Sequence[Source]) -> Plain:
    files = work.files or ()
    size = f"{sum(entry['size_bytes'] for entry in files):,} bytes" if files else "removed from the store"
    names = [licence for source in told for licence in source.licences or (UNKNOWN,)]
    return {
        "type": "data",
        "bom-ref": "documents",
        "name": f"{work.record.recipe}/documents",
        "version": work.record.version,
        "licenses": _licences(sorted(set(names))),
        "data": [
            {
                "type": "dataset",
                "name": "documents",
                "description": f"Training and held-out documents: {work.statistics.get('row_count', UNKNOWN)} of them, {size}.",
                "contents": {"properties": [{"name": entry["path"], "value": entry["sha256"]} for entry in files]},
            }
        ],
    }


def _source(source: Source, ref: str) -> Plain:
    files = originals(source.files) if source.files else []
    hashes = (
        [{"alg": "SHA-256", "content": files[0].digests["sha256"]}]
        if len(files) == 1 and "sha256" in files[0].digests
        else []
    )
    place = {"url": source.url} if source.url else {}
    listed = [{"name": file.name, "value": _digests(file.digests)} for file in files]
    return {
        "type": "data",
        "bom-ref": ref,
        "name": source.name,
        "version": source.files.record.version if source.files else UNKNOWN,
        **({"hashes": hashes} if hashes else {}),
        "licenses": _licences(source.licences or (UNKNOWN,)),
        "data": [
            {
                "type": "dataset",
                "name": source.name,
                "description": f"{source.kind}, {source.origin}, language {source.language}, dated {source.date or UNKNOWN}; "
                f"{UNKNOWN if source.train is None else source.train} training documents.",
                "contents": {**place, "properties": listed},
            }
        ],
    }


def _digests(digests: Mapping[str, str]) -> str:
    return " ".join(f"{kind}:{digest}" for kind, digest in sorted(digests.items()))


def _licences(names: Sequence[str]) -> list[Plain]:
    return [{"license": {"id": name} if name in SPDX else {"name": name}} for name in names]


def _elsewhere(work: Work, ref: str) -> Plain:
    """A model made elsewhere, by what its record names."""
    files = originals(work)
    return {
        "type": "machine-learning-model",
        "bom-ref": ref,
        "name": name_elsewhere(work),
        "version": work.record.version,
        "description": "A model made elsewhere, from which training began; what it was trained on is unknown.",
        "licenses": _licences((UNKNOWN,)),
        "properties": [{"name": file.name or UNKNOWN, "value": _digests(file.digests)} for file in files],
    }


def _libraries(chain: Chain) -> Iterator[Plain]:
    """Every version of a library that any step ran with."""
    found = {
        (str(name), str(version))
        for work in chain.works
        for name, version in (work.record.body.get("libraries") or {}).items()
    }
    for name, version in sorted(found):
        purl = library(name, version)
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
