"""The tasks known by name: their official files, what these hold, and the scores published for them.

A declaration is data; nothing here reads a file. Addresses and SHA-256 are those that tensorflow/datasets and
huggingface/datasets check their downloads against (the two agree wherever both name one); counts are those of
huggingface/datasets, which for CoNLL-2003 are those of its README without the -DOCSTART- lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.config import METRICS_OF, Metric, PublishedScore, Task, TaskForm, TaskKind, UrlFrom


@dataclass(frozen=True)
class Part:
    """One part of a public task."""

    file: str
    """name of the official file"""
    count: int
    """examples that it officially has"""
    also: tuple[str, ...] = ()
    """other names that the file goes by"""
    header: tuple[str, ...] = ()
    """its columns, where it has no line of names"""
    needed: bool = True
    """without it there is nothing to train on, or to choose the best weights by"""


@dataclass(frozen=True)
class KnownTask:
    """A public task, as its authors distribute it."""

    name: str
    title: str
    form: TaskForm
    parts: Mapping[str, Part]
    downloads: tuple[UrlFrom, ...] = ()
    """files, or archives of them"""
    home: str = ""
    """where to get the files that can't be downloaded without further ado"""
    metrics: tuple[Metric, ...] = ()
    """what its authors score it by, the one first that the best weights are chosen by; none: the kind's first"""
    published: tuple[PublishedScore, ...] = ()
    dev_ids: tuple[str, ...] = ()
    """columns that name the examples of train that are dev: the file of dev may hold these instead of examples, and where
    it is missing, a share of train is dev"""

    @property
    def kind(self) -> TaskKind:
        """What is predicted."""
        return self.form.kind

    @property
    def files(self) -> dict[str, str]:
        """part → official file name"""
        return {name: part.file for name, part in self.parts.items()}

    @property
    def scored_by(self) -> tuple[Metric, ...]:
        """Its metrics, the first first."""
        return self.metrics or METRICS_OF[self.kind][:1]


# ── files and columns ────────────────────────────────────────────────────────────────────────────────────────────────


def _pair(first: str, second: str, label: str, labels: tuple[str, ...], names: tuple[str, ...] = ()) -> TaskForm:
    return TaskForm(
        kind="pair_classification",
        text=first,
        text_b=second,
        label=label,
        labels=labels,
        label_names=names,
        quotes=False,
    )


def _tsv(train: int, dev: int, test: int, header: tuple[str, ...] = ()) -> dict[str, Part]:
    """train.tsv and dev.tsv, whose header may be missing, and test.tsv, which always has one."""
    return {
        "train": Part("train.tsv", train, header=header),
        "dev": Part("dev.tsv", dev, header=header),
        "test": Part("test.tsv", test, needed=False),
    }


def _glue_zip(name: str, sha256: str) -> UrlFrom:
    return UrlFrom(url=f"https://dl.fbaipublicfiles.com/glue/data/{name}", sha256=sha256)


