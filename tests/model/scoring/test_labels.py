"""GLUE and SWAG: the official files' columns, leaderboard files, scores by hand, and what is refused."""

import math
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from model.scoring import label_files
from model.scoring.command import TASKS, score
from model.tasks import KNOWN
from pipeline.errors import DataError
from tests.conftest import shared

MNLI_HEADER = "\t".join(
    [
        *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
        *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2"),
        *("label1", "label2", "label3", "label4", "label5", "gold_label"),
    ]
)
GOLD = {
    "cola": ("", lambda label: f'gj04\t{label}\t\tThe "sailors rode.'),
    "sst2": ("sentence\tlabel\n", lambda label: f'a "charming journey . \t{label}'),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
        lambda label: f'{label}\t1\t2\t" He said\tHe said "',
    ),
    "qqp": ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n", lambda label: f"201359\t3\t4\tWhy?\tWhy?\t{label}"),
    "mnli": (MNLI_HEADER + "\n", lambda label: "\t".join(["x"] * 10 + ["neutral"] * 5 + [label])),
    "qnli": ("index\tquestion\tsentence\tlabel\n", lambda label: f"0\tWho?\tHe.\t{label}"),
    "rte": ("index\tsentence1\tsentence2\tlabel\n", lambda label: f"0\tA.\tB.\t{label}"),
    "wnli": ("index\tsentence1\tsentence2\tlabel\n", lambda label: f"0\tA.\tB.\t{label}"),
    "ax": (
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel\n",
        lambda label: f"\t\tNegation\t\tArtificial\tA cat.\tNo cat.\t{label}",
    ),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n",
        lambda label: f"0\tnews\tMSRvid\t2012test\t0000\tnone\tnone\tA.\tB.\t{label}",
    ),
}


def files(folder: Path, task: str, gold: list[str], predicted: list[str], end: str = "\n") -> tuple[Path, Path]:
    """A gold file as GLUE distributes it, and a leaderboard file, in reverse order."""
    header, row = GOLD[task]
    text = header + "".join(f"{row(label)}\n" for label in gold)
    rows = [f"{index}\t{label}\n" for index, label in enumerate(predicted)]
    return (
        _written(folder / "gold.tsv", text.replace("\n", end)),
        _written(folder / "pred.tsv", ("index\tprediction\n" + "".join(reversed(rows))).replace("\n", end)),
    )


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def points(task: str, gold: Path, predictions: Path) -> dict[str, float]:
    return {row["metric"]: row["points"] for row in score(task, gold, predictions)["scores"]}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("task", [task for task in GOLD if task not in ("stsb", "mnli", "ax", "qnli", "rte")])
def test_two_classes_by_hand(tmp_path: Path, task: str, end: str) -> None:
    """2 true positives, 1 false positive, 1 false negative, 4 true negatives."""
    found = points(task, *files(tmp_path, task, list("11100000"), list("11010000"), end))
    expected = {"accuracy": 100 * 6 / 8, "f1": 100 * 4 / 6, "matthews": 100 * (2 * 4 - 1) / math.sqrt(3 * 3 * 5 * 5)}
    assert found == {metric: pytest.approx(expected[metric]) for metric in label_files.GLUE[task].metrics}


@pytest.mark.parametrize("task", ["mnli", "ax", "qnli", "rte"])
def test_classes_with_names(tmp_path: Path, task: str) -> None:
    first, second = label_files.GLUE[task].labels[:2]
    found = points(task, *files(tmp_path, task, [first, first, second, second], [first, second, second, first]))
    assert found == {label_files.GLUE[task].metrics[0]: 0 if task == "ax" else 50}


def test_f1_is_of_label_1(tmp_path: Path) -> None:
    assert points("mrpc", *files(tmp_path, "mrpc", list("1110"), list("1111")))["f1"] == pytest.approx(100 * 6 / 7)
    assert points("mrpc", *files(tmp_path, "mrpc", list("1110"), list("0000")))["f1"] == 0


def test_similarity(tmp_path: Path) -> None:
    """Ranks 1 2 3 4 and 1 2.5 2.5 4; deviations −1.5 −.5 .5 1.5 and −3 −1 −1 5."""
    found = points("stsb", *files(tmp_path, "stsb", ["1.0", "2.000", "3", "4"], ["2", "4", "4.0", "1e1"]))
    assert found["spearman"] == pytest.approx(100 * 4.5 / math.sqrt(5 * 4.5))
    assert found["pearson"] == pytest.approx(100 * 12 / math.sqrt(5 * 36))


def test_predictions_that_are_all_the_same_are_told(tmp_path: Path) -> None:
    assert score("cola", *files(tmp_path, "cola", list("1010"), list("1111")))["notes"][0] == "every prediction is '1'"


