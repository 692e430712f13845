"""Both models on the same held-out text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.artifact import read_json
from model.feeding.batches import held_out_rows
from model.feeding.targets import targets_of
from model.promotion import gates, likelihood, same_text
from model.promotion.gates import POINTS, Difference, Gate
from model.promotion.in_use import Champion
from model.reporting import bootstrap
from pipeline.config import DecisionConfig
from pipeline.sharding.shard_reader import ShardReader
from pipeline.tokenizer import load

Numbers = npt.NDArray[Any]


def compare(
    champion: Champion, corpora: Sequence[Path], unknown: bool, inputs: Mapping[str, Path], config: DecisionConfig
) -> Iterator[Gate]:
    """Both models on the same held-out text."""
    folders = (inputs["release"], champion.folder(champion.release))
    held_out = same_text.held_out_of(inputs["documents"])
    left_out = same_text.trained_on(held_out, corpora)
    note = f"{len(left_out):,} documents left out that the champion was trained on" if left_out else ""
    note = "; ".join([*([note] if note else []), *(["what its first weights saw is not known"] if unknown else [])])
    same = all(
        (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in ("vocab.txt", "tokenizer.json")
    )
    if same:
        yield from _on_shards(folders, left_out, note, inputs, config)
    else:
        yield from _on_words(folders, held_out - left_out, note, inputs, config)


def _on_shards(
    folders: tuple[Path, Path], left_out: set[str], note: str, inputs: Mapping[str, Path], config: DecisionConfig
) -> Iterator[Gate]:
    phase, shards = config.pretraining, inputs["pretraining_shards"] / "held_out"
    numbers, documents = same_text.rows_without(shards, left_out)
    reader = ShardReader(shards)
    kept = np.flatnonzero(reader.lengths(numbers) <= _positions(folders))[: phase.evaluate_sequences]
    numbers, documents = numbers[kept], documents[kept]
    if not len(numbers):
        yield gates.unknown("held_out.loss", "no held-out text is left that the champion was not trained on")
        return
    rows = held_out_rows(reader, numbers, targets_of(phase, inputs["release"] / "vocab.txt"))
    ours, theirs = (
        likelihood.of_rows(folder, rows, phase.sequence_length, phase.precision, f"sequences, {whose}")
        for folder, whose in zip(folders, ("the new model", "the champion"), strict=True)
    )
    counts = np.diff(rows.masked_offsets)
    found = _of_ratios((ours.loss, counts), (theirs.loss, counts), documents)
    told = f"{len(rows):,} sequences{f'; {note}' if note else ''}"
    yield gates.held_out_loss(found, "masked word", told, config.gates)
    if ours.pairs is not None and theirs.pairs is not None:
        one = np.ones(len(rows))
        found = _of_ratios((POINTS * ours.pairs, one), (POINTS * theirs.pairs, one), documents)
        yield gates.sentence_pairs(found, config.gates)


def _on_words(
    folders: tuple[Path, Path], wanted: set[str], note: str, inputs: Mapping[str, Path], config: DecisionConfig
) -> Iterator[Gate]:
    phase = config.pretraining
    length = min(phase.sequence_length, _positions(folders))
    tokenizers = [load(folder) for folder in folders]
    sides = same_text.stretches(
        inputs["documents"], wanted, tokenizers, length, phase.evaluate_sequences, phase.objective == "clm"
    )
    if not len(sides[0].words):
        yield gates.unknown("held_out.loss", "no held-out text is left that the champion was not trained on")
        return
    ours, theirs = (
        likelihood.of_rows(folder, side.rows, length, phase.precision, f"stretches of text, {whose}")
        for folder, side, whose in zip(folders, sides, ("the new model", "the champion"), strict=True)
    )
    found = _of_ratios((ours.loss, sides[0].words), (theirs.loss, sides[1].words), sides[0].documents)
    told = f"the vocabularies differ: the same words of {len(sides[0].words):,} stretches of text{f'; {note}' if note else ''}"
    yield gates.held_out_loss(found, "word", told, config.gates)
    if phase.sentence_task != "none":
        yield gates.without("held_out.sentence_pairs", "the vocabularies differ, so the pairs do too")


def _positions(folders: Sequence[Path]) -> int:
    """The longest sequence that all of these releases read."""
    return min(int(read_json(folder / "config.json")["max_position_embeddings"]) for folder in folders)


def _of_ratios(ours: tuple[Numbers, Numbers], theirs: tuple[Numbers, Numbers], documents: Numbers) -> Difference:
    """Of Σ first / Σ second over rows; whole documents are drawn where there are enough of them."""
    groups = bootstrap.useful_groups(documents)

    def ratio(pair: tuple[Numbers, Numbers]) -> bootstrap.Statistic:
        return lambda weights: (weights @ pair[0]) / np.maximum(weights @ pair[1], 1)

    drawn = bootstrap.resampled({"ours": ratio(ours), "theirs": ratio(theirs)}, len(documents), groups)
    values = [float(pair[0].sum() / pair[1].sum()) for pair in (ours, theirs)]
    units = len(documents) if groups is None else int(groups.max()) + 1
    return gates.difference(values[0], values[1], (drawn["ours"], drawn["theirs"]), units)
