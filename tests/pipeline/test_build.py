"""One asset brought up to date: memory, the one-chain rule, force, rejection and waivers, absent data.

The chain of toy stages stands for the real one: words (a source) → upper → count, with a real store and real validation.
"""

import json
import multiprocessing
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import build, lineage, sources, suites
from pipeline.build import Node, ValidationFailed, needed, usable
from pipeline.config import FilesConfig, Frozen, PathFrom
from pipeline.errors import ChainError, DataError, ProcessLost, SourceError, StoreError
from pipeline.stage import Stage
from pipeline.storage.objects import Objects
from pipeline.store import Store
from pipeline.suites import Suite


class WordsConfig(Frozen):
    text: str
    licence: str = "none"


class UpperConfig(Frozen):
    end: str = ""


class FileConfig(Frozen):
    from_: PathFrom


VALIDATE = suites.validate
RUNS: list[str] = []  # names of the stages that really ran


def words(inputs: Mapping[str, Path], config: WordsConfig, out: Path) -> dict[str, Any]:
    RUNS.append("words")
    (out / "words.txt").write_text(config.text, encoding="utf-8")
    (out / "licence.txt").write_text(config.licence, encoding="utf-8")
    return {"characters": len(config.text)}


def upper(inputs: Mapping[str, Path], config: UpperConfig, out: Path) -> dict[str, Any]:
    RUNS.append("upper")
    text = (inputs["words"] / "words.txt").read_text(encoding="utf-8")
    (out / "upper.txt").write_text(text.upper() + config.end, encoding="utf-8")
    return {}


def count(inputs: Mapping[str, Path], config: UpperConfig, out: Path) -> dict[str, Any]:
    RUNS.append("count")
    sizes = {name: len(next(folder.glob("*.txt")).read_text(encoding="utf-8")) for name, folder in inputs.items()}
    (out / "count.json").write_text(json.dumps(sizes, sort_keys=True), encoding="utf-8")
    return {}


def failing(inputs: Mapping[str, Path], config: UpperConfig, out: Path) -> dict[str, Any]:
    (out / "half.txt").write_text("half", encoding="utf-8")
    raise DataError("record 7 of words.txt is not a word", "Correct it.")


def trained(inputs: Mapping[str, Path], config: UpperConfig, out: Path) -> dict[str, Any]:
    """Ends when somebody looks; with `end: lost` it is killed the first time."""
    run = inputs["run"]
    with (run / "begun").open("a", encoding="utf-8") as begun:
        begun.write("x")
    if config.end == "lost" and (run / "begun").stat().st_size == 1:
        raise ProcessLost("it was killed")
    while config.end == "slow" and not (run / "seen").exists():
        time.sleep(0.01)
    (run / "result").mkdir()
    (out / "weights.txt").write_text("trained", encoding="utf-8")
    return {}


def follow(folder: Path, who: str) -> None:
    """Of the resumable stage."""
    with (folder / "seen").open("a", encoding="utf-8") as seen:
        seen.write(who)


def clear(folder: Path) -> None:
    """Of the resumable stage."""
    shutil.rmtree(folder / "result", ignore_errors=True)


def training(end: str) -> Node:
    resumable = Stage("trained", f"{__name__}:trained", "1", deterministic=False, resumable=__name__)
    return Node("toy", "trained", resumable, UpperConfig(end=end), "d")


def stage(name: str, version: str = "1") -> Stage:
    return Stage(name=name, function=f"{__name__}:{name}", version=version)


def chain(recipe: str = "toy", text: str = "one two", licence: str = "none", end: str = "") -> dict[str, Node]:
    """words → upper → count (which reads both)."""
    first = Node(recipe, "words", stage("words"), WordsConfig(text=text, licence=licence), "d")
    second = Node(recipe, "upper", stage("upper"), UpperConfig(end=end), "d", {"words": first})
    third = Node(recipe, "count", stage("count"), UpperConfig(), "d", {"upper": second, "words": first})
    return {"words": first, "upper": second, "count": third}


def build_all(store: Store, nodes: Mapping[str, Node]) -> list[str]:
    """Build everything in order; returns the stages that ran."""
    RUNS.clear()
    for node in nodes.values():
        build.build(store, node)
    return list(RUNS)


