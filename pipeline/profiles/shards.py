"""Metrics of pretraining shards: the instances are read row group by row group, in flat numpy columns."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import ShardsConfig
from pipeline.profiles.tables import sigmas
from pipeline.shard_schema import flat, shard_schema
from pipeline.suites import DOES_NOT_APPLY

FEW_PAIRS = 100
"""With fewer pairs the share of random ones is too uncertain to judge."""
BATCH_ROWS = 65_536


def instances(folder: Path, config: ShardsConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`pretraining_shards`.

    The stage's statistics say what the shards don't: `vocab_size` and `special_ids` (special token → id).
    """
    schema = shard_schema(statistics["vocab_size"], config)
    parts = {part: sorted((folder / part).glob("*.parquet")) for part in ("train", "held_out")}
    wrong = sum(pq.read_schema(path) != schema for paths in parts.values() for path in paths)
    missing = abs(len(parts["train"]) - config.files) + abs(len(parts["held_out"]) - 1)
    if wrong:
        return {"wrong_files": wrong + missing}
    counts: Counter[str] = Counter()
    for part, paths in parts.items():
        for table in _batches(paths):
            counts[f"{part}_rows"] += len(table)
            counts.update(_faults(table, config, statistics))
    return {
        "train_rows": counts["train_rows"],
        "held_out_rows": counts["held_out_rows"],
        "wrong_files": missing,
        **{name: counts[name] for name in ("bad_lengths", "ids_outside", "bad_structures", "bad_positions")},
        "wrong_mask_counts": counts["wrong_mask_counts"],
        **_mix(counts, config, statistics["vocab_size"]),
        **_pairs(counts, config),
        "seen_held_out": len(_documents(parts["train"]) & _documents(parts["held_out"])),
        "copied_share": _copied_share(parts["train"]),
    }


def _batches(paths: list[Path]) -> Iterator[pa.Table]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                if len(batch):
                    yield pa.Table.from_batches([batch])


def _faults(table: pa.Table, config: ShardsConfig, statistics: Mapping[str, Any]) -> dict[str, int]:
    """Counts of rows (of tokens, for `ids_outside`) that break a rule, and of masks and pairs of each kind."""
    pad_id, cls_id, sep_id, mask_id = (statistics["special_ids"][f"[{name}]"] for name in ("PAD", "CLS", "SEP", "MASK"))
    ids, offsets = flat(table["input_ids"])
    stored = config.stores_masks
    places, mask_offsets = flat(table["masked_lm_positions"]) if stored else _no_masks(len(table), ids.dtype)
    original, original_offsets = flat(table["masked_lm_ids"]) if stored else _no_masks(len(table), ids.dtype)
    lengths, masks = np.diff(offsets), np.diff(mask_offsets)
    control = 2 if config.sentence_task == "none" else 3
    faults = {
        "bad_lengths": int(((lengths > config.sequence_length) | (lengths <= control)).sum()),
        "ids_outside": int((ids >= statistics["vocab_size"]).sum() + (original >= statistics["vocab_size"]).sum()),
        "bad_positions": 0,
    }
    rows = np.repeat(np.arange(len(masks)), masks)
    inside = (places < lengths[rows]) if len(rows) else np.ones(0, bool)
    if faults["bad_lengths"] or not np.array_equal(mask_offsets, original_offsets) or not inside.all():
        faults["bad_positions"] = len(np.unique(rows[~inside])) + int((masks != np.diff(original_offsets)).sum())
        return faults  # the rest would read beyond a row
    where = offsets[rows] + places
    restored = ids.copy()
    restored[where] = original
    first, last = offsets[:-1], offsets[1:] - 1
    border = _borders(table, first, last, config)
    is_control = np.zeros(len(ids), bool)
    is_control[first], is_control[last] = True, True
    is_control[border] = True
    sound = (restored[first] == cls_id) & (restored[last] == sep_id) & (restored[border] == sep_id)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    if config.packing == "full_sentences":  # a [SEP] stands between two documents
        is_control |= restored == sep_id
    stray = np.bincount(
        owner[np.isin(restored, [pad_id, cls_id, sep_id, mask_id]) & ~is_control], minlength=len(lengths)
    )
    faults["bad_structures"] = int((~sound | (stray > 0)).sum())
    descending = np.zeros(len(rows), bool)
    descending[1:] = (rows[1:] == rows[:-1]) & (places[1:] <= places[:-1])
    faults["bad_positions"] = len(np.unique(rows[descending | is_control[where]]))
    separators = np.bincount(owner[is_control], minlength=len(lengths))
    wanted = np.rint(lengths * config.mask_rate).clip(1, config.max_predictions_per_seq)
    wanted = np.minimum(wanted, lengths - separators)
    # whole words need not fill the count, but one of them, or a token, is always masked
    wrong = (masks < 1) | (masks > wanted) if config.whole_words else masks != wanted
    faults["wrong_mask_counts"] = int(wrong.sum()) if stored else 0
    now = ids[where]
    faults |= {
        "masks": len(now),
        "mask": int((now == mask_id).sum()),
        "keep": int(((now == original) & (now != mask_id)).sum()),
    }
    return faults | _pair_faults(table, config)