@pytest.mark.parametrize(
    ("predictions", "said"),
    [
        ("0\t1\n1\t0\n", r"pred\.tsv, line 1: '0\\t1', not 'index<TAB>prediction'"),
        ("index\tprediction\n0\t1\n", r"pred\.tsv predicts 1 of the 3 examples of .*gold\.tsv; index 1, 2 are missing"),
        ("index\tprediction\n0\t1\n2\t1\n", r"index 1 is missing"),
        ("index\tprediction\n0\t1\n1\t1\n2\t1\n3\t1\n", r"pred\.tsv, line 5: index 3 is not in .*the examples 0 to 2"),
        ("index\tprediction\n0\t1\n1\t1\n0\t1\n", r"pred\.tsv, line 4: index 0 stands twice, before on line 2"),
        ("index\tprediction\n0\t1\n1\t7\n2\t1\n", r"pred\.tsv, line 3: '7' is no label"),
        ("index\tprediction\n0\t1\n1\n2\t1\n", r"pred\.tsv, line 3: '1' is not a number, a tab and a prediction"),
        ("index\tprediction\n0\t1\n\n2\t1\n", r"pred\.tsv, line 3: '' is not"),
        ("index\tprediction\n-1\t1\n", r"line 2: '-1\\t1' is not"),
        ("index\tprediction\n" + "9" * 5000 + "\t1\n", r"line 2: '99"),
        ("index\tprediction\n0\t1\t0.9\n", r"line 2: '0\\t1\\t0\.9' is not"),
        ("  \n", r"pred\.tsv is empty"),
    ],
)
def test_predictions_that_are_refused(tmp_path: Path, predictions: str, said: str) -> None:
    gold, path = files(tmp_path, "sst2", list("101"), [])
    with pytest.raises(DataError, match=said) as refused:
        score("sst2", gold, _written(path, predictions))
    assert refused.value.todo


@pytest.mark.parametrize(
    ("task", "gold", "said"),
    [
        ("sst2", "index\tsentence\n0\tGood.\n", r"line 1: no column 'label'; it has 'index', 'sentence'"),
        ("cola", "index\tsentence\n0\tGood.\n", r"gold\.tsv, line 1: 2 columns, not 4"),
        ("sst2", "sentence\tlabel\nGood.\t1\nBad\tbad.\t0\n", r"gold\.tsv, line 3: 3 columns, not 2"),
        ("sst2", "sentence\tlabel\nGood.\tgood\n", r"gold\.tsv, line 2: 'good' is no label"),
        ("sst2", "sentence\tlabel\n", r"gold\.tsv holds no examples"),
    ],
)
def test_gold_files_that_are_refused(tmp_path: Path, task: str, gold: str, said: str) -> None:
    path, predictions = files(tmp_path, task, ["1"], ["1"])
    with pytest.raises(DataError, match=said) as refused:
        score(task, _written(path, gold), predictions)
    assert refused.value.todo


@pytest.mark.parametrize("number", ["nan", "inf", "high", "", "1_0", "\u0663", "0x1p2", "1e999", "1,5", "1.5.0"])
def test_numbers_that_are_none(tmp_path: Path, number: str) -> None:
    for gold, predicted, file in ((["1", "2"], ["3", number], "pred"), (["1", number], ["3", "2"], "gold")):
        with pytest.raises(DataError, match=rf"{file}\.tsv, line [23]: .* is no decimal number"):
            score("stsb", *files(tmp_path, "stsb", gold, predicted))


@pytest.mark.parametrize("number", ["5", "0.0", " 4.25", "+1.", ".5", "1e-05"])
def test_numbers_as_people_and_programs_write_them(tmp_path: Path, number: str) -> None:
    found = score("stsb", *files(tmp_path, "stsb", ["1", "2", "3"], ["3", number, "2.5"]))
    assert not any("outside" in note for note in found["notes"])


def test_scores_outside_of_0_to_5(tmp_path: Path) -> None:
    """The official script is a correlation, of any numbers (scipy.stats); people gave 0 to 5."""
    found = score("stsb", *files(tmp_path, "stsb", ["1", "2", "3", "5"], ["0", "7.5", "2", "-0.1"]))
    assert found["notes"][0] == "2 predictions outside of 0 to 5, the first on line 4: 7.5"
    assert found["scores"][0]["points"] == pytest.approx(100 * spearmanr([1, 2, 3, 5], [0, 7.5, 2, -0.1]).statistic)
    with pytest.raises(DataError, match=r"gold\.tsv, line 3: '7\.5' is no score from 0 to 5"):
        score("stsb", *files(tmp_path, "stsb", ["1", "7.5"], ["3", "2"]))


@pytest.mark.parametrize(("task", "other"), [("qnli", "rte"), ("rte", "qnli"), ("wnli", "sst2"), ("mrpc", "ax")])
def test_another_task_s_gold_file_is_told_by_its_columns(tmp_path: Path, task: str, other: str) -> None:
    labels = list(label_files.GLUE[other].labels[:2])
    gold, predictions = files(tmp_path, other, labels, labels)
    with pytest.raises(DataError, match=r"gold\.tsv, line 1: no column '.*'; it has"):
        score(task, gold, predictions)


