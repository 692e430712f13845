"""`promotion_decision`: whether the new release may take the place of the champion, with every number that says so.

The champion is the one that was in use when the retrain began (pipeline/retrain.py), so that a rerun decides the same again.
Without a champion only the floors count, and what a release must be in any case.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from model.artifact import read_json, write_json
from model.processes import lines
from model.promotion import drift, gates, task_scores
from model.promotion.gates import POINTS, Gate
from model.promotion.in_use import Champion, trained_on
from model.promotion.task_scores import part_of, scores_of, tasks_in
from model.reporting import pages
from pipeline.config import DecisionConfig
from pipeline.errors import StoreError
from pipeline.stage import Stage
from pipeline.store import Record, open_store

STAGE = Stage(
    name="promotion_decision",
    function="model.promotion.decision:decide",
    version="1",
    sources=(
        "model/promotion/*.py",
        "model/reporting/bootstrap.py",
        "model/reporting/predicted.py",
        "model/reporting/weighted_metrics.py",
        "model/reporting/templates/decision.md.j2",
        "model/bert.py",
        "model/feeding/batches.py",
        "model/feeding/targets.py",
    ),
    deterministic=False,  # losses differ in their last digits between devices
)

DECISION = "decision.json"
SECTIONS = ("## Scores on text that training never saw", "## Tokens", "## Use")
"""of a release's card"""
FRONT = ("library_name", "pipeline_tag")


def decide(inputs: Mapping[str, Path], config: DecisionConfig, out: Path) -> dict[str, Any]:
    """Write decision.json and decision.md.

    inputs: `release`, `benchmark_report`, `documents`, `pretraining_shards` of the last phase, every `pretrained_L`,
    `finetuned_T` and `task_data_T`, `contamination`.

    Raises:
        DataError: an input lacks a file.
        StoreError: the record of the champion is lost.
    """
    store = open_store()
    version = store.version_of(inputs["release"])
    found = [
        gates.files([] if store.intact("release", version) else ["they are not those of a published release"]),
        gates.card(card_faults((inputs["release"] / "README.md").read_text(encoding="utf-8"))),
        gates.barred(version, config.barred),
        *_health(inputs, config),
        *_floors(inputs, config),
        *_seeds(inputs, config),
    ]
    with ExitStack() as held:
        champion = None
        if config.champion:
            report = store.record(config.scored) if config.scored else None
            champion = Champion(store, store.record(config.champion), report, held)
        if champion and champion.release.version != version:
            found += _against(champion, inputs, config)
        elif champion:
            found.append(gates.without("champion", "it is this very release"))
        else:
            found.append(gates.without("champion", "there is none yet: only what stands above counts"))
    content: dict[str, Any] = {
        "recipe": config.recipe,
        "version": version,
        "champion": champion.release.version if champion else None,
        "verdict": gates.verdict(found),
        "gates": [gate.plain() for gate in found],
    }
    content["in_words"] = gates.in_words(content)
    write_json(out / DECISION, content)
    pages.write(out / "decision.md", pages.render("decision.md.j2", {}, **content))
    failed = [gate.name for gate in found if gate.passed is False]
    return {
        "verdict": content["verdict"],
        "version": version,
        "champion": content["champion"],
        "gates": len(found),
        "gates_passed": sum(gate.passed is True for gate in found),
        "gates_failed": len(failed),
        "failed_gates": ", ".join(failed),
        "in_words": content["in_words"],
        "dropped": {},
        **({"root": _root(champion.release)} if champion else {}),
    }


def _root(release: Record) -> dict[str, str]:
    """The champion, as an origin of the decision that is of another generation on purpose."""
    told = {"stage": release.stage, "version": release.version, "record": release.digest}
    return {"asset": f"{release.recipe}/{release.asset}", **told}


# ── what a release must be ───────────────────────────────────────────────────────────────────────────────────────────


def card_faults(text: str) -> list[str]:
    """What a release's card lacks: keys of its front matter, sections, scores."""
    _, _, rest = text.partition("---\n")
    front, _, body = rest.partition("\n---\n")
    missing = [key for key in FRONT if not any(line.startswith(f"{key}:") for line in front.splitlines())]
    missing += [section.removeprefix("## ") for section in SECTIONS if f"\n{section}\n" not in body]
    return missing


def _health(inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    for name in sorted(name for name in inputs if name.startswith("pretrained_")):
        rows = lines.read(inputs[name] / "metrics.jsonl")
        logged = [row for row in rows if "loss" in row]
        steps, skipped = (logged[-1]["step"], logged[-1]["skipped_steps"]) if logged else (0, 0)
        yield from gates.health(name, steps, skipped, sum("spike" in row for row in rows), config.gates)


def _floors(inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    last = inputs[f"pretrained_{config.pretraining.sequence_length}"]
    learned = read_json(last / "held_out.json")
    known = {"mlm_accuracy": learned["mlm_accuracy"], "sentence_accuracy": learned["nsp_accuracy"]}
    for name, least in config.gates.floors.items():
        score = known.get(name)
        points = POINTS * score if score is not None else None
        if (scores := scores_of(inputs.get(f"finetuned_{name}"))) and (part := part_of(scores)):
            points = POINTS * scores["summary"][part][scores["metric"]]["median"]
        yield gates.floor(name, points, least)


def _seeds(inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    for name, folder in tasks_in(inputs).items():
        if (scores := scores_of(folder)) and (part := part_of(scores)) and not scores.get("model_of"):
            yield gates.seeds(name, scores["summary"][part][scores["metric"]]["count"], config.gates.seeds)


# ── against the champion ─────────────────────────────────────────────────────────────────────────────────────────────


def _against(champion: Champion, inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    from model.promotion import held_out

    trained, unknown = trained_on(champion.store, champion.release)
    try:
        corpora = [champion.folder(record) for record in trained]
        yield from _data(drift.profile(inputs["documents"]), drift.profile(corpora[0]), config)
        yield from held_out.compare(champion, corpora, unknown, inputs, config)
    except StoreError as error:
        yield gates.unknown("held_out", f"the champion's text or weights are gone: {error}")
    yield from task_scores.compare(champion, inputs, config)
    yield from task_scores.contamination(champion, inputs, config)


def _data(new: drift.Profile, old: drift.Profile, config: DecisionConfig) -> Iterator[Gate]:
    yield gates.words(new.characters, old.characters, config.shrink)
    for name, index in (("length", drift.of_lengths(new, old)), ("source", drift.of_sources(new, old))):
        yield gates.drift(name, index, config.gates.drift)
