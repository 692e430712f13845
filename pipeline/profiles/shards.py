"""Metrics of pretraining shards.

Shards are read in batches of about `BATCH_TOKENS` tokens, so that memory depends neither on their number nor on their
length; what is kept over batches is named where it is kept. A row that breaks a rule is counted for that rule and left
out of those after it, so that one fault fails one check.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import progress
from pipeline.config import ShardsConfig
from pipeline.profiles.tables import sigmas
from pipeline.schemas import iter_batches
from pipeline.sharding.shard_schema import Array, flat, shard_schema
from pipeline.streams import mixed
from pipeline.suites import DOES_NOT_APPLY, INPUTS

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

BATCH_TOKENS = 4_000_000
"""read at once; a few of numpy's arrays of this length are alive at a time"""
BATCH_ROWS = 65_536
FEW = 50
"""Where chance alone makes fewer hits than this, Pearson's chi-square has too heavy tails: at 5, a common choice, it would
call a sound shard set wrong 300 times too often."""
COPY_TOKENS = 24
COPY_MASKS = 4
"""Instances with fewer tokens or, where masks are stored, fewer masks may be equal by chance: there are few ways to mask
them, and a document is passed over `dupe_factor` times."""
COPY_SAMPLE = 4_000_000
"""instances whose copies are looked for; of more a part is taken by hash, in which copies stay together"""
LEAST_P = 1e-9
"""What chance alone does less often than this is a fault: one false alarm in a billion shard sets."""
SHARD_ROWS = 32
"""Two smaller shards may hold the same instances by chance."""


