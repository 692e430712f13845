"""openlineage.ndjson: the chain as OpenLineage events (openlineage.io, spec 2-0-2), a START and a COMPLETE of every step.

What OpenLineage has no facet for, hyperparameters and scores, stands in one of our own: run_facet.schema.json beside this file.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa

from pipeline.attestations.chain import DOCUMENTS, FILES, SHARDS, TEXTS, UNKNOWN, Chain, Original, Work, originals, rows
from pipeline.schemas import DOCUMENTS_SCHEMA, TEXT_SCHEMA
from pipeline.system.atomic import canonical_json

FILE = "openlineage.ndjson"
SCHEMA = Path(__file__).with_name("run_facet.schema.json")
PRODUCER = "urn:bertworks:openlineage:1"
RUN_FACET = "urn:bertworks:openlineage:run-facet:1#/$defs/BertworksRunFacet"
NAMESPACE = "bertworks"
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_MODELS = ("pretrained", "release", "finetuned", "imported_checkpoint")
_SCORES = ("mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")

Plain = dict[str, Any]


def openlineage(chain: Chain) -> bytes:
    """The events, in the order of the steps. A step whose record is lost has no times and no events."""
    events = [event for work in chain.works if work.times for event in _events(work, *work.times)]
    return b"".join(canonical_json(event) + b"\n" for event in events)


def _events(work: Work, started: str, finished: str) -> Iterator[Plain]:
    assert work.made is not None
    common = {
        "producer": PRODUCER,
        "schemaURL": EVENT,
        "job": {
            "namespace": NAMESPACE,
            "name": f"{work.record.recipe}.{work.record.asset}",
            "facets": {
                "jobType": _facet(
                    "2-0-4/JobTypeJobFacet",
                    processingType="BATCH",
                    integration="BERTWORKS",
                    jobType=work.record.stage.upper(),
                )
            },
        },
        "inputs": [*(_input(read) for read in work.inputs.values()), *map(_outside, originals(work))],
    }
    run = {"runId": str(uuid5(NAMESPACE_URL, f"urn:bertworks:record:{work.made.digest}"))}
    yield {
        **common,
        "eventType": "START",
        "eventTime": started,
        "run": {**run, "facets": {}},
        "outputs": [_dataset(work)],
    }
    facets = {"bertworks": _told(work, work.made.body), "tests": _tests(work)}
    output = {**_dataset(work), "outputFacets": {"outputStatistics": _size(work)}}
    yield {
        **common,
        "eventType": "COMPLETE",
        "eventTime": finished,
        "run": {**run, "facets": facets},
        "outputs": [output],
    }


def _facet(schema: str, **values: Any) -> Plain:
    """A facet of the specification; schema: VERSION/NAME."""
    name = schema.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{schema}.json#/$defs/{name}", **values}


def _dataset(work: Work) -> Plain:
    kind = "MODEL" if work.record.stage in _MODELS else "TABLE" if _columns(work) else "FILE"
    facets = {
        "version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=work.record.version),
        "datasetType": _facet("1-0-1/DatasetTypeDatasetFacet", datasetType=kind, subType=work.record.stage),
    }
    columns = _columns(work)
    if columns:
        fields = [{"name": name, "type": kind} for name, kind in columns.items()]
        facets["schema"] = _facet("1-2-0/SchemaDatasetFacet", fields=fields)
    return {"namespace": NAMESPACE, "name": work.record.path, "facets": facets}


def _columns(work: Work) -> dict[str, str]:
    """Column → type of a table, as its stage declares them."""
    stage = work.record.stage
    schema = TEXT_SCHEMA if stage in TEXTS else DOCUMENTS_SCHEMA if stage == DOCUMENTS else _shard_columns(work)
    return {field.name: str(field.type) for field in schema}


def _shard_columns(work: Work) -> pa.Schema:
    from pipeline.config import Shards
    from pipeline.sharding.shard_schema import shard_schema

    if work.record.stage != SHARDS or "vocab_size" not in work.statistics:
        return pa.schema([])
    known = {name: value for name, value in work.config.items() if name in ("objective", "masking", "sentence_task")}
    return shard_schema(int(work.statistics["vocab_size"]), Shards.model_construct(**known))


def _input(work: Work) -> Plain:
    assertions = [
        {
            "assertion": "great_expectations",
            "name": str(result["name"]),
            "success": bool(result["passed"]),
            "severity": _severity(result),
            "description": str(result.get("description", "")),
            "expected": str(result.get("expected", UNKNOWN)),
            "actual": str(result.get("observed", UNKNOWN)),
        }
        for result in work.results
    ]
    return {
        **_dataset(work),
        "inputFacets": {
            "dataQualityAssertions": _facet("1-1-0/DataQualityAssertionsDatasetFacet", assertions=assertions),
            "inputStatistics": _facet("1-0-0/InputStatisticsInputDatasetFacet", **_counts(work)),
        },
    }


def _severity(result: Mapping[str, Any]) -> str:
    return "error" if result.get("severity") == "critical" else "warn"


def _outside(original: Original) -> Plain:
    """A file that no step made: its namespace is the site, or `file` for what lay on a disk."""
    site, _, path = original.uri.partition("://")
    host, _, rest = path.partition("/")
    namespace, name = (f"{site}://{host}", rest) if host else ("file", original.name or UNKNOWN)
    if original.uri.startswith("pkg:"):
        namespace, name = "pkg", f"{original.uri}#{original.member}"
    version = original.digests.get("sha256") or original.digests.get("sha1") or UNKNOWN
    return {
        "namespace": namespace,
        "name": name,
        "facets": {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=version)},
        "inputFacets": {},
    }


def _counts(work: Work) -> Plain:
    """What is known of rows, bytes and files."""
    count = rows(work)
    known = {} if count is None else {"rowCount": count}
    if work.files is not None:
        known |= {"size": sum(int(file["size_bytes"]) for file in work.files), "fileCount": len(work.files)}
    elif work.record.stage == FILES and "size_bytes" in work.statistics:
        known |= {"size": int(work.statistics["size_bytes"]), "fileCount": int(work.statistics["file_count"])}
    return known


def _size(work: Work) -> Plain:
    return _facet("1-0-2/OutputStatisticsOutputDatasetFacet", **_counts(work))


def _tests(work: Work) -> Plain:
    return _facet(
        "1-0-1/TestRunFacet",
        tests=[
            {
                "name": str(result["name"]),
                "status": "pass" if result["passed"] else "fail",
                "severity": _severity(result),
                "type": "great_expectations",
                "description": str(result.get("description", "")),
                "expected": str(result.get("expected", UNKNOWN)),
                "actual": str(result.get("observed", UNKNOWN)),
            }
            for result in work.results
        ],
    )


def _told(work: Work, ran: Mapping[str, Any]) -> Plain:
    git = ran.get("git") or {}
    return {
        "_producer": PRODUCER,
        "_schemaURL": RUN_FACET,
        "record": work.made.digest if work.made else UNKNOWN,
        "stage": work.record.stage,
        "stageVersion": str(ran.get("code_version") or UNKNOWN),
        "commit": str(git.get("commit") or UNKNOWN),
        "dirty": UNKNOWN if git.get("dirty") is None else bool(git["dirty"]),
        "seed": ran.get("seed"),
        "hyperparameters": {} if work.record.stage == FILES else dict(work.config),  # files are inputs
        "scores": _scores(work),
    }


def _scores(work: Work) -> dict[str, float]:
    """Held-out scores of a pretrained model or its release; scores on dev and test of a fine-tuned one."""
    told = work.statistics
    held_out = told.get("held_out")
    if isinstance(held_out, Mapping):
        return {name: held_out[name] for name in _SCORES if isinstance(held_out.get(name), int | float)}
    if work.record.stage == "finetuned":
        parts = ("dev_", "test_")
        return {
            name: value
            for name, value in sorted(told.items())
            if name.startswith(parts) and not name.endswith("_examples") and isinstance(value, int | float)
        }
    return {}