_STSB = _glue_zip("STS-B.zip", "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_SWAG = "https://raw.githubusercontent.com/rowanz/swagaf/master/data"
_WNUT = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_CONLL_TYPES = ("PER", "ORG", "LOC", "MISC")

# ── published scores ─────────────────────────────────────────────────────────────────────────────────────────────────

_TABLE_1, _TABLE_2 = "Devlin et al. 2019, table 1", "Devlin et al. 2019, table 2"
_TABLE_3, _TABLE_4 = "Devlin et al. 2019, table 3", "Devlin et al. 2019, table 4"
_TABLE_5, _TABLE_7 = "Devlin et al. 2019, table 5", "Devlin et al. 2019, table 7"
_README = "google-research/bert README, small models of 2020"
_SBERT_1, _SBERT_2 = "Reimers and Gurevych 2019, table 1", "Reimers and Gurevych 2019, table 2"
_BASE, _LARGE, _TINY = "BERT-base", "BERT-large", "BERT-Tiny (2 layers of 128)"


def _row(system: str, split: Literal["dev", "test"], metric: Metric, points: float, source: str) -> PublishedScore:
    return PublishedScore(system=system, split=split, metric=metric, points=points, source=source)


def _glue(
    metric: Metric, base: float, large: float, tiny: float, dev: PublishedScore | None = None
) -> tuple[PublishedScore, ...]:
    """Rows of the GLUE server's test set, and the paper's dev score of BERT-base where it gives one."""
    rows = [
        _row(_BASE, "test", metric, base, _TABLE_1),
        _row(_LARGE, "test", metric, large, _TABLE_1),
        _row(_TINY, "test", metric, tiny, _README),
    ]
    return (*([dev] if dev else []), *rows)


def _base_dev(metric: Metric, points: float) -> PublishedScore:
    return _row(_BASE, "dev", metric, points, _TABLE_5)


# ── the tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────

_TASKS = (
    KnownTask(
        *("cola", "CoLA"),
        TaskForm(text="sentence", labels=_BINARY, label_names=("unacceptable", "acceptable"), quotes=False),
        _tsv(8_551, 1_043, 1_063, header=("source", "label", "mark", "sentence")),
        (_glue_zip("CoLA.zip", "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff"),),
        metrics=("matthews",),
        published=_glue("matthews", 52.1, 60.5, 0.0),
    ),
    KnownTask(
        *("sst2", "SST-2"),
        TaskForm(text="sentence", labels=_BINARY, label_names=("negative", "positive"), quotes=False),
        _tsv(67_349, 872, 1_821),
        (_glue_zip("SST-2.zip", "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa"),),
        published=_glue("accuracy", 93.5, 94.9, 83.2, _base_dev("accuracy", 92.7)),
    ),
    KnownTask(
        *("mrpc", "MRPC"),
        _pair("#1 String", "#2 String", "Quality", _BINARY, ("not_equivalent", "equivalent")),
        {
            "train": Part("msr_paraphrase_train.txt", 3_668, also=("train.tsv",)),
            "dev": Part("dev_ids.tsv", 408, also=("mrpc_dev_ids.tsv", "dev.tsv"), needed=False),
            "test": Part("msr_paraphrase_test.txt", 1_725, also=("test.tsv",), needed=False),
        },
        (
            UrlFrom(
                url=f"{_SENTEVAL}/msr_paraphrase_train.txt",
                sha256="60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
            ),
            _glue_zip("mrpc_dev_ids.tsv", "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"),
            UrlFrom(
                url=f"{_SENTEVAL}/msr_paraphrase_test.txt",
                sha256="a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            ),
        ),
        metrics=("f1", "accuracy"),
        published=_glue("f1", 88.9, 89.3, 81.1, _base_dev("accuracy", 86.7)),
        dev_ids=("#1 ID", "#2 ID"),
    ),
    KnownTask(
        *("stsb", "STS-B"),
        TaskForm(kind="regression", text="sentence1", text_b="sentence2", label="score", quotes=False),
        _tsv(5_749, 1_500, 1_379),
        (_STSB,),
        metrics=("spearman", "pearson"),
        published=_glue("spearman", 85.8, 86.5, 73.6),
    ),
    KnownTask(
        *("stsb_vectors", "STS-B by sentence vectors"),
        TaskForm(
            kind="sentence_similarity",
            text="sentence1",
            text_b="sentence2",
            label="score",
            positive_score=4.0,
            quotes=False,
        ),
        _tsv(5_749, 1_500, 1_379),
        (_STSB,),
        metrics=("spearman", "pearson"),
        published=(
            _row("BERT-base, [CLS] without fine-tuning", "test", "spearman", 16.50, _SBERT_1),
            _row("BERT-base, mean without fine-tuning", "test", "spearman", 46.35, _SBERT_1),
            _row("SBERT-base, of NLI", "test", "spearman", 77.03, _SBERT_1),
            _row("SBERT-base, of STS-B's scores", "test", "spearman", 84.67, _SBERT_2),
        ),
    ),
    KnownTask(
        *("qqp", "QQP"),
        _pair("question1", "question2", "is_duplicate", _BINARY, ("not_duplicate", "duplicate")),
        _tsv(363_846, 40_430, 390_965),
        (_glue_zip("QQP-clean.zip", "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0"),),
        metrics=("f1", "accuracy"),
        published=_glue("f1", 71.2, 72.1, 62.2),
    ),
    KnownTask(
        *("mnli", "MNLI (matched)"),
        _pair("sentence1", "sentence2", "gold_label", _NLI),
        {
            "train": Part("train.tsv", 392_702),
            "dev": Part("dev_matched.tsv", 9_815),
            "dev_mismatched": Part("dev_mismatched.tsv", 9_832, needed=False),
            "test": Part("test_matched.tsv", 9_796, needed=False),
            "test_mismatched": Part("test_mismatched.tsv", 9_847, needed=False),
        },
        (_glue_zip("MNLI.zip", "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633"),),
        published=_glue("accuracy", 84.6, 86.7, 70.2, _base_dev("accuracy", 84.4)),
    ),
    KnownTask(
        *("qnli", "QNLI"),
        _pair("question", "sentence", "label", _ENTAILMENT),
        _tsv(104_743, 5_463, 5_463),
        (_glue_zip("QNLIv2.zip", "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"),),
        published=_glue("accuracy", 90.5, 92.7, 81.5, _base_dev("accuracy", 88.4)),
    ),
    KnownTask(
        *("rte", "RTE"),
        _pair("sentence1", "sentence2", "label", _ENTAILMENT),
        _tsv(2_490, 277, 3_000),
        (_glue_zip("RTE.zip", "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee"),),
        published=_glue("accuracy", 66.4, 70.1, 57.2),
    ),
    KnownTask(
        *("wnli", "WNLI"),
        _pair("sentence1", "sentence2", "label", _BINARY, ("not_entailment", "entailment")),
        _tsv(635, 71, 146),
        (_glue_zip("WNLI.zip", "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46"),),
    ),
    KnownTask(
        *("ax", "AX (GLUE diagnostics)"),
        _pair("sentence1", "sentence2", "label", _NLI),
        {"test": Part("diagnostic.tsv", 1_104, also=("AX.tsv",))},
        (_glue_zip("AX.tsv", "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd"),),
        metrics=("matthews",),
        published=(_row(_TINY, "test", "matthews", 21.0, _README),),
    ),
    KnownTask(
        *("squad1_1", "SQuAD 1.1"),
        TaskForm(kind="span"),
        {"train": Part("train-v1.1.json", 87_599), "dev": Part("dev-v1.1.json", 10_570)},
        (
            UrlFrom(
                url=f"{_SQUAD}/train-v1.1.json",
                sha256="3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
            ),
            UrlFrom(
                url=f"{_SQUAD}/dev-v1.1.json", sha256="95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"
            ),
        ),
        metrics=("f1", "exact_match"),
        published=(
            _row(_BASE, "dev", "f1", 88.5, _TABLE_2),
            _row(_LARGE, "dev", "f1", 90.9, _TABLE_2),
            _row("human", "test", "f1", 91.2, _TABLE_2),
        ),
    ),
    KnownTask(
        *("squad2_0", "SQuAD 2.0"),
        TaskForm(kind="span"),
        {"train": Part("train-v2.0.json", 130_319), "dev": Part("dev-v2.0.json", 11_873)},
        (
            UrlFrom(
                url=f"{_SQUAD}/train-v2.0.json",
                sha256="68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
            ),
            UrlFrom(
                url=f"{_SQUAD}/dev-v2.0.json", sha256="80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"
            ),
        ),
        metrics=("f1", "exact_match"),
        published=(
            _row(_LARGE, "dev", "f1", 81.9, _TABLE_3),
            _row(_LARGE, "test", "f1", 83.1, _TABLE_3),
            _row("human", "test", "f1", 89.5, _TABLE_3),
        ),
    ),
    KnownTask(
        *("swag", "SWAG"),
        TaskForm(
            kind="multiple_choice",
            text="sent1",
            choice_start="sent2",
            choices=("ending0", "ending1", "ending2", "ending3"),
        ),
        {
            "train": Part("train.csv", 73_546),
            "dev": Part("val.csv", 20_006),
            "test": Part("test.csv", 20_005, needed=False),
        },
        (
            UrlFrom(
                url=f"{_SWAG}/train.csv", sha256="5748b51126ac255c5a6f26e1ba473b51116d6c822aeb25e63ecba282c9d0e610"
            ),
            UrlFrom(url=f"{_SWAG}/val.csv", sha256="c0497b2cd7f3e6b7df995524b1853f62285d60d110d659b19545ca80b2903234"),
            UrlFrom(url=f"{_SWAG}/test.csv", sha256="a689a1a4e892a65ca625c1f0fcf77bcce004b59ad1caeb134ca5ec080a711cb6"),
        ),
        published=(
            _row(_BASE, "dev", "accuracy", 81.6, _TABLE_4),
            _row(_LARGE, "dev", "accuracy", 86.6, _TABLE_4),
            _row(_LARGE, "test", "accuracy", 86.3, _TABLE_4),
        ),
    ),
    KnownTask(
        *("conll2003", "CoNLL-2003 NER"),
        TaskForm(kind="tagging", labels=("O", *(f"{side}-{type_}" for type_ in _CONLL_TYPES for side in "BI"))),
        {
            "train": Part("eng.train", 14_041, also=("train.txt",)),
            "dev": Part("eng.testa", 3_250, also=("valid.txt", "dev.txt")),
            "test": Part("eng.testb", 3_453, also=("test.txt",), needed=False),
        },
        home="https://www.clips.uantwerpen.be/conll2003/ner/ (the text is Reuters' and has to be asked for)",
        published=(
            _row(_BASE, "dev", "entity_f1", 96.4, _TABLE_7),
            _row(_BASE, "test", "entity_f1", 92.4, _TABLE_7),
            _row(_LARGE, "dev", "entity_f1", 96.6, _TABLE_7),
            _row(_LARGE, "test", "entity_f1", 92.8, _TABLE_7),
        ),
    ),
    KnownTask(
        *("wnut17", "WNUT-17 emerging entities"),
        TaskForm(kind="tagging"),
        {
            "train": Part("wnut17train.conll", 3_394),
            "dev": Part("emerging.dev.conll", 1_009),
            "test": Part("emerging.test.annotated", 1_287, needed=False),
        },
        (
            UrlFrom(
                url=f"{_WNUT}/wnut17train.conll",
                sha256="731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
            ),
            UrlFrom(
                url=f"{_WNUT}/emerging.dev.conll",
                sha256="e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
            ),
            UrlFrom(
                url=f"{_WNUT}/emerging.test.annotated",
                sha256="2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
            ),
        ),
    ),
)

KNOWN: dict[str, KnownTask] = {task.name: task for task in _TASKS}
"""Tasks that a recipe can name without declaring them."""


def title_of(task: str, define: Task | None = None) -> str:
    """What people call the task."""
    if define is not None:
        return define.title or task
    return KNOWN[task].title if task in KNOWN else task


def published_of(task: str) -> list[dict[str, Any]]:
    """Published scores of a task known by name, as JSON values; none for tasks of one's own."""
    return [row.plain() for row in KNOWN[task].published] if task in KNOWN else []
