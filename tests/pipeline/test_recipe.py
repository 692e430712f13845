"""Recipes: what loads, what is refused and how it is said, inheritance, stage configs, digests."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from pipeline import config, settings
from pipeline.config import FinetuneConfig, FinetuningOverride, PretrainConfig, ShardsConfig, TaskDataConfig
from pipeline.errors import RecipeError
from pipeline.recipe import Loaded, Recipe, load_recipes
from pipeline.recipes.names import BUILT_IN_TASKS
from pipeline.recipes.refusal_words import PATTERNS
from tests.hostile.archives import zip_of

GOLDEN = Path(__file__).with_name("golden_digests.json")
SMALL = """\
name: small
corpus:
  sources:
    books: {kind: books, from: {path: texts}}
pretraining:
  warmup_steps: 10
  phases:
    - {sequence_length: 128, steps: 100}
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def load(folder: Path, **files: str) -> Loaded:
    return load_recipes(write(folder, **files))


def refused(folder: Path, text: str) -> RecipeError:
    loaded = load(folder, small=text)
    assert loaded.recipes == {}
    return loaded.errors["small"]


# ── the recipes of this repository ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shipped() -> Loaded:
    return load_recipes()


def test_every_shipped_recipe_loads(shipped: Loaded) -> None:
    assert shipped.errors == {}
    assert {"demo", "demo_no_nsp", "bert_base", "bert_large"} <= set(shipped.recipes)


def test_digests_of_demo_and_bert_base_are_those_on_record(shipped: Loaded) -> None:
    """A new option with a default must not touch old work. After a change on purpose, write the file anew:
    python -m tests.pipeline.test_recipe"""
    assert digests(shipped) == json.loads(GOLDEN.read_text())


def digests(loaded: Loaded) -> dict[str, dict[str, str]]:
    chosen = [loaded.recipes["demo"], loaded.recipes["bert_base"]]
    return {r.name: {asset: r.digest_for(asset) for asset in r.asset_names()} for r in chosen}


def test_bert_base_is_the_papers(shipped: Loaded) -> None:
    """Devlin et al. 2019, section 3 and appendix A.2: 1M steps of 256 sequences, 90 % at 128 tokens, ONE schedule."""
    recipe = shipped.recipes["bert_base"]
    first, second = recipe.config_for("pretrained_128"), recipe.config_for("pretrained_512")
    assert isinstance(first, PretrainConfig) and isinstance(second, PretrainConfig)
    assert (first.first_step, first.steps, first.schedule_steps) == (0, 900_000, 1_000_000)
    assert (second.first_step, second.steps, second.schedule_steps) == (900_000, 100_000, 1_000_000)
    assert (first.batch_size, first.learning_rate, first.warmup_steps, first.weight_decay) == (256, 1e-4, 10_000, 0.01)
    assert (first.max_predictions_per_seq, second.max_predictions_per_seq) == (20, 80)
    sizes = first.architecture
    assert (sizes.layers, sizes.hidden, sizes.heads, sizes.max_positions, sizes.dropout) == (12, 768, 12, 512, 0.1)
    large = shipped.recipes["bert_large"].architecture
    assert (large.layers, large.hidden, large.heads) == (24, 1024, 16)
    squad = recipe.config_for("finetuned_squad1_1")
    assert isinstance(squad, FinetuneConfig)
    assert (squad.max_length, squad.learning_rate, squad.epochs, squad.batch_size) == (384, 5e-5, 3, 32)
    assert set(recipe.finetuning.tasks) == set(BUILT_IN_TASKS) - {
        "wnut17",
        "stsb_vectors",
    }  # which the paper does not have


def test_child_of_demo_differs_where_it_says_so_and_nowhere_else(shipped: Loaded) -> None:
    demo, child = shipped.recipes["demo"], shipped.recipes["demo_no_nsp"]
    changed = {name for name in demo.asset_names() if demo.digest_for(name) != child.digest_for(name)}
    assert changed == {"pretraining_shards_128", "pretrained_128", "release", "benchmark_report"}


def pretrained(folder: Path, text: str) -> list[PretrainConfig]:
    """The configuration of every phase of SMALL with other lines in the place of its section pretraining."""
    recipe = load(folder, small=SMALL.partition("pretraining:")[0] + text).get("small")
    found = [recipe.config_for(f"pretrained_{phase.sequence_length}") for phase in recipe.pretraining.phases]
    return [config for config in found if isinstance(config, PretrainConfig)]


TWO = "phases: [{sequence_length: 128, steps: 7038%s}, {sequence_length: 512, steps: 1563%s}]"


def test_the_schedule_of_nvidias_large_batches(tmp_path: Path) -> None:
    """LAMB 65,536 / 32,768, 7,038 steps with warm-up .2843 (2,000) and 1,563 with .128 (200), power ½."""
    phases = TWO % (", warmup_ratio: 0.2843", ", warmup_ratio: 0.128, batch_size: 32768, learning_rate: 4e-3")
    rest = "schedule: per_phase, decay: polynomial, decay_power: 0.5, optimizer: lamb, batch_size: 65536, learning_rate: 6e-3"
    first, second = pretrained(tmp_path, f"pretraining: {{{phases}, {rest}}}")
    assert (first.first_step, first.schedule_steps, first.warmup_steps) == (0, 7038, 2000)
    assert (second.first_step, second.schedule_steps, second.warmup_steps) == (0, 1563, 200)
    assert (first.optimizer, first.bias_correction, first.decay_power, first.decay_steps) == ("lamb", True, 0.5, None)
    assert (second.batch_size, second.learning_rate) == (32768, 4e-3)


def test_warmups_and_what_the_optimizer_corrects(tmp_path: Path) -> None:
    def first(text: str) -> PretrainConfig:
        return pretrained(tmp_path, f"pretraining: {{{text}}}")[0]

    shared = "phases: [{sequence_length: 128, steps: 90000}, {sequence_length: 512, steps: 10000}]"
    assert first(shared).warmup_steps == 10_000
    assert first(f"{shared}, warmup_ratio: 0.29").warmup_steps == 29_000  # 0.29 · 100,000 is 28,999.999… in floats
    assert first(f"{shared}, warmup_ratio: 0.00005").warmup_steps == 5
    assert first(f"{shared}, schedule: per_phase, warmup_ratio: 0.1, learning_rate: 1e-3").warmup_steps == 9_000
    over = "schedule: per_phase, warmup_steps: 3, phases: [{sequence_length: 128, steps: 90, warmup_ratio: 0.1}]"
    assert first(over).warmup_steps == 9
    assert not first(shared).bias_correction and first(f"{shared}, bias_correction: true").bias_correction
    assert first(f"{shared}, optimizer: lamb").bias_correction
    assert not first(f"{shared}, optimizer: lamb, bias_correction: false").bias_correction


def test_predictions_leave_room_for_the_control_tokens(tmp_path: Path) -> None:
    text = SMALL.replace("name: small", "name: small\nshards: {mask_rate: 0.99}")
    found = load(tmp_path, small=text).recipes["small"].config_for("pretraining_shards_128")
    assert isinstance(found, ShardsConfig)
    assert found.max_predictions_per_seq == 126  # 0.99 × 128 is above what stands beside [CLS] and [SEP]


