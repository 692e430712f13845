"""Stage `pretraining_shards`: documents and a vocabulary → masked (and paired) pretraining instances in Parquet shards.

Here is the plan (pools, workers, forecast) and the sum; the work is a Beam pipeline, `pipeline.beam.shards_beam`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pipeline import progress
from pipeline.beam import beam_process
from pipeline.config import Frozen, ShardsConfig
from pipeline.errors import BertError, DataError
from pipeline.schemas import iter_batches, part_files
from pipeline.settings import BeamSettings, settings
from pipeline.sharding.masking import Control, control
from pipeline.stage import Stage
from pipeline.system import disk
from pipeline.system.places import Place, fetch, is_url, names, opened, read_all, shared, unhurried

STAGE = Stage(
    name="pretraining_shards",
    function="pipeline.shards:build_shards",
    version="2",  # 2: other random numbers; half of the pairs are random
    libraries=("tokenizers", "numpy"),
    sources=(
        "pipeline/shards.py",
        "pipeline/beam/shards_beam.py",
        "pipeline/beam/common_beam.py",
        "pipeline/system/places.py",
        "pipeline/sharding/shard_schema.py",
        "pipeline/sharding/instances.py",
        "pipeline/sharding/pairs.py",
        "pipeline/sharding/masking.py",
        "pipeline/streams.py",
        "pipeline/ragged.py",
        "pipeline/tokenizer.py",
        "pipeline/words/fast_tokens.py",
    ),
)

PARTS = ("train", "held_out")
POOL_DOCUMENTS = 256
POOL_CHARACTERS = 16_000_000
"""A pool has at least about so many documents and, beyond that, about so many characters: it must fit in a worker's
memory, and the random second sentence of a pair is drawn from it."""

CHARACTERS_PER_TOKEN = 4.5
PAIR_GAIN = 1.25
FILL, FILL_ALONE = 0.9, 0.76
BYTES_PER_TOKEN, BYTES_PER_PLAIN_TOKEN = 2.1, 1.8
SCRATCH_BYTES_PER_TOKEN = 3.0
"""For the forecast, measured on English with 30,522 tokens: characters of a WordPiece; tokens in pairs for each token
of text (random seconds come on top); how full instances of 128 are, of pairs and of one document; bytes of a token in a shard
with its masks and without, and in the files on the way."""

WORK_PER_WORKER = 20_000_000
"""Starting worker processes costs more than they save below so many characters (those of later passes count less)."""
LATER_PASS = 0.15


@dataclass(frozen=True)
class Corpus:
    """One part of the documents."""

    documents: int
    characters: int
    visits: float
    """characters, in train each as often as its document's `repeat` says"""
    most_repeat: float = 1.0
    """the largest `repeat` of a document"""


class Part(Frozen):
    """How train or held_out is made."""

    pools: int
    passes: int
    files: int


class Plan(Frozen):
    """All that the Beam pipeline must know. Folders are absolute, or URLs."""

    documents: Place
    vocabulary: Place
    scratch: Place
    out: Place
    config: ShardsConfig
    control: Control
    parts: dict[str, Part]
    row_groups: tuple[tuple[str, int], ...]
    """(file name, number) of all row groups of the documents"""
    beam: BeamSettings
    workers: int
    bucket_rows: int = 16_384
    """rows of a shard that are sorted in memory at once"""


