"""Attestations of chains that are written by hand: dumps, packages, foreign models, lost records, hostile words."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from model.exporting.data_summary_page import data_summary_page
from model.exporting.training_card import with_training
from pipeline.attestations import bill_of_materials, card, croissant, data_summary, openlineage, provenance
from pipeline.attestations.chain import UNKNOWN, Chain, chain_of, library, originals, sources
from pipeline.errors import StoreError
from pipeline.settings import ProviderSettings
from pipeline.storage.record import Record
from pipeline.store import Store
from tests import validators

DUMP = "nlwiki-20261001-pages-articles-multistream.xml.bz2"
SITE = "https://dumps.wikimedia.org/nlwiki/20261001"
NOBODY = ProviderSettings().plain()
HOSTILE = "a|b <script>alert(1)</script> [x](javascript:1) `c` \u202e\n# title"


class Made:
    """A store that is filled record by record."""

    def __init__(self, home: Path) -> None:
        self.store = Store(home)
        self.count = 0

    def __call__(self, stage: str, asset: str, files: Mapping[str, bytes] | None = None, **body: Any) -> Record:
        """Publish `files` (or say that their content was removed: None) and write the record."""
        self.count += 1
        version = f"{self.count:064x}"
        if files is not None:
            with self.store.staging() as staged:
                for name, data in files.items():
                    (staged / name).parent.mkdir(parents=True, exist_ok=True)
                    (staged / name).write_bytes(data)
                version = self.store.publish(stage, staged)
        inputs = {name: record.digest for name, record in body.pop("inputs", {}).items()}
        told = {
            "schema": "1",
            "recipe": "dutch",
            "asset": asset,
            "stage": stage,
            "key": f"key of {asset}",
            "version": version,
            "inputs": inputs,
            "code_version": "1",
            "asked": {},
            "config": {},
            "statistics": {},
            "libraries": {"torch": "2.13.0+cpu"},
            "git": {"commit": "c" * 40, "dirty": False},
            "validation": {"suite_digest": "s", "results": []},
            "waivers": [],
            "started": f"2026-10-{self.count:02}T01:00:00.000000+00:00",
            "finished": f"2026-10-{self.count:02}T02:00:00.000000+00:00",
        }
        return self.store.append(told | body)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "home")


def corpus(made: Made, licence: str = "CC-BY-SA-4.0", name: str = "wikipedia", removed: bool = False) -> Record:
    """Documents of one Wikimedia dump."""
    declared = [{"name": DUMP, "size_bytes": 4, "sha1": "a" * 40}]
    dump = made(
        "files",
        f"{name}_dump",
        None if removed else {DUMP: b"dump"},
        asked={"from": {"wiki": "nlwiki", "date": "20261001", "files": declared}},
        statistics={
            "origin": "wikimedia",
            "wiki": "nlwiki",
            "dump_date": "20261001",
            "url": SITE,
            "files": declared,
            "file_count": 1,
            "size_bytes": 4,
        },
    )
    text = made(
        "wikipedia_text",
        f"{name}_text",
        None if removed else {"part-00000.parquet.txt": b"text"},
        config={"source": name, "language": "nl", "licence": licence},
        statistics={"read": 7, "row_count": 6},
        inputs={"dump": dump},
    )
    return made(
        "documents",
        "documents",
        None if removed else {"part-00000.txt": b"documents"},
        config={"held_out": 0.1, "min_characters": 100, "near_duplicates": 0.8},
        statistics={
            "row_count": 5,
            "documents": {name: {"train": 4, "held_out": 1}},
            "tokens_millions": 2_500.0,
            "tokens_millions_by_source": {name: 2_500.0},
            "languages": {"table": [{"declared": "nl", "detected": "nl", "documents": 5}]},
            "waterfall": {name: [["read", 7], ["redirect", -1], ["duplicate", -1], ["documents", 5]]},
            "withdrawals": {"lines": 3, "documents": 2, "unmatched": 1, "unmatched_lines": []},
        },
        inputs={name: text},
    )


def released(made: Made, **body: Any) -> Record:
    """The release of a model of these inputs."""
    config = {"sequence_length": 128, "steps": 1000, "learning_rate": 1e-5, "seed": 1}
    failed = {"name": "loss_fell", "passed": False, "severity": "warning", "observed": "1", "expected": "< 1"}
    trained = made(
        "pretrained",
        "pretrained_128",
        {"model.safetensors": b"weights"},
        config=config,
        asked={"learning_rate": 1e-5},
        validation={"suite_digest": "s", "results": [failed]},
        waivers=[{"check": "loss_fell", "reason": HOSTILE, "user": "me", "time": "2026-10-09T00:00:00+00:00"}],
        **body,
    )
    return made(
        "release",
        "release",
        {"README.md": b"card", "model.safetensors": b"weights"},
        config={"recipe": "dutch", "description": "Dutch."},
        statistics={"parameters": 12, "held_out": {"mlm_loss": 2.5, "mlm_accuracy": 0.5, "sequences": 8}},
        inputs={"pretrained": trained},
    )


def everything(chain: Chain) -> dict[str, Any]:
    """All attestations of a chain, each accepted by its outside validator where that needs no file."""
    bill = bill_of_materials.bill_of_materials(chain, [], "")
    validators.bill_of_materials(json.dumps(bill))
    summary = data_summary.data_summary(chain, NOBODY)
    return {
        "provenance": validators.provenance(provenance.provenance(chain, [{"path": "f", "sha256": "0" * 64}])),
        "events": validators.openlineage(openlineage.openlineage(chain)),
        "croissant": croissant.croissant(chain, ""),
        "bill": bill,
        "summary": summary,
        "page": data_summary_page(summary),
        "card": with_training("---\ntags:\n- bert\n---\n# dutch\n\n## Use\n\nSo.\n", card.training(chain, NOBODY)),
    }


def checked(dataset: dict[str, Any], folder: Path) -> Any:
    path = folder / "croissant.json"
    path.write_text(json.dumps(dataset), encoding="utf-8")
    return validators.croissant(path)


# ── a Wikimedia dump ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dump_is_named_by_url_and_both_digests(made: Made, tmp_path: Path) -> None:
    chain = chain_of(made.store, released(made, inputs={"documents": corpus(made)}))
    assert [work.record.asset for work in chain.works] == [
        *("wikipedia_dump", "wikipedia_text", "documents", "pretrained_128", "release")
    ]
    said = everything(chain)
    sha256 = hashlib.sha256(b"dump").hexdigest()
    (original,) = originals(chain.works[0])
    assert (original.uri, original.digests) == (f"{SITE}/{DUMP}", {"sha1": "a" * 40, "sha256": sha256})
    read = said["provenance"][0]["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert read[0] == {
        "name": DUMP,
        "uri": f"{SITE}/{DUMP}",
        "downloadLocation": f"{SITE}/{DUMP}",
        "digest": {"sha1": "a" * 40, "sha256": sha256},
    }
    assert {"name": "torch", "uri": "pkg:pypi/torch@2.13.0%2Bcpu"} in read
    file = checked(said["croissant"], tmp_path).metadata.distribution[0]
    assert (file.content_url, file.sha256, file.content_size) == (f"{SITE}/{DUMP}", sha256, "4 B")
    outside = said["events"][0]["inputs"][0]
    assert (outside["namespace"], outside["name"]) == ("https://dumps.wikimedia.org", f"nlwiki/20261001/{DUMP}")
    training = said["summary"]["general_information"]["training_data"]
    assert training["size"]["range"] == "1 billion to 10 trillion tokens"
    assert training["latest_acquisition"] == "2026-10"  # the day of the download, not of the dump
    (source,) = said["summary"]["data_sources"]["public_datasets"]["datasets"]
    assert (source["link"], source["period"], source["training_documents"]) == (SITE, "dump of 2026-10-01", 4)
    assert said["summary"]["data_processing"]["withdrawals"] == "2 documents were withheld by a list of 3 withdrawals."
    assert "| wikipedia | duplicate | -1 |" in said["page"]


@pytest.mark.parametrize(
    ("millions", "expected"),
    [
        (999.9, "less than 1 billion tokens"),
        (1_000.0, "1 billion to 10 trillion tokens"),
        (9_999_999.0, "1 billion to 10 trillion tokens"),
        (10_000_000.0, "more than 10 trillion tokens"),
    ],
)
def test_sizes_fall_into_the_templates_ranges(made: Made, millions: float, expected: str) -> None:
    record = released(
        made, inputs={"documents": made("documents", "documents", statistics={"tokens_millions": millions})}
    )
    summary = data_summary.data_summary(chain_of(made.store, record), NOBODY)
    assert summary["general_information"]["training_data"]["size"]["range"] == expected


def test_a_package_is_named_by_its_url_with_the_member_that_was_read(made: Made) -> None:
    wheel = "Some_Texts-1.2-py3-none-any.whl"
    files = made(
        "files",
        "tales_files",
        asked={"from": {"wheel_sha256": "b" * 64, "member": "data/tales.txt"}},
        statistics={"origin": "wheel", "wheel": wheel, "wheel_sha256": "b" * 64, "member": "data/tales.txt"},
    )
    (original,) = originals(chain_of(made.store, files).model)
    assert original.uri == f"pkg:pypi/some-texts@1.2?file_name={wheel}"
    assert (original.name, original.member, original.digests) == (wheel, "data/tales.txt", {"sha256": "b" * 64})


def test_package_urls_are_those_of_the_reference_library() -> None:
    packageurl = pytest.importorskip("packageurl", reason=validators.NEEDED.format("packageurl-python"))
    for name, version in (("torch", "2.13.0+cpu"), ("ruamel.yaml", "0.18"), ("Great_Expectations", "1!2.0rc1")):
        purl = packageurl.PackageURL.from_string(library(name, version))
        assert (purl.type, purl.version) == ("pypi", version)
        assert purl.name == name.lower().replace("_", "-")


# ── what is not known ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_made_elsewhere_is_named_and_its_text_is_unknown(made: Made, tmp_path: Path) -> None:
    told = [{"path": "model.safetensors", "sha256": "d" * 64, "size_bytes": 9}]
    imported = made(
        "imported_checkpoint",
        "imported_checkpoint",
        {"model.safetensors": b"foreign"},
        asked={"folder": {"files": told}},
        statistics={"external": True, "root": {"folder": "some-bert"}},
    )
    record = released(made, inputs={"documents": corpus(made), "imported_checkpoint": imported})
    said = everything(chain_of(made.store, record))
    assert said["summary"]["general_information"]["model"]["depends_on"] == [
        {
            "name": "some-bert",
            "files": [{"name": "model.safetensors", "sha256": "d" * 64}],
            "its_training_content": UNKNOWN,
        }
    ]
    assert said["summary"]["general_information"]["training_data"]["size"]["range"] == UNKNOWN
    assert "some-bert (1 files), its training content: unknown" in said["page"]
    models = [each for each in said["bill"]["components"] if each["type"] == "machine-learning-model"]
    assert [each["name"] for each in models] == ["some-bert"]
    assert models[0]["properties"] == [{"name": "model.safetensors", "value": f"sha256:{'d' * 64}"}]
    assert "the text of that one is unknown" in said["card"]
    assert "text of which is unknown" in str(checked(said["croissant"], tmp_path).metadata.description)


def test_a_model_of_the_same_store_that_another_began_from_is_followed_to_its_text(made: Made) -> None:
    first = released(made, inputs={"documents": corpus(made)})
    root = {"folder": "release", "asset": "dutch/release", "version": first.version, "record": first.digest}
    imported = made("imported_checkpoint", "imported_checkpoint", {"m": b"m"}, statistics={"root": root})
    chain = chain_of(made.store, released(made, inputs={"imported_checkpoint": imported}))
    assert [source.name for source in sources(chain)] == ["wikipedia"]
    assert everything(chain)["summary"]["general_information"]["model"]["depends_on"] == []
    (made.store.home / "records" / f"{first.digest}.json").unlink()
    lost = chain_of(Store(made.store.home), chain.model.record)
    assert sources(lost) == []
    (statement,) = [
        step["predicate"]["buildDefinition"]["resolvedDependencies"]
        for step in everything(lost)["provenance"]
        if step["subject"][0]["name"] == "imported_checkpoint"
    ]
    assert statement[0]["digest"] == {"sha256": first.digest} and statement[0]["annotations"] == {"input": "root"}


def test_removed_content_is_named_by_version_and_what_its_record_declares(made: Made, tmp_path: Path) -> None:
    record = released(made, inputs={"documents": corpus(made, removed=True)})
    said = everything(chain_of(made.store, record))
    dump, *_ = said["provenance"]
    assert [each["name"] for each in dump["subject"]] == ["wikipedia_dump"]
    assert dump["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"] == {"sha1": "a" * 40}
    dataset = checked(said["croissant"], tmp_path)
    assert list(dataset.metadata.distribution) == []  # a file without SHA-256 can't be one
    assert "removed from the store" in str(dataset.metadata.description)


def test_a_record_that_tells_nothing_gives_unknown_and_no_invention(made: Made, tmp_path: Path) -> None:
    bare = {"asked": None, "config": None, "statistics": None, "libraries": None, "git": None, "code_version": None}
    text = made("own_text", "own_text", **bare)
    documents = made("documents", "documents", inputs={"own": text}, **bare)
    said = everything(chain_of(made.store, made("release", "release", inputs={"documents": documents}, **bare)))
    assert said["croissant"]["license"] == [UNKNOWN] and said["croissant"]["inLanguage"] == [UNKNOWN]
    assert said["croissant"]["creator"]["name"] == UNKNOWN
    checked(said["croissant"], tmp_path)
    (source,) = said["summary"]["data_sources"]["not_classified"]["datasets"]
    assert source["licences"] == [UNKNOWN] and source["training_documents"] == UNKNOWN and source["link"] == UNKNOWN
    assert said["events"][-1]["run"]["facets"]["bertworks"]["commit"] == UNKNOWN
    code = said["provenance"][0]["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert code["annotations"] == {"dirty": UNKNOWN, "commit": UNKNOWN} and "digest" not in code


def test_work_that_is_reused_has_the_times_of_the_run_that_did_it(made: Made) -> None:
    first = corpus(made)
    again = made.store.append(
        {
            **first.body,
            "reused": first.digest,
            "started": "2026-11-01T00:00:00+00:00",
            "finished": "2026-11-01T00:00:00+00:00",
        }
    )
    record = released(made, inputs={"documents": again})
    chain = chain_of(made.store, record)
    work = next(work for work in chain.works if work.record.asset == "documents")
    assert work.times == ("2026-10-03T01:00:00.000000Z", "2026-10-03T02:00:00.000000Z")
    (made.store.home / "records" / f"{first.digest}.json").unlink()
    chain = chain_of(Store(made.store.home), record)
    said = everything(chain)
    (statement,) = [s for s in said["provenance"] if s["subject"][0]["name"] == "documents"]
    assert statement["predicate"]["runDetails"]["metadata"] == {"invocationId": f"urn:bertworks:record:{first.digest}"}
    assert "dutch.documents" not in {event["job"]["name"] for event in said["events"]}


def test_a_chain_that_has_lost_an_input_can_not_be_attested(made: Made) -> None:
    documents = corpus(made)
    record = released(made, inputs={"documents": documents})
    (made.store.home / "records" / f"{documents.digest}.json").unlink()
    with pytest.raises(StoreError, match="is not in the store"):
        chain_of(Store(made.store.home), record)


# ── words that mean harm ─────────────────────────────────────────────────────────────────────────────────────────────


def test_hostile_words_stay_words(made: Made, tmp_path: Path) -> None:
    record = released(made, inputs={"documents": corpus(made, licence=HOSTILE, name="wikipedia")})
    files = made(
        "files",
        "books_files",
        asked={"from": {"files": [{"path": f"../{HOSTILE}.txt", "sha256": "e" * 64, "size_bytes": 1}]}},
        statistics={"origin": "url", "url": "https://example.org/a b\n<script>?q=|", "file_count": 1, "size_bytes": 1},
    )
    text = made("books_text", "books_text", config={"source": HOSTILE, "licence": HOSTILE}, inputs={"files": files})
    documents = made("documents", "documents", inputs={"books": text})
    record = released(made, inputs={"documents": documents, "previous": record})
    chain = chain_of(made.store, record)
    said = everything(chain)
    checked(said["croissant"], tmp_path)
    for page in (said["page"], said["card"]):
        assert "<script>" not in page and "\n# title" not in page
        assert "](" not in page.replace("\\](", "")
        tables = re.findall(r"(?:^\|.*\|\n)+", page, re.M)
        for table in tables:
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
        assert len(tables) >= 2 and not [
            line for line in page.splitlines() if "script" in line and "&lt;script&gt;" not in line
        ]
    names = [each["name"] for each in said["croissant"]["distribution"]]
    assert f"../{HOSTILE}.txt" in names
    ids = [each["@id"] for each in said["croissant"]["distribution"]]
    assert all(character not in "".join(ids) for character in " \n<>|`[]")


def test_the_same_records_give_the_same_bytes(made: Made) -> None:
    record = released(made, inputs={"documents": corpus(made)})
    once, again = (json.dumps(everything(chain_of(Store(made.store.home), record)), sort_keys=True) for _ in range(2))
    assert once == again
