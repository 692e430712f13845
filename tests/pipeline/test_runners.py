"""The same bytes on every engine of Beam that this machine can run, for any number of workers, order of the input files
and size of their row groups."""

import hashlib
from contextlib import ExitStack

import numpy as np
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from benchmarks import engines
from pipeline import extraction, shards
from pipeline.config import WikipediaTextConfig
from pipeline.extraction import extract_text
from pipeline.shards import build_shards
from pipeline.wiki import dump_parts
from tests.pipeline.dumps import dump, multistream, write
from tests.pipeline.test_extraction import articles
from tests.pipeline.test_shards import CONFIG, documents, small_pools, write_documents, write_vocabulary

ENGINES = {
    "in_memory": lambda: engines.local(1),
    "two processes": lambda: engines.local(2),
    "eight processes": lambda: engines.local(8),
    "portable, LOOPBACK": None,
    "portable, EXTERNAL": None,
    "Spark": None,
}


@pytest.fixture(scope="module")
def found():
    """{name: settings} of the engines, with those running that run in processes of their own."""
    with ExitStack() as stack:
        made = {name: make() for name, make in ENGINES.items() if make}
        made |= stack.enter_context(engines.portable(2))
        if not engines.spark_is_missing():
            made |= stack.enter_context(engines.spark(2))
        yield made


@pytest.fixture(params=ENGINES)
def engine(request, found, tmp_path, monkeypatch):
    """Settings that name this engine, and enough workers for it however small the work is."""
    if request.param not in found:
        pytest.skip(f"needs {engines.spark_is_missing()} (benchmarks/engines.py says how to install it)")
    path = tmp_path / "settings.yaml"
    YAML().dump({"beam": found[request.param]}, path)
    monkeypatch.setenv("BERT_SETTINGS", str(path))
    monkeypatch.setattr(shards, "WORK_PER_WORKER", 1)
    monkeypatch.setattr(extraction, "WORK_PER_WORKER", 1)
    small_pools(monkeypatch)
    return request.param


def digests(out):
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary") / "vocabulary")


@pytest.fixture(scope="module")
def expected(vocabulary, tmp_path_factory):
    """Shards of one worker from one file."""
    folder = tmp_path_factory.mktemp("expected")
    inputs = {"documents": write_documents(folder / "documents", documents()), "wordpiece_vocab": vocabulary}
    (folder / "out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        small_pools(patch)
        found = build_shards(inputs, CONFIG, folder / "out")
    return digests(folder / "out"), found


def shuffled(folder, number):
    """The same documents in another order, in three files with row groups of some sizes."""
    rng = np.random.default_rng(number)
    rows = list(documents())
    folder.mkdir()
    for part, some in enumerate(np.array_split(rng.permutation(len(rows)), 3)):
        written = write_documents(folder.parent / f"part-{part}", [rows[i] for i in some])
        table = pq.read_table(written)
        pq.write_table(table, folder / f"part-{part:05d}.parquet", row_group_size=int(rng.integers(3, 30)))
    return folder


def test_shards_are_the_same_bytes_on_every_engine(engine, expected, vocabulary, tmp_path):
    inputs = {
        "documents": shuffled(tmp_path / "documents", list(ENGINES).index(engine)),
        "wordpiece_vocab": vocabulary,
    }
    out = tmp_path / "out"
    out.mkdir()
    assert build_shards(inputs, CONFIG, out) == expected[1]
    assert digests(out) == expected[0]


@pytest.fixture(scope="module")
def expected_text(tmp_path_factory):
    """The table of one worker from one file."""
    folder = tmp_path_factory.mktemp("expected_text")
    return text_of(folder, {"dump.xml": dump(*articles(60))})


def text_of(folder, files):
    for name, data in files.items():
        (folder / "dump").mkdir(exist_ok=True)
        write(folder / "dump", data, name)
    (folder / "out").mkdir()
    extract_text({"dump": folder / "dump"}, WikipediaTextConfig(source="wiki"), folder / "out")
    return digests(folder / "out")


OTHERS = ("portable, LOOPBACK", "portable, EXTERNAL", "Spark")
"""The local runner with several workers is in test_extraction."""


@pytest.mark.parametrize("engine", OTHERS, indirect=True)
def test_text_of_a_dump_is_the_same_bytes_on_every_engine(engine, expected_text, tmp_path, monkeypatch):
    monkeypatch.setattr(dump_parts, "PARTS", 6)
    monkeypatch.setattr(dump_parts, "SMALLEST", 1)
    data = b"".join(multistream(dump(*articles(60)), 5))
    assert text_of(tmp_path, {"dump.xml.bz2": data}) == expected_text
