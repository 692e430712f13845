"""The text of a recipe that `bert new` writes: every number with why it is so, and what to change with more text or a GPU."""

import json
import os
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.config import Columns
from pipeline.stage import ROOT
from pipeline.starting.recipe_sizes import PASSES, TOKENS_PER_WEIGHT, TOLD_ALPHABET, Casing, Sizes, Text
from pipeline.starting.text_measure import Source

WIDTH = 118
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*[A-Za-z0-9_/-]")
_NOT_PLAIN = re.compile(r"[-+.\d][-+.\da-fox_]*|\.inf|\.nan|null|true|false|yes|no|on|off|y|n", re.IGNORECASE)


def recipe_text(
    name: str, sources: Sequence[Source], language: str, casing: Casing, text: Text, sizes: Sizes, folder: Path
) -> str:
    """The recipe as YAML. folder: that it will lie in, where its relative paths start."""
    lines = [
        *_head(name, text, sizes),
        f"name: {name}",
        f"description: A {sizes.model.name} BERT from one's own text ({language}).",
        "",
        "corpus:",
        "  sources:",
        *(line for source in sources for line in _source(source, language, folder)),
        *_entry(2, f"held_out: {text.held_out:g}", _held_out(text)),
        "",
        "vocabulary:",
        *_entry(2, f"size: {text.vocabulary}", _vocabulary(text)),
        *_entry(2, f"lowercase: {_said(casing.lowercase)}", casing.why),
        f"  strip_accents: {_said(casing.strip_accents)}",
        *_alphabet(text),
        "",
        "shards:",
        *_entry(2, f"dupe_factor: {sizes.dupe_factor}", _dupes(sizes)),
        "",
        "architecture:",
        *_entry(2, f"layers: {sizes.model.layers}", _model(text, sizes)),
        f"  hidden: {sizes.model.hidden}",
        *_entry(2, f"heads: {sizes.model.heads}", f"of {sizes.model.hidden // sizes.model.heads} numbers each"),
        *_entry(2, f"max_positions: {sizes.positions}", "as the longest rows below: what stands further behind would not be learned"),
        "",
        "pretraining:",
        *_entry(2, "precision: fp32", "on a GPU write bf16: it is faster there; which device trains stands in settings.yaml"),
        *_phases(text, sizes),
        *_entry(2, f"batch_size: {sizes.model.batch_size}", "rows of a step; a GPU is used better by more of them: with twice the rows, halve the steps"),
        *_entry(2, f"learning_rate: {sizes.model.learning_rate}", "the peak; smaller models take larger steps, the paper's 1e-4 is for base"),
        *_entry(2, "warmup_ratio: 0.1", "the rate rises over the first tenth of the steps, then falls to 0"),
        *_entry(2, "bias_correction: true", "without it the first hundreds of steps are several times too large for so short a training"),
        *_entry(2, f"log_every: {max(1, min(100, sizes.steps // 100))}", "steps between two points of the curves"),
        *_entry(2, f"evaluate_every: {max(1, sizes.steps // 10)}", "steps between two looks at the held-out text: ten of them"),
        *_entry(2, "evaluate_sequences: 1000", "rows of held-out text at each look, or as many as there are"),
        "",
        "# What the model is for: tasks with labels, which it is fine-tuned on and compared by (docs/tasks.md).",
        "# finetuning:",
        "#   tasks: [mine]",
        "#   define: {mine: {title: Mine, files: {train: {path: /data/mine.csv}}, text: text, label: label, test_share: 0.2}}",
        f"#   max_length: {min(128, sizes.positions)}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _said(value: bool) -> str:
    return str(value).lower()


def _entry(indent: int, entry: str, comment: str) -> list[str]:
    """A line with its comment behind it, or above where it is too long for that."""
    before = " " * indent
    behind = f"{before}{entry} # {comment}"
    if len(behind) <= WIDTH:
        return [behind]
    return [*_comment(comment, indent), before + entry]


def _comment(text: str, indent: int = 0, first: str = "", rest: str = "") -> list[str]:
    start = " " * indent + "# "
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start + first,
        subsequent_indent=start + rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def scalar(value: str) -> str:
    """A text as YAML reads it back, in quotes where it needs them."""
    if _PLAIN.fullmatch(value) and not _NOT_PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable()).replace("\x7f", "\\x7f")


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _count(number: int, text: Text) -> str:
    """A count of the text; of an estimate, as many digits as it has."""
    if text.share_read == 1:
        return f"{number:,}"
    return f"about {float(f'{number:.2g}'):,.0f}"


def _head(name: str, text: Text, sizes: Sizes) -> list[str]:
    of = "" if text.share_read == 1 else f" An estimate: {text.share_read:.1%} of the text was read."
    dropped = sum(text.dropped.values())
    reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in text.dropped.items())
    gone = f" Of {text.read:,} documents that were read {dropped:,} were dropped: {reasons}." if dropped else ""
    model = sizes.model
    about = (
        f"{_count(text.documents, text)} documents, {_count(text.characters, text)} characters; {_count(text.train_words, text)} words "
        f"and punctuation marks to train on, {_count(text.held_out_words, text)} held out.{gone}{of}"
    )
    layers = f"{model.layers} layers of {model.hidden}, {sizes.weights / 1e6:.1f} million weights"
    return [
        f"# A {model.name} BERT from one's own text, sized to it by `bert new`. Change what you like, then:",
        "#",
        f"#   bert run {name} --dry-run     what would run, and about how long it would train on this machine",
        f"#   bert run {name}",
        "#",
        *_comment(about, 0, "Text     ", " " * 9),
        *_comment(f"{model.name} (Turc et al. 2019): {layers}.", 0, "Model    ", " " * 9),
        *_comment(f"{sizes.steps:,} steps: about {_number(sizes.passes)} passes over the text.", 0, "Training ", " " * 9),
        *_comment("with more text, remove this file and run `bert new` again, or follow the comments.", 0, "Later    ", " " * 9),
    ]  # fmt: skip


