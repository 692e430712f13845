"""Attestations of a release that was really made: outside verdicts, values held against the store, and flipped bytes."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from assets.audits.attesting import attest
from assets.commands import exporting
from pipeline.errors import DataError, StoreError
from pipeline.store import Record, Store, open_store
from tests import validators
from tests.assets.bertcli import World
from tests.tiny import dump

SET = {
    *("README.md", "croissant.json", "provenance.intoto.jsonl", "bom.cdx.json", "openlineage.ndjson"),
    *("openlineage-run-facet.schema.json", "data-summary.json", "data-summary.md"),
}
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}


@pytest.fixture(scope="module")
def world(made: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    return made.copy(tmp_path_factory.mktemp("attesting") / "world")


@pytest.fixture(autouse=True)
def here(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERT_HOME", raising=False)
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))


@pytest.fixture(scope="module")
def exported(made: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its release, by the command itself."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    made.bert("export", "tiny/release", str(folder))
    return folder


def released(store: Store) -> Record:
    record = store.pointer("tiny", "release")
    assert record is not None
    return record


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ── outside verdicts ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_folder_holds_the_model_and_the_set_and_its_card_reads_as_a_hubs_card(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == SET | MODEL | {"lineage.json"}
    card = ModelCard.load(exported / "README.md")
    assert card.data.to_dict()["language"] == ["en"] and card.data.library_name == "transformers"
    assert [result.dataset_type for result in card.data.eval_results or []] == ["places"] * 4
    for part in ("## Training text", "| wikipedia | wikipedia |", "CC-BY-SA-4.0", "## Training\n", "## Scores after"):
        assert part in card.text
    assert card.text.count("## Use\n") == 1


def test_mlcroissant_reads_the_documents_by_it(world: World, exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported / "croissant.json", tmp_path)
    exporting.export("tiny/documents", tmp_path / "documents")
    dataset = validators.croissant(tmp_path / "croissant.json")
    records = list(dataset.records("documents"))
    assert len(records) == 48
    assert {record["documents/licence"] for record in records} == {b"CC-BY-SA-4.0", b"public domain"}
    files = {each["name"]: each for each in json.loads((exported / "croissant.json").read_text())["distribution"]}
    path = world.folder / "text" / "tinywiki.xml.bz2"
    assert files["tinywiki.xml.bz2"]["sha256"] == sha256(path)
    assert files["tinywiki.xml.bz2"]["contentSize"] == f"{path.stat().st_size} B"
    parts = [each for each in files.values() if each["@id"].startswith("documents/")]
    assert {each["@id"]: each["sha256"] for each in parts} == {
        f"documents/{path.name}": sha256(path) for path in (tmp_path / "documents").glob("part-*.parquet")
    }


def test_in_toto_and_slsa_read_the_provenance_and_the_chain_has_no_gap(world: World, exported: Path) -> None:
    statements = validators.provenance((exported / "provenance.intoto.jsonl").read_bytes())
    *steps, last = statements
    made = set()
    for step in steps:  # what a step reads was made before it, or comes from the outside
        for read in step["predicate"]["buildDefinition"]["resolvedDependencies"]:
            version = read.get("digest", {}).get("bertworksVersion")
            assert version is None or version in made
        made |= {each["digest"].get("bertworksVersion") for each in step["subject"]}
    named = {step["predicate"]["buildDefinition"]["externalParameters"]["asset"]: step for step in steps}
    assert set(named) >= {
        "wikipedia_dump",
        "documents",
        "pretrained_64",
        "release",
        "finetuned_places",
        "benchmark_report",
    }
    dumped = named["wikipedia_dump"]["predicate"]["buildDefinition"]["resolvedDependencies"]
    digest = sha256(world.folder / "text" / "tinywiki.xml.bz2")
    assert {"name": "tinywiki.xml.bz2", "digest": {"sha256": digest}} in dumped
    record = released(open_store())
    ran = named["release"]["predicate"]["runDetails"]
    assert ran["metadata"] == {
        "invocationId": f"urn:bertworks:record:{record.digest}",
        "startedOn": record.body["started"].replace("+00:00", "Z"),
        "finishedOn": record.body["finished"].replace("+00:00", "Z"),
    }
    code = next(
        each
        for each in named["release"]["predicate"]["buildDefinition"]["resolvedDependencies"]
        if each["name"] == "bertworks"
    )
    assert code["digest"]["gitCommit"] == record.body["git"]["commit"]
    listed = {each["name"]: each["digest"]["sha256"] for each in last["subject"]}
    assert listed == {name: sha256(exported / name) for name in (SET | MODEL) - {"provenance.intoto.jsonl"}}


def test_cyclonedx_reads_the_bill_and_it_names_text_licences_scores_and_libraries(exported: Path) -> None:
    text = (exported / "bom.cdx.json").read_text(encoding="utf-8")
    validators.bill_of_materials(text)
    bill = json.loads(text)
    parts = {each["name"]: each for each in bill["components"]}
    assert parts["wikipedia"]["licenses"] == [{"license": {"id": "CC-BY-SA-4.0"}}]
    assert parts["books"]["licenses"] == [{"license": {"name": "public domain"}}]
    assert parts["torch"]["version"].startswith("2.") and parts["torch"]["purl"].startswith("pkg:pypi/torch@2.")
    card = bill["metadata"]["component"]["modelCard"]
    metrics = card["quantitativeAnalysis"]["performanceMetrics"]
    held_out = released(open_store()).body["statistics"]["held_out"]
    assert {"type": "mlm_loss", "value": str(held_out["mlm_loss"]), "slice": "held-out text, 64 sequences"} in metrics
    assert [each["type"] for each in metrics if each["slice"] == "Places, test, 1 seeds"] == ["accuracy", "macro_f1"]
    names = [each["ref"] for each in card["modelParameters"]["datasets"]]
    assert set(names) == {"documents", "source-1", "source-2"}


def test_the_events_come_out_of_openlineages_own_classes_as_they_went_in(world: World, exported: Path) -> None:
    events = validators.openlineage((exported / "openlineage.ndjson").read_bytes())
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * (len(events) // 2)
    done = {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
    (documents,) = done["tiny.documents"]["outputs"]
    assert documents["outputFacets"]["outputStatistics"]["rowCount"] == 48
    assert documents["facets"]["schema"]["fields"][0] == {"name": "doc_id", "type": "string"}
    (shards,) = done["tiny.pretraining_shards_32"]["outputs"]
    table = {field["name"]: field["type"] for field in shards["facets"]["schema"]["fields"]}
    assert table["input_ids"] == "list<item: uint16>" and "next_sentence_label" in table
    trained = done["tiny.pretrained_64"]["run"]["facets"]["bertworks"]
    assert trained["hyperparameters"]["learning_rate"] == 0.001 and trained["scores"]["mlm_loss"] > 0
    read = next(each for each in done["tiny.release"]["inputs"] if each["name"] == "tiny/pretrained_64")
    judged = {each["name"]: each["success"] for each in read["inputFacets"]["dataQualityAssertions"]["assertions"]}
    record = world.store.pointer("tiny", "pretrained_64")
    assert record is not None
    assert judged == {each["name"]: each["passed"] for each in record.body["validation"]["results"]}


def test_the_summary_says_what_records_know_and_asks_for_the_rest(exported: Path) -> None:
    told = json.loads((exported / "data-summary.json").read_text(encoding="utf-8"))
    training = told["general_information"]["training_data"]
    assert training["size"]["range"] == "less than 1 billion tokens" and training["size"]["training_documents"] == 35
    assert training["languages"] == [{"declared": "en", "detected": "en", "documents": 48}]
    assert training["latest_acquisition"] == "unknown"
    assert (
        told["data_sources"]["user_data"] == "unknown: for the provider to state (provider.user_data in settings.yaml)"
    )
    steps = told["data_processing"]["removed"]["wikipedia"]
    pages = dump().count("<page>")
    assert steps[0] == ["read", pages] and sum(count for _, count in steps[:-1]) == steps[-1][1] == 40
    page = (exported / "data-summary.md").read_text(encoding="utf-8")
    for title in ("## 1. General information", "## 2. List of data sources", "## 3. Data processing"):
        assert title in page


# ── the same, and older ones ─────────────────────────────────────────────────────────────────────────────────────────


def test_two_exports_are_equal_and_what_is_kept_is_what_was_exported(
    world: World, exported: Path, tmp_path: Path
) -> None:
    exporting.export("tiny/release", tmp_path / "again")
    for path in exported.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    kept = attest(open_store(), released(open_store()))
    assert kept == world.home / "attestations" / released(open_store()).version
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {n: (exported / n).read_bytes() for n in SET}
    assert not (world.home / "attestations" / "older").exists()
    assert exporting.verify("")["problems"] == [] and not open_store().leftovers()


def test_what_the_provider_states_is_said_and_the_older_set_is_kept(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made.copy(tmp_path / "world")
    shutil.rmtree(world.home / "attestations", ignore_errors=True)
    record, sets = released(world.store), []
    for number, name in enumerate(("Old & Sons", "New | *Ltd*", "New | *Ltd*", "Third")):
        stated = f"provider: {{name: '{name}', model_licence: apache-2.0, user_data: No user data.}}\n"
        settings = tmp_path / f"settings{number}.yaml"
        settings.write_text((world.folder / "settings.yaml").read_text() + stated)
        monkeypatch.setenv("BERT_SETTINGS", str(settings))
        folder = attest(open_store(), record)
        sets.append((folder / "data-summary.md").read_text())
    assert (
        "- Name: Old &amp; Sons\n" in sets[0]
        and "- Name: New \\| \\*Ltd\\*\n" in sets[1]
        and "No user data." in sets[1]
    )
    assert json.loads((folder / "croissant.json").read_text())["creator"]["name"] == "Third"
    assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
    older = world.home / "attestations" / "older" / record.version
    assert [(older / str(n) / "data-summary.md").read_text() for n in (1, 2)] == sets[:2]
    assert len(list(older.iterdir())) == 2


def test_without_dagsters_database_nothing_changes(
    made: World, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made.copy(tmp_path / "world")
    shutil.rmtree(world.home / "dagster")
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    exporting.export("tiny/release", tmp_path / "model")
    assert (tmp_path / "model" / "lineage.json").read_bytes() == (exported / "lineage.json").read_bytes()


def test_where_a_stages_content_was_removed_its_version_is_still_named(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made.copy(tmp_path / "world")
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    for stage in ("pretraining_shards", "documents", "files", "wikipedia_text"):
        shutil.rmtree(world.home / "store" / stage)
    exporting.export("tiny/release", tmp_path / "model")
    assert exporting.verify(str(tmp_path / "model"))["problems"] == []
    statements = validators.provenance((tmp_path / "model" / "provenance.intoto.jsonl").read_bytes())
    subjects = {each["name"]: each["digest"] for step in statements for each in step["subject"]}
    record = world.store.pointer("tiny", "documents")
    assert record is not None and subjects["documents"] == {"bertworksVersion": record.version}
    assert not [name for name in subjects if name.startswith("documents/")]
    validators.bill_of_materials((tmp_path / "model" / "bom.cdx.json").read_text())
    validators.openlineage((tmp_path / "model" / "openlineage.ndjson").read_bytes())
    dataset = validators.croissant(tmp_path / "model" / "croissant.json")
    assert "were removed from the store" in str(dataset.metadata.description)
    # the dump is still named: a record holds its digest
    files = {each.name: each.sha256 for each in dataset.metadata.distribution}
    assert files["tinywiki.xml.bz2"] == sha256(world.folder / "text" / "tinywiki.xml.bz2")


def test_a_store_that_can_only_be_read_is_exported_from(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = made.copy(tmp_path / "world")
    monkeypatch.setenv("BERT_SETTINGS", str(world.folder / "settings.yaml"))
    shutil.rmtree(world.home / "attestations", ignore_errors=True)
    (world.home / "attestations").write_text("in the way")  # root may write everywhere: this it may not
    done = exporting.export("tiny/release", tmp_path / "model")
    assert "The attestations are in the folder only" in done["note"]
    assert {path.name for path in (tmp_path / "model").iterdir()} == SET | MODEL | {"lineage.json"}


# ── signature and flipped bytes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pytest.importorskip("model_signing", reason=validators.NEEDED.format("model-signing"))
    private = ec.generate_private_key(ec.SECP256R1())
    folder = tmp_path_factory.mktemp("key")
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    (folder / "key.pub").write_bytes(
        private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return folder / "key.pem"


@pytest.fixture(scope="module")
def signed(made: World, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "model"
    made.bert("export", "tiny/release", str(folder), "--sign", str(key))
    return folder


def by_bert(folder: Path, name: str) -> bool:
    """Whether `bert verify` finds exactly this file changed; False: it finds nothing."""
    try:
        problems = exporting.verify(str(folder))["problems"]
    except StoreError as error:
        assert name == "lineage.json" and "lineage.json" in error.what
        return True
    assert [problem["what"] for problem in problems] in ([], [f"{folder}: {name} was changed"])
    return bool(problems)


def by_signature(folder: Path, key: Path) -> bool:
    from model_signing.verifying import Config

    try:
        Config().use_elliptic_key_verifier(public_key=key.with_suffix(".pub")).verify(folder, folder / "model.sig")
    except Exception:  # what it raises depends on which byte of the bundle is broken
        return True
    return False


def by_provenance(folder: Path) -> bool:
    last = json.loads((folder / "provenance.intoto.jsonl").read_bytes().splitlines()[-1])
    return any(sha256(folder / each["name"]) != each["digest"]["sha256"] for each in last["subject"])


def by_bill(folder: Path) -> bool:
    model = json.loads((folder / "bom.cdx.json").read_bytes())["metadata"]["component"]
    return any(sha256(folder / each["name"]) != each["hashes"][0]["content"] for each in model["components"])


@pytest.mark.parametrize("name", sorted(SET | MODEL | {"lineage.json", "model.sig"}))
def test_a_flipped_byte_is_found_by_exactly_who_vouches_for_it(
    signed: Path, key: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(signed, folder)
    verifiers: dict[str, Callable[[], bool]] = {
        "bert verify": lambda: by_bert(folder, name),
        "signature": lambda: by_signature(folder, key),
        "provenance": lambda: by_provenance(folder),
        "bill": lambda: by_bill(folder),
    }
    assert not [verifier for verifier, finds in verifiers.items() if finds()], "untouched"
    if name == "provenance.intoto.jsonl":
        del verifiers["provenance"]  # nobody vouches for himself
    if name == "bom.cdx.json":
        del verifiers["bill"]
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    expected = {"bert verify"}
    if name != "lineage.json":
        expected.add("signature")
    if name in (SET | MODEL) - {"provenance.intoto.jsonl"}:
        expected.add("provenance")
    if name in MODEL:
        expected.add("bill")
    assert {verifier for verifier, finds in verifiers.items() if finds()} == expected


def test_the_librarys_own_command_accepts_the_folder_wherever_it_lies(signed: Path, key: Path, tmp_path: Path) -> None:
    shutil.copytree(signed, tmp_path / "elsewhere")
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(tmp_path / "elsewhere")]
    command += ["--signature", str(tmp_path / "elsewhere" / "model.sig"), "--public_key", str(key.with_suffix(".pub"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_no_key_is_refused_and_nothing_is_left(key: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    for wrong in (tmp_path / "key", tmp_path / "gone", key.with_suffix(".pub")):
        with pytest.raises(DataError, match="is no private key"):
            exporting.export("tiny/release", tmp_path / "model", key=wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(DataError, match="model-signing") as error:
        exporting.export("tiny/release", tmp_path / "model", key=tmp_path / "key")
    assert "pip install" in error.value.todo
