"""provenance.intoto.jsonl: how every artifact of the chain was made, an in-toto Statement v1 a line with SLSA provenance v1.

Forms: github.com/in-toto/attestation (spec/v1/statement.md, resource_descriptor.md), slsa.dev/spec/v1.0/provenance. The URNs,
the build types and the digest `bertworksVersion` are defined in docs/attestations.md. Lines are canonical JSON (RFC 8785).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.attestations.chain import UNKNOWN, Chain, Original, Work, library, originals

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILDER = "urn:bertworks:builder:1"
FILE = "provenance.intoto.jsonl"

Plain = dict[str, Any]


def build_type(stage: str) -> str:
    """URI of what a stage does: docs/attestations.md says what its parameters mean."""
    return f"urn:bertworks:build-type:{stage}:1"


def provenance(chain: Chain, files: Sequence[Mapping[str, Any]]) -> bytes:
    """The statements, inputs first; the last is of the exported folder: of `files` (path, sha256), all but this one."""
    import rfc8785

    statements = [*map(_statement, chain.works), _exported(chain, files)]
    return b"".join(rfc8785.dumps(statement) + b"\n" for statement in statements)


def _statement(work: Work) -> Plain:
    body = work.record.body
    ran = work.made.body if work.made else body
    times = dict(zip(("startedOn", "finishedOn"), work.times or (), strict=False))
    return {
        "_type": STATEMENT,
        "subject": [_version(work), *_subjects(work)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": build_type(work.record.stage),
                "externalParameters": {
                    "recipe": work.record.recipe,
                    "asset": work.record.asset,
                    "config": body.get("asked") or {},
                },
                "internalParameters": {
                    "stageVersion": body.get("code_version") or UNKNOWN,
                    "seed": body.get("seed"),
                    "forced": bool(body.get("forced")),
                    **_machine(body),
                },
                "resolvedDependencies": [*_inputs(work), *map(_original, originals(work)), *_code(ran)],
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {
                    "invocationId": _record_urn(work.made.digest if work.made else str(body["reused"])),
                    **times,
                },
                "byproducts": [_validation(work), {"name": "record", **_record(work.record.digest)}],
            },
        },
    }


def _exported(chain: Chain, files: Sequence[Mapping[str, Any]]) -> Plain:
    """Of the folder that people get: the model's files as they are, and what is said about it."""
    last = [work for work in chain.works if work is chain.model or work.record.stage == "benchmark_report"]
    return {
        "_type": STATEMENT,
        "subject": [{"name": file["path"], "digest": {"sha256": file["sha256"]}} for file in files],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": build_type("export"),
                "externalParameters": {"recipe": chain.model.record.recipe, "asset": chain.model.record.asset},
                "resolvedDependencies": [
                    part for work in last for part in (_version(work), _record(work.record.digest))
                ],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def _version(work: Work) -> Plain:
    return {"name": work.record.asset, "uri": work.urn, "digest": {"bertworksVersion": work.record.version}}


def _subjects(work: Work) -> Iterator[Plain]:
    for file in work.files or ():
        yield {"name": f"{work.record.asset}/{file['path']}", "digest": {"sha256": file["sha256"]}}


def _inputs(work: Work) -> Iterator[Plain]:
    for name, read in work.inputs.items():
        yield {**_version(read), "annotations": {"input": name}}
    told = work.statistics.get("root")
    if "root" not in work.inputs and isinstance(told, Mapping) and told.get("record"):
        yield {
            "name": str(told.get("asset", UNKNOWN)),
            **_record(str(told["record"])),
            "annotations": {"input": "root"},
        }


def _original(original: Original) -> Plain:
    digest = {"digest": dict(original.digests)} if original.digests else {}
    place = {"uri": original.uri} if original.uri else {}
    if original.uri and not original.member:
        place["downloadLocation"] = original.uri
    notes = {"annotations": {"member": original.member}} if original.member else {}
    return {"name": original.name or UNKNOWN, **place, **digest, **notes}


def _code(ran: Mapping[str, Any]) -> Iterator[Plain]:
    git = ran.get("git") or {}
    commit = {"digest": {"gitCommit": git["commit"]}} if git.get("commit") else {}
    dirty = UNKNOWN if git.get("dirty") is None else bool(git["dirty"])
    annotations = {"dirty": dirty, **({} if commit else {"commit": UNKNOWN})}
    yield {"name": "bertworks", "uri": "urn:bertworks:source", **commit, "annotations": annotations}
    for name, version in sorted((ran.get("libraries") or {}).items()):
        yield {"name": name, "uri": library(name, str(version))}


def _machine(body: Mapping[str, Any]) -> Plain:
    """How it was run, as far as that can change the last bits of trained weights."""
    training = (body.get("settings") or {}).get("training") or {}
    told = {name: training[name] for name in ("device", "threads", "ranks", "micro_batch_tokens") if name in training}
    return {"training": told} if told and body.get("stage") in ("pretrained", "finetuned") else {}


def _validation(work: Work) -> Plain:
    validation = work.record.body.get("validation") or {}
    return {
        "name": "validation",
        "annotations": {
            "suite": validation.get("suite_digest") or UNKNOWN,
            "checks": [
                {name: result.get(name, UNKNOWN) for name in ("name", "passed", "severity", "observed", "expected")}
                for result in work.results
            ],
            "waivers": [dict(waiver) for waiver in work.record.body.get("waivers") or ()],
        },
    }


def _record(digest: str) -> Plain:
    return {"uri": _record_urn(digest), "digest": {"sha256": digest}}


def _record_urn(digest: str) -> str:
    return f"urn:bertworks:record:{digest}"
