"""The stage on a small corpus of made-up words, with real Beam workers."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from pipeline import progress, shards
from pipeline.config import ShardsConfig
from pipeline.errors import BertError, DataError, StoreError
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts
from pipeline.settings import BeamSettings
from pipeline.sharding.shard_schema import shard_schema
from pipeline.shards import Corpus, Plan, build_shards, forecast, pools, useful_workers
from pipeline.streams import stable_hash, substreams, uniform
from pipeline.tokenizer import SPECIAL_TOKENS, load, tokenizer_json
from tests.pipeline.killing import kill_a_worker

WORDS = [f"{a}{b}{c}" for a in "bdgklmnprst" for b in "aeiou" for c in ("", "n", "s")]
CONFIG = ShardsConfig(sequence_length=32, max_predictions_per_seq=5, dupe_factor=3, files=3)
KEPT = ("train/shard-00000-of-00003.parquet", "held_out/shard-00000-of-00001.parquet")


def documents(number=80):
    rng = np.random.default_rng(8)
    for i in range(number):
        sentences = [" ".join(rng.choice(WORDS, rng.integers(1, 15))) + ".\n" for _ in range(rng.integers(1, 25))]
        yield {
            "doc_id": f"test:{i}",
            "source": "test",
            "text": "".join(sentences),
            "split": "held_out" if i % 8 == 3 else "train",
            "sentence_ends": np.cumsum([len(s) for s in sentences]).tolist(),
            "repeat": 1.0,
        }


def write_vocabulary(folder):
    folder.mkdir()
    entries = [*SPECIAL_TOKENS, ".", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
    (folder / "tokenizer.json").write_text(tokenizer_json(entries, lowercase=True, strip_accents=True))
    return folder


def write_documents(folder, rows):
    folder.mkdir(parents=True)
    write_parts(rows, DOCUMENTS_SCHEMA, folder)
    return folder


def beam_workers(monkeypatch, folder, workers):
    """As many worker processes as this, however small the corpus is."""
    settings = folder / f"settings-{workers}.yaml"
    settings.write_text(f"beam: {{workers: {workers}}}\n")
    monkeypatch.setenv("BERT_SETTINGS", str(settings))
    monkeypatch.setattr(shards, "WORK_PER_WORKER", 1)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "documents": write_documents(folder / "documents", documents()),
        "wordpiece_vocab": write_vocabulary(folder / "vocabulary"),
    }


@pytest.fixture
def several_pools(monkeypatch):
    """Pools far smaller than real ones: five for train."""
    small_pools(monkeypatch)


def small_pools(patch):
    patch.setattr(shards, "POOL_DOCUMENTS", 14)
    patch.setattr(shards, "POOL_CHARACTERS", 10)


@pytest.fixture
def same_process(monkeypatch):
    """Spares the second it takes to start a process, where a test is about something else."""
    from pipeline.beam import shards_beam

    monkeypatch.setattr("pipeline.beam.beam_process.run", lambda _, plan, scratch, poll: shards_beam.run(plan))


@pytest.fixture(scope="module")
def built(inputs, tmp_path_factory):
    """The shards made by one worker from several pools, and their statistics."""
    out = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        small_pools(patch)
        return out, build_shards(inputs, CONFIG, out)


def files(out):
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def rows(out, part):
    return [row for path in sorted((out / part).glob("*")) for row in pq.read_table(path).to_pylist()]


def test_files_and_columns(built):
    out, _ = built
    assert list(files(out)) == [KEPT[1], *(f"train/shard-0000{i}-of-00003.parquet" for i in range(3))]
    for name in files(out):
        assert pq.read_schema(out / name).equals(shard_schema(len(WORDS) + 6, CONFIG))


def test_four_workers_and_other_input_files_give_the_same_bytes(built, inputs, several_pools, tmp_path, monkeypatch):
    """The documents come in another order, in three files; the local runner uses four processes."""
    reordered = tmp_path / "documents"
    order = np.random.default_rng(9).permutation(80)
    all_rows = list(documents())
    for i in range(3):
        part = write_documents(tmp_path / f"part{i}", [all_rows[j] for j in order[i::3]])
        reordered.mkdir(exist_ok=True)
        shutil.copy(part / "part-00000.parquet", reordered / f"part-0000{i}.parquet")
    beam_workers(monkeypatch, tmp_path, 4)
    heard = []
    out = tmp_path / "out"
    out.mkdir()
    with progress.listen(lambda p: heard.append((p.unit, p.done, p.total))):
        found = build_shards(inputs | {"documents": reordered}, CONFIG, out)
    assert files(out) == files(built[0])
    assert found == built[1]
    instances = sum(found["instances"].values())
    assert heard[-1] == ("instances in shards", instances, instances)
    assert ("documents tokenised", 80, 80) in heard and ("instances made", instances, instances) in heard


def test_golden_rows(built):
    """Raise STAGE.version when this digest changes: the stage then gives other shards for equal input."""
    text = json.dumps([rows(built[0], part) for part in ("train", "held_out")])
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "cf64f3d754defdb2a917ec794d5028da5542161011361a2ac56885ca5fd9f6d3"
    )


def test_statistics_are_those_of_the_files(built):
    out, found = built
    both = rows(out, "train") + rows(out, "held_out")
    assert found["instances"] == {"train": len(rows(out, "train")), "held_out": len(rows(out, "held_out"))}
    assert found["documents"] == {"train": 70, "held_out": 10}
    assert (found["dropped"], found["pools"]) == ({"no tokens": 0}, {"train": 5, "held_out": 1})
    assert found["shards"] == {"train": 3, "held_out": 1}
    assert sum(found["tokens"].values()) == sum(len(row["input_ids"]) for row in both)
    assert found["mean_length"] == pytest.approx(np.mean([len(row["input_ids"]) for row in both]))
    assert found["padding_fraction"] == pytest.approx(1 - found["mean_length"] / 32)
    masked = [
        (row["input_ids"][position], original)
        for row in both
        for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True)
    ]
    assert found["masked_fraction"] == pytest.approx(len(masked) / sum(found["tokens"].values()))
    assert found["mask_share"] == pytest.approx(sum(now == 4 for now, _ in masked) / len(masked))
    assert found["keep_share"] == pytest.approx(sum(now == was for now, was in masked) / len(masked))
    assert found["mask_share"] + found["keep_share"] + found["random_share"] == pytest.approx(1)
    labels = [row["next_sentence_label"] for row in both]
    assert found["random_next_fraction"] == pytest.approx(np.mean(labels))
    assert found["next_sentence_fraction"] == pytest.approx(1 - np.mean(labels))
    longer = len(labels) - found["one_sentence_chunks"]
    assert 0 < longer < len(labels)
    assert found["random_next_fraction_of_longer_chunks"] == pytest.approx(0.5, abs=4 * 0.5 / longer**0.5)
    assert found["random_next_fraction"] == pytest.approx(0.5, abs=4 * 0.5 / len(labels) ** 0.5)


def test_every_instance_is_text_of_the_documents_that_it_names(built, inputs):
    tokenizer = load(inputs["wordpiece_vocab"])
    texts = {}
    split = {}
    for row in documents():
        starts = [0, *row["sentence_ends"]]
        ids = tokenizer.encode_ids([row["text"][a:b] for a, b in zip(starts, row["sentence_ends"], strict=False)])
        texts[row["doc_id"]] = " " + " ".join(map(str, np.concatenate(ids))) + " "
        split[row["doc_id"]] = row["split"]
    seen = {"train": set(), "held_out": set()}
    for part in seen:
        for row in rows(built[0], part):
            ids = row["input_ids"]
            for position, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
                ids[position] = original
            start = row["token_type_start"]
            a, b = ids[1 : start - 1], ids[start:-1]
            assert (ids[0], ids[start - 1], ids[-1]) == (2, 3, 3)
            assert len(ids) <= 32
            assert not {2, 3, 4} & {*a, *b}
            if row["next_sentence_label"]:
                first, last = row["documents"]
                assert first != last
                assert f" {' '.join(map(str, a))} " in texts[first]
                assert f" {' '.join(map(str, b))} " in texts[last]
            else:
                (only,) = row["documents"]
                assert f" {' '.join(map(str, a))} " in texts[only]
                assert f" {' '.join(map(str, b))} " in texts[only]
            seen[part] |= set(row["documents"])
    assert {split[doc_id] for doc_id in seen["train"]} == {"train"}
    assert seen["held_out"] == {doc_id for doc_id, part in split.items() if part == "held_out"}
    assert len(seen["train"]) == 70


def test_rows_are_shuffled_over_and_within_shards(built):
    where = {}
    same = []
    for number, path in enumerate(sorted((built[0] / "train").glob("*"))):
        first = [row["documents"][0] for row in pq.read_table(path).to_pylist()]
        same += [a == b for a, b in pairwise(first)]
        for doc_id in first:
            where.setdefault(doc_id, []).append(number)
    assert np.mean(same) < 0.06  # one in seventy by chance, longer documents more often
    many = [set(numbers) for numbers in where.values() if len(numbers) > 15]
    assert len(many) > 30
    assert sum(numbers == {0, 1, 2} for numbers in many) > 0.95 * len(many)


def test_another_seed_gives_other_shards(built, inputs, same_process, tmp_path):
    build_shards(inputs, CONFIG.model_copy(update={"seed": 1}), tmp_path)
    assert not set(files(built[0]).values()) & set(files(tmp_path).values())


def test_a_shard_sorted_piece_by_piece_is_the_same(built, inputs, several_pools, same_process, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "Plan", partial(Plan, bucket_rows=50))
    build_shards(inputs, CONFIG, tmp_path)
    assert rows(tmp_path, "train") == rows(built[0], "train")


def test_without_a_sentence_task(inputs, same_process, tmp_path):
    found = build_shards(inputs, CONFIG.model_copy(update={"sentence_task": "none"}), tmp_path)
    assert "random_next_fraction" not in found
    assert set(pq.read_schema(tmp_path / KEPT[0]).names) == {
        "input_ids", "masked_lm_positions", "masked_lm_ids", "documents"
    }  # fmt: skip
    # three passes over each document, nothing cut off, nothing twice
    tokenizer = load(inputs["wordpiece_vocab"])
    text = sum(len(tokenizer.encode_ids([row["text"]])[0]) for row in documents() if row["split"] == "train")
    assert found["tokens"]["train"] - 2 * found["instances"]["train"] == 3 * text


def test_documents_without_a_known_token_are_counted_and_weight_is_obeyed(inputs, same_process, tmp_path):
    changed = [row | {"repeat": 2.0 if row["split"] == "train" else 5.0} for row in documents()]
    empty = changed[0] | {"doc_id": "test:empty", "text": " \n ", "sentence_ends": [3]}
    folder = write_documents(tmp_path / "documents", [empty, *changed])
    none = CONFIG.model_copy(update={"sentence_task": "none", "short_seq_prob": 0.0, "dupe_factor": 1})
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = build_shards(inputs, none, tmp_path / "one")
    two = build_shards(inputs | {"documents": folder}, none, tmp_path / "two")
    assert two["dropped"] == {"no tokens": 1}
    assert two["instances"]["train"] == 2 * one["instances"]["train"]
    assert two["instances"]["held_out"] == one["instances"]["held_out"]  # held-out text is passed over once


@pytest.mark.parametrize(("dupe_factor", "repeat"), [(1, 2.5), (4, 2.5), (1, 0.5), (3, 1.0)])
def test_passes_over_each_document_counted_in_the_shards(inputs, same_process, tmp_path, dupe_factor, repeat):
    """Texts that fit in one instance: one row a pass. dupe_factor × repeat passes, what is left over is one more for the
    documents that a hash chooses; held-out ones are passed over once."""
    short = [row | {"text": row["text"].split("\n")[0], "repeat": repeat} for row in documents(200)]
    short = [row | {"sentence_ends": [len(row["text"])]} for row in short]
    folder = write_documents(tmp_path / "documents", short)
    config = CONFIG.model_copy(update={"sentence_task": "none", "short_seq_prob": 0.0, "dupe_factor": dupe_factor})
    (tmp_path / "out").mkdir()
    build_shards(inputs | {"documents": folder}, config, tmp_path / "out")
    counted = {
        part: Counter(row["documents"][0] for row in rows(tmp_path / "out", part)) for part in ("train", "held_out")
    }
    whole, rest = divmod(dupe_factor * repeat, 1)
    train = [row["doc_id"] for row in short if row["split"] == "train"]
    seen = Counter(counted["train"][doc_id] for doc_id in train)
    assert set(seen) == ({int(whole), int(whole) + 1} if rest else {int(whole)})
    chosen = {doc_id for doc_id in train if counted["train"][doc_id] > whole}
    keys = np.array([stable_hash(doc_id) for doc_id in train], np.uint64)
    chance = uniform(substreams(keys, config.seed, "visits"), 0)
    assert chosen == {doc_id for doc_id, number in zip(train, chance.tolist(), strict=True) if number < rest}
    assert not rest or 60 < len(chosen) < 115  # of 175, half; four standard deviations are 26
    assert counted["held_out"] == Counter({row["doc_id"]: 1 for row in short if row["split"] == "held_out"})


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BUILD = """
import sys, time
from functools import partial
from itertools import pairwise
from pathlib import Path
from pipeline import shards
from pipeline.config import ShardsConfig
documents, vocabulary, out = map(Path, sys.argv[1:])
config = ShardsConfig.model_validate_json(sys.stdin.read())
shards.build_shards({"documents": documents, "wordpiece_vocab": vocabulary}, config, out)
"""


def start_build(inputs, config, out):
    out.mkdir(exist_ok=True)
    two_workers = "from pipeline import shards; shards.WORK_PER_WORKER = 1" + BUILD
    command = [sys.executable, "-c", two_workers, inputs["documents"], inputs["wordpiece_vocab"], out]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdin.write(config.model_dump_json())
    child.stdin.close()
    child.stdin = None
    return child


def wait_for(out, pattern, child):
    limit = time.monotonic() + 60
    while not list(out.glob(pattern)):
        assert child.poll() is None, child.stderr.read()
        assert time.monotonic() < limit
        time.sleep(0.005)


PHASES = {
    "tokens": ".scratch-*/tokens/*.arrow",
    "pools": ".scratch-*/pools/*.arrow",
    "instances": ".scratch-*/pieces/*.arrow",
    "shards": "train/*.parquet",
}
"""What the first file of each phase is called."""
MANY = CONFIG.model_copy(update={"dupe_factor": 60})


@pytest.mark.parametrize("phase", PHASES)
def test_a_run_after_kill_9_gives_the_same(phase, built, inputs, several_pools, tmp_path):
    child = start_build(inputs, MANY, tmp_path)
    wait_for(tmp_path, PHASES[phase], child)
    others = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stderr.close()
    assert (
        list(tmp_path.glob(".scratch-*")) or phase == "shards"
    )  # on a busy machine it may have ended before the signal
    _, alive = psutil.wait_procs(others, timeout=20)
    assert alive == []  # the Beam process and its workers end with the one that started them
    build_shards(inputs, CONFIG, tmp_path)
    assert files(tmp_path) == files(built[0])


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_that_dies_ends_the_run_and_leaves_nothing(phase, built, inputs, several_pools, tmp_path):
    many = CONFIG.model_copy(update={"dupe_factor": 400 if phase == "instances" else 60})
    child = start_build(inputs, many, tmp_path)
    wait_for(tmp_path, PHASES[phase], child)
    kill_a_worker(child, tmp_path)
    build_shards(inputs, CONFIG, tmp_path)
    assert files(tmp_path) == files(built[0])


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root and a kernel that allows it")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_on_the_way_is_named_and_left_empty(built, inputs, several_pools, small_disk):
    """It passes the forecast, as where something else fills it meanwhile."""
    code = (
        "from pipeline import shards; shards.forecast = lambda *_: {'instances': 1, 'bytes': 1, 'bytes_on_the_way': 0}\n"
        + BUILD
    )
    command = [sys.executable, "-c", code, inputs["documents"], inputs["wordpiece_vocab"], small_disk]
    ended = subprocess.run(command, input=MANY.model_dump_json(), capture_output=True, text=True)
    assert ended.returncode == 1
    assert "StoreError" in ended.stderr
    assert "No space left on device" in ended.stderr
    assert list(small_disk.iterdir()) == []
    build_shards(inputs, CONFIG, small_disk)
    assert files(small_disk) == files(built[0])


def test_a_document_without_another_is_refused_from_within_a_worker(inputs, tmp_path):
    alone = [row for i, row in enumerate(documents()) if row["split"] == "train" or i == 3]
    folder = write_documents(tmp_path / "documents", alone)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(DataError, match="test:3 is the only document"):
        build_shards(inputs | {"documents": folder}, CONFIG, out)
    assert list(out.iterdir()) == []


def one_sentence(row):
    return row | {"sentence_ends": [len(row["text"])], "text": row["text"].replace("\n", " ")}


@pytest.mark.parametrize(("task", "without"), [("nsp", 10), ("sop", 10), ("none", None)])
def test_documents_of_one_sentence_are_counted(inputs, same_process, tmp_path, task, without):
    """They give no pair, but text without pairs."""
    long = [row for row in documents() if len(row["sentence_ends"]) > 1]
    found = list(map(one_sentence, long[:10])) + long[10:]
    folder = write_documents(tmp_path / "documents", found)
    statistics = build_shards(
        inputs | {"documents": folder}, CONFIG.model_copy(update={"sentence_task": task}), tmp_path
    )
    assert statistics.get("documents_without_pairs") == without
    named = {name for row in rows(tmp_path, "train") for name in row["documents"][:1]}
    short = {row["doc_id"] for row in found[:10] if row["split"] == "train"}
    assert named & short == (short if task == "none" else set())


def test_nothing_but_documents_of_one_sentence_says_so(inputs, same_process, tmp_path):
    folder = write_documents(tmp_path / "documents", map(one_sentence, documents()))
    with pytest.raises(DataError, match="of 80 documents 80 have one sentence, which gives no pair") as caught:
        build_shards(inputs | {"documents": folder}, CONFIG, tmp_path)
    assert "sentence_task: none" in caught.value.todo


def test_a_part_without_documents_is_refused(inputs, tmp_path):
    folder = write_documents(tmp_path / "documents", [row for row in documents() if row["split"] == "train"])
    with pytest.raises(DataError, match="no held_out documents"):
        build_shards(inputs | {"documents": folder}, CONFIG, tmp_path)


def test_a_file_size_limit_is_named(inputs, tmp_path):
    """As a full disk: the write fails in the middle."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n" + BUILD
    command = [sys.executable, "-c", code, inputs["documents"], inputs["wordpiece_vocab"], tmp_path]
    ended = subprocess.run(command, input=CONFIG.model_dump_json(), capture_output=True, text=True)
    assert ended.returncode == 1
    assert "StoreError" in ended.stderr
    assert "ulimit -f" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["tokens-part-00000-000000", "pool-train-000002", "pieces-train-000002-0000", "shard-train-00001"]
)
def test_what_a_runner_loses_is_noticed(built, inputs, several_pools, same_process, tmp_path, monkeypatch, name):
    """One element of each step is lost; the runner says nothing."""
    from pipeline.system import places

    whole = places.write_json
    monkeypatch.setattr(places, "write_json", lambda path, value: path.stem == name or whole(path, value))
    with pytest.raises(BertError, match="reported success, but lost data: .* expected, .* found"):
        build_shards(inputs, CONFIG, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_too_small_a_disk_is_refused_before_the_run(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "BYTES_PER_TOKEN", 1e15)
    with pytest.raises(StoreError, match="need about .* are free"):
        build_shards(inputs, CONFIG, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ── plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pools_follow_from_the_corpus():
    assert pools(Corpus(160, 3_000_000, 3e6)) == 1  # a small corpus is one pool
    assert pools(Corpus(1_000_000, 2_400_000_000, 2.4e9)) == 150  # 16 million characters each
    assert pools(Corpus(5_000, 2_000_000_000, 2e9)) == 19  # long books: 256 documents each


def test_small_work_gets_fewer_workers():
    many = BeamSettings(workers=16)
    small, large = Corpus(160, 3_000_000, 3e6), Corpus(10**6, 10**10, 1e10)
    assert useful_workers(many, {"train": small, "held_out": small}, CONFIG) == 1
    assert useful_workers(many, {"train": large, "held_out": small}, CONFIG) == 16


def test_forecast_is_near_what_was_measured():
    # pairs_corpus, dupe 5 (facts of google-research/bert's own run): 20.34 MB → 27.8 million tokens, 237,154 instances
    corpus = Corpus(1194, 20_338_374, 20_338_374.0)
    asked = ShardsConfig(sequence_length=128, max_predictions_per_seq=20, dupe_factor=5)
    expected = forecast({"train": corpus}, asked)
    assert expected["tokens"] == pytest.approx(27_808_813, rel=0.1)
    assert expected["instances"] == pytest.approx(237_154, rel=0.1)
    # our own, of the same text: (tokens, instances, bytes)
    for changed, counted in (
        ({}, (27_327_942, 231_225, 55_270_920)),
        ({"sentence_task": "none"}, (22_943_518, 238_749, 46_440_303)),
        ({"masking": "dynamic"}, (5_464_503, 46_052, 9_331_474)),
        ({"objective": "clm", "sentence_task": "none"}, (4_602_714, 47_461, 7_921_364)),
    ):
        values = {"sequence_length": 128, "max_predictions_per_seq": 20, "dupe_factor": 5, **changed}
        expected = forecast({"train": corpus}, ShardsConfig(**values))
        found = (expected["tokens"], expected["instances"], expected["bytes"])
        assert found == pytest.approx(counted, rel=0.1), changed


def test_the_stage_module_is_light():
    code = "import sys, pipeline.shards, pipeline.sharding.shard_schema; print({'apache_beam', 'tokenizers'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
    assert Path(shards.__file__).name in {Path(source).name for source in shards.STAGE.sources}
