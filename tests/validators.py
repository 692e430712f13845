"""Outside verdicts on attestations: the formats' own libraries. Each raises, or asserts, where a file is not of its format."""

import json
from pathlib import Path
from typing import Any

import pytest

NEEDED = "needs {} (requirements-dev.lock)"


def croissant(path: Path) -> Any:
    """mlcroissant's data set, without errors and warnings."""
    mlc = pytest.importorskip("mlcroissant", reason=NEEDED.format("mlcroissant"))
    dataset = mlc.Dataset(jsonld=str(path))
    assert dataset.metadata.issues.report() == ""
    return dataset


def bill_of_materials(text: str) -> None:
    """cyclonedx-python-lib's strict validator of CycloneDX 1.6, formats of URLs and dates included."""
    validation = pytest.importorskip("cyclonedx.validation.json", reason=NEEDED.format("cyclonedx-python-lib"))
    from cyclonedx.schema import SchemaVersion

    error = validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert error is None, str(error)[:2000]


def provenance(data: bytes) -> list[dict[str, Any]]:
    """The statements, as in-toto's and SLSA's own messages read them (unknown fields are errors), each canonical JSON."""
    pytest.importorskip("in_toto_attestation", reason=NEEDED.format("in-toto-attestation"))
    import rfc8785
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    statements = []
    for line in data.splitlines():
        told = json.loads(line)
        assert rfc8785.dumps(told) == line
        Statement.copy_from_pb(json_format.Parse(line, statement_pb2.Statement())).validate()
        json_format.ParseDict(told["predicate"], provenance_pb2.Provenance())
        statements.append(told)
    return statements


def openlineage(data: bytes) -> list[dict[str, Any]]:
    """The events, equal to what comes out of the OpenLineage client's own classes when they are filled with them; our own facet
    is what its schema says."""
    pytest.importorskip("openlineage.client", reason=NEEDED.format("openlineage-python"))
    from openlineage.client.serde import Serde

    events = [json.loads(line) for line in data.splitlines()]
    for event in events:
        assert _full(Serde.to_dict(_event(event))) == _full(event)
    return events


def _event(event: dict[str, Any]) -> Any:
    from openlineage.client import event_v2 as ol
    from openlineage.client.generated.job_type_job import JobTypeJobFacet
    from openlineage.client.generated.test_run import TestExecution, TestRunFacet

    run = {}
    for name, facet in event["run"]["facets"].items():
        if name == "bertworks":
            run[name] = _own(facet)
        else:
            tests = [TestExecution(**test) for test in facet["tests"]]
            run[name] = TestRunFacet(tests=tests, producer=facet["_producer"])
    job = {name: _made(JobTypeJobFacet, facet) for name, facet in event["job"]["facets"].items()}
    return ol.RunEvent(
        eventTime=event["eventTime"],
        eventType=ol.RunState[event["eventType"]],
        producer=event["producer"],
        run=ol.Run(runId=event["run"]["runId"], facets=run),
        job=ol.Job(namespace=event["job"]["namespace"], name=event["job"]["name"], facets=job),
        inputs=[_dataset(ol.InputDataset, each, "inputFacets") for each in event["inputs"]],
        outputs=[_dataset(ol.OutputDataset, each, "outputFacets") for each in event["outputs"]],
    )


def _dataset(kind: Any, told: dict[str, Any], special: str) -> Any:
    from openlineage.client.generated import data_quality_assertions_dataset as quality
    from openlineage.client.generated.dataset_type_dataset import DatasetTypeDatasetFacet
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
    from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

    classes = {
        "version": DatasetVersionDatasetFacet,
        "datasetType": DatasetTypeDatasetFacet,
        "schema": SchemaDatasetFacet,
        "inputStatistics": InputStatisticsInputDatasetFacet,
        "outputStatistics": OutputStatisticsOutputDatasetFacet,
        "dataQualityAssertions": quality.DataQualityAssertionsDatasetFacet,
    }
    parts = {"fields": SchemaDatasetFacetFields, "assertions": quality.Assertion}

    def made(facets: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, facet in facets.items():
            nested = {
                key: [parts[key](**each) for each in value] if key in parts else value for key, value in facet.items()
            }
            found[name] = _made(classes[name], nested)
        return found

    return kind(
        namespace=told["namespace"],
        name=told["name"],
        facets=made(told["facets"]),
        **{special: made(told.get(special, {}))},
    )


def _made(kind: Any, facet: dict[str, Any]) -> Any:
    """The class sets the URL of its schema itself: equal only if ours is that of the class."""
    values = {name: value for name, value in facet.items() if not name.startswith("_")}
    return kind(**values, producer=facet["_producer"])


def _own(facet: dict[str, Any]) -> Any:
    """Our own facet as a user of the client would write one, after its schema has judged it."""
    import attr
    import jsonschema
    from openlineage.client.generated.base import RunFacet

    from pipeline.attestations.openlineage import SCHEMA

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(facet, schema)
    names = [name for name in facet if not name.startswith("_")]

    class Base(RunFacet):  # type: ignore[misc,valid-type]
        @staticmethod
        def _get_schema() -> str:
            return f"{schema['$id']}#/$defs/{schema['title']}"

    return _made(attr.make_class("BertworksRunFacet", names, bases=(Base,)), facet)


def _full(value: Any) -> Any:
    """Without what is empty: the client writes empty lists where nothing is stated."""
    if isinstance(value, dict):
        return {name: _full(each) for name, each in value.items() if each not in (None, [], {})}
    return [_full(each) for each in value] if isinstance(value, list) else value