def test_where_the_stable_part_of_the_schedule_ends(tmp_path: Path) -> None:
    """Of 7,038 + 1,563 steps the last 20 % fall: 8,601 − 1,720 = 6,881, in the first phase."""

    def stable(share: float, **changes: str) -> list[int | None]:
        rest = "".join(f", {key}: {value}" for key, value in changes.items())
        text = f"pretraining: {{{TWO % ('', '')}, warmup_steps: 100, decay: wsd, decay_share: {share}{rest}}}"
        return [config.stable_step for config in pretrained(tmp_path, text)]

    assert stable(0.2) == [6881, None]
    assert stable(0.1) == [None, 7741 - 7038]
    assert stable(1563 / 8601) == [7038, None]  # falls with the second phase: the first ends stable
    assert stable(0.5, schedule="per_phase") == [3519, 1563 - 782]
    linear = pretrained(tmp_path, f"pretraining: {{{TWO % ('', '')}, warmup_steps: 100}}")
    assert [config.stable_step for config in linear] == [None, None]


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_reads_yaml_1_2(tmp_path: Path) -> None:
    text = SMALL.replace(
        "{kind: books, from: {path: texts}}",
        "{kind: books, language: no, licence: 2024-01-31, from: {path: texts}}\n"
        "    wiki: {kind: wikipedia, from: {wiki: dewiki, dump: 20260101}}\n"
        f"    net: {{kind: books, from: {{url: 'https://a.example/b', sha256: {'1' * 64}}}}}",
    ).replace("warmup_steps: 10", "warmup_steps: 1e1\n  learning_rate: 1e-4\n  weight_decay: 0")
    recipe = load(tmp_path, small=text).get("small")
    books, wiki, net = (recipe.corpus.sources[name] for name in ("books", "wiki", "net"))
    assert (books.language, books.licence) == ("no", "2024-01-31")
    assert wiki.from_.plain() == {"wiki": "dewiki", "dump": "20260101"}
    assert net.from_.plain()["sha256"] == "1" * 64
    assert (recipe.pretraining.warmup_steps, recipe.pretraining.learning_rate) == (10, 1e-4)
    assert recipe.path == tmp_path / "small.yaml"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{kind: text, from: {path: a}, columns: {text: body}}", "columns: a source of kind text has no columns"),
        ("{kind: jsonl, from: {path: a.csv.gz}}", "from.path: a source of kind jsonl reads no file that ends in .csv"),
        ("{kind: csv, from: {path: a.txt}}", "Write kind: text"),
        (
            f"{{kind: text, from: {{url: 'https://a.example/b.parquet?x=1', sha256: {'1' * 64}}}}}",
            "from.url: a source of kind text reads no file that ends in .parquet",
        ),
        ("{kind: jsonl, from: {path: a}, columns: {id: ''}}", "columns.id: is the name of no column"),
        ("{kind: jsonl, from: {path: a}, columns: {txt: body}}", "Did you mean text"),
        ("{kind: jsonl, from: {wiki: enwiki}}", "a wiki's dump is no source of kind jsonl"),
        ("{kind: parquet, from: {path: a}, weight: 0}", "weight: input should be greater than 0"),
    ],
)
def test_sources_of_ones_own_that_can_not_be(tmp_path: Path, source: str, said: str) -> None:
    error = refused(tmp_path, SMALL.replace("{kind: books, from: {path: texts}}", source))
    assert said in str(error) and "small.yaml:4" in str(error)


def test_files_of_ones_own_may_be_compressed_archived_or_folders(tmp_path: Path) -> None:
    (tmp_path / "v1.json").mkdir()
    sources = (
        "a: {kind: jsonl, from: {path: a.jsonl.zst}}\n    b: {kind: csv, from: {path: b.TSV.gz}}\n"
        "    c: {kind: text, from: {path: c.tar.gz}}\n    d: {kind: parquet, from: {path: v1.json}}\n"
        "    e: {kind: jsonl, from: {path: part-0000}}"
    )
    recipe = load(tmp_path, small=SMALL.replace("books: {kind: books, from: {path: texts}}", sources)).get("small")
    assert [recipe.config_for(f"{name}_text").plain()["kind"] for name in "abcde"] == [
        *("jsonl", "csv", "text", "parquet", "jsonl")
    ]


def test_one_bad_file_leaves_the_others_and_comparisons_are_no_recipes(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        small=SMALL,
        paper__other=SMALL.replace("small", "other"),
        bad="name: [",
        comparisons__sizes="members: [small]",
    )
    assert set(loaded.recipes) == {"small", "other"}
    assert set(loaded.errors) == {"bad"}
    with pytest.raises(RecipeError, match=r"bad\.yaml:\d"):
        loaded.get("bad")
    with pytest.raises(RecipeError, match="Did you mean small"):
        loaded.get("smal")


@pytest.mark.parametrize(
    ("files", "name", "said"),
    [
        ({"small": SMALL.replace("name: small", "name: smal")}, "small", "small.yaml:1: name: is not the file's name"),
        ({"small": SMALL.replace("name: small\n", "")}, "small", "name: is missing"),
        ({"a-b": SMALL.replace("small", "a-b")}, "a-b", "a-b can't be a recipe's name"),
        ({"comparisons": SMALL.replace("small", "comparisons")}, "comparisons", "is reserved"),
        ({"small": SMALL, "sub__small": SMALL}, "small", "two files make a recipe small"),
        ({"small": ""}, "small", "no map of keys"),
        ({"small": "- name"}, "small", "no map of keys"),
        ({"small": SMALL + "name: small\n"}, "small", "small.yaml:9: key name stands twice, first on line 1"),
        ({"small": SMALL + "corpus: &a {x: *a}\n"}, "small", "small.yaml:9"),
        ({"small": SMALL + "description: !!python/name:os.system x\n"}, "small", "small.yaml:9: tag"),
        ({"small": SMALL + "description: !!python/object/apply:os.system ['x']\n"}, "small", "small.yaml:9: tag"),
        ({"small": SMALL + "description: !evil {a: b}\n"}, "small", "small.yaml:9: tag !evil is not allowed"),
        ({"small": SMALL + "description: !!bool maybe\n"}, "small", "small.yaml:9: maybe is no bool"),
        ({"small": SMALL + "description: !!float\n"}, "small", "small.yaml:9:  is no float"),
        ({"small": SMALL + "description: 'a\n"}, "small", "not YAML"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, files: dict[str, str], name: str, said: str) -> None:
    loaded = load(tmp_path, **files)
    assert name not in loaded.recipes
    assert said in loaded.errors[name].what and loaded.errors[name].todo


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: " + "[" * 3000 + "]" * 3000, "nested more than 50 deep"),
        ("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
         + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)), "more than 100,000 values"),
    ],
)  # fmt: skip
def test_a_file_that_would_never_end_is_refused_and_takes_no_other_away(tmp_path: Path, text: str, said: str) -> None:
    loaded = load(tmp_path, bomb=text, small=SMALL)
    assert list(loaded.recipes) == ["small"]
    assert said in loaded.errors["bomb"].what