def test_another_number_of_examples_than_the_official_ones_is_told(tmp_path: Path) -> None:
    found = score("qnli", *files(tmp_path, "qnli", ["entailment"] * 277, ["entailment"] * 276 + ["not_entailment"]))
    assert found["notes"] == ["no official part of QNLI has 277 examples: train 104,743, dev 5,463, test 5,463"]
    found = score("rte", *files(tmp_path, "rte", ["entailment"] * 277, ["entailment"] * 276 + ["not_entailment"]))
    assert found["notes"] == []


def test_bytes_and_files_that_can_not_be_read(tmp_path: Path) -> None:
    gold, predictions = files(tmp_path, "sst2", ["1"], ["1"])
    gold.write_bytes(b"sentence\tlabel\nna\xefve\t1\n")
    with pytest.raises(DataError, match=r"gold\.tsv, line 2: not UTF-8"):
        score("sst2", gold, predictions)
    with pytest.raises(DataError, match="none.tsv can't be read: No such file"):
        score("sst2", tmp_path / "none.tsv", predictions)
    with pytest.raises(DataError, match="can't be read: Is a directory"):
        score("sst2", tmp_path, predictions)


SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    '0,v,1,"He, she",He,she,gold,"a, b",c,d,e,2\n'
    '1,v,2,S,S,s,gold,a,"b ""c""",d,e,0\n'
    "2,v,3,S,S,s,gold,a,b,d,e,3\n"
)


def test_swag(tmp_path: Path) -> None:
    gold = _written(tmp_path / "val.csv", SWAG)
    assert points("swag", gold, _written(tmp_path / "pred.txt", "2\r\n1\r\n3\r\n")) == {
        "accuracy": pytest.approx(200 / 3)
    }
    for text, said in (
        ("2\n1\n", r"pred\.txt has 2 lines, but .*val\.csv has 3 questions"),
        ("pred\n2\n1\n3\n", r"pred\.txt has 4 lines"),
        ("2\n1\n4\n", r"pred\.txt, line 3: '4' is no label"),
    ):
        with pytest.raises(DataError, match=said):
            score("swag", gold, _written(tmp_path / "pred.txt", text))
    with pytest.raises(DataError, match=r"test\.csv, line 1: no column 'label'"):
        score("swag", _written(tmp_path / "test.csv", SWAG.replace(",label", ",sent3")), tmp_path / "pred.txt")


def test_tasks_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no task 'mnl'"):
        score("mnl", tmp_path, tmp_path)


def test_every_known_task_can_be_scored() -> None:
    own = {task for task, known in KNOWN.items() if known.form.kind != "sentence_similarity"}  # it is scored as STS-B
    assert {task.replace("_", ".") for task in own} <= set(TASKS)


@pytest.mark.parametrize(
    ("task", "name", "rows", "first"),
    [
        ("cola", "CoLA/dev.tsv", 1043, "1"),
        ("sst2", "SST-2/dev.tsv", 872, None),
        ("mrpc", "MRPC/msr_paraphrase_test.txt", 1725, "1"),
        ("stsb", "STS-B/dev.tsv", 1500, "5.000"),
        ("qnli", "QNLI/dev.tsv", 5463, "entailment"),
        ("rte", "RTE/dev.tsv", 277, "not_entailment"),
        ("wnli", "WNLI/dev.tsv", 71, "0"),
        ("qqp", "format_samples/QQP/dev.tsv", 1, "0"),
        ("mnli", "format_samples/MNLI/dev_matched.tsv", 1, None),
        ("mnli", "format_samples/MNLI/dev_mismatched.tsv", 1, None),
    ],
)
def test_the_official_files(tmp_path: Path, task: str, name: str, rows: int, first: str | None) -> None:
    gold = shared(f"data/finetune/glue/{name}")
    labels = [label for _, label in label_files.glue_gold(task, gold)]
    assert len(labels) == rows
    assert first in (None, labels[0])
    text = "index\tprediction\n" + "".join(f"{index}\t{label}\n" for index, label in enumerate(labels))
    found = score(task, gold, _written(tmp_path / "pred.tsv", text))
    if rows > 1:
        assert [row["points"] for row in found["scores"]] == [pytest.approx(100)] * len(label_files.GLUE[task].metrics)


def test_all_positive_on_mrpc(tmp_path: Path) -> None:
    """1,147 of the 1,725 test pairs are paraphrases: accuracy 66.5, F1 79.9 (Dolan and Brockett's baseline)."""
    gold = shared("data/finetune/glue/MRPC/msr_paraphrase_test.txt")
    text = "index\tprediction\n" + "".join(f"{index}\t1\n" for index in range(1725))
    found = points("mrpc", gold, _written(tmp_path / "pred.tsv", text))
    assert found == {"f1": pytest.approx(100 * 2 * 1147 / (1725 + 1147)), "accuracy": pytest.approx(100 * 1147 / 1725)}


def test_swags_official_format(tmp_path: Path) -> None:
    gold = shared("data/finetune/swag/swag-format-sample.csv")
    labels = [label for _, label in label_files.swag_gold(gold)]
    assert len(labels) == 11 and set(labels) <= set("0123")
    assert points("swag", gold, _written(tmp_path / "pred.txt", "\n".join(labels)))["accuracy"] == 100