def measure(documents: Path) -> dict[str, Corpus]:
    """Documents and characters of train and held_out."""
    found = {part: np.zeros(3) for part in PARTS}
    most = dict.fromkeys(PARTS, 0.0)
    for batch in iter_batches(documents, ["split", "sentence_ends", "repeat"]):
        split = batch["split"].to_numpy(zero_copy_only=False)
        ends = batch["sentence_ends"]
        offsets = ends.offsets.to_numpy()
        values = np.append(ends.values.to_numpy(), 0)
        characters = np.where(np.diff(offsets) > 0, values[offsets[1:] - 1], 0).astype(np.int64)
        repeats = np.where(split == "train", batch["repeat"].to_numpy(), 1)
        for part in set(split):
            if part not in found:
                raise DataError(
                    f"{documents} has a document with split {part!r}; known are {', '.join(PARTS)}",
                    "Run documents again: bert run.",
                )
            of = split == part
            found[part] += of.sum(), characters[of].sum(), (characters * repeats)[of].sum()
            most[part] = max(most[part], float(repeats[of].max()))
    return {part: Corpus(int(n), int(characters), float(v), most[part]) for part, (n, characters, v) in found.items()}


def pools(corpus: Corpus) -> int:
    """Number of pools: a function of the corpus alone."""
    return max(1, min(corpus.documents // POOL_DOCUMENTS, corpus.characters // POOL_CHARACTERS))


def passes(part: str, config: ShardsConfig) -> int:
    """Passes over the documents of a part; held-out text needs no more than one, nor does text without stored masks."""
    return config.dupe_factor if part == "train" and config.stores_masks else 1


def forecast(corpora: Mapping[str, Corpus], config: ShardsConfig) -> dict[str, int]:
    """About how many tokens, instances and bytes will come out, and the bytes needed on the way (those included)."""
    text = sum(corpus.characters for corpus in corpora.values()) / CHARACTERS_PER_TOKEN
    visited = sum(corpus.visits * passes(part, config) for part, corpus in corpora.items()) / CHARACTERS_PER_TOKEN
    alone = config.sentence_task == "none"
    tokens = visited * (1 if alone else PAIR_GAIN)
    fill = FILL_ALONE if alone and config.packing == "doc_sentences" else FILL
    per_token = BYTES_PER_TOKEN if config.stores_masks else BYTES_PER_PLAIN_TOKEN
    return {
        "tokens": int(tokens),
        "instances": int(tokens / (fill * config.sequence_length)),
        "bytes": int(tokens * per_token),
        "bytes_on_the_way": int(tokens * (per_token + SCRATCH_BYTES_PER_TOKEN) + text * 4),
    }


def build_shards(inputs: Mapping[str, Path], config: ShardsConfig, out: Path) -> dict[str, Any]:
    """Write train/shard-*.parquet and held_out/shard-*.parquet (columns: `pipeline.sharding.shard_schema`) into `out`.

    The files are the same bytes for any number of workers, any runner and any order of the input files. Inputs:
    `documents` and `wordpiece_vocab`.

    Raises:
        DataError: an input breaks its contract, a part has no documents, or there is no second document for pairs.
        RecipeError: the Beam settings ask for a mode that loses data, or for something that isn't there.
        BertError: the runner lost data.
        StoreError: the disk can't hold what is forecast.
    """
    from pipeline.tokenizer import SPECIAL_TOKENS, load

    corpora = measure(inputs["documents"])
    _check(corpora, config, inputs["documents"], out)
    tokenizer = load(inputs["wordpiece_vocab"])
    beam = settings().beam
    for part in PARTS:
        shutil.rmtree(out / part, ignore_errors=True)  # of a run that was killed
    with disk.scratch_folder(out) as scratch:
        plan = Plan(
            documents=shared(inputs["documents"]),
            vocabulary=shared(inputs["wordpiece_vocab"]),
            scratch=shared(scratch),
            out=shared(out),
            config=config,
            control=control(
                tokenizer.vocabulary, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id, mask_id=tokenizer.mask_id
            ),
            parts={
                part: Part(
                    pools=pools(corpus), passes=passes(part, config), files=config.files if part == "train" else 1
                )
                for part, corpus in corpora.items()
            },
            row_groups=tuple(
                (path.name, group)
                for path in part_files(inputs["documents"])
                for group in range(pq.read_metadata(path).num_row_groups)
            ),
            beam=beam,
            workers=useful_workers(beam, corpora, config),
        )
        report = _progress(plan, sum(corpus.documents for corpus in corpora.values()))
        try:
            beam_process.run("pipeline.beam.shards_beam:run", plan.model_dump_json(by_alias=True), scratch, report)
            found = statistics(plan.scratch / "statistics", plan.parts, corpora, config)
            fetch(plan.out, out)
        except BaseException:
            for part in PARTS:
                shutil.rmtree(out / part, ignore_errors=True)
            raise
    special_ids = dict(zip(SPECIAL_TOKENS, tokenizer.special_ids, strict=True))
    drawable = sum(end - first for first, end in plan.control.words)
    return found | {
        "vocab_size": plan.control.vocab_size,
        "drawable_words": drawable,
        "special_ids": special_ids,
        "most_repeat": corpora["train"].most_repeat,
    }


def _check(corpora: Mapping[str, Corpus], config: ShardsConfig, documents: Path, out: Path) -> None:
    """Refuse a corpus without one of its parts, and a disk that is too small; say how much is expected."""
    for part, corpus in corpora.items():
        if not corpus.documents:
            raise DataError(
                f"{documents} has no {part} documents",
                "Add text or set corpus.held_out so that both parts get documents.",
            )
    expected = forecast(corpora, config)
    todo = "Free space, move the store (home in settings.yaml), or lower shards.dupe_factor."
    near = "bytes" if is_url(shared(out)) else "bytes_on_the_way"
    disk.check_room(out, expected[near], "shards", todo)
    gigabytes = {"GB": expected["bytes"] / 1e9, "GB on the way": expected["bytes_on_the_way"] / 1e9}
    progress.report(expected["instances"], expected["instances"], "instances expected", **gigabytes)


def useful_workers(beam: BeamSettings, corpora: Mapping[str, Corpus], config: ShardsConfig) -> int:
    """The workers of the settings, or fewer where starting them would cost more than they save."""
    work = sum(
        corpus.characters + corpus.visits * passes(part, config) * LATER_PASS for part, corpus in corpora.items()
    )
    return min(beam.workers, 1 + int(work / WORK_PER_WORKER))


def _progress(plan: Plan, documents: int) -> Callable[[], None]:
    """Reports what the steps have counted so far; Beam itself says nothing until the end."""
    counted: dict[str, Counter[str]] = {kind: Counter() for kind in ("tokens", "pool", "pieces", "shard")}
    read: set[str] = set()
    said: dict[str, float] = {}

    def report() -> None:
        for name in names(plan.scratch / "statistics", "*.json"):
            if name not in read:
                read.add(name)
                kind = name.partition("-")[0]
                with opened(plan.scratch / "statistics" / name) as file:
                    counts = json.loads(file.read())
                for each in counts.values() if kind == "shard" else (counts,):
                    counted[kind].update(each)
        tokens, pools, pieces, shards = counted.values()
        builds_left = pools["builds"] - pieces["builds"]
        mean = pieces["instances"] / max(1, pieces["builds"])
        for unit, done, total in (
            ("documents tokenised", tokens["documents"], documents),
            ("instances made", pieces["instances"], pieces["instances"] + round(builds_left * mean)),
            ("instances in shards", shards["instances"], pieces["instances"]),
        ):
            if done != said.get(unit, 0):
                said[unit] = done
                progress.report(done, total, unit)

    return unhurried(report, plan.scratch)


def _sum(folder: Path, pattern: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for told in read_all(folder, pattern).values():
        found.update(json.loads(told))
    return found


def _check_nothing_lost(
    on_the_way: Mapping[str, Counter[str]],
    shards: Counter[str],
    parts: Mapping[str, Part],
    corpora: Mapping[str, Corpus],
) -> None:
    """Some of Beam's runners report success after they have lost elements: what each step counted must add up."""
    tokens, pools, pieces = (on_the_way[kind] for kind in ("tokens", "pool", "pieces"))
    steps = {
        "documents tokenised": (sum(corpus.documents for corpus in corpora.values()), tokens["documents"]),
        "documents in pools": (tokens["documents"] - tokens["no tokens"], pools["documents"]),
        "passes over pools": (pools["builds"], pieces["builds"]),
        "instances in shards": (pieces["instances"], shards["instances"]),
        "shards": (sum(part.files for part in parts.values()), shards["shards"]),
    }
    for step, (expected, found) in steps.items():
        if found != expected:
            raise BertError(
                f"The Beam runner reported success, but lost data: {expected:,} {step} expected, {found:,} found",
                "Nothing was published. Run again on another runner (beam.runner in settings.yaml), FnApiRunner for one.",
            )


def _needs_two_sentences(config: ShardsConfig) -> bool:
    """Whether a document of one sentence gives nothing (`pipeline.sharding.pairs`)."""
    return config.sentence_task != "none" and config.faithful == "paper"


def _nothing_made(parts: Sequence[str], tokens: Counter[str], config: ShardsConfig) -> DataError:
    what = f"no instances for {' and '.join(parts)}"
    if tokens["one sentence"] and _needs_two_sentences(config):
        return DataError(
            f"{what}: of {tokens['documents']:,} documents {tokens['one sentence']:,} have one sentence, which gives no pair",
            "Take documents of two sentences or more, or set shards.sentence_task: none.",
        )
    return DataError(what, "The documents hold no text that the vocabulary knows: look at the documents asset.")


def statistics(
    scratch: Path, parts: Mapping[str, Part], corpora: Mapping[str, Corpus], config: ShardsConfig
) -> dict[str, Any]:
    """Add up what the pipeline counted (files of `scratch`)."""
    counted: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for told in read_all(scratch, "shard-*.json").values():
        for part, counts in json.loads(told).items():
            counted[part].update({"shards": 1, **counts})
    total = sum(counted.values(), Counter())
    on_the_way = {kind: _sum(scratch, f"{kind}-*.json") for kind in ("tokens", "pool", "pieces")}
    _check_nothing_lost(on_the_way, total, parts, corpora)
    if not all(counts["instances"] for counts in counted.values()):
        raise _nothing_made([part for part in PARTS if not counted[part]["instances"]], on_the_way["tokens"], config)
    mean_length = total["tokens"] / total["instances"]
    found: dict[str, Any] = {
        "instances": {part: counted[part]["instances"] for part in PARTS},
        "documents": {part: corpora[part].documents for part in PARTS},
        "dropped": {"no tokens": on_the_way["tokens"]["no tokens"]},
        "documents_in_pools": on_the_way["pool"]["documents"],
        "pools": {part: parts[part].pools for part in PARTS},
        "shards": {part: parts[part].files for part in PARTS},
        "tokens": {part: counted[part]["tokens"] for part in PARTS},
        "mean_length": mean_length,
        "padding_fraction": 1 - mean_length / config.sequence_length,
    }
    if config.stores_masks:
        found |= {
            "masked_fraction": total["masked"] / total["tokens"],
            "mask_share": total["mask"] / total["masked"],
            "random_share": 1 - (total["mask"] + total["keep"]) / total["masked"],
            "keep_share": total["keep"] / total["masked"],
        }
    if _needs_two_sentences(config):
        found |= {"documents_without_pairs": on_the_way["tokens"]["one sentence"]}
    if config.sentence_task == "nsp":
        longer = total["instances"] - total["one_sentence"]
        found |= {
            "random_next_fraction": total["label_1"] / total["instances"],
            "next_sentence_fraction": 1 - total["label_1"] / total["instances"],
            "one_sentence_chunks": total["one_sentence"],
            "random_next_fraction_of_longer_chunks": total["label_1_of_more"] / longer if longer else None,
        }
    if config.sentence_task == "sop":
        found |= {"swapped_fraction": total["label_1"] / total["instances"]}
    return found
