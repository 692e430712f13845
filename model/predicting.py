"""`predicted_T`: a task that is only a test set, answered by the model of another task (GLUE's diagnostics by MNLI's)."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from model.artifact import read_json
from model.tasks import NOT_RUN, say_not_run
from pipeline.config import Architecture, Bilstm, PredictConfig
from pipeline.errors import DataError
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.system import atomic

STAGE = Stage(
    name="predicted",
    function="model.predicting:predict",
    version="1",
    sources=(
        "model/predicting.py",
        "model/tuning/answers.py",
        "model/layers/classifier.py",
        "model/tuning/examples.py",
        "model/tuning/heads.py",
        "model/metrics.py",
        "model/tuning/tuning_batches.py",
        "model/bert.py",
        "model/layers/bilstm.py",
        "model/tuning/long_texts.py",
        "model/layers/attention.py",
        "model/devices/*.py",
        "pipeline/tokenizer.py",
    ),
    deterministic=False,
    failure="model.tasks:say_failed",
)


def predict(inputs: Mapping[str, Path], config: PredictConfig, out: Path) -> dict[str, Any]:
    """Answer the test part of `task_data` with the published model of `finetuned`, and write scores.json and
    predictions/test-seed-N.parquet, N the seed of that model. Without data, or without that model: not_run.json.

    Raises:
        DataError: the two tasks do not have the same kind and labels.
    """
    for name in ("task_data", "finetuned"):
        if (inputs[name] / NOT_RUN).exists():
            return _not_run(inputs, name, config, out)
    import pyarrow.parquet as pq

    from model import checkpoint
    from model.devices import open_for_many_shapes
    from model.layers.classifier import Classifier
    from model.metrics import spread
    from model.tuning.answers import answers_of
    from model.tuning.heads import head_of, scored_by
    from model.tuning.tuning_batches import batch_of
    from pipeline.tokenizer import load

    task, trained = read_json(inputs["task_data"] / "task.json"), read_json(inputs["finetuned"] / "config.json")
    told = read_json(inputs["finetuned"] / "scores.json")
    for name in ("kind", "labels"):
        if task[name] != trained[name]:
            raise DataError(
                f"task {config.task} has {name} {task[name]}, the model of {config.model} {trained[name]}",
                "Only a model of the same labels can answer it.",
            )
    if trained["encoder"] == "frozen":
        why = f"the model of {config.model} is no whole one: its encoder is frozen"
        return say_not_run(config.task, task["title"], why, [], out)
    head, words = head_of(task), load(inputs["wordpiece_vocab"])
    read = head.read_windows if trained.get("long_texts") == "windows" else head.read
    assert read is not None  # a model was trained so
    device = open_for_many_shapes(settings().training)
    architecture = Architecture.model_validate(trained["architecture"])
    bilstm = Bilstm.model_validate(trained["bilstm"]) if trained["bilstm"] else None
    model = Classifier(architecture, trained["vocabulary_size"], head.classes(task), trained["pooling"], bilstm)
    model.load_state_dict(checkpoint.load_tensors(inputs["finetuned"] / "model.safetensors"))
    model.to(device.torch_device)
    examples = read(inputs["task_data"] / "test.parquet", words, trained["max_length"])
    found = answers_of(
        model,
        examples,
        lambda part, rows: batch_of(part, rows, model.whole, device, words.pad_id),
        head,
        task,
        device,
        told["hyperparameters"]["precision"],
        lambda: False,
    )
    assert found is not None  # nobody stops it
    logits, _ = found
    seed, names = told["published_seed"], scored_by(head, task)
    scores = head.scores(names, examples, head.guesses(examples, logits, {}), task["labels"])
    (out / "predictions").mkdir()
    table, _ = head.predictions(examples, logits, task["labels"], {})
    pq.write_table(table, out / "predictions" / f"test-seed-{seed}.parquet", compression="zstd")
    one = {name: asdict(spread([value])) for name, value in (scores or {}).items()}
    atomic.write_json(
        out / "scores.json",
        {
            "task": config.task,
            "title": task["title"],
            "kind": task["kind"],
            "metric": task["metric"],
            "labels": task["labels"],
            "model_of": config.model,
            "sizes": {"test": len(examples)},
            "truncated": {"test": examples.truncated},
            "hyperparameters": told["hyperparameters"],
            "seeds": [{"seed": seed, "test": scores}],
            "summary": {"test": one or None},
            "published_seed": seed,
            "baselines": {},
            **({"published": task["published"]} if task.get("published") else {}),
        },
    )
    shown = {f"test_{task['metric']}": scores[task["metric"]]} if scores else {}
    return {"title": task["title"], "model_of": config.model, "test_examples": len(examples), **shown, "dropped": {}}


def _not_run(inputs: Mapping[str, Path], name: str, config: PredictConfig, out: Path) -> dict[str, Any]:
    """Hand on what is missing: this task's data, or the other task's model."""
    wanted = read_json(inputs[name] / NOT_RUN)
    if name == "task_data":  # as it was said there
        atomic.write_json(out / NOT_RUN, {**wanted, "task": config.task})
        return {"not_run": wanted["why"], "wants": ", ".join(wanted["wants"]), "dropped": {}}
    title = read_json(inputs["task_data"] / "task.json")["title"]
    why = f"it needs the model of {config.model}: {wanted['why']}"
    return say_not_run(config.task, title, why, wanted["wants"], out)
