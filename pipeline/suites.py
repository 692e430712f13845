"""What every artifact is checked for before it is published, as Great Expectations suites.

A suite is a list of checks on a frame of one row: the metrics that `pipeline.profiles` measures on the artifact. They
are made so that the arguments of an expectation are constants (`size_minus_declared` must be 0), and row floors stand
first, because an empty table would pass all the rest. Declaring and digesting a suite imports nothing heavy.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pipeline.config import Frozen

Severity = Literal["critical", "warning"]
NOT_RUN = "not_run.json"
"""A folder that holds this file has no data: a task whose files were never there, or that failed."""
FAILED = "failed"
"""In the statistics of what was published in the place of something that failed: why."""
PRESENT = "data_present"
OLDER = "older"
"""In the statistics that a suite gets: what to compare with, {"date", and the statistics of the artifact made of the dump
before this one, or, where there are no dumps, of the one that the recipe had before}; absent where there is none."""
INPUTS = "inputs"
"""In the statistics that a suite gets: the folders of the artifact's inputs by name, as far as they are at hand."""
DOES_NOT_APPLY = "does not apply"
"""Stands for a metric that the configuration leaves nothing to measure for; its check passes."""


@dataclass(frozen=True)
class Check:
    """One expectation on one metric."""

    name: str
    description: str
    expectation: str
    """class of `great_expectations.expectations`"""
    arguments: Mapping[str, Any]
    severity: Severity = "critical"
    shows: tuple[str, ...] = ()
    """metrics that explain the checked one; shown beside it"""
    needed: bool = False
    """nothing can be made of an artifact that fails it, so that accepting it would help nobody"""

    @property
    def metric(self) -> str:
        """The column of the frame that is checked."""
        return str(self.arguments["column"])

    @property
    def expected(self) -> str:
        """The rule in a few characters: `= 0`, `≥ 1`, `-6 … 6`."""
        least, most = self.arguments.get("min_value"), self.arguments.get("max_value")
        if least == most:
            return f"= {least}"
        if most is None:
            return f"{'>' if self.arguments.get('strict_min') else '≥'} {least}"
        return f"≤ {most}" if least is None else f"{least} … {most}"


@dataclass(frozen=True)
class Suite:
    """The checks of one stage. `version` is raised by hand when a metric is measured in another way."""

    checks: tuple[Check, ...]
    version: str = "1"


@dataclass(frozen=True)
class CheckResult:
    """What a check said; `observed` and `expected` are for people."""

    name: str
    passed: bool
    severity: Severity
    observed: str
    expected: str
    description: str = field(default="")

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def _between(
    name: str,
    description: str,
    metric: str,
    least: float | None,
    most: float | None,
    severity: Severity = "critical",
    shows: tuple[str, ...] = (),
    strict: bool = False,
) -> Check:
    arguments: dict[str, Any] = {"column": metric, "min_value": least, "max_value": most}
    if strict:
        arguments["strict_min"] = True
    return Check(name, description, "ExpectColumnValuesToBeBetween", arguments, severity, shows)


def _floor(name: str, description: str, metric: str, least: float = 1, severity: Severity = "critical") -> Check:
    return _between(name, description, metric, least, None, severity)


def _needed(name: str, description: str, metric: str) -> Check:
    return replace(_floor(name, description, metric), needed=True)


def _none(name: str, description: str, metric: str, severity: Severity = "critical", *shows: str) -> Check:
    return _between(name, description, metric, 0, 0, severity, shows)


def _at_most(name: str, description: str, metric: str, most: float, severity: Severity = "warning") -> Check:
    return _between(name, description, metric, None, most, severity)


def _above_zero(name: str, description: str, metric: str, *shows: str) -> Check:
    return _between(name, description, metric, 0, None, "warning", shows, strict=True)


SIGMAS = 6
"""A share that is drawn at random may be this many standard deviations off."""


LEAST_HELD_OUT_TOKENS = 500
"""Of shards: with fewer, the accuracy of some 75 masked words is known to worse than ±12 points."""
LEAST_DEV = 10
"""Examples of dev. Of 10 an answer is 10 points, more than epochs, grid points or seeds use to differ by."""


def _by_chance(name: str, description: str, metric: str, severity: Severity, *shows: str) -> Check:
    return _between(name, description, metric, -SIGMAS, SIGMAS, severity, shows)