@pytest.mark.parametrize(
    "url",
    [
        *("https://u:CANARYpw77@h/a.txt", "ftp://u:CANARYpw77@h/a.txt", "https://h:CANARYpw77/a.txt"),
        *("https://h/a?X-Amz-Signature=CANARYpw77", "https://h/a?sig=CANARYpw77", "https://h/a?token=CANARYpw77"),
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_told(tmp_path: Path, url: str) -> None:
    """Recipes stand in records."""
    source = SMALL.replace("path: texts", f"url: '{url}', sha256: {'0' * 64}")
    for text in (source, SMALL + f"description: see {url}\n", SMALL + f"'{url}': x\n"):
        error = load(tmp_path, small=text).errors["small"]
        assert re.search(r"small.yaml:\d: a URL with .* may not stand here", error.what) and "`path`" in error.todo
        assert "CANARY" not in str(error)


def test_pipes_and_devices_are_no_recipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    loaded = load(tmp_path, small=SMALL)
    assert list(loaded.recipes) == ["small"] and set(loaded.errors) == {"pipe", "zero"}
    assert all("is no file" in error.what for error in loaded.errors.values())


def test_bytes_that_are_no_text_and_another_suffix_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    (tmp_path / "other.yml").write_text(SMALL)
    errors = load_recipes(tmp_path).errors
    assert "not UTF-8 at byte 9" in errors["latin"].what
    assert "Rename it to other.yaml" in errors["other"].todo


@pytest.mark.parametrize(
    ("old", "new", "what", "todo"),
    [
        # file, line, key path, rule and value, and what to do
        ("steps: 10", "step: 10", "small.yaml:6: pretraining.warmup_step: unknown key", "Did you mean warmup_steps?"),
        ("pretraining:", "pretrainig:", "small.yaml:5: pretrainig: unknown key", "Did you mean pretraining?"),
        (
            "path: texts",
            "pth: texts",
            "small.yaml:4: corpus.sources.books.from: must have one of: path; url + sha256",
            "Name one",
        ),
        (
            "path: texts",
            "path: texts, wheel: a",
            "small.yaml:4: corpus.sources.books.from.wheel: does not go with path",
            "one",
        ),
        ("path: texts", "url: 'https://a/b'", "small.yaml:4: corpus.sources.books.from.sha256: is missing", "sha256"),
        ("steps: 100", "steps: 0", "small.yaml:8: pretraining.phases.0.steps: input should be greater", "Correct"),
        ("steps: 100", "steps: many", "must be a whole number (it is many)", "Correct"),
        ("steps: 100", "steps: '100'", "pretraining.phases.0.steps: must be a whole number (it is 100)", ""),
        ("steps: 100", "steps: true", "must be a whole number (it is true)", ""),
        ("steps: 100", "steps: 1.5", "must be a whole number (it is 1.5)", ""),
        ("warmup_steps: 10", "learning_rate: .nan", "learning_rate: input should be a finite number", ""),
        ("warmup_steps: 10", "bias_correction: no", "bias_correction: must be true or false (it is no)", ""),
        (
            "kind: books",
            "kind: book",
            "kind: input should be 'wikipedia', 'books', 'text', 'jsonl', 'parquet' or 'csv' (it is book)",
            "Correct",
        ),
        ("kind: books, ", "", "corpus.sources.books.kind: is missing", "Write `kind:`"),
        (
            "warmup_steps: 10",
            "warmup_steps: 100",
            "small.yaml:6: pretraining.warmup_steps: is not below the 100 steps of all phases (it is 100)",
            "",
        ),
        (
            "warmup_steps: 10",
            "warmup_ratio: 1",
            "small.yaml:6: pretraining.warmup_ratio: input should be less than 1",
            "",
        ),
        (
            "warmup_steps: 10",
            "decay: polynomial",
            "small.yaml:6: pretraining.decay: needs decay_power",
            "Write decay_power",
        ),
        ("warmup_steps: 10", "decay: wsd", "pretraining.decay: needs decay_share", "Write decay_share"),
        (
            "warmup_steps: 10",
            "warmup_steps: 10\n  decay_power: 2",
            "small.yaml:7: pretraining.decay_power: decay linear has none (it is 2.0)",
            "polynomial",
        ),
        (
            "warmup_steps: 10",
            "warmup_steps: 10\n  decay_share: 0.1",
            "small.yaml:7: pretraining.decay_share: decay linear",
            "wsd",
        ),
        (
            "warmup_steps: 10",
            "warmup_steps: 10\n  warmup_ratio: 0.1",
            "small.yaml:7: pretraining.warmup_ratio: stands beside",
            "null",
        ),
        (
            "warmup_steps: 10",
            "warmup_steps: 60\n  decay: wsd\n  decay_share: 0.4",
            "small.yaml:8: pretraining.decay_share: a warm-up of 60 steps and a decay over 40 leave none of the 100",
            "Lower",
        ),
        ("steps: 100", "steps: 100, warmup_ratio: 0.1", "warmup_ratio of a phase need schedule: per_phase", ""),
        ("warmup_steps: 10", "optimizer: adam", "optimizer: input should be 'adamw' or 'lamb' (it is adam)", ""),
        ("name: small", "name: small\narchitecture: {gelu: exact}", "gelu: input should be 'erf' or 'tanh'", ""),
        # impossible together
        (
            "length: 128",
            "length: 1024",
            "phases.0.sequence_length: is above architecture.max_positions 512",
            "Lower it",
        ),
        ("steps: 100", "steps: 100, max_predictions_per_seq: 127", "more than a sequence of 128 has tokens", "Lower"),
        ("path: texts", "wiki: enwiki", "a wiki's dump is no source of kind books", "kind: wikipedia"),
        ("warmup_steps: 10", "schedule: per_phase\n  warmup_steps: 100", "not below the 100 steps of the phase", ""),
        ("name: small", "name: small\nshards: {packing: full_sentences}", "needs sentence_task: none", ""),
        ("name: small", "name: small\nshards: {max_ngram: 3}", "needs whole_words: true", ""),
        ("name: small", "name: small\narchitecture: {dropout: 1.0}", "architecture.dropout: input should be less", ""),
        ("name: small", "name: small\nshards: {files: 100000}", "shards.files: input should be less than", ""),
        (
            "name: small",
            "name: small\nshards: {faithful: original, sentence_task: sop}",
            "needs sentence_task: nsp",
            "",
        ),
        (
            "name: small",
            "name: small\nshards: {objective: clm, sentence_task: none}",
            "shards.objective: bidirectional attention would see the next word",
            "attention: causal",
        ),
        (
            "name: small",
            "name: small\narchitecture: {attention: causal}",
            "architecture.attention: masked words need what stands behind them",
            "objective: clm",
        ),
        (
            "name: small",
            "name: small\nshards: {objective: clm}\narchitecture: {attention: causal}",
            "shards.sentence_task: left to right, [CLS] sees no sentence (it is nsp)",
            "sentence_task: none",
        ),
        (
            "name: small",
            "name: small\nshards: {objective: clm, sentence_task: none, mask_rate: 0.2, whole_words: true}",
            "objective: clm masks nothing: mask_rate, whole_words would change nothing",
            "",
        ),
        (
            "name: small",
            "name: small\nshards: {packing: full_sentences, sentence_task: none, short_seq_prob: 0.2}",
            "full_sentences fills every row: short_seq_prob would change nothing",
            "",
        ),
        ("    - {sequence", "    - {sequence_length: 128, steps: 1}\n    - {sequence", "same sequence_length", ""),
        (
            "name: small",
            "name: small\nshards: {objective: clm, sentence_task: none}\narchitecture: {attention: causal}\n"
            "finetuning: {tasks: [cola], pooling: cls}",
            "small.yaml:4: finetuning.pooling: with architecture.attention causal, [CLS] sees nothing but itself (it is cls)",
            "Write pooling: last (that token sees all others, as in GPT) or pooling: mean.",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], layers: [last]}",
            "small.yaml:2: finetuning.layers: only a frozen encoder is read by layers",
            "Write encoder: frozen",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], encoder: frozen, overrides: {cola: {encoder: trained, layers: [last]}}}",
            "finetuning.overrides.cola.layers: only a frozen encoder is read by layers",
            "",
        ),
        (
            "name: small",
            "name: small\narchitecture: {layers: 3}\nfinetuning: {tasks: [cola], encoder: frozen}",
            "small.yaml:3: finetuning.encoder: reads concat_last_four unless layers says otherwise, and architecture.layers is 3",
            "Write layers: [last]",
        ),
        (
            "name: small",
            "name: small\narchitecture: {layers: 1}\nfinetuning:\n  tasks: [cola]\n"
            "  overrides: {cola: {encoder: frozen, layers: [last, second_to_last]}}",
            "finetuning.overrides.cola.layers.1: needs 2 layers, architecture.layers is 1 (it is second_to_last)",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], encoder: frozen, layers: [last, last]}",
            "finetuning.layers: names a choice twice: last, last",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], bilstm: {hidden: 0}}",
            "finetuning.bilstm.hidden: input should be greater than or equal to 1",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [sst]}",
            "small.yaml:2: finetuning.tasks.0: is no task",
            "sst2?",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], max_length: 600}",
            "finetuning.max_length: is ab",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {data: {cola: {path: x}}}",
            "data names cola, which `tasks` does",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola, swag], long_texts: windows}",
            "small.yaml:2: finetuning.long_texts: is not for swag, a task of kind multiple_choice, but for classification, "
            "pair_classification, regression (it is windows)",
            "`overrides: {swag: {long_texts: truncate}}`",
        ),
        (
            "name: small",
            "name: small\nfinetuning:\n  tasks: [stsb, wnut17]\n  overrides:\n    wnut17: {long_texts: windows}",
            "small.yaml:5: finetuning.overrides.wnut17.long_texts: is not for wnut17, a task of kind tagging",
            "Remove it",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], encoder: frozen, overrides: {cola: {long_texts: windows}}}",
            "small.yaml:2: finetuning.overrides.cola.long_texts: is for an encoder that is trained (it is windows)",
            "encoder: trained",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola, stsb_vectors], encoder: frozen}",
            "small.yaml:2: finetuning.tasks.1: is a task of sentence vectors",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [stsb_vectors], bilstm: {layers: 1}}",
            "small.yaml:2: finetuning.tasks.0: is a task of sentence vectors",
            "",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], max_windows: 4}",
            "small.yaml:2: finetuning.max_windows: changes nothing where long_texts is truncate (it is 4)",
            "long_texts: windows",
        ),
        (
            "name: small",
            "name: small\nfinetuning: {tasks: [cola], overrides: {cola: {max_windows: 4}}}",
            "finetuning.overrides.cola.max_windows: changes nothing",
            "",
        ),
        ("name: small", "name: small\nvocabulary: {size: 104, layout: bert}", "layout bert needs more than 104", "Rai"),
        ("name: small", "name: small\nshards: {mask_random_keep: [1, 1, 0]}", "the three shares must make 1", ""),
        ("name: small", "name: small\nshards: {mask_random_keep: [1, null, 0]}", "mask_random_keep.1", ""),
        ("name: small", "name: small\narchitecture: {hidden: 100}", "hidden 100 is not a multiple of heads 12", ""),
        ("name: small", "name: small\narchtecture: null", "archtecture: there is no such key", "architecture?"),
    ],
)
def test_bad_values_are_refused_with_file_line_key_rule_value(
    tmp_path: Path, old: str, new: str, what: str, todo: str
) -> None:
    assert old in SMALL
    error = refused(tmp_path, SMALL.replace(old, new, 1))
    assert what in error.what
    assert todo in str(error)


