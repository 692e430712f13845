"""Metrics of files, texts, documents and the vocabulary."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from pipeline.config import (
    BooksTextConfig,
    DocumentsConfig,
    FilesConfig,
    OwnTextConfig,
    PathFrom,
    UrlFrom,
    VocabularyConfig,
    WikimediaFrom,
    WikipediaTextConfig,
)
from pipeline.errors import DataError
from pipeline.origins import dump_lists
from pipeline.origins.downloads import digest_of, known_digest
from pipeline.schemas import DOCUMENTS_SCHEMA, TEXT_SCHEMA, count_rows, part_files, read_sentence_lines
from pipeline.selection.sampling import FETCHED
from pipeline.storage.manifest import MANIFEST
from pipeline.suites import DOES_NOT_APPLY
from pipeline.tokenizer import SPECIAL_TOKENS, out_of_reach
from pipeline.vocabulary import NOTHING

MAGIC = {".bz2": b"BZh", ".gz": b"\x1f\x8b", ".zip": b"PK", ".whl": b"PK", ".xz": b"\xfd7zXZ\x00", ".parquet": b"PAR1"}
BERT_SPECIAL_IDS = (0, 100, 101, 102, 103)
"""Of [PAD], [UNK], [CLS], [SEP], [MASK] in Google's vocabularies; 1 … 99 are [unused0] … [unused98]."""