def instances(folder: Path, config: ShardsConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`pretraining_shards`.

    The stage's statistics say what the shards don't: `vocab_size`, `special_ids` (special token → id), `drawable_words`
    and, with `faithful: original`, `one_sentence_chunks`. `INPUTS` in them says where the documents lie; without
    it, a held-out document is one that a held-out instance names.
    """
    schema = shard_schema(statistics["vocab_size"], config)
    found = {part: sorted((folder / part).glob("*.parquet")) for part in ("held_out", "train")}
    parts = {part: [path for path in paths if pq.read_schema(path) == schema] for part, paths in found.items()}
    wrong = sum(len(found[part]) - len(parts[part]) for part in parts)
    missing = abs(len(found["train"]) - config.files) + abs(len(found["held_out"]) - 1)
    rules = _Rules.of(config, statistics)
    rows = {part: sum(pq.read_metadata(path).num_rows for path in paths) for part, paths in parts.items()}
    held_out = _held_out_documents(statistics)
    copies = _Copies.of(rows["train"])
    contents: Counter[tuple[int, int]] = Counter()
    counts: Counter[str] = Counter()
    named = np.empty(0, np.uint64)
    # held-out instances first: without the documents at hand, they say which are held out
    for part, paths in parts.items():
        for path in paths:
            content = 0
            for table in _batches(path, config.sequence_length):
                hashes = _hashes(table)
                content = (content + int(hashes.sum(dtype=np.uint64))) % 2**64
                if part == "train":
                    copies.add(hashes, table)
                counts[f"{part}_tokens"] += pc.sum(pc.list_value_length(table["input_ids"])).as_py()
                faults = _faults(table, rules)
                counts.update(faults)
                counts.update({f"{part}_{name}": faults[name] for name in ("label_1", "random_of_the_same")})
                inside, outside = _of_held_out(table, held_out, named)
                counts[f"{part}_held_out"] += inside
                counts[f"{part}_others"] += outside
                if held_out is None and part == "held_out":
                    named = np.union1d(named, _name_hashes(pc.list_flatten(table["documents"])))
                counts["rows_read"] += len(table)
                progress.report(counts["rows_read"], sum(rows.values()), "instances checked")
            if (in_file := pq.read_metadata(path).num_rows) >= SHARD_ROWS:
                contents[in_file, content] += 1
    return {
        "train_rows": rows["train"],
        "held_out_rows": rows["held_out"],
        "held_out_tokens": counts["held_out_tokens"],
        "wrong_files": wrong + missing,
        **{name: counts[name] for name in ("bad_lengths", "ids_outside", "bad_positions", "bad_structures")},
        "unnamed_documents": counts["unnamed_documents"],
        **_masks(counts, config, statistics),
        **_pairs(counts, config, statistics),
        "seen_held_out": counts["train_held_out"],
        "held_out_of_train": DOES_NOT_APPLY if held_out is None else counts["held_out_others"],
        "equal_shards": sum(contents.values()) - len(contents),
        "copied_share": _copied_share(copies, config, statistics),
    }


def _batches(path: Path, sequence_length: int) -> Iterator[pa.Table]:
    rows = min(BATCH_ROWS, max(1, BATCH_TOKENS // sequence_length))
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(rows):
            if len(batch):
                yield pa.Table.from_batches([batch])


# ── rows that break a rule ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Rules:
    """What rows are held against."""

    config: ShardsConfig
    vocab_size: int
    sep_id: int
    cls_id: int
    mask_id: int
    special: Flags
    """[vocab_size] ids that no text has"""

    @classmethod
    def of(cls, config: ShardsConfig, statistics: Mapping[str, Any]) -> "_Rules":
        """From the configuration and the stage's statistics."""
        ids = {name: statistics["special_ids"][f"[{name}]"] for name in ("PAD", "CLS", "SEP", "MASK")}
        special = np.zeros(statistics["vocab_size"], bool)
        special[list(ids.values())] = True
        return cls(config, statistics["vocab_size"], ids["SEP"], ids["CLS"], ids["MASK"], special)

    @property
    def separators(self) -> int:
        """[SEP]s of a row, but for those between documents."""
        return 1 if self.config.sentence_task == "none" else 2


@dataclass
class _Rows:
    """The columns of a table as flat arrays."""

    table: pa.Table
    rules: _Rules
    ids: Array = field(init=False)
    offsets: Ints = field(init=False)
    places: Ints = field(init=False)
    """of masks"""
    original: Array = field(init=False)
    mask_offsets: Ints = field(init=False)
    border: Ints = field(init=False)
    """[rows] place of the [SEP] after A"""

    def __post_init__(self) -> None:
        self.ids, self.offsets = _flat(self.table["input_ids"])
        if self.rules.config.stores_masks:
            places, self.mask_offsets = _flat(self.table["masked_lm_positions"])
            self.places = places.astype(np.int64)
            self.original = _flat(self.table["masked_lm_ids"])[0]
        else:
            self.places, self.mask_offsets = np.empty(0, np.int64), np.zeros(len(self.table) + 1, np.int64)
            self.original = self.ids[:0]
        pair = self.rules.config.sentence_task != "none"
        self.border = (
            self.table["token_type_start"].to_numpy().astype(np.int64) - 1 if pair else np.diff(self.offsets) - 1
        )

    @property
    def lengths(self) -> Ints:
        """[rows] tokens."""
        return np.diff(self.offsets)

    @property
    def masks(self) -> Ints:
        """[rows] masked positions."""
        return np.diff(self.mask_offsets)

    @cached_property
    def owner(self) -> Ints:
        """[masks] the row of each."""
        return np.repeat(np.arange(len(self.table)), self.masks)

    def rows_of(self, tokens: Ints) -> Ints:
        """The rows of tokens counted through all rows."""
        return np.searchsorted(self.offsets, tokens, side="right") - 1

    def without(self, bad: Flags) -> "_Rows":
        """The rows that are not bad."""
        return _Rows(self.table.filter(pa.array(~bad)), self.rules) if bad.any() else self


def _flat(column: pa.ChunkedArray) -> tuple[Array, Ints]:
    """As `flat`; a null among the values is -1."""
    if not any(chunk.values.null_count for chunk in column.chunks):
        return flat(column)
    chunks = [
        pa.ListArray.from_arrays(pa.array([0, *np.cumsum(pc.list_value_length(chunk).to_numpy()).tolist()], pa.int32()),
                                 pc.fill_null(chunk.flatten().cast(pa.int64()), -1))
        for chunk in column.chunks
    ]  # fmt: skip
    return flat(pa.chunked_array(chunks))


def _faults(table: pa.Table, rules: _Rules) -> Counter[str]:
    """Counts of rows that break a rule, and of masks and pairs of each kind among the others."""
    counts: Counter[str] = Counter()
    lengths = pc.list_value_length(table["input_ids"]).to_numpy()
    bad = (lengths > rules.config.sequence_length) | (lengths < 2 + rules.separators)
    counts["bad_lengths"] = int(bad.sum())
    table = table.filter(pa.array(~bad)) if bad.any() else table
    if rules.config.stores_masks:
        two = (pc.list_value_length(table[name]).to_numpy() for name in ("masked_lm_positions", "masked_lm_ids"))
        bad = np.not_equal(*two)
        counts["bad_positions"] = int(bad.sum())
        table = table.filter(pa.array(~bad)) if bad.any() else table
    rows = _Rows(table, rules)
    for name, broken in (
        ("ids_outside", _ids_outside),
        ("bad_positions", _bad_positions),
        ("bad_structures", _bad_structures),
        ("unnamed_documents", _unnamed_documents),
    ):
        bad = broken(rows)
        counts[name] += int(bad.sum())
        rows = rows.without(bad)
    counts.update(_mask_counts(rows))
    counts.update(_pair_counts(rows))
    return counts


def _ids_outside(rows: _Rows) -> Flags:
    bad = np.zeros(len(rows.table), bool)
    for ids, offsets in ((rows.ids, rows.offsets), (rows.original, rows.mask_offsets)):
        if len(ids) and (ids.max() >= rows.rules.vocab_size or ids.min() < 0):
            outside = np.flatnonzero((ids >= rows.rules.vocab_size) | (ids < 0))
            bad[np.searchsorted(offsets, outside, side="right") - 1] = True
    return bad


def _bad_positions(rows: _Rows) -> Flags:
    """Masked positions outside, not ascending, or on [CLS] or a [SEP]."""
    owner, places, last = rows.owner, rows.places, rows.lengths - 1
    wrong = (places <= 0) | (places >= last[owner]) | (places == rows.border[owner])
    wrong |= (rows.original == rows.rules.cls_id) | (rows.original == rows.rules.sep_id)
    wrong[1:] |= (owner[1:] == owner[:-1]) & (places[1:] <= places[:-1])
    bad = np.zeros(len(rows.table), bool)
    bad[owner[wrong]] = True
    return bad


def _restored(rows: _Rows) -> Array:
    ids = rows.ids
    if len(rows.places):
        ids = ids.copy()
        ids[rows.offsets[:-1][rows.owner] + rows.places] = rows.original
    return ids


def _bad_structures(rows: _Rows) -> Flags:
    """Rows that are not [CLS] A [SEP] B [SEP], both with text, or [CLS] text [SEP]; that have a control token elsewhere, but
    for a [SEP] between two documents; or a label that is none."""
    rules, first, lengths = rows.rules, rows.offsets[:-1], rows.lengths
    pair = rules.config.sentence_task != "none"
    border = rows.border
    bad = (border < 2) | (border > lengths - 3) if pair else np.zeros(len(lengths), bool)
    border = np.where(bad, lengths - 1, border)
    ids = _restored(rows)
    bad |= ids[first] != rules.cls_id
    bad |= (ids[first + lengths - 1] != rules.sep_id) | (ids[first + border] != rules.sep_id)
    controls = np.flatnonzero(rules.special[ids])
    owner = rows.rows_of(controls)
    of_sep = ids[controls] == rules.sep_id
    separators = np.bincount(owner[of_sep], minlength=len(lengths))
    others = np.bincount(owner[~of_sep], minlength=len(lengths))
    between = 0
    if rules.config.packing == "full_sentences":
        between = pc.list_value_length(rows.table["documents"]).fill_null(0).to_numpy() - 1
    bad |= (others != 1) | (separators != rules.separators + between)
    if pair:
        label = rows.table["next_sentence_label"].to_numpy()
        bad |= (label != 0) & (label != 1)
    return bad


def _unnamed_documents(rows: _Rows) -> Flags:
    """Rows that name no document, more of them than they can have, an empty name, or one twice."""
    column = rows.table["documents"]
    number = pc.list_value_length(column).fill_null(0).to_numpy()
    config = rows.rules.config
    most = {"nsp": 2, "sop": 1}.get(config.sentence_task, 1 if config.packing == "doc_sentences" else None)
    bad = number < 1
    if most is not None:
        bad |= number > most
    names = pc.list_flatten(column)
    owner = np.repeat(np.arange(len(bad)), number)
    empty = pc.equal(pc.fill_null(names, ""), "").to_numpy()
    hashes = _name_hashes(names)
    twice = (hashes[1:] == hashes[:-1]) & (owner[1:] == owner[:-1])
    bad[owner[empty]] = True
    bad[owner[1:][twice]] = True
    return bad


def _mask_counts(rows: _Rows) -> Counter[str]:
    """Masks of each kind, and rows with another number of masks than the recipe wants."""
    rules, config = rows.rules, rows.rules.config
    if not config.stores_masks:
        return Counter()
    separators = rules.separators
    if config.packing == "full_sentences":
        separators = separators + pc.list_value_length(rows.table["documents"]).to_numpy() - 1
    wanted = np.rint(rows.lengths * config.mask_rate).clip(1, config.max_predictions_per_seq).astype(np.int64)
    wanted = np.minimum(wanted, rows.lengths - 1 - separators)
    masks = rows.masks
    # whole words need not fill the count, but one of them, or a token, is always masked
    wrong = (masks < 1) | (masks > wanted) if config.whole_words else masks != wanted
    now = rows.ids[rows.offsets[:-1][rows.owner] + rows.places]
    return Counter(
        wrong_mask_counts=int(wrong.sum()),
        masks=len(now),
        masks_wanted=int(wanted.sum()),
        mask=int((now == rules.mask_id).sum()),
        keep=int(((now == rows.original) & (now != rules.mask_id)).sum()),
    )


def _pair_counts(rows: _Rows) -> Counter[str]:
    task = rows.rules.config.sentence_task
    if task == "none":
        return Counter()
    label = rows.table["next_sentence_label"].to_numpy()
    one = pc.list_value_length(rows.table["documents"]).to_numpy() == 1
    return Counter(
        pairs=len(label),
        label_1=int(label.sum()),
        wrong_pairs=0 if task == "sop" else int(((label == 0) & ~one).sum()),
        random_of_the_same=0 if task == "sop" else int(((label == 1) & one).sum()),
    )


# ── shares ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _masks(counts: Mapping[str, int], config: ShardsConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    if not config.stores_masks:
        return dict.fromkeys(("wrong_mask_counts", "masked_of_wanted", "mix_p"), DOES_NOT_APPLY)
    masks, wanted = counts["masks"], counts["masks_wanted"]
    hits = {"mask": counts["mask"], "random": masks - counts["mask"] - counts["keep"], "keep": counts["keep"]}
    drawable = (
        statistics["vocab_size"]
        if config.random_words == "all"
        else statistics.get("drawable_words", statistics["vocab_size"])
    )
    expected = expected_mix(config, drawable)
    return {
        "wrong_mask_counts": counts["wrong_mask_counts"],
        "masked_of_wanted": masks / wanted if wanted else None,
        "mix_p": mix_p(list(hits.values()), list(expected)),
        **{f"{name}_share": hits[name] / masks if masks else None for name in hits},
    }


def expected_mix(config: ShardsConfig, drawable: int) -> tuple[float, float, float]:
    """Probabilities that a masked position shows [MASK], another word, or the word itself.

    A random word, drawn from `drawable`, is the word itself once in `drawable` draws, and [MASK] as often if special tokens
    are drawn; it then counts as such. (An [UNK] is no drawable word of `no_specials`; this moves the shares by less than
    the deviation of 10⁹ masks.)
    """
    mask, random, keep = config.mask_random_keep
    lucky = random / drawable
    as_mask = lucky if config.random_words == "all" else 0.0
    return mask + as_mask, max(0.0, random - lucky - as_mask), keep + lucky


def mix_p(hits: Sequence[int], expected: Sequence[float]) -> float | None:
    """Probability that chance alone makes counts as far from the `expected` shares; None without any.

    Pearson's chi-square over all outcomes that chance makes at least `FEW` times. Rarer ones are each judged by
    Chernoff's bound on both tails of a binomial, 2·exp(-n·KL), which holds at any size; the least of these p, times their
    number, is the answer (Bonferroni). What can't happen and did is 0.
    """
    n = sum(hits)
    if not n:
        return None
    if any(hit and not share for hit, share in zip(hits, expected, strict=True)):
        return 0.0
    cells = [(hit, share) for hit, share in zip(hits, expected, strict=True) if share]
    found = [_tail(hit, n, share) for hit, share in cells if n * share < FEW]
    common = [(hit, share) for hit, share in cells if n * share >= FEW]
    if len(common) > 1:
        of, shares = sum(hit for hit, _ in common), sum(share for _, share in common)
        wanted = [of * share / shares for _, share in common]
        square = (
            sum((hit - want) ** 2 / want for (hit, _), want in zip(common, wanted, strict=True)) if of else math.inf
        )
        # the tail of chi-square with one and with two degrees of freedom
        found.append(math.erfc(math.sqrt(square / 2)) if len(common) == 2 else math.exp(-square / 2))
    return min(1.0, min(found) * len(found)) if found else 1.0


def _tail(hits: int, draws: int, share: float) -> float:
    observed = hits / draws
    divergence = observed * math.log(observed / share) if hits else 0.0
    if hits < draws:
        divergence += (1 - observed) * math.log((1 - observed) / (1 - share)) if share < 1 else math.inf
    return min(1.0, 2 * math.exp(-draws * max(0.0, divergence)))


def _pairs(counts: Mapping[str, int], config: ShardsConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """Labels and partners of pairs. A label is the toss of a coin, but in the original's way a chunk of one sentence always
    has a random partner: these are taken off, and what is left is the share among chunks of two or more."""
    if config.sentence_task == "none":
        return {"label_sigmas": DOES_NOT_APPLY, "wrong_pairs": DOES_NOT_APPLY}
    original = config.faithful == "original"
    lone = statistics["one_sentence_chunks"] if original else 0
    tossed, ones = counts["pairs"] - lone, counts["label_1"] - lone
    share_of_ones = ones / tossed if tossed > 0 else None
    return {
        "label_share": share_of_ones,
        "label_sigmas": sigmas(ones, tossed, 0.5) if tossed > 0 else (0.0 if original and tossed == 0 else None),
        "wrong_pairs": counts["wrong_pairs"]
        + sum(
            _more_than_the_original(counts, part, statistics) if original else counts[f"{part}_random_of_the_same"]
            for part in ("train", "held_out")
        ),
    }


def _more_than_the_original(counts: Mapping[str, int], part: str, statistics: Mapping[str, Any]) -> int:
    """Random pairs of one document, unless they are no more than the original makes: ten draws in a row hit it."""
    same, random = counts[f"{part}_random_of_the_same"], counts[f"{part}_label_1"]
    if not same:
        return 0
    documents = (statistics["documents"][part] - statistics["dropped"]["no tokens"]) // statistics["pools"][part]
    share = float(max(1, documents)) ** -10
    return 0 if same <= random * share or _tail(same, random, share) > LEAST_P else same


# ── documents and copies ─────────────────────────────────────────────────────────────────────────────────────────────


def _held_out_documents(statistics: Mapping[str, Any]) -> Ints | None:
    """Hashes of the held-out documents, sorted: eight bytes for each. None where the documents are not at hand."""
    folder = statistics.get(INPUTS, {}).get("documents")
    if folder is None:
        return None
    found = [np.empty(0, np.uint64)]
    for batch in iter_batches(folder, ["doc_id", "split"]):
        found.append(_name_hashes(batch["doc_id"].filter(pc.equal(batch["split"], "held_out"))))
    return np.unique(np.concatenate(found))


def _name_hashes(names: pa.ChunkedArray | pa.Array) -> Array:
    """A 64-bit hash of each string; two of a hundred million and a million names are equal with a chance of 5 · 10⁻⁶."""
    return pl.Series(pl.from_arrow(names)).hash(seed=1).to_numpy()


def _of_held_out(table: pa.Table, held_out: Array | None, named: Array) -> tuple[int, int]:
    """(rows that name a held-out document, rows that name another); `named`: the held-out ones where the list is None."""
    known = named if held_out is None else held_out
    hashes = _name_hashes(pc.list_flatten(table["documents"]))
    owner = np.repeat(np.arange(len(table)), pc.list_value_length(table["documents"]).fill_null(0).to_numpy())
    found = np.zeros(len(hashes), bool)
    if len(known):
        found = known[np.searchsorted(known, hashes).clip(max=len(known) - 1)] == hashes
    inside, outside = np.zeros(len(table), bool), np.zeros(len(table), bool)
    inside[owner[found]], outside[owner[~found]] = True, True
    return int(inside.sum()), int(outside.sum())


def _hashes(table: pa.Table) -> Array:
    """A 64-bit hash of the tokens and masks of each row."""
    columns = [name for name in ("input_ids", "masked_lm_positions", "masked_lm_ids") if name in table.column_names]
    frame = pl.from_arrow(table.select(columns))
    return mixed(frame.select(pl.struct(columns).hash(seed=0)).to_series().to_numpy())  # type: ignore[union-attr]


@dataclass
class _Copies:
    """Hashes of at most about `COPY_SAMPLE` instances."""

    part: int
    """one in so many is taken"""
    hashes: list[Array] = field(default_factory=list)

    @classmethod
    def of(cls, rows: int) -> "_Copies":
        """For so many instances."""
        return cls(-(-rows // COPY_SAMPLE) or 1)

    def add(self, hashes: Array, table: pa.Table) -> None:
        """Instances long enough to be told from each other."""
        long = pc.list_value_length(table["input_ids"]).to_numpy() >= COPY_TOKENS
        if "masked_lm_ids" in table.column_names:
            long &= pc.list_value_length(table["masked_lm_ids"]).to_numpy() >= COPY_MASKS
        self.hashes.append(hashes[long & (hashes % np.uint64(self.part) == 0)])

    def share(self) -> float | None:
        """Share of instances that are a copy of another; None without any."""
        hashes = np.concatenate([np.empty(0, np.uint64), *self.hashes])
        return 1 - len(np.unique(hashes)) / len(hashes) if len(hashes) else None


def _copied_share(copies: _Copies, config: ShardsConfig, statistics: Mapping[str, Any]) -> Any:
    """Text that is passed over several times without stored masks is the same each time: nothing to check there."""
    if not config.stores_masks and statistics.get("most_repeat", 1) > 1:
        return DOES_NOT_APPLY
    share = copies.share()
    return DOES_NOT_APPLY if share is None else share