FINETUNED = "checkpoint: {from: %s}\nfinetuning: {tasks: [cola]}\n"
TASK = "finetuning: {tasks: [m], define: {m: {%s}}}\n"
OWN = "files: {train: {path: a.csv}}, "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # what was meant is named
        (
            "name: small\n" + FINETUNED % "{path: ../x}",
            "checkpoint.from: must be a folder, a .zip or a version, written as text",
        ),
        ("name: small\n" + FINETUNED % "{path: ../x}", "\n  → Write `from: ../x`."),
        ("name: small\n" + FINETUNED % "{wiki: dewiki}", "\n  → Name one of these."),
        (
            "name: small\n" + FINETUNED % f"{{url: 'https://a/b.zip', sha256: {'1' * 64}, foo: 1}}",
            "Known keys here: sha256, url.",
        ),
        ("name: small\ncheckpoint: ../x\nfinetuning: {tasks: [cola]}\n", "Write `checkpoint: {from: ../x}`."),
        (
            SMALL.replace("pretraining:", "pretraining:\n  start: {from: {path: ../x}, mode: warm}"),
            "Write `from: ../x`.",
        ),
        (
            SMALL + "vocabulary: {from: {path: words.txt}}\n",
            "vocabulary.from: must be text\n  → Write `from: words.txt`.",
        ),
        (SMALL + TASK % "files: {train: a.csv}", "Write `train: {path: a.csv}` for a file or folder of this machine."),
        (
            SMALL + TASK % "files: {train: {path: a.csv, sheet: 1}}",
            "train.sheet: unknown key\n  → Known keys here: path.",
        ),
        (
            SMALL + TASK % "files: a.csv",
            "files: must be a map of keys (it is a.csv)\n  → Its keys are dev, test, train.",
        ),
        (SMALL + "finetuning: {tasks: [cola], data: {cola: /a/b}}\n", "Write `cola: {path: /a/b}`"),
        (SMALL + "finetuning: {tasks: [cola], data: {cola: official}}\n", "Write `cola: {official: true}`."),
        (SMALL + "finetuning: {tasks: cola}\n", "tasks: must be a list (it is cola)\n  → Write `tasks: [cola]`."),
        # rules in words
        (SMALL + "finetuning: {tasks: [a-b]}\n", "tasks.0: must be a name of letters, digits and _ only (it is a-b)"),
        (SMALL + "finetuning: {define: {a-b: {files: {train: {path: a}}}}}\n", "define.a-b: must be a name of letters"),
        (
            SMALL + TASK % "files: {train: {url: 'ftp://a', sha256: x}}",
            "url: must begin with https://, http:// or file://",
        ),
        (SMALL + TASK % "files: {train: {url: 'ftp://a', sha256: x}}", "sha256: must be a SHA-256: 64 digits"),
        (SMALL + TASK % (OWN + "published: {system: a}"), "published: must be a list"),
        (SMALL + TASK % (OWN + "title: [a]"), "title: must be text"),
        (SMALL + "finetuning: {tasks: [cola], learning_rate: fast}\n", "learning_rate: must be a number (it is fast)"),
        (SMALL + "finetuning: {tasks: [cola], define: [m]}\n", "finetuning.define: must be a map of keys"),
        (SMALL + "shards: {mask_random_keep: [1, 0]}\n", "shards.mask_random_keep: has no value number 3"),
        (SMALL.replace("path: texts", "path: ''"), "from.path: must not be empty\n"),
        (
            SMALL.replace("\n    books: {kind: books, from: {path: texts}}", " {}"),
            "sources: has 0 values, and must have 1",
        ),
    ],
)
def test_refusals_are_in_the_words_of_people(tmp_path: Path, text: str, said: str) -> None:
    message = str(refused(tmp_path, text))
    assert said in message
    assert "valid " not in message and "pattern" not in message


def test_every_pattern_has_words() -> None:
    fields = [field for module in (config, settings) for model in vars(module).values()
              if isinstance(model, type) and issubclass(model, BaseModel) for field in model.model_fields.values()]  # fmt: skip
    found = set(re.findall(r"pattern='(.*?)'[,)]", " ".join(map(repr, fields)).replace("\\\\", "\\")))
    assert len(found) >= 8 and found <= set(PATTERNS)


def test_several_faults_are_said_together_and_once(tmp_path: Path) -> None:
    error = refused(tmp_path, SMALL.replace("kind: books", "kind: bocks").replace("steps: 100", "steps: 0"))
    lines = [line.rpartition("small.yaml")[2] for line in error.what.splitlines()]
    assert lines == [
        ":4: corpus.sources.books.kind: input should be 'wikipedia', 'books', 'text', 'jsonl', 'parquet' or 'csv' (it is bocks). Correct the value.",
        ":8: pretraining.phases.0.steps: input should be greater than or equal to 1 (it is 0). Correct the value.",
    ]


def test_sources_of_one_wiki_and_names_that_collide_are_refused(tmp_path: Path) -> None:
    wikis = "{kind: wikipedia, from: {wiki: enwiki}}\n    again: {kind: wikipedia, from: {wiki: enwiki}}"
    assert "same wiki: enwiki" in refused(tmp_path, SMALL.replace("{kind: books, from: {path: texts}}", wikis)).what
    task = "finetuning: {tasks: [text], define: {text: {files: {train: {path: a}}}}}\n"
    error = refused(tmp_path, SMALL.replace("books:", "task_data:") + task)
    assert "two assets are named task_data_text" in error.what


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("kind: tagging, metric: f1", "metric f1 is none of tagging: entity_f1, accuracy"),
        ("kind: multiple_choice", "multiple_choice needs choices"),
        ("kind: sentence_similarity", "pairs of train have no scores"),
        ("negative: other", "negative: says nothing of a task of kind classification, but of sentence_similarity"),
        ("labels: [a, b, a]", "labels names one twice"),
        ("kind: pairs", "pair_classification"),
        ("text_c: a", "unknown key"),
    ],
)
def test_a_task_of_ones_own_that_can_not_be(tmp_path: Path, task: str, message: str) -> None:
    text = f"finetuning: {{tasks: [mine], define: {{mine: {{files: {{train: {{path: a}}}}, {task}}}}}}}\n"
    assert message in str(refused(tmp_path, SMALL + text))


def tagging(tmp_path: Path, *lines: str) -> str:
    """What is wrong with a tagging task that says these lines; "" where nothing is."""
    task = "".join(f"      {line}\n" for line in ("kind: tagging", "files: {train: {path: a.txt}}", *lines))
    loaded = load(tmp_path, small=f"{SMALL}finetuning:\n  tasks: [mine]\n  define:\n    mine:\n{task}")
    return str(loaded.errors["small"]) if loaded.errors else ""