def files(folder: Path, config: FilesConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes themselves, or what references.json says of local files."""
    references = folder / "references.json"
    if references.exists():
        listed = json.loads(references.read_text(encoding="utf-8"))
        sizes = [entry["size_bytes"] for entry in listed]
        paths = [_local(config, entry["path"]) for entry in listed]
    else:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (MANIFEST, FETCHED)]
        sizes = [path.stat().st_size for path in paths]
    # Of a folder of texts, the stage that reads them drops and counts those that are empty.
    texts = {path for path in paths if path.suffix.lower() == ".txt"} if any(sizes) else set()
    empty = [path for path, size in zip(paths, sizes, strict=True) if not size and path not in texts]
    other = [path for path in paths if _is_something_else(path)]
    return {
        "files": len(paths),
        "empty_files": len(empty),
        "empty_names": _named(empty),
        "wrong_formats": len(other),
        "wrong_names": _named(other),
        "dump_files": sum(".xml" in path.name for path in paths)
        if isinstance(config.from_, WikimediaFrom)
        else DOES_NOT_APPLY,
        **_declared(paths, config, statistics),
    }


def _declared(paths: list[Path], config: FilesConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """What the site or the recipe declares of downloads, and lists and indexes of the files that they lie beside."""
    root = Path(config.from_.path) if isinstance(config.from_, PathFrom) else None
    folders = [*([root] if root and root.is_dir() else []), *(path.parent for path in paths)]
    listed = dump_lists.lists_in(folders)
    wrong = dump_lists.wrong_digests(paths, listed, known_digest)
    downloaded = isinstance(config.from_, WikimediaFrom | UrlFrom)
    declared = _wrong_checksums(paths, statistics["files"]) if downloaded else 0
    missing = dump_lists.not_there(paths, listed)
    indexes = {path: index for path in paths if (index := dump_lists.index_of(path, folders))}
    broken = [said for path, index in indexes.items() if (said := dump_lists.wrong_index(path, index))]
    return {
        "wrong_checksums": declared + len(wrong) if downloaded or listed else DOES_NOT_APPLY,
        "wrong_digests": "; ".join(wrong[:3]),
        "missing_files": len(missing) if listed and not (root and root.is_file()) else DOES_NOT_APPLY,
        "missing_names": _some(missing),
        "wrong_indexes": len(broken) if indexes else DOES_NOT_APPLY,
        "index_problems": "; ".join(broken[:3]),
    }


def _named(paths: list[Path], most: int = 3) -> str:
    return _some([path.name for path in paths], most)


def _some(names: list[str], most: int = 3) -> str:
    """The first few, for a person."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _wrong_checksums(paths: list[Path], declared: list[dict[str, Any]]) -> int:
    """Files that are not what was declared of them, those that are missing, and those that nobody declared."""
    there = {path.name: path for path in paths}
    wrong = set(there) ^ {entry["name"] for entry in declared}
    for entry in declared:
        path = there.get(entry["name"])
        algorithm = "sha1" if "sha1" in entry else "sha256"
        if path is not None and digest_of(path, algorithm) != entry[algorithm]:
            wrong.add(path.name)
    return len(wrong)


def _local(config: FilesConfig, name: str) -> Path:
    """Where a referenced file lies: the recipe names the file itself, or a folder that holds it."""
    if not isinstance(config.from_, PathFrom):
        raise DataError("references.json belongs to sources with a path", "Run the stage again.")
    named = Path(config.from_.path)
    return named if named.is_file() else named / name


def _is_something_else(path: Path) -> bool:
    magic = MAGIC.get(path.suffix.lower(), b"")
    with path.open("rb") as file:
        return file.read(len(magic)) != magic


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(part_files(folder))


def _measured(frame: pl.LazyFrame, **metrics: pl.Expr) -> dict[str, Any]:
    row: dict[str, Any] = frame.select(**metrics).collect(engine="streaming").row(0, named=True)
    return row


def _repeated(column: str) -> pl.Expr:
    return pl.len() - pl.col(column).n_unique()


BLANK = ~pl.col("text").str.contains(r"[^\s\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\u{2800}]")
"""Nothing that can be seen: white space, characters of no width as U+200B, fillers, the blank of Braille."""
NO_LICENCE = pl.col("licence").fill_null("").str.strip_chars().str.len_bytes() == 0
UNLICENSED = pl.col("doc_id").filter(NO_LICENCE).bottom_k(3).sort().implode()
"""The first three such documents, by doc_id."""


def source_text(
    folder: Path, config: BooksTextConfig | OwnTextConfig | WikipediaTextConfig, statistics: Mapping[str, Any]
) -> dict[str, Any]:
    """`S_text` of any kind."""
    rows = pl.len().clip(lower_bound=1)
    return _wrong_columns(folder, TEXT_SCHEMA) or _lost(folder) | _measured(
        _scan(folder),
        documents=pl.len(),
        wrong_columns=pl.lit(0),
        repeated_doc_ids=_repeated("doc_id"),
        empty_texts=BLANK.sum(),
        other_sources=(pl.col("source") != config.source).sum(),
        broken_share=pl.col("text").str.contains("\ufffd", literal=True).sum() / rows,
        no_licence=NO_LICENCE.sum(),
    )


GUTENBERG = (
    r"(?i)Project Gutenberg(?:-tm|™)? (?:License|Literary Archive)|\*\*\* ?(?:START|END) OF (?:THE|THIS) PROJECT GUTENBERG|"
    r"END.{0,3}THE SMALL PRINT|gutenberg\.org/license"
)
"""What only Project Gutenberg's own words around a book say."""
HEADINGS = r"(?mi)^(?:chapter|book|part|volume) (?:[ivxlc]+|\d{1,3})(?:[.:—-].{0,60})?$"
"""Lines that are a heading for sure; what else may be one is decided in pipeline/prose/book_headings.py."""
NOT_BOOKS = ("unknown_file_type", "hidden")
"""Why files are dropped that nobody took for books: pictures, what a system lays beside them."""


def books_text(folder: Path, config: BooksTextConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`S_text` of kind books, and books.parquet beside it."""
    common = source_text(folder, config, statistics)
    if common["wrong_columns"]:
        return common
    rows = pl.len().clip(lower_bound=1)
    by_lines = pl.col("doc_id").is_in(sorted(read_sentence_lines(folder)))
    texts = _measured(
        _scan(folder),
        gutenberg_left=pl.col("text").str.contains(GUTENBERG).sum(),
        headings_per_mb=1e6 * pl.col("text").str.count_matches(HEADINGS).sum() / pl.col("text").str.len_bytes().sum(),
        one_paragraph_share=(~pl.col("text").str.contains("\n\n", literal=True) & ~by_lines).sum() / rows,
        duplicate_share=_repeated("text") / rows,
    )
    books = pl.read_parquet(folder / "books.parquet")
    dropped = books.filter(pl.col("dropped").is_not_null())
    archives = dropped.filter(pl.col("format") == "archive")
    unreadable = dropped.filter(~pl.col("dropped").is_in(NOT_BOOKS))
    unread = books.filter(pl.col("unread").is_not_null())
    unlicensed = books.filter(pl.col("licence").is_null() & (pl.col("documents") > 0))
    documents = max(int(books["documents"].sum()), 1)
    return {
        **common,
        **texts,
        "no_licence_demanded": common["no_licence"] if config.licence_required else DOES_NOT_APPLY,
        "no_licence_names": _first(unlicensed),
        "broken_archives": len(archives),
        "broken_names": _first(archives),
        "unreadable_share": len(unreadable) / max(len(books), 1),
        "unreadable_names": _first(unreadable),
        "unread_pages": len(unread),
        "unread_names": _first(unread),
        "pretokenised_share": int(books.filter("pretokenised")["documents"].sum()) / documents,
        "lowercased_share": int(books.filter("lowercased")["documents"].sum()) / documents,
        "manifest_unknown": statistics.get("manifest_unknown", 0) if config.manifest else DOES_NOT_APPLY,
        "manifest_unknown_names": ", ".join(statistics.get("manifest_unknown_files", [])[:3]),
        "without_manifest_row": statistics.get("without_manifest_row", 0) if config.manifest else DOES_NOT_APPLY,
    }


def _first(books: pl.DataFrame, most: int = 3) -> str:
    """The first few paths, and why, for a person."""
    named = [
        f"{path} ({reason})" if reason else path for path, reason in books.head(most).select("path", "dropped").rows()
    ]
    return ", ".join(named) + (f" and {len(books) - most} more" if len(books) > most else "")


SINGLE_SENTENCE = r"(?m)^(?:[^.!?…。！？\n]|[.!?…][^\s\"'”’»)\]])+(?:[.!?…]+[\"'”’»)\]]*|[。！？]+[」』）”’]*)[^\S\n]*$"
"""A line that is one sentence: it ends as one, and no other ends inside."""


def own_text(folder: Path, config: OwnTextConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`S_text` of kinds text, jsonl, parquet and csv."""
    common = source_text(folder, config, statistics)
    if common["wrong_columns"]:
        return common
    rows = pl.len().clip(lower_bound=1)
    text = pl.col("text")
    lines = text.str.count_matches(r"\n+") + 1
    counted = json.loads((folder / "dropped.json").read_text(encoding="utf-8"))
    read, again = max(counted["read"], 1), counted["dropped"].get("duplicate_doc_id", 0)
    measured = _measured(
        _scan(folder),
        repeated=pl.len() - text.hash().n_unique(),
        single_sentence_share=(2 * text.str.count_matches(SINGLE_SENTENCE) > lines).sum() / rows,
        no_licence_names=UNLICENSED,
    )
    return {
        **common,
        "no_licence_demanded": common["no_licence"] if config.licence_required else DOES_NOT_APPLY,
        "no_licence_names": ", ".join(measured["no_licence_names"]),
        "dropped_share": sum(counted["dropped"].values()) / read,
        "single_sentence_share": DOES_NOT_APPLY if config.sentence_per_line else measured["single_sentence_share"],
        "duplicate_share": (measured["repeated"] + again) / read,
    }


MARKUP = (
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>\n]{0,200})?/?>|&(?:[a-zA-Z]{2,8}|#\d+);|'{2,3}|"
    r"(?m:^=+[^=\n].*=+\s*$)|__[A-Z]{3,}__|\b(?:style|class|colspan|rowspan|align|bgcolor|scope)\s*=\s*[\"\w]|"
    r"\b(?:thumb|thumbnail|upright|frameless)\s*\||\|\s*\d+px|\b(?:File|Image|Category):|"
    r"(?m:^(?:[*#]{1,8}[ \t]|\|[-}+|\s]|![ \t]))"
)
"""What wikitext looks like when it was not understood; the last line: items of lists, rows and headers of tables."""
HOLES = (
    r"\([\s,;:]*[,;:\s]\)|（[\s、；，：]*）|(?:^|[^\w(])\((?:\)|\s*[,;]\s*\w)|（\s*[、；，][^）]|"
    r"[\w)\]]\s*,\s+,|\w,,\s|[、，]\s*[、，]|;\s+;"
)
"""What is left where something was cut out: `( ; )`, `()` that is no function's, `（）`, doubled commas."""


def wikipedia_text(folder: Path, config: WikipediaTextConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`S_text` of kind wikipedia."""
    common = source_text(folder, config, statistics)
    if common["wrong_columns"]:
        return common
    page = pl.col("doc_id").str.extract(r":(\d+)$").cast(pl.Int64)
    return common | _measured(
        _scan(folder),
        out_of_order=(page.diff() <= 0).sum() + page.is_null().sum(),
        markup_per_mb=_per_mb(MARKUP),
        holes_per_mb=_per_mb(HOLES),
    )


def _per_mb(pattern: str) -> pl.Expr:
    return 1e6 * pl.col("text").str.count_matches(pattern).sum() / pl.col("text").str.len_bytes().sum()


def _wrong_columns(folder: Path, schema: Any) -> dict[str, Any]:
    """Empty if every part has the columns and types of `schema`, in any string and list width."""
    wanted = pl.DataFrame(schema.empty_table()).schema
    wrong = sum(_polars_schema(path) != wanted for path in part_files(folder))
    return {"wrong_columns": wrong} if wrong else {}


def _polars_schema(path: Path) -> Mapping[str, Any]:
    return pl.DataFrame(pq.read_schema(path).empty_table()).schema


def _lost(folder: Path) -> dict[str, Any]:
    """Documents that dropped.json {read, kept, dropped: {reason: count}} does not account for."""
    counted = json.loads((folder / "dropped.json").read_text(encoding="utf-8"))
    kept = counted["read"] - sum(counted["dropped"].values())
    return {"lost": abs(counted["kept"] - count_rows(folder)) + abs(counted["kept"] - kept)}


def documents(folder: Path, config: DocumentsConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`documents`."""
    wrong = _wrong_columns(folder, DOCUMENTS_SCHEMA)
    if wrong:
        return wrong
    ends = pl.col("sentence_ends")
    sound = (
        (ends.list.len() > 0)
        & (ends.list.last() == pl.col("text").str.len_chars())
        & (ends.list.first() > 0)
        & (ends.list.diff().list.min().fill_null(1) > 0)
    )
    held_out = (pl.col("split") == "held_out").sum()
    metrics = _measured(
        _scan(folder),
        train=(pl.col("split") == "train").sum(),
        held_out=held_out,
        wrong_columns=pl.lit(0),
        other_splits=(~pl.col("split").is_in(["train", "held_out"])).sum(),
        repeated_doc_ids=_repeated("doc_id"),
        repeated_texts=pl.len() - pl.col("text").hash().n_unique(),
        empty_texts=BLANK.sum(),
        bad_sentence_ends=(~sound.fill_null(False)).sum(),
        bad_repeats=(~(pl.col("repeat") > 0).fill_null(False)).sum(),
        one_sentence_share=(ends.list.len() == 1).sum() / pl.len().clip(lower_bound=1),
        held_out_share=held_out / pl.len().clip(lower_bound=1),
        no_licence=NO_LICENCE.sum(),
        no_licence_names=UNLICENSED,
    )
    rows = metrics["train"] + metrics["held_out"]
    return (
        metrics
        | _lost(folder)
        | _listed(folder)
        | _told(statistics)
        | {
            "held_out_sigmas": _held_out_sigmas(metrics["held_out"], rows, config.held_out, statistics),
            "no_licence_demanded": metrics["no_licence"] if config.licence_required else DOES_NOT_APPLY,
            "no_licence_names": ", ".join(metrics["no_licence_names"]),
        }
    )


DUPLICATES = ("duplicate_doc_id", "duplicate_text", "near_duplicate")


def _listed(folder: Path) -> dict[str, Any]:
    """How far dropped.parquet is from dropped.json, and the share that was dropped as a copy of another document."""
    counted = json.loads((folder / "dropped.json").read_text(encoding="utf-8"))
    listed = dict(pl.scan_parquet(folder / "dropped.parquet").group_by("reason").len().collect().iter_rows())
    reasons = set(listed) | set(counted["dropped"])
    copies = sum(counted["dropped"].get(reason, 0) for reason in DUPLICATES)
    return {
        "unlisted": sum(abs(listed.get(reason, 0) - counted["dropped"].get(reason, 0)) for reason in reasons),
        "duplicate_share": copies / max(1, counted["read"]),
    }


def _told(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """What only the stage itself could count; records of its first version do not have it."""
    languages = statistics.get("languages", {"judged": 0})
    withdrawals = statistics.get("withdrawals", {"lines": 0})
    return {
        "language_share": languages["agreed"] / languages["judged"] if languages["judged"] else DOES_NOT_APPLY,
        "unmatched_withdrawals": withdrawals["unmatched"] if withdrawals["lines"] else DOES_NOT_APPLY,
        "unmatched_lines": "; ".join(withdrawals.get("unmatched_lines", [])[:3]),
    }


def _held_out_sigmas(held_out: int, rows: int, share: float, statistics: Mapping[str, Any]) -> float | None:
    """Standard deviations from what is expected; of duplicates the smallest hash stays, so that more are held out."""
    if "held_out_expected" not in statistics or not rows:
        return sigmas(held_out, rows, share)
    return _standard(held_out - statistics["held_out_expected"], math.sqrt(statistics["held_out_variance"]))


def sigmas(hits: int, draws: int, probability: float) -> float | None:
    """Standard deviations between `hits` and the mean of a binomial; None without draws, 0 where chance has no say."""
    if not draws:
        return None
    return _standard(hits - draws * probability, math.sqrt(draws * probability * (1 - probability)))


def _standard(off: float, deviation: float) -> float:
    return off / deviation if deviation else (0.0 if abs(off) < 0.5 else math.copysign(float("inf"), off))


def vocabulary(folder: Path, config: VocabularyConfig, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """`wordpiece_vocab`; the unknown rate is what the stage measured on the held-out documents."""
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    entries = text.removesuffix("\n").split("\n")
    if config.imported:  # whose options are the model's
        said = {name: statistics[name] for name in ("lowercase", "strip_accents")}
        config = config.model_copy(update=said)
    unreached = out_of_reach(entries, lowercase=config.lowercase, strip_accents=config.strip_accents)
    return {
        "size": len(entries),
        "size_minus_declared": _size_off(len(entries), config) if config.trained else DOES_NOT_APPLY,
        "repeated_entries": len(entries) - len(set(entries)),
        "blank_entries": sum(entry.split() != [entry] for entry in entries),
        "misplaced_special_tokens": _misplaced(entries, config.layout) if config.trained else _missing(entries),
        "tokenizer_differences": _differences(folder / "tokenizer.json", entries, config),
        "out_of_reach_share": unreached / len(entries),
        "unknown_rate": DOES_NOT_APPLY if statistics.get("measured_on") == NOTHING else statistics.get("unknown_rate"),
    }


def _size_off(size: int, config: VocabularyConfig) -> int:
    off = size - config.size
    return max(off, 0) if config.at_most else off


def _missing(entries: list[str]) -> int:
    """A vocabulary made elsewhere has its special tokens where it has them."""
    return len(set(SPECIAL_TOKENS) - set(entries))


def _misplaced(entries: list[str], layout: str) -> int:
    if layout == "compact":
        wanted = dict(enumerate(SPECIAL_TOKENS))
    else:
        wanted = dict(zip(BERT_SPECIAL_IDS, SPECIAL_TOKENS, strict=True)) | {
            number: f"[unused{number - 1}]" for number in range(1, 100)
        }
    return sum(entries[number : number + 1] != [token] for number, token in wanted.items())


def _differences(file: Path, entries: Iterable[str], config: VocabularyConfig) -> int:
    """Entries with another id in tokenizer.json, and options of its normaliser that are not the recipe's."""
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    known = dict(tokenizer["model"]["vocab"])
    differing = sum(known.pop(entry, None) != number for number, entry in enumerate(entries)) + len(known)
    normaliser = tokenizer["normalizer"]
    for option, wanted in (("lowercase", config.lowercase), ("strip_accents", config.strip_accents)):
        differing += normaliser[option] != wanted
    return differing