_TEXT = (
    _floor("has_documents", "There is at least one document.", "documents"),
    _none("columns_as_agreed", "The columns and types are those of the text tables.", "wrong_columns"),
    _none("documents_add_up", "Every document that was read is kept or dropped for a reason.", "lost"),
    _none("doc_ids_unique", "No doc_id stands twice.", "repeated_doc_ids"),
    _none("texts_not_empty", "Every document has text.", "empty_texts"),
    _none("source_named", "Every document names its source.", "other_sources"),
    _at_most(
        "encoding_sound", "Hardly any document holds U+FFFD, the mark of a broken encoding.", "broken_share", 0.01
    ),
    _none("licence_recorded", "Every document names its licence.", "no_licence", "warning"),
)
_LICENCE_DEMANDED = _none(
    "licence_demanded",
    "Every document names its licence, where the recipe demands it (licence_required).",
    "no_licence_demanded",
    "critical",
    "no_licence_names",
)
_TEXT_VERSION = "2"  # 2: text that can't be seen is empty
_BOOKS = (
    _LICENCE_DEMANDED,
    _none("archives_whole", "Every archive was read to its end.", "broken_archives", "critical", "broken_names"),
    _none(
        "gutenberg_licence_gone",
        "No document holds Project Gutenberg's licence or its marks.",
        "gutenberg_left",
        "critical",
    ),
    _between(
        "files_readable",
        "Hardly any file was dropped because it could not be read; books.parquet names each.",
        "unreadable_share",
        None,
        0.02,
        "warning",
        ("unreadable_names",),
    ),
    _none("pages_read", "Every page of every EPUB could be read.", "unread_pages", "warning", "unread_names"),
    _at_most("headings_gone", "Hardly any chapter heading is left in the text, per MB.", "headings_per_mb", 1),
    _at_most(
        "has_paragraphs", "Few documents are one paragraph: their line breaks were lost.", "one_paragraph_share", 0.5
    ),
    _at_most(
        "not_pretokenised",
        'Hardly any document is a pre-tokenised copy ("do n\'t"): a vocabulary learns its spaces.',
        "pretokenised_share",
        0.01,
    ),
    _at_most(
        "not_lowercased",
        "Hardly any document is a lower-cased copy: no cased model can come of it.",
        "lowercased_share",
        0.01,
    ),
    _at_most("texts_differ", "Few texts stand twice; `documents` removes them.", "duplicate_share", 0.1),
    _none(
        "manifest_rows_used",
        "Every row of the manifest names a file that is there.",
        "manifest_unknown",
        "warning",
        "manifest_unknown_names",
    ),
    _none(
        "manifest_covers", "Every file has a row in the manifest, if there is one.", "without_manifest_row", "warning"
    ),
)
_OWN = (
    _LICENCE_DEMANDED,
    _at_most(
        "most_rows_used",
        "At most half of the rows or files were dropped; dropped.json and `first_dropped` say why.",
        "dropped_share",
        0.5,
        "critical",
    ),
    _at_most("nearly_all_rows_used", "At most a tenth of the rows or files were dropped.", "dropped_share", 0.1),
    _at_most(
        "has_paragraphs_of_sentences",
        "In most documents, most lines hold more than one sentence: blank lines or line ends after every sentence ruin "
        "next-sentence pairs, unless the recipe says sentence_per_line.",
        "single_sentence_share",
        0.5,
    ),
    _at_most("texts_differ", "Few documents stand twice; `documents` removes them.", "duplicate_share", 0.1),
)
_NOT_MUCH_SMALLER = _between(
    "not_much_smaller",
    "It is at most a tenth smaller than what this recipe had before (of an older dump, where there are dumps).",
    "shrinkage",
    None,
    0.1,
    shows=("older",),
)
_PRESENT = _between(
    PRESENT, "The task's files are there; without them its cell in the report is empty.", PRESENT, 1, 1, "warning"
)