TAGS = "labels: [O, B-PER, I-PER, B-LOC, I-LOC]"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("labels: [a, b]", "label_names: [one]"), "has 1 name for 2 labels"),
        ((TAGS, "label_names: [O, B-person, I-person]"), "has 3 names for 5 labels"),
        (("label_names: [O, B-person, I-person]",), "has 3 names for 0 labels"),
        ((TAGS, "label_names: [outside, B-a, I-a, B-b, I-b]"), "outside names O and makes no IOB"),
        ((TAGS, "label_names: [O, person, I-a, B-b, I-b]"), "person names B-PER and makes no IOB"),
        ((TAGS, "label_names: [O, B-, I-a, B-b, I-b]"), "B- names B-PER and makes no IOB"),
        ((TAGS, "label_names: [B-a, O, I-a, B-b, I-b]"), "B-a names O, but only the type may have another name"),
        ((TAGS, "label_names: [O, I-a, B-a, B-b, I-b]"), "I-a names B-PER, but only the type"),
        ((TAGS, "label_names: [O, B-a, I-b, B-b, I-a]"), "I-b names I-PER, but another tag of PER is named a"),
        (("metric: entity_f1", TAGS, "label_names: [O, a, b, c, d]"), "a names B-PER and makes no IOB"),
        (("metric: entity_f1", 'labels: ["0", "1"]', "label_names: [none, person]"), "none names 0 and makes no IOB"),
    ],
)
def test_names_of_tags_that_can_not_be(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    said = tagging(tmp_path, *lines)
    assert message in said
    line = 15 + next(number for number, each in enumerate(lines) if each.startswith("label_names"))
    assert f"small.yaml:{line}: finetuning.define.mine.label_names: " in said


def test_labels_that_are_no_tags_of_entities(tmp_path: Path) -> None:
    said = tagging(tmp_path, "metric: entity_f1", "labels: [NN, VB]")
    assert "small.yaml:16: finetuning.define.mine.labels: NN is no tag of entities" in said
    assert "metric: accuracy" in said


@pytest.mark.parametrize(
    "lines",
    [
        (TAGS,),
        (TAGS, "label_names: [O, B-person, I-person, B-place, I-place]"),
        ("labels: [B-LOC, O, I-LOC]", "label_names: [B-place, O, I-place]"),
        (TAGS, "metric: accuracy", "label_names: [a, b, c, d, e]"),
        ("labels: [NN, VB]", "label_names: [noun, verb]"),
        ("metric: entity_f1", 'labels: ["0", "1", "2"]', "label_names: [O, B-person, I-person]"),
        ("metric: entity_f1",),
    ],
)
def test_names_of_tags_that_can_be(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert tagging(tmp_path, *lines) == ""


def test_official_files_are_for_tasks_known_by_name_only(tmp_path: Path) -> None:
    recipe = load(tmp_path, small=SMALL + "finetuning: {tasks: [cola], data: {cola: {official: true}}}\n").get("small")
    config = recipe.config_for("task_data_cola")
    assert config.asked() == {"task": "cola", "from": {"official": True}}
    error = refused(tmp_path, SMALL + "finetuning: {tasks: [cola], data: {cola: {official: false}}}\n")
    assert "finetuning.data.cola.official: must be true (it is false)" in error.what
    error = refused(tmp_path, SMALL.replace("from: {path: texts}", "from: {official: true}"))
    assert "from: must have one of: path; url" in error.what


def test_a_vocabulary_is_named_by_a_file_or_a_version(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("[PAD]\n")
    text = SMALL + "vocabulary: {from: words.txt, lowercase: false}\n"
    config = load(tmp_path, small=text).recipes["small"].config_for("wordpiece_vocab")
    assert config.asked() == {"file": {"path": str(tmp_path / "words.txt")}, "lowercase": False}
    version = "ab" * 32
    config = (
        load(tmp_path, small=SMALL + f"vocabulary: {{from: {version}}}\n")
        .recipes["small"]
        .config_for("wordpiece_vocab")
    )
    assert config.asked() == {"from": version}
    for other in ("missing.txt", "abc"):
        error = refused(tmp_path, SMALL + f"vocabulary: {{from: {other}}}\n")
        assert "vocabulary.from: there is no such file" in error.what


def test_a_vocabulary_to_compare_with_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("[PAD]\n")
    text = SMALL + "vocabulary: {compare: words.txt}\n"
    config = load(tmp_path, small=text).recipes["small"].config_for("wordpiece_vocab")
    assert config.asked() == {"compared": {"path": str(tmp_path / "words.txt")}}
    error = refused(tmp_path, SMALL + "vocabulary: {compare: missing.txt}\n")
    assert "vocabulary.compare: there is no such file" in error.what


# ── a model to begin from ────────────────────────────────────────────────────────────────────────────────────────────


def begun(tmp_path: Path, start: str, more: str = "") -> str:
    """SMALL that begins from the folder `model`, which has what it needs, as far as names of files go."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors", "vocab.txt", "optimizer.safetensors"):
        (folder / name).write_text("{}")
    (folder / "optimizer.json").write_text('{"optimizer": "adamw", "updates": 3, "step": 3}')
    return SMALL.replace("pretraining:\n", f"pretraining:\n  start: {start}\n") + more


WARM, CONTINUE = "{from: ./model, mode: warm}", "{from: ./model, mode: continue}"


def test_a_recipe_begins_from_a_folder_or_a_version(tmp_path: Path) -> None:
    more = "architecture: {hidden: 36, dropout: 0}\nvocabulary: {lowercase: false}\n"
    recipe = load(tmp_path, small=begun(tmp_path, CONTINUE, more)).get("small")
    assert recipe.asset_names()[0] == "imported_checkpoint"
    assert recipe.config_for("imported_checkpoint").asked() == {
        "folder": {"path": str(tmp_path / "model")},
        "mode": "continue",
        "architecture": {"hidden": 36, "dropout": 0.0},
        "longest": 128,
        "optimizer": "adamw",
        "lowercase": False,
    }
    first = recipe.config_for("pretrained_128")
    assert isinstance(first, PretrainConfig)
    assert (first.architecture, first.start_mode) == (None, "continue")
    assert recipe.config_for("wordpiece_vocab").asked() == {"imported": True, "lowercase": False}
    two = "    - {sequence_length: 512, steps: 10}\nfinetuning: {tasks: [cola], max_length: 600}\n"
    version = "ab" * 32
    for stored in (version, f"{version}/stable"):
        recipe = load(tmp_path, small=begun(tmp_path, f"{{from: {stored}, mode: warm}}", two)).get("small")
        assert recipe.config_for("imported_checkpoint").asked() == {"version": stored, "longest": 600}
    second = recipe.config_for("pretrained_512")
    assert isinstance(second, PretrainConfig)
    assert (second.architecture, second.start_mode) == (None, None), "it goes on with the phase before"


@pytest.mark.parametrize(
    ("start", "more", "gone", "what", "todo"),
    [
        ("{from: ./model}", "", "", "small.yaml:6: pretraining.start.mode: is missing", "`mode:`"),
        ("{from: ./model, mode: cold}", "", "", "start.mode: input should be 'warm' or 'continue' (it is cold)", ""),
        ("{from: ./none, mode: warm}", "", "", "small.yaml:6: pretraining.start.from: there is no such folder", "path"),
        (
            "{from: champion, mode: warm}",
            "",
            "",
            "pretraining.start.from: is named in the section retrain",
            "retrain.start: warm",
        ),
        ("{from: ./small.yaml, mode: warm}", "", "", "start.from: is a file, but no folder and no .zip", "unpack"),
        (WARM, "", "config.json", "start.from: has no config.json and no bert_config.json", "google-research/bert"),
        (WARM, "", "vocab.txt", "start.from: has neither vocab.txt nor tokenizer.json", "the model's own vocab.txt"),
        (
            WARM,
            "",
            "model.safetensors",
            "has no model.safetensors, pytorch_model.bin or bert_model.ckpt",
            "save_pretrained",
        ),
        (CONTINUE, "", "optimizer.safetensors", "start.from: has no optimizer.safetensors, which mode", "mode: warm"),
        (WARM, "vocabulary: {size: 3000}", "", "small.yaml:10: vocabulary.size: pretraining.start brings", "Remove"),
        (WARM, f"vocabulary: {{from: {'ab' * 32}}}", "", "small.yaml:10: vocabulary.from: pretraining.start", "Remove"),
        (
            WARM,
            "architecture: {max_positions: 100}",
            "",
            "small.yaml:9: pretraining.phases.0.sequence_length: is above architecture.max_positions 100",
            "",
        ),
    ],
)
def test_a_start_that_can_not_be_is_refused_where_it_is_written(
    tmp_path: Path, start: str, more: str, gone: str, what: str, todo: str
) -> None:
    text = begun(tmp_path, start, more)
    if gone:
        (tmp_path / "model" / gone).unlink()
    error = refused(tmp_path, text)
    assert what in error.what and todo in error.todo, str(error)


def test_a_start_with_another_optimizer_is_refused(tmp_path: Path) -> None:
    text = begun(tmp_path, CONTINUE).replace("  warmup_steps", "  optimizer: lamb\n  warmup_steps")
    error = refused(tmp_path, text)
    assert "small.yaml:6: pretraining.start.from: holds the state of adamw, pretraining.optimizer is lamb" in error.what
    assert "optimizer: adamw" in error.todo
    (tmp_path / "model" / "optimizer.json").write_text('{"updates": 3}')
    assert "of an optimizer that it does not name" in refused(tmp_path, text).what


def test_a_start_from_an_original_checkpoint_needs_its_parts_by_name(tmp_path: Path) -> None:
    text, folder = begun(tmp_path, WARM, "vocabulary: {lowercase: true}\n"), tmp_path / "model"
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    (folder / "bert_config.json").write_text("{}")
    (folder / "tf_model.h5").write_text("")
    assert "but tf_model.h5; split weights are not read" in refused(tmp_path, text).what
    for name in ("model.ckpt-7.index", "model.ckpt-9.index"):
        (folder / name).write_text("")
    assert "has several checkpoints: model.ckpt-7.index, model.ckpt-9.index" in refused(tmp_path, text).what
    (folder / "model.ckpt-7.index").unlink()
    assert "has model.ckpt-9.index but no model.ckpt-9.data-00000-of-00001" in refused(tmp_path, text).what
    (folder / "model.ckpt-9.data-00001-of-00002").write_text("")
    error = refused(tmp_path, text)
    assert (
        "small.yaml:6: pretraining.start.from: has model.ckpt-9.index but no model.ckpt-9.data-00000-of-0" in error.what
    )
    (folder / "model.ckpt-9.data-00000-of-00002").write_text("")
    assert load(tmp_path, small=text).get("small").asset_names()[0] == "imported_checkpoint"


def test_a_start_from_an_archive_is_looked_into(tmp_path: Path) -> None:
    text = begun(tmp_path, "{from: ./model.zip, mode: continue}")
    archive = Path(shutil.make_archive(str(tmp_path / "model"), "zip", tmp_path, "model"))
    recipe = load(tmp_path, small=text).get("small")
    asked = recipe.config_for("imported_checkpoint").asked()
    assert asked == {"folder": {"path": str(archive)}, "mode": "continue", "longest": 128, "optimizer": "adamw"}
    at = "small.yaml:6: pretraining.start.from: "
    error = refused(tmp_path, text.replace("  warmup_steps", "  optimizer: lamb\n  warmup_steps"))
    assert f"{at}holds the state of adamw" in error.what and "model.zip" in error.what
    (tmp_path / "model" / "vocab.txt").unlink()
    shutil.make_archive(str(tmp_path / "model"), "zip", tmp_path / "model")
    assert f"{at}has neither vocab.txt nor tokenizer.json" in refused(tmp_path, text).what
    archive.write_bytes(zip_of({"config.json": b"{}", "../x": b""}))
    assert f"{at}holds ../x, which leads out of the archive's folder (it is" in refused(tmp_path, text).what
    archive.write_bytes(b"PK")
    assert f"{at}is no .zip, or is cut off (it is" in refused(tmp_path, text).what
    archive.unlink()
    assert f"{at}there is no such folder" in refused(tmp_path, text).what


def test_a_start_from_a_url_is_a_zip_with_a_digest(tmp_path: Path) -> None:
    def start(url: str, more: str = f", sha256: {'ab' * 32}") -> str:
        return begun(tmp_path, f"{{from: {{url: {url}{more}}}, mode: warm}}")

    url = "https://models.test/uncased_L-12_H-768_A-12.zip"
    recipe = load(tmp_path, small=start(url)).get("small")
    asked = recipe.config_for("imported_checkpoint").asked()
    assert asked == {"folder": {"url": url, "sha256": "ab" * 32}, "longest": 128}
    error = refused(tmp_path, start("https://models.test/bert.tar.gz"))
    assert (
        "small.yaml:6: pretraining.start.from.url: names no .zip (it is https://models.test/bert.tar.gz)" in error.what
    )
    assert "pretraining.start.from.sha256: is missing" in refused(tmp_path, start(url, "")).what
    error = refused(tmp_path, begun(tmp_path, "{from: {path: ./model}, mode: warm}"))
    assert "small.yaml:6: pretraining.start.from: must be a folder, a .zip or a version" in error.what


def test_an_inherited_vocabulary_is_deleted_with_null(tmp_path: Path) -> None:
    parent = begun(tmp_path, WARM).replace("  start: " + WARM + "\n", "") + "vocabulary: {size: 3000}\n"
    child = f"name: child\nextends: small\npretraining: {{start: {WARM}}}\n"
    error = load(tmp_path, small=parent, child=child).errors["child"]
    assert "vocabulary.size is inherited; `null` deletes it" in error.todo
    recipes = load(tmp_path, small=parent, child=child + "vocabulary: null\n").recipes
    assert recipes["child"].pretraining.start is not None


# ── a model that is only fine-tuned ──────────────────────────────────────────────────────────────────────────────────


def tuned(tmp_path: Path, more: str = "", checkpoint: str = "{from: ./model}") -> str:
    """A recipe that only fine-tunes the folder `model`, which has what it needs, as far as names of files go."""
    begun(tmp_path, WARM)
    return f"name: small\ncheckpoint: {checkpoint}\nfinetuning: {{tasks: [cola, rte], max_length: 64}}\n{more}"


def test_a_recipe_with_a_checkpoint_only_fine_tunes(tmp_path: Path) -> None:
    recipe = load(tmp_path, small=tuned(tmp_path)).get("small")
    assert recipe.asset_names() == (
        *("imported_checkpoint", "wordpiece_vocab", "task_data_cola", "task_data_rte"),
        *("finetuned_cola", "finetuned_rte", "benchmark_report"),
    )
    folder = {"folder": {"path": str(tmp_path / "model")}}
    wanted = {**folder, "mode": "finetune", "longest": 0}
    assert recipe.config_for("imported_checkpoint").asked() == wanted
    assert recipe.config_for("wordpiece_vocab").asked() == {"imported": True}
    cased = tuned(tmp_path, checkpoint="{from: ./model, lowercase: false}")
    recipe = load(tmp_path, small=cased).get("small")
    assert recipe.config_for("imported_checkpoint").asked() == {**wanted, "lowercase": False}


def test_a_checkpoint_may_be_a_version_of_the_store_or_a_folder_of_a_wheel(tmp_path: Path) -> None:
    version = "ab" * 32
    recipe = load(tmp_path, small=tuned(tmp_path, checkpoint=f"{{from: {version}}}")).get("small")
    assert recipe.config_for("imported_checkpoint").asked()["version"] == version
    wheel = f"wheel: a==1, file: a-1-py3-none-any.whl, sha256: {version}, member: a/model"
    for text in (
        tuned(tmp_path, checkpoint=f"{{from: {{{wheel}}}}}"),
        begun(tmp_path, f"{{from: {{{wheel}}}, mode: warm}}"),
    ):
        asked = load(tmp_path, small=text).get("small").config_for("imported_checkpoint").asked()
        assert asked["wheel"]["member"] == "a/model" and "folder" not in asked


@pytest.mark.parametrize(
    ("checkpoint", "more", "what", "todo"),
    [
        ("{from: ./none}", "", "small.yaml:2: checkpoint.from: there is no such folder", "Correct the path"),
        ("{from: ./small.yaml}", "", "small.yaml:2: checkpoint.from: is a file, but no folder and no .zip", "unpack"),
        ("{}", "", "small.yaml:2: checkpoint.from: is missing", "`from:`"),
        ("{from: ./model, mode: warm}", "", "small.yaml:2: checkpoint.mode: unknown key", "Known keys here"),
        (
            "{from: {wheel: a==1}}",
            "",
            "small.yaml:2: checkpoint.from.file: is missing",
            "small.yaml:2: checkpoint.from.member: is missing",
        ),
        ("{from: {path: ./model}}", "", "small.yaml:2: checkpoint.from: must be a folder, a .zip", "from: ./model"),
        (
            "{from: ./model}",
            "corpus: {sources: {a: {kind: books, from: {path: texts}}}}\n",
            "small.yaml:4: corpus: does not go with checkpoint",
            "Remove one of the two.",
        ),
        ("{from: ./model}", "vocabulary: {lowercase: true}\n", "small.yaml:4: vocabulary: does not go with", "Remove"),
        ("{from: ./model}", "shards: {dupe_factor: 2}\n", "small.yaml:4: shards: does not go with", "Remove"),
        ("{from: ./model}", "architecture: {layers: 2}\n", "small.yaml:4: architecture: does not go with", "Remove"),
        (
            "{from: ./model}",
            "pretraining: {warmup_steps: 1, phases: [{sequence_length: 16, steps: 4}]}\n",
            "small.yaml:4: pretraining: does not go with checkpoint",
            "Remove",
        ),
    ],
)
def test_what_does_not_go_with_a_checkpoint_is_refused_where_it_is_written(
    tmp_path: Path, checkpoint: str, more: str, what: str, todo: str
) -> None:
    error = refused(tmp_path, tuned(tmp_path, more, checkpoint))
    assert what in error.what and todo in str(error), str(error)


def test_a_checkpoint_without_a_task_is_refused(tmp_path: Path) -> None:
    text = tuned(tmp_path)
    for tasks, line in (("finetuning: {tasks: []}", 3), ("description: none", 1)):
        error = refused(tmp_path, text.replace("finetuning: {tasks: [cola, rte], max_length: 64}", tasks))
        assert f"small.yaml:{line}: finetuning" in error.what and "lists no task" in error.what, str(error)


def test_a_recipe_has_a_checkpoint_or_a_corpus_and_pretraining(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: small\nfinetuning: {tasks: [cola]}\n")
    assert "small.yaml:1: corpus: is missing" in error.what and "small.yaml:1: pretraining: is missing" in error.what
    assert "A recipe that only fine-tunes has `checkpoint:` instead" in error.what


def test_a_child_with_a_checkpoint_deletes_what_it_inherits(tmp_path: Path) -> None:
    more = "vocabulary: {size: 3000}\nfinetuning: {tasks: [cola]}\n"
    child = "name: child\nextends: small\ncheckpoint: {from: ./model}\n"
    begun(tmp_path, WARM)
    error = load(tmp_path, small=SMALL + more, child=child).errors["child"]
    for key, line in (("corpus", 2), ("pretraining", 5), ("vocabulary", 9)):
        assert f"small.yaml:{line}: {key}: does not go with checkpoint" in error.what
        assert f"{key} is inherited; `null` deletes it" in error.what
    child += "corpus: null\npretraining: null\nvocabulary: null\n"
    loaded = load(tmp_path, small=SMALL + more, child=child)
    assert loaded.get("child").asset_names()[-2:] == ("finetuned_cola", "benchmark_report")
    # and back: what pretrains of what only fine-tunes
    again = f"name: again\nextends: child\ncheckpoint: null\n{SMALL.partition(chr(10))[2]}"
    assert "pretrained_128" in load(tmp_path, small=SMALL + more, child=child, again=again).get("again").asset_names()


def test_where_a_start_lies_does_not_matter_to_its_digest(tmp_path: Path) -> None:
    recipe = load(tmp_path, small=begun(tmp_path, WARM)).get("small")
    (tmp_path / "elsewhere").mkdir()
    moved = load(tmp_path / "elsewhere", small=begun(tmp_path / "elsewhere", WARM)).get("small")
    assert recipe.digest_for("imported_checkpoint") == moved.digest_for("imported_checkpoint")


def test_long_texts_are_windows_of_the_tasks_that_say_so(tmp_path: Path) -> None:
    section = "tasks: [cola, stsb, wnut17], long_texts: windows, max_windows: 3"
    own = "overrides: {stsb: {max_windows: 9}, wnut17: {long_texts: truncate}}"
    recipe = load(tmp_path, small=f"{SMALL}finetuning: {{{section}, {own}}}\n").get("small")
    plain = load(tmp_path, small=f"{SMALL}finetuning: {{tasks: [wnut17]}}\n").get("small")
    found = {task: recipe.config_for(f"finetuned_{task}").asked() for task in ("cola", "stsb", "wnut17")}
    assert found["cola"] == {"task": "cola", "long_texts": "windows", "max_windows": 3}
    assert found["stsb"] == {"task": "stsb", "long_texts": "windows", "max_windows": 9}
    assert found["wnut17"] == plain.config_for("finetuned_wnut17").asked()  # what it does not read is not in its key


def test_a_child_with_another_pretraining_seed_shares_all_that_comes_before(tmp_path: Path) -> None:
    child = "name: child\nextends: small\npretraining: {seed: 2}\n"
    recipes = load(tmp_path, small=SMALL, child=child).recipes
    parent, other = recipes["small"], recipes["child"]
    differ = {name for name in parent.asset_names() if parent.digest_for(name) != other.digest_for(name)}
    assert differ == {"pretrained_128", "release", "benchmark_report"}, "the last two hold the recipe's name"


def test_a_source_may_be_called_like_a_kind_of_origin(tmp_path: Path) -> None:
    error = refused(tmp_path, SMALL.replace("books: {kind: books", "wiki: {kind: nooks"))
    assert "small.yaml:4: corpus.sources.wiki.kind" in error.what


# ── inheritance ──────────────────────────────────────────────────────────────────────────────────────────────────────

PARENT = SMALL.replace("small", "parent").replace(
    "pretraining:", "finetuning: {tasks: [cola, rte], epochs: 2}\ndescription: A parent.\npretraining:"
)


def test_maps_merge_deep_lists_and_scalars_replace_null_deletes(tmp_path: Path) -> None:
    child = """\
name: child
extends: parent
corpus:
  sources: {books: null, more: {kind: books, from: {path: more}}}
pretraining: {phases: [{sequence_length: 64, steps: 20}]}
finetuning: {tasks: [sst2], epochs: null}
"""
    loaded = load(tmp_path, parent=PARENT, child=child)
    assert loaded.errors == {}
    recipe = loaded.recipes["child"]
    assert set(recipe.corpus.sources) == {"more"}
    assert [phase.sequence_length for phase in recipe.pretraining.phases] == [64]
    assert recipe.pretraining.warmup_steps == 10  # from the parent
    assert (recipe.finetuning.tasks, recipe.finetuning.epochs) == (("sst2",), 3)  # deleted: the default is back
    assert recipe.description == ""  # name and description are the child's own
    assert loaded.recipes["parent"].finetuning.epochs == 2


def test_chains_and_folders(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        a__parent=PARENT,
        b__middle="name: middle\nextends: parent\npretraining: {warmup_steps: 20, batch_size: 8}",
        child="name: child\nextends: middle\npretraining: {batch_size: 16}",
    )
    recipe = loaded.recipes["child"]
    assert (recipe.pretraining.warmup_steps, recipe.pretraining.batch_size) == (20, 16)
    # a relative path starts where it is written
    assert recipe.config_for("books_files").asked() == {"from": {"path": str(tmp_path / "a" / "texts")}}


@pytest.mark.parametrize(
    ("child", "what", "todo"),
    [
        ("extends: child", "child.yaml:2: extends goes in a circle: child → child", "Break"),
        ("extends: other", "extends goes in a circle: child → other → child", "Break"),
        ("extends: parnt", "child.yaml:2: extends parnt, which is no recipe", "Did you mean parent?"),
        ("extends: broken", "extends broken, which can't be read", "Mend broken first"),
        ("extends: parent\ncorpus: null", "corpus: is missing", "Write `corpus:`"),
        ("extends: parent\ncorpus: {sources: {bocks: null}}", "child.yaml:3: corpus.sources.bocks: there is no", ""),
        ("extends: parent\narchitecture: {max_positions: 64}", "parent.yaml:10: pretraining.phases.0.seq", "inherited"),
        (
            "extends: parent\ncorpus: {sources: {books: {from: {url: x}}}}",
            "from.url: does not go with path",
            "`path: null`",
        ),
    ],
)
def test_inheritance_that_is_refused(tmp_path: Path, child: str, what: str, todo: str) -> None:
    files = {
        "parent": PARENT,
        "other": "name: other\nextends: child",
        "broken": "name: 'broken",
        "child": f"name: child\n{child}\n",
    }
    loaded = load(tmp_path, **files)
    assert set(loaded.recipes) == {"parent"}
    assert what in loaded.errors["child"].what
    assert todo in str(loaded.errors["child"])


# ── stage configs ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def two_phases(tmp_path: Path) -> Recipe:
    text = """\
name: two
corpus:
  held_out: 0.25
  sources:
    wiki: {kind: wikipedia, language: de, from: {wiki: dewiki}}
    tales: {kind: books, licence: CC0-1.0, from: {path: tales.tab}, columns: {text: Body}}
shards: {mask_rate: 0.1, sentence_task: none}
pretraining:
  schedule: per_phase
  learning_rate: 2e-3
  batch_size: 64
  warmup_steps: 10
  phases:
    - {sequence_length: 30, steps: 70, batch_size: 128, warmup_steps: 5}
    - {sequence_length: 512, steps: 30, learning_rate: 1e-3, max_predictions_per_seq: 76}
finetuning:
  tasks: [mine, cola]
  define: {mine: {files: {train: {path: a.csv}}}}
  data: {cola: {path: glue/CoLA}}
  overrides: {cola: {epochs: 7, max_length: 64}}
"""
    return load(tmp_path, two=text).get("two")


def test_asset_names_stand_after_what_they_read(two_phases: Recipe) -> None:
    assert two_phases.asset_names() == (
        *("wiki_dump", "wiki_text", "tales_files", "tales_text", "documents", "wordpiece_vocab"),
        *("pretraining_shards_30", "pretraining_shards_512", "pretrained_30", "pretrained_512", "release"),
        *("task_data_mine", "task_data_cola", "finetuned_mine", "finetuned_cola", "contamination", "benchmark_report"),
    )
    with pytest.raises(
        RecipeError, match=r"no asset pretrained_128\n  → Did you mean pretrained_512\? It has: wiki_dump"
    ):
        two_phases.config_for("pretrained_128")


def test_configs_hold_what_their_stage_reads(two_phases: Recipe) -> None:
    config = two_phases.config_for
    wiki = {"source": "wiki", "language": "de", "licence": "CC-BY-SA-4.0", "templates": {}}
    assert config("wiki_text").plain() == {**wiki, "sample": 1.0}
    assert config("tales_text").asked() == {"source": "tales", "licence": "CC0-1.0", "columns": {"text": "Body"}}
    assert config("documents").asked() == {"held_out": 0.25}
    assert config("benchmark_report").asked() == {"recipe": "two", "tasks": ["mine", "cola"]}
    first, second = config("pretraining_shards_30"), config("pretraining_shards_512")
    assert isinstance(first, ShardsConfig) and isinstance(second, ShardsConfig)
    assert (first.max_predictions_per_seq, second.max_predictions_per_seq) == (3, 76)  # ⌈0.1 × 30⌉, not ⌈3.0000…04⌉
    mine, cola = config("task_data_mine"), config("task_data_cola")
    assert isinstance(mine, TaskDataConfig) and mine.define and mine.from_ is None
    assert isinstance(cola, TaskDataConfig) and cola.define is None and cola.from_
    tuned = config("finetuned_cola")
    assert isinstance(tuned, FinetuneConfig)
    assert (tuned.epochs, tuned.max_length, tuned.batch_size) == (7, 64, 32)


def test_schedule_per_phase(two_phases: Recipe) -> None:
    first, second = two_phases.config_for("pretrained_30"), two_phases.config_for("pretrained_512")
    assert isinstance(first, PretrainConfig) and isinstance(second, PretrainConfig)
    assert (first.first_step, first.schedule_steps, first.warmup_steps) == (0, 70, 5)
    assert (second.first_step, second.schedule_steps, second.warmup_steps) == (0, 30, 10)
    assert (first.batch_size, first.learning_rate) == (128, 2e-3)
    assert (second.batch_size, second.learning_rate) == (64, 1e-3)
    assert first.sentence_task == "none"


def test_layers_of_a_frozen_encoder_are_not_those_of_a_task_that_trains_it(tmp_path: Path) -> None:
    section = """\
finetuning:
  tasks: [cola, conll2003, wnut17]
  encoder: frozen
  layers: [last, embeddings]
  bilstm: {}
  overrides: {cola: {encoder: trained}, wnut17: {layers: [weighted_all]}}
"""
    recipe = load(tmp_path, small=SMALL.replace("name: small\n", f"name: small\n{section}")).get("small")
    found = {task: recipe.config_for(f"finetuned_{task}") for task in ("cola", "conll2003", "wnut17")}
    assert all(isinstance(each, FinetuneConfig) for each in found.values())
    layers = {task: [variant.layers for variant in each.variants] for task, each in found.items()}  # type: ignore[attr-defined]
    assert layers == {"cola": [None], "conll2003": ["last", "embeddings"], "wnut17": ["weighted_all"]}
    assert found["cola"].plain()["bilstm"] == {"hidden": 768, "layers": 2}  # the paper's


def test_a_task_may_have_its_own_number_of_seeds_and_the_others_keep_what_they_are(tmp_path: Path) -> None:
    text = SMALL + "finetuning: {tasks: [cola, mnli], seeds: 5%s}\n"
    plain = load(tmp_path, small=text % "").get("small")
    changed = load(tmp_path, small=text % ", overrides: {mnli: {seeds: 1}}").get("small")
    configs = [changed.config_for(f"finetuned_{task}") for task in ("cola", "mnli")]
    assert [config.seeds for config in configs if isinstance(config, FinetuneConfig)] == [5, 1]
    differ = {name for name in plain.asset_names() if plain.digest_for(name) != changed.digest_for(name)}
    assert differ == {"finetuned_mnli"}
    error = refused(tmp_path, text % ", overrides: {mnli: {seeds: 0}}")
    assert "finetuning.overrides.mnli.seeds: " in error.what


def test_every_override_is_a_field_of_the_stage() -> None:
    assert set(FinetuningOverride.model_fields) <= set(FinetuneConfig.model_fields)


# ── digests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_local_path_never_enters_a_digest_but_a_small_files_content_does(tmp_path: Path) -> None:
    def digest(folder: Path, content: bytes | None, file: str = "tales.txt") -> str:
        folder.mkdir()
        if content is not None:
            (folder / file).write_bytes(content)
        text = SMALL.replace("path: texts", f"path: {folder / file}")
        return load(folder, small=text).get("small").digest_for("books_files")

    one = digest(tmp_path / "one", b"once upon a time")
    assert digest(tmp_path / "two", b"once upon a time") == one
    assert digest(tmp_path / "three", b"once upon a tide") != one
    assert digest(tmp_path / "four", b"once upon a time", "other.txt") != one
    big = b"x" * (1 << 20)
    assert digest(tmp_path / "five", big) == digest(tmp_path / "six", None)  # not digested at load
    declared = {"from": {"path": "tales.txt", "sha256": hashlib.sha256(b"once upon a time").hexdigest()}}
    text = json.dumps(declared, sort_keys=True, separators=(",", ":"))
    assert one == hashlib.sha256(text.encode()).hexdigest()


def test_saying_a_default_changes_no_digest_and_a_number_changes_what_reads_it(tmp_path: Path) -> None:
    def all_digests(text: str) -> dict[str, str]:
        recipe = load(tmp_path, small=text).get("small")
        return {asset: recipe.digest_for(asset) for asset in recipe.asset_names()}

    plain = all_digests(SMALL)
    assert all_digests(SMALL + "shards: {dupe_factor: 10}\nvocabulary: {size: 30522}\n") == plain
    edited = all_digests(SMALL.replace("steps: 100", "steps: 101"))
    assert {name for name in plain if plain[name] != edited[name]} == {"pretrained_128"}


def test_a_digest_equals_that_of_the_config_where_no_local_file_is_named(shipped: Loaded) -> None:
    recipe = shipped.recipes["demo"]
    for asset in recipe.asset_names():
        assert recipe.digest_for(asset) == recipe.config_for(asset).digest()


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(digests(load_recipes()), indent=2) + "\n")