def _source(source: Source, language: str, folder: Path) -> list[str]:
    found = source.found
    foreign = (
        f"; {found.foreign:,} file{'s' * (found.foreign > 1)} of another kind below it: dropped and counted"
        if found.foreign
        else ""
    )
    path = f"from: {{path: {scalar(_path(found.path, folder))}}}"
    where = "the file" if found.path.is_file() else "a folder with everything below it"
    lines = [
        f"    {source.name}:",
        *_entry(6, f"kind: {found.kind}", found.why),
        *_entry(6, path, where + foreign),
        *_entry(6, f"language: {language}", "decides how sentences are split, and is checked"),
    ]
    if found.sentence_per_line:
        lines += _entry(6, "sentence_per_line: true", "every line is a sentence; blank lines stand between documents")
    if source.columns is not None:
        lines += _entry(6, f"columns: {{{_columns(source.columns)}}}", "as the first rows have them")
    return [*lines, *_comment("licence: CC-BY-4.0   (if you know it: it stands with every document)", 6)]


def _columns(columns: Columns) -> str:
    named: dict[str, Any] = columns.model_dump(exclude_none=True)
    return ", ".join(f"{role}: {scalar(name)}" for role, name in named.items())


def _path(path: Path, folder: Path) -> str:
    """Relative to the recipe where both lie in the checkout, so that it can be moved as a whole."""
    if path.is_relative_to(ROOT) and folder.is_relative_to(ROOT):
        return os.path.relpath(path, folder)
    return str(path)


def _held_out(text: Text) -> str:
    return (
        f"share of documents, by hash, that no training sees and the model is judged by: {_count(text.held_out_documents, text)} "
        f"documents, {_count(text.held_out_words, text)} words. "
        + ("With much more text 0.005 will do" if text.held_out > 0.005 else "More text needs no larger share")
    )


def _vocabulary(text: Text) -> str:
    many = ", and the characters of the script on top" if text.alphabet > TOLD_ALPHABET else ""
    return (
        f"tokens, made of this text; a word is {text.pieces_per_word:.2f} of them. From 1 million words on 8000, from 10 million 16000, "
        f"from 100 million 30522 as the paper's{many}; a text that can't give so many is refused with the number that it gives"
    )


def _alphabet(text: Text) -> list[str]:
    if text.alphabet <= TOLD_ALPHABET:
        return []
    return _entry(2, f"alphabet_limit: {text.alphabet}", "so many characters make up all but one in 10,000 of the text")


def _dupes(sizes: Sizes) -> str:
    times = sizes.passes / sizes.dupe_factor
    return (
        f"passes over the text when rows are made, each with other pairs and masks (the paper: 10); training sees each row about "
        f"{_number(times)} time{'s' * (_number(times) != '1')}. Fewer need less disk"
    )


def _model(text: Text, sizes: Sizes) -> str:
    said = (
        f"{sizes.model.name}: {sizes.weights / 1e6:.1f} million weights. The rule: {PASSES} passes over the text are "
        f"{PASSES * text.train_tokens / 1e6:,.1f} million tokens, and a weight wants {TOKENS_PER_WEIGHT} (Hoffmann et al. 2022)"
    )
    if sizes.weights * TOKENS_PER_WEIGHT > PASSES * text.train_tokens:
        said += ", which even the smallest does not get here: so little text teaches little"
    if sizes.larger is None:
        return said
    larger = sizes.larger
    return (
        f"{said}. {larger.name} ({larger.layers} layers of {larger.hidden}, {larger.heads} heads, batch_size {larger.batch_size}, "
        f"learning_rate {larger.learning_rate}) wants about {sizes.larger_words:,} words of such text"
    )


def _phases(text: Text, sizes: Sizes) -> list[str]:
    first = sizes.phases[0].sequence_length
    why = f"a document is about {text.document_tokens:,.0f} tokens long"
    if len(sizes.phases) > 1:
        why += ": nine tenths of the steps at 128 tokens, which cost less, and the rest at 512 (the paper)"
    elif first == 128 and text.document_tokens >= 256:
        why += "; a model this small sees little beyond 128"
    per_phase = ", with `schedule: per_phase`," if len(sizes.phases) > 1 else ""
    why += (
        f". {sizes.steps:,} steps are about {_number(sizes.passes)} passes over the text; the dry run says how long they take. Where that is "
        f"too long, take a smaller model or fewer steps: `max_hours: 8` in a phase{per_phase} makes as many as that time allows"
    )
    return [
        *_comment(why, 2),
        "  phases:",
        *(f"    - {{sequence_length: {phase.sequence_length}, steps: {phase.steps}}}" for phase in sizes.phases),
    ]


def _number(value: float) -> str:
    """Two digits are as many as an estimate has."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}".removesuffix(".0")