SUITES: Mapping[str, Suite] = {
    "files": Suite(
        (
            _floor("has_files", "There is at least one file.", "files"),
            _none(
                "files_not_empty",
                "No file is empty, but for single texts among others: those are dropped and counted where they are read.",
                "empty_files",
                "critical",
                "empty_names",
            ),
            _none(
                "files_are_what_they_say",
                "A .bz2, .gz, .zip or .whl begins as one.",
                "wrong_formats",
                "critical",
                "wrong_names",
            ),
            _floor("has_dump", "A download from Wikimedia holds at least one XML file.", "dump_files"),
            _none(
                "checksums_as_declared",
                "Every file is, byte for byte, what the site, the recipe or a list of checksums beside it declares: fetch "
                "what is not again, or remove a list that is out of date.",
                "wrong_checksums",
                "critical",
                "wrong_digests",
            ),
            _none(
                "index_agrees",
                "A multistream dump has its streams where the index beside it says: if not, fetch both again from one "
                "date, or remove the index.",
                "wrong_indexes",
                "critical",
                "index_problems",
            ),
            _none(
                "files_as_listed",
                "All parts of a dump are there that a list of checksums beside them names; without them it is a part.",
                "missing_files",
                "warning",
                "missing_names",
            ),
            _NOT_MUCH_SMALLER,
        ),
        version="3",  # 3: an empty text among others is no fault; 2: lists of checksums count too
    ),
    "wikipedia_text": Suite(
        (
            *_TEXT,
            _none("in_page_order", "Documents stand by page_id as a number.", "out_of_order"),
            _at_most(
                "markup_gone",
                "Markup left in the text, per MB: more is a broken extractor.",
                "markup_per_mb",
                50,
                "critical",
            ),
            _at_most("markup_rare", "Hardly any markup is left in the text, per MB.", "markup_per_mb", 2),
            _at_most(
                "holes_rare",
                "Hardly any holes where something was cut out, as ( ; ) or , , in the text, per MB.",
                "holes_per_mb",
                10,
            ),
            _NOT_MUCH_SMALLER,
        ),
        version=_TEXT_VERSION,
    ),
    "books_text": Suite((*_TEXT, *_BOOKS, _NOT_MUCH_SMALLER), version=_TEXT_VERSION),
    "own_text": Suite((*_TEXT, *_OWN, _NOT_MUCH_SMALLER), version=_TEXT_VERSION),
    "documents": Suite(
        (
            _floor("has_train", "Two documents to train on: a random next sentence needs another.", "train", 2),
            _floor("has_held_out", "At least one document is held out; a larger held_out helps.", "held_out"),
            _none("columns_as_agreed", "The columns and types are those of the documents table.", "wrong_columns"),
            _none("documents_add_up", "Every document that was read is kept or dropped for a reason.", "lost"),
            _none("splits_known", "Every document is in train or in held_out.", "other_splits"),
            _none("doc_ids_unique", "No doc_id stands twice.", "repeated_doc_ids"),
            _none(
                "texts_unique",
                "No text stands twice: deduplicated, and nothing held out is also trained on.",
                "repeated_texts",
            ),
            _none("texts_not_empty", "Every document has text.", "empty_texts"),
            _none(
                "sentence_ends_sound",
                "Sentence ends ascend, and the last one is the text's length.",
                "bad_sentence_ends",
            ),
            _none("repeats_positive", "Every document is passed over a positive number of times.", "bad_repeats"),
            _at_most(
                "has_sentences",
                "At most half of the documents are one sentence: pairs need two.",
                "one_sentence_share",
                0.5,
                "critical",
            ),
            _by_chance(
                "held_out_share",
                "The held-out share is the recipe's, within chance (standard deviations).",
                "held_out_sigmas",
                "warning",
                "held_out_share",
            ),
            _none("licence_recorded", "Every document names its licence.", "no_licence", "warning"),
            _LICENCE_DEMANDED,
            _none(
                "drops_listed", "dropped.parquet lists as many documents of each reason as were counted.", "unlisted"
            ),
            _floor(
                "language_share",
                "Nine in ten documents are in the language that is declared, by the language detector.",
                "language_share",
                0.9,
                "warning",
            ),
            _floor(
                "language_right",
                "Half of the documents are in the language that is declared: else the declaration is wrong.",
                "language_share",
                0.5,
            ),
            _at_most("duplicate_share", "At most half of what was read is a copy of the rest.", "duplicate_share", 0.5),
            _none(
                "withdrawals_matched",
                "Every line of the list of withdrawn documents names one that was there.",
                "unmatched_withdrawals",
                "warning",
                "unmatched_lines",
            ),
            _NOT_MUCH_SMALLER,
        ),
        version=_TEXT_VERSION,
    ),
    "wordpiece_vocab": Suite(
        (
            _none(
                "size_as_declared",
                "vocab.txt has exactly the recipe's number of entries.",
                "size_minus_declared",
                "critical",
                "size",
            ),
            _none("entries_unique", "No entry stands twice.", "repeated_entries"),
            _none("entries_not_empty", "No entry is empty or holds white space.", "blank_entries"),
            _none(
                "special_tokens_placed",
                "[PAD] [UNK] [CLS] [SEP] [MASK] and [unusedN] stand where the layout says.",
                "misplaced_special_tokens",
            ),
            _none(
                "tokenizer_agrees",
                "tokenizer.json gives every entry the id of its line, and cleans text as declared.",
                "tokenizer_differences",
            ),
            _at_most(
                "tokens_in_reach",
                "At most 1 % of the tokens can't come out of any text, normalised as declared.",
                "out_of_reach_share",
                0.01,
            ),
            _at_most(
                "unknown_rate", "At most 5 % of the held-out words become [UNK].", "unknown_rate", 0.05, "critical"
            ),
            _at_most("unknown_rate_low", "At most 0.5 % of the held-out words become [UNK].", "unknown_rate", 0.005),
        )
    ),
    "pretraining_shards": Suite(
        (
            _needed("has_train", "There are instances to train on.", "train_rows"),
            _floor("has_held_out", "There are held-out instances.", "held_out_rows"),
            _floor(
                "held_out_tokens",
                f"{LEAST_HELD_OUT_TOKENS} held-out tokens at least: with fewer, the accuracy of some 75 masked words is known to worse than ±12 "
                "points.",
                "held_out_tokens",
                LEAST_HELD_OUT_TOKENS,
            ),
            _floor(
                "held_out_tokens_enough",
                "10,000 held-out tokens: the accuracy of some 1,500 masked words is known to ±2.5 points.",
                "held_out_tokens",
                10_000,
                "warning",
            ),
            _none("files_complete", "As many shard files as declared, with the agreed columns.", "wrong_files"),
            _none("lengths_fit", "No instance is longer than sequence_length or lacks a token.", "bad_lengths"),
            _none("ids_in_vocabulary", "Every id is below the vocabulary's size.", "ids_outside"),
            _none(
                "structure",
                "[CLS] A [SEP] B [SEP] with text in both, token_type_start after the first [SEP], a label that is 0 or 1; "
                "or [CLS] text [SEP]; no control token elsewhere, but for a [SEP] between two documents.",
                "bad_structures",
            ),
            _none(
                "positions_sound",
                "Masked positions ascend, lie inside, never stand twice, and never on [CLS] or [SEP].",
                "bad_positions",
            ),
            _none(
                "mask_counts",
                "min(max_predictions_per_seq, max(1, round(mask_rate × tokens))) masks each; of whole words no more.",
                "wrong_mask_counts",
            ),
            _between(
                "masked_share",
                "At least half of the tokens that mask_rate asks for are masked: whole words can fall short of it.",
                "masked_of_wanted",
                0.5,
                1,
            ),
            _floor(
                "masked_share_full",
                "Nine in ten tokens that mask_rate asks for are masked; less means words of many pieces.",
                "masked_of_wanted",
                0.9,
                "warning",
            ),
            _between(
                "mask_random_keep",
                "Shares of [MASK], random words and words kept at masked positions, as the recipe has them: p of chi-square. "
                "A sound shard set fails once in a billion.",
                "mix_p",
                1e-9,
                None,
                shows=("mask_share", "random_share", "keep_share"),
            ),
            _by_chance(
                "next_sentence_share",
                "Half of the pairs are random ones, or swapped, within chance (standard deviations); faithful: original: of "
                "the chunks of two or more sentences.",
                "label_sigmas",
                "critical",
                "label_share",
            ),
            _none(
                "documents_named", "Every instance names its documents, one or, of a pair, two.", "unnamed_documents"
            ),
            _none(
                "random_next_is_random",
                "The second half of a random pair comes from another document, that of a pair in order from the same "
                "(faithful: original: as often another as ten draws give).",
                "wrong_pairs",
            ),
            _none("held_out_unseen", "No training instance is of a held-out document.", "seen_held_out"),
            _none("held_out_only", "Every held-out instance is of held-out documents only.", "held_out_of_train"),
            _none("shards_differ", "No two shards hold the same instances.", "equal_shards"),
            _at_most(
                "instances_differ", "At most 1 % of the training instances are copies of another.", "copied_share", 0.01
            ),
        ),
        version="2",  # 2: read in bounded memory; a fault counts once
    ),
    "imported_checkpoint": Suite(
        (
            _none("weights_finite", "Every weight is finite.", "infinite_weights"),
            _none("shapes_as_declared", "Embeddings and layers have the sizes of config.json.", "wrong_shapes"),
            _none(
                "vocabulary_fits",
                "vocab.txt, tokenizer.json, config.json and the word embeddings have one size and order.",
                "vocabulary_mismatches",
            ),
            _none(
                "optimizer_fits",
                "To go on with, there are two finite moments of every weight, the second not negative.",
                "optimizer_faults",
            ),
            _none(
                "nothing_missing",
                "The model has every part that the recipe trains; what it lacks is drawn from the seed.",
                "parts_missing",
                "warning",
                "missing_names",
            ),
            _none(
                "nothing_ignored", "Every weight of the model is used.", "weights_ignored", "warning", "ignored_names"
            ),
            _none(
                "tokenizer_same",
                "Texts are split into tokens as its own tokenizer does.",
                "tokenizer_differences",
                "warning",
                "difference_names",
            ),
        )
    ),
    "pretrained": Suite(
        (
            _floor("has_metrics", "metrics.jsonl holds at least one row.", "metric_rows"),
            _none("losses_finite", "Every number of metrics.jsonl and held_out.json is finite.", "infinite_numbers"),
            _none("weights_finite", "Every weight is finite.", "infinite_weights"),
            _none("steps_done", "Training ended at the phase's last step.", "steps_missing"),
            _above_zero("loss_fell", "The training loss fell.", "loss_drop", "first_loss", "last_loss"),
            _above_zero(
                "mlm_beats_baseline",
                "Held-out accuracy of masked words is above that of the most frequent one.",
                "mlm_gain",
                "mlm_accuracy",
                "mlm_baseline",
            ),
            _above_zero(
                "nsp_beats_baseline",
                "Held-out accuracy of the next sentence is above the majority class.",
                "nsp_gain",
                "nsp_accuracy",
                "nsp_baseline",
            ),
        )
    ),
    "release": Suite(
        (
            _none("files_complete", "All files that transformers loads, and the card.", "files_missing"),
            _none(
                "vocabulary_fits",
                "vocab.txt, config.json and the word embeddings have one size.",
                "vocabulary_mismatches",
            ),
            _none("weights_finite", "Every weight is finite.", "infinite_weights"),
        )
    ),
    "task_data": Suite(
        (
            _PRESENT,
            _needed(
                "has_examples",
                "Train, dev and, where the recipe asks for it, test have at least one example.",
                "smallest_part",
            ),
            _floor(
                "dev_large_enough",
                f"Dev has {LEAST_DEV} examples at least: with fewer, one answer moves its score by more than {100 // LEAST_DEV} "
                "points, so that it is chance which epoch, grid point and seed are chosen.",
                "dev_examples",
                LEAST_DEV,
                "warning",
            ),
            _none("example_ids_unique", "No example_id stands twice in a part.", "repeated_ids"),
            _none("texts_not_empty", "Every example has text.", "empty_texts"),
            _none(
                "labels_known", "Every label is one of the task's; train and dev have them all filled.", "bad_labels"
            ),
            _none("counts_agree", "task.json counts what the tables hold.", "wrong_counts"),
            _none("test_unseen", "No test text stands in train or dev, of a task of one's own.", "seen_tests"),
            _none(
                "official_test_unseen",
                "No test text of a public task stands in its train or dev, which stay as they are published.",
                "seen_official_tests",
                "warning",
            ),
            _none("labels_all_seen", "Train has every label.", "unseen_labels", "warning", "unseen_label_names"),
            _none(
                "official_counts",
                "Every part of a public task has as many examples as it officially has.",
                "unofficial_counts",
                "warning",
                "notes",
            ),
            _none(
                "scores_filled",
                "Regression: every score of train and dev is a finite number; sentence similarity: of dev.",
                "bad_scores",
            ),
            _none("choices_complete", "Multiple choice: two choices at least, none empty.", "bad_choices"),
            _none("tags_match_words", "Tagging: a tag for every word.", "unmatched_tags"),
            _none("entities_whole", "Tagging: every I- goes on an entity of its type (IOB2).", "broken_entities"),
            _none("answers_inside", "Spans: every answer stands in its context where it says.", "bad_answers"),
            _none(
                "questions_answered",
                "Spans: outside of test a question has an answer, or is said to have none, never both.",
                "unanswered",
            ),
        ),
        version="2",  # 2: by kind of task
    ),
    "finetuned": Suite(
        (
            _PRESENT,
            _none("seeds_complete", "Predictions of every seed, of equal length.", "seeds_missing"),
            _none("scores_finite", "Every score is a finite number.", "infinite_scores"),
            _none("weights_finite", "Every weight is finite.", "infinite_weights"),
            _floor(
                "predictions_vary",
                "Every seed predicts at least two different labels.",
                "distinct_predictions",
                2,
                "warning",
            ),
            _above_zero(
                "beats_majority",
                "The median dev score is above that of always the most frequent label.",
                "dev_gain",
                "dev_score",
                "majority_score",
            ),
        )
    ),
    "predicted": Suite(
        (
            _PRESENT,
            _none("answers_complete", "An answer to every example.", "unanswered"),
            _none("scores_finite", "Every score is a finite number.", "infinite_scores"),
            _floor("predictions_vary", "At least two different answers.", "distinct_predictions", 2, "warning"),
        )
    ),
    "contamination": Suite(
        (
            _floor("has_documents", "Training documents were looked through.", "documents"),
            _none("shares_sound", "Touched ≤ measurable ≤ all texts, and every share between 0 and 1.", "bad_shares"),
            _at_most(
                "test_untouched", "At most 10 % of any task's test texts overlap with the corpus.", "largest_share", 0.1
            ),
        )
    ),
    "benchmark_report": Suite(
        (
            _none("files_complete", "report.md, report.html and report.json, none of them empty.", "files_missing"),
            _none("tasks_complete", "Every task of the recipe has its line.", "tasks_missing"),
            _none(
                "intervals_sound",
                "Every score has its interval, the lower end first.",
                "scores_without_interval",
                "warning",
            ),
            _none("examples_complete", "Every task with scores has its examples/TASK.parquet.", "examples_missing"),
            _none(
                "submissions_complete",
                "The files for leaderboards that the report names are there, none of them empty.",
                "submissions_missing",
            ),
            _none("self_contained", "report.html loads nothing from elsewhere.", "outside_links"),
        )
    ),
    "promotion_decision": Suite(
        (
            _none("files_complete", "decision.json and decision.md, none of them empty.", "files_missing"),
            _none(
                "verdict_follows",
                "The verdict is `promote` if no gate failed, and `keep` otherwise; every gate says what it saw.",
                "wrong_verdicts",
            ),
            _none("gates_passed", "No gate failed.", "gates_failed", "warning", "failed_gates"),
        )
    ),
    "comparison": Suite(
        (
            _none(
                "files_complete",
                "comparison.md, comparison.html and comparison.json, none of them empty.",
                "files_missing",
            ),
            _none("rows_complete", "Every row has its line.", "rows_missing"),
            _none("numbers_finite", "Every number is finite.", "infinite_numbers"),
            _none("self_contained", "comparison.html loads nothing from elsewhere.", "outside_links"),
            _none("members_run", "Every number that is asked for was run.", "cells_not_run", "warning"),
        )
    ),
}


def suite_digest(stage: str) -> str:
    """Digest of what a stage's suite asks for; names of checks and rules, not their descriptions."""
    suite = SUITES[stage]
    rules = [[c.name, c.expectation, dict(c.arguments), c.severity] for c in suite.checks]
    return hashlib.sha256(json.dumps([suite.version, rules], sort_keys=True).encode()).hexdigest()


def waivable(stage: str, check: str) -> bool:
    """Whether an artifact that failed a check of the stage's suite may be published all the same."""
    suite = SUITES.get(stage, Suite(()))
    return not any(each.name == check and each.needed for each in suite.checks)


def profile(stage: str, folder: Path, config: Frozen, statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of an artifact, by name. Raises DataError where it can't be read."""
    from pipeline.profiles import measure

    return measure(stage, folder, config, statistics)


def validate(stage: str, folder: Path, config: Frozen, statistics: Mapping[str, Any]) -> list[CheckResult]:
    """Run the stage's suite on a staged or published folder; one result for every check, in the suite's order.

    What can't be measured has failed. A folder that holds `not_run.json` passes all checks but `data_present`.
    """
    from pipeline.validation import run_suite

    return run_suite(stage, folder, config, statistics)