@pytest.fixture(autouse=True)
def _no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toy stages have empty suites; tests of validation give them one."""
    for name in ("words", "upper", "count", "failing", "trained"):
        monkeypatch.setitem(suites.SUITES, name, Suite(()))
    monkeypatch.setattr(suites, "validate", lambda *_: [])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home", lease_seconds=2)


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_process_follows_a_training_and_takes_over_its_result(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FOLLOW_SECONDS", 0.02)
    node = training("slow")
    first = multiprocessing.get_context("fork").Process(target=build.build, args=(store, node))
    first.start()
    while not list((store.home / "runs").glob("*/0/begun")):
        time.sleep(0.01)
    outcome = build.build(store, node)
    first.join()
    assert first.exitcode == 0 and not outcome.ran
    (folder,) = (store.home / "runs").glob("*/0")
    assert (folder / "begun").read_text() == "x"
    assert (folder / "seen").read_text().startswith(f"training run {folder.parent.name[:12]} (pid {first.pid} on ")
    assert (folder / "published.json").exists() and not (folder / "result").exists()
    assert len(list((store.home / "store" / "trained").iterdir())) == 1


def test_a_forced_training_begins_anew_but_goes_on_when_it_is_tried_again(store: Store) -> None:
    node = training("lost")
    for forced, again, begun in ((False, False, ["x"]), (True, False, ["x", "x"])):
        with pytest.raises(ProcessLost):
            build.build(store, node, forced, again)
        folders = sorted((store.home / "runs").glob("*/*/begun"))
        assert [path.read_text() for path in folders] == begun
    assert build.build(store, node, forced=True, again=True).ran
    assert [path.read_text() for path in folders] == ["x", "xx"]


def test_a_bucket_that_may_not_be_written_is_said_before_the_work(
    object_store: Callable[[], str], tmp_path: Path
) -> None:
    import boto3

    url = object_store()
    bucket = url.split("/")[2]
    there = Store(tmp_path / "home", lease_seconds=2, url=url)
    build.build(there, chain()["words"])
    statement = {
        "Effect": "Deny", "Principal": "*", "Action": ["s3:PutObject"], "Resource": f"arn:aws:s3:::{bucket}/*"
    }  # fmt: skip
    s3 = boto3.client("s3")
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    RUNS.clear()
    with pytest.raises(StoreError, match=f"{url}/") as caught:
        build.build(there, chain()["upper"])
    assert RUNS == [] and "Credentials" in caught.value.todo
    assert not list((tmp_path / "home" / "staging").iterdir())
    s3.delete_bucket_policy(Bucket=bucket)
    build.build(there, chain()["upper"])
    assert RUNS == ["upper"]
    assert Objects(url).names("") == ["memory", "records", "store"], "nothing of the trial is left"


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_build_runs_nothing(store: Store) -> None:
    assert build_all(store, chain()) == ["words", "upper", "count"]
    records = sorted((store.home / "records").iterdir())
    assert build_all(store, chain()) == []
    assert sorted((store.home / "records").iterdir()) == records, "an up-to-date asset gets no new record"


def test_an_edit_runs_what_it_touches_and_its_revert_nothing(store: Store) -> None:
    build_all(store, chain())
    before = store.pointer("toy", "upper")
    assert build_all(store, chain(end="!")) == ["upper", "count"]
    assert build_all(store, chain()) == []
    after = store.pointer("toy", "upper")
    assert before is not None and after is not None
    assert after.version == before.version


def test_equal_output_stops_the_rerun_and_the_chain_stays_current(store: Store) -> None:
    """A corrected licence reruns the source and what reads it, and nothing below what comes out equal; a later edit of
    the last asset still finds one chain."""
    build_all(store, chain())
    assert build_all(store, chain(licence="CC0")) == ["words", "upper", "count"]
    nodes = chain(licence="CC0")
    words_record = store.pointer("toy", "words")
    upper_record = store.pointer("toy", "upper")
    assert words_record is not None and upper_record is not None
    assert upper_record.inputs == {"words": words_record.digest}
    edited = {**nodes, "count": replace(nodes["count"], config=UpperConfig(end="?"))}
    assert build_all(store, edited) == ["count"]


def test_another_recipe_reuses_the_work_and_says_of_whom(store: Store) -> None:
    build_all(store, chain("first"))
    assert build_all(store, chain("second")) == []
    record = store.pointer("second", "count")
    assert record is not None
    assert store.record(record.body["reused"]).recipe == "first"
    assert {a.recipe for a in lineage.ancestors(store, record)} == {"second"}, "its ancestry is its own chain"


def test_a_raised_version_or_a_changed_library_reruns(store: Store) -> None:
    build_all(store, chain())
    nodes = chain()
    newer = replace(nodes["upper"], stage=stage("upper", "2"))
    assert "code version 1 → 2" in needed(store, newer).why
    assert build_all(
        store,
        {**nodes, "upper": newer, "count": replace(nodes["count"], inputs={"upper": newer, "words": nodes["words"]})},
    ) == ["upper"]


def test_broken_content_is_made_again_with_the_same_version(store: Store) -> None:
    build_all(store, chain())
    before = store.pointer("toy", "upper")
    assert before is not None
    (store.content("upper", before.version) / "upper.txt").write_text("ONE TWo", encoding="utf-8")
    assert build_all(store, chain()) == ["upper"]
    after = store.pointer("toy", "upper")
    assert after is not None and after.version == before.version
    assert store.verify() == []


def test_a_lost_pointer_or_an_altered_record_costs_no_run(store: Store) -> None:
    build_all(store, chain())
    pointer = store.home / "assets" / "toy" / "upper.json"
    pointer.unlink()
    assert build_all(store, chain()) == []
    record = store.pointer("toy", "words")
    assert record is not None
    path = store.home / "records" / f"{record.digest}.json"
    path.write_bytes(path.read_bytes().replace(b'"toy"', b'"tOy"'))
    assert build_all(store, chain()) == ["words"], "no other record answered its key"
    count_record = store.pointer("toy", "count")
    assert count_record is not None
    assert [s.record.asset for s in lineage.audit(store, count_record)] == ["count", "upper", "words"]


def test_why_names_the_field_that_changed(store: Store) -> None:
    build_all(store, chain())
    assert needed(store, chain(end="!")["upper"]).why == "recipe: end default → !"
    assert needed(store, chain()["upper"]).why == ""
    assert needed(store, chain("fresh")["upper"]).why == "needs words first"


@pytest.mark.parametrize(
    ("broken", "damaged", "told"),
    [
        ("records/{digest}.json", b"{", "was altered"),
        ("records/{digest}.json", None, "is missing"),
        ("assets/toy/words.json", b"{", "is damaged"),
    ],
)
def test_why_names_the_file_that_is_broken(store: Store, broken: str, damaged: bytes | None, told: str) -> None:
    build_all(store, chain())
    record = store.pointer("toy", "words")
    assert record is not None
    path = store.home / broken.format(digest=record.digest)
    path.unlink() if damaged is None else path.write_bytes(damaged)
    assert needed(store, chain()["upper"]).why == f"needs words first: {path} {told}"
    assert needed(store, chain(text="three")["words"]).why == f"{path} {told}"


# ── one chain ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_mixed_chain_is_refused_by_name(store: Store) -> None:
    """`upper` of January and `words` of February must not meet in `count`."""
    build_all(store, chain(text="january"))
    february = chain(text="february")
    build.build(store, february["words"])
    with pytest.raises(
        ChainError, match=r"toy/count: its inputs come from two generations of words.*\n.*bert run toy/upper"
    ):
        build.build(store, february["count"])
    build.build(store, february["upper"])
    assert build.build(store, february["count"]).ran


# ── force ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_force_runs_again_and_moves_the_pointer(store: Store) -> None:
    build_all(store, chain())
    RUNS.clear()
    outcome = build.build(store, chain()["upper"], forced=True)
    assert RUNS == ["upper"] and outcome.ran and outcome.record.body["forced"]
    assert store.pointer("toy", "upper") == outcome.record


def test_a_forced_stage_that_gives_another_result_publishes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_all(store, chain())
    before = store.pointer("toy", "upper")

    def other(inputs: Mapping[str, Path], config: UpperConfig, out: Path) -> dict[str, Any]:
        (out / "upper.txt").write_text("surprise", encoding="utf-8")
        return {}

    monkeypatch.setattr(f"{__name__}.upper", other)
    with pytest.raises(ValidationFailed, match="reproducible"):
        build.build(store, chain()["upper"], forced=True)
    assert store.pointer("toy", "upper") == before
    assert before is not None
    assert [p.name for p in (store.home / "store" / "upper").iterdir()] == [before.version]


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_stage_publishes_nothing_and_leaves_nothing(store: Store) -> None:
    nodes = chain()
    build.build(store, nodes["words"])
    broken = Node("toy", "failing", stage("failing"), UpperConfig(), "d", {"words": nodes["words"]})
    with pytest.raises(DataError, match=r"record 7"):
        build.build(store, broken)
    assert store.pointer("toy", "failing") is None
    assert not (store.home / "store" / "failing").exists()
    assert list((store.home / "staging").iterdir()) == []
    assert list((store.home / "leases").iterdir()) == []


def result(name: str, passed: bool, severity: str = "critical") -> suites.CheckResult:
    return suites.CheckResult(name, passed, severity, "3", "≥ 5", "")  # type: ignore[arg-type]


def test_a_failed_check_rejects_and_a_waiver_publishes_without_running(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = chain()
    build.build(store, nodes["words"])
    monkeypatch.setattr(suites, "validate", lambda *_: [result("rows", False), result("style", False, "warning")])
    with pytest.raises(ValidationFailed, match=r"rows: 3 \(expected ≥ 5\)\n.*--accept rows"):
        build.build(store, nodes["upper"])
    assert store.pointer("toy", "upper") is None
    RUNS.clear()
    record = build.accept(store, nodes["upper"], "rows", "a small test text")
    assert RUNS == []
    assert store.pointer("toy", "upper") == record
    assert [(w["check"], w["reason"]) for w in record.body["waivers"]] == [("rows", "a small test text")]
    assert usable(record) == []
    assert (store.folder("upper", record.version) / "upper.txt").read_text(encoding="utf-8") == "ONE TWO"
    monkeypatch.setattr(suites, "validate", lambda *_: [])
    assert build.build(store, nodes["count"]).ran
    assert needed(store, nodes["upper"]).up_to_date


def test_what_nothing_can_be_made_of_is_not_offered_to_be_accepted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = suites.Check("rows", "", "ExpectColumnValuesToBeBetween", {"column": "rows", "min_value": 1}, needed=True)
    monkeypatch.setitem(suites.SUITES, "upper", suites.Suite((rows,)))
    nodes = chain()
    build.build(store, nodes["words"])
    monkeypatch.setattr(suites, "validate", lambda *_: [result("style", False), result("rows", False)])
    with pytest.raises(ValidationFailed, match=r"Change what it is made of; rows can't be accepted") as error:
        build.build(store, nodes["upper"])
    assert "--accept" not in str(error.value)
    with pytest.raises(DataError, match="rows can't be accepted"):
        build.accept(store, nodes["upper"], "rows", "why not")
    with pytest.raises(DataError, match="style is waived, but rows failed too") as waived:
        build.accept(store, nodes["upper"], "style", "why not")
    assert "--accept" not in str(waived.value)


def test_accepting_what_did_not_fail_is_refused(store: Store) -> None:
    build_all(store, chain())
    with pytest.raises(DataError, match="nothing that it asks for now failed rows"):
        build.accept(store, chain()["upper"], "rows", "why not")


def test_a_changed_suite_judges_published_content_again_and_a_red_one_stops_what_is_below(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_all(store, chain())
    before = store.pointer("toy", "upper")
    monkeypatch.setitem(suites.SUITES, "upper", Suite((), version="2"))
    monkeypatch.setattr(suites, "validate", lambda name, *_: [result("rows", False)] if name == "upper" else [])
    RUNS.clear()
    with pytest.raises(DataError, match="fails rows of the changed suite"):
        build.build(store, chain()["upper"])
    after = store.pointer("toy", "upper")
    assert RUNS == [] and before is not None and after is not None
    assert after.version == before.version, "the content stays"
    with pytest.raises(ChainError, match="its input upper failed rows"):
        build.build(store, chain()["count"])
    build.accept(store, chain()["upper"], "rows", "known")
    assert not build.build(store, chain()["count"]).ran


# ── local files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_source_is_an_error_that_names_it(store: Store, tmp_path: Path) -> None:
    gone = tmp_path / "gone.txt"
    node = Node("toy", "files", stage("files"), FileConfig(from_=PathFrom(path=str(gone))), "d")
    with pytest.raises(SourceError, match=r"gone\.txt"):
        needed(store, node)


def test_records_hold_no_path_of_a_local_file(store: Store, tmp_path: Path) -> None:
    from pipeline.config import FilesConfig
    from pipeline.sources import STAGE

    text = tmp_path / "secret_place" / "text.txt"
    text.parent.mkdir()
    text.write_text("words", encoding="utf-8")
    node = Node("toy", "s_files", STAGE, FilesConfig.model_validate({"from": {"path": str(text)}}), "d")
    record = build.build(store, node).record
    assert "secret_place" not in json.dumps(dict(record.body))
    moved = text.parent.parent / "text.txt"
    text.rename(moved)
    elsewhere = replace(node, config=FilesConfig.model_validate({"from": {"path": str(moved)}}))
    assert needed(store, elsewhere).up_to_date, "a moved file is found at its new place and nothing reruns"


def test_an_altered_record_breaks_the_proof_by_name(store: Store) -> None:
    build_all(store, chain())
    record = store.pointer("toy", "words")
    last = store.pointer("toy", "count")
    assert record is not None and last is not None
    path = store.home / "records" / f"{record.digest}.json"
    path.write_bytes(path.read_bytes().replace(b"one two", b"one twO"))
    with pytest.raises(StoreError, match="the record was altered"):
        lineage.audit(store, last)


@pytest.fixture
def made(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[str]]:
    """Makes a dump of a date and size; gives the failed checks with what was observed."""
    monkeypatch.setattr(suites, "validate", VALIDATE)
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))

    def make(date: str, size: int) -> list[str]:
        path = tmp_path / date / f"xxwiki-{date}-pages-articles.xml.bz2"
        path.parent.mkdir()
        path.write_bytes(b"BZh9".ljust(size, b"."))
        config = FilesConfig.model_validate({"from": {"path": str(path)}})
        try:
            build.build(store, Node("toy", "wikipedia_dump", sources.STAGE, config, "d"))
        except ValidationFailed as error:
            return [f"{r['name']}: {r['observed']}" for r in error.results if not r["passed"]]
        return []

    return make


def test_a_dump_much_smaller_than_the_older_one_is_refused_and_an_older_one_is_not(
    made: Callable[[str, int], list[str]],
) -> None:
    assert made("20260201", 1000) == []
    assert made("20260301", 899) == ["not_much_smaller: 0.101 (older 20260201: 1,000)"]
    assert made("20260401", 950) == []
    assert made("20260101", 800) == [], "there is no older one"
    assert made("20260501", 850) == ["not_much_smaller: 0.1053 (older 20260401: 950)"]


def test_a_lost_record_of_an_older_dump_is_no_reason_to_fail(
    made: Callable[[str, int], list[str]], store: Store
) -> None:
    assert made("20260101", 500) == made("20260201", 1000) == made("20260301", 1000) == []
    (store.home / "records" / f"{store.history('toy', 'wikipedia_dump')[1]}.json").unlink()
    assert made("20260401", 890) == ["not_much_smaller: 0.11 (older 20260301: 1,000)"]


@pytest.fixture
def documented(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Makes documents of so many texts of a source; gives the failed checks that compare with what was before."""
    from pipeline import documents, own_text
    from pipeline.config import DocumentsConfig, OwnTextConfig
    from pipeline.schemas import TEXT_SCHEMA, write_parts
    from tests.pipeline.test_documents import prose

    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))

    def text(inputs: Mapping[str, Path], config: OwnTextConfig, out: Path) -> dict[str, Any]:
        names = sorted(path.name for path in inputs["files"].iterdir() if path.name.isdigit())
        rows = [{"doc_id": f"mine:{n}", "source": "mine", "language": "en", "text": prose(int(n))} for n in names]
        write_parts(rows, TEXT_SCHEMA, out)
        (out / "dropped.json").write_text(json.dumps({"read": len(rows), "kept": len(rows), "dropped": {}}))
        return {"characters_millions": sum(len(row["text"]) for row in rows) / 1e6}

    monkeypatch.setattr(own_text, "extract_text", text)

    def make(count: int, source: str = "mine", **config: Any) -> list[str]:
        monkeypatch.setattr(suites, "validate", lambda *_: [])
        folder = tmp_path / f"files{count}"
        if not folder.exists():
            folder.mkdir()
            for n in range(count):
                (folder / str(n)).write_text(str(n))
        origin = FilesConfig.model_validate({"from": {"path": str(folder)}})
        files = Node("toy", "mine_files", sources.STAGE, origin, "d")
        own = OwnTextConfig.model_validate({"source": "mine", "kind": "text"})
        texts = Node("toy", "mine_text", own_text.STAGE, own, "d", {"files": files})
        build.build(store, files)
        monkeypatch.setattr(suites, "validate", VALIDATE)
        asked = DocumentsConfig.model_validate({"held_out": 0.3, **config})
        last = Node("toy", "documents", documents.STAGE, asked, "d", {"mine": texts})
        failed = []
        for node in (texts, last):
            try:
                build.build(store, node)
            except ValidationFailed as error:
                failed += [
                    f"{node.name} {r['observed']}"
                    for r in error.results
                    if r["name"] == "not_much_smaller" and not r["passed"]
                ]
                build.accept(store, node, "not_much_smaller", "on purpose")
        return failed

    return make


def test_texts_without_a_dump_date_are_compared_with_what_was_there_before(
    documented: Callable[..., list[str]], store: Store
) -> None:
    assert documented(40) == []
    first = store.pointer("toy", "documents")
    failed = documented(30)
    assert [name for name, *_ in map(str.split, failed)] == ["mine_text", "documents"]
    assert first is not None and f"(older {first.version[:12]} of {first.body['finished'][:10]}: " in failed[1]
    assert documented(29) == [], "compared with what was accepted last"
    assert documented(40) == documented(40) == []
    assert documented(20, min_characters=50)[1:] == [], "documents of another configuration"