def _no_masks(rows: int, kind: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    return np.empty(0, kind), np.zeros(rows + 1, np.int64)


def _borders(
    table: pa.Table, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], config: ShardsConfig
) -> npt.NDArray[np.int64]:
    """Index of the [SEP] between A and B; without pairs, of the last one. One that lies outside is taken as the first
    token, which is no [SEP]."""
    if config.sentence_task == "none":
        return last
    border = first + table["token_type_start"].to_numpy() - 1
    return np.where((border > first) & (border < last), border, first)


def _pair_faults(table: pa.Table, config: ShardsConfig) -> dict[str, int]:
    if config.sentence_task == "none":
        return {}
    label = table["next_sentence_label"].to_numpy()
    documents = pl.from_arrow(table.select(["documents"]))["documents"].list  # type: ignore[index]
    same = (documents.first() == documents.last()).to_numpy()
    return {
        "pairs": len(label),
        "label_1": int((label == 1).sum()),
        "wrong_pairs": int((~same if config.sentence_task == "sop" else (label == 0) != same).sum()),
    }


def _mix(counts: Mapping[str, int], config: ShardsConfig, vocabulary_size: int) -> dict[str, Any]:
    """Shares of [MASK], random and kept words, and how many standard deviations they are off.

    A random word is [MASK] or the word itself once in vocabulary_size draws each, and then counts as such.
    """
    masks = counts["masks"]
    if not config.stores_masks:
        return {f"{name}_sigmas": DOES_NOT_APPLY for name in ("mask", "random", "keep")}
    mask, random, keep = config.mask_random_keep
    lucky = random / vocabulary_size
    drawn_as_mask = lucky if config.random_words == "all" else 0.0
    hits = {"mask": counts["mask"], "random": masks - counts["mask"] - counts["keep"], "keep": counts["keep"]}
    expected = {"mask": mask + drawn_as_mask, "random": random - lucky - drawn_as_mask, "keep": keep + lucky}
    shares = {f"{name}_share": hits[name] / masks if masks else None for name in hits}
    return shares | {f"{name}_sigmas": sigmas(hits[name], masks, min(1.0, max(0.0, expected[name]))) for name in hits}


def _pairs(counts: Mapping[str, int], config: ShardsConfig) -> dict[str, Any]:
    if config.sentence_task == "none":
        return {"next_sentence_off": DOES_NOT_APPLY, "wrong_pairs": DOES_NOT_APPLY}
    share = counts["label_1"] / counts["pairs"] if counts["pairs"] else None
    least, most = (0.4, 0.8) if config.faithful == "original" else (0.4, 0.6)
    off = share is not None and counts["pairs"] >= FEW_PAIRS and not least <= share <= most
    return {"random_next_share": share, "next_sentence_off": int(off), "wrong_pairs": counts["wrong_pairs"]}


def _documents(paths: list[Path]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        column = pl.scan_parquet(path).select(pl.col("documents").explode().unique()).collect(engine="streaming")
        found.update(column["documents"].drop_nulls().to_list())
    return found


def _copied_share(paths: list[Path]) -> float:
    """Share of training instances whose tokens and masks all stand in an earlier one too."""
    if not paths:
        return 0.0
    columns = [name for name in ("input_ids", "masked_lm_positions") if name in pq.read_schema(paths[0]).names]
    hashed = pl.scan_parquet(paths).select(pl.struct(columns).hash(seed=0).alias("hash"))
    hashes = hashed.collect(engine="streaming")["hash"]
    return 1 - hashes.n_unique() / len(hashes) if len(hashes) else 0.0
