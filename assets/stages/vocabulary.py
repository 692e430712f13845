"""`wordpiece_vocab`: vocab.txt and tokenizer.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.asset import Metadata, Wiring
from assets.shown import counts, numbers, plot, rows
from pipeline.store import Record

MEASURES = {
    "size": "tokens",
    "tokens_used": "of these used",
    "unknown_rate": "share of words that are [UNK]",
    "whole_word_share": "share of words that are one token",
    "pieces_per_word": "pieces per word",
    "continued_share": "share of pieces that continue a word",
}


def metadata(record: Record, folder: Path) -> Metadata:
    """Size and fit on held-out text, beside the vocabulary to compare with; the longest tokens; every twentieth part of the list."""
    statistics = record.body["statistics"]
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    step = max(1, len(pieces) // 20)
    sample = [dg.TableRecord({"id": i, "token": pieces[i]}) for i in range(0, len(pieces), step)]
    shown: dict[str, Any] = {**numbers(statistics), "sample": dg.MetadataValue.table(sample)}
    if "words_by_pieces" in statistics:  # records of older code lack it
        shown["longest_tokens"] = counts(statistics["longest_tokens"], "token", "times on this text")
        shown["words_by_pieces"] = words_by_pieces(statistics)
    if other := statistics.get("compared"):
        table = [
            {"measure": title, "this": statistics[name], "compared": other[name]} for name, title in MEASURES.items()
        ]
        shown["comparison"] = rows(table, ["measure", "this", "compared"])
    return shown


def words_by_pieces(statistics: Mapping[str, Any]) -> dg.MarkdownMetadataValue:
    """A plot: into how many pieces words fall, in this vocabulary and in the one to compare with."""
    both = {"this": statistics, **({"compared": statistics["compared"]} if "compared" in statistics else {})}

    def draw(axes: Any) -> None:
        width = 0.8 / len(both)
        for place, (name, each) in enumerate(both.items()):
            counted = each["words_by_pieces"]
            total = sum(counted.values()) or 1
            places = [number + place * width for number in range(len(counted))]
            axes.bar(places, [100 * count / total for count in counted.values()], width, align="edge", label=name)
        axes.set_xticks([number + 0.4 for number in range(len(counted))], list(counted))
        axes.set_xlabel("pieces of a word")
        axes.set_ylabel("% of the words")
        axes.legend(frameon=False)

    return plot(draw, "Words by their number of pieces")


WIRING = Wiring(
    description="The WordPiece vocabulary, trained on the training documents, as vocab.txt and tokenizer.json.",
    kinds=frozenset({"json", "huggingface"}),
    metadata=metadata,
)
