"""TFRecord files: against files that TensorFlow wrote, against protobuf's own parser, and against files that lie.

tests/pipeline/data/write_tfrecord.py says how the files of TensorFlow were made.
"""

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import Shards as ShardsSection
from pipeline.errors import DataError, StoreError
from pipeline.formats.tfrecord import masked_crc
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from pipeline.sharding.tfrecord_export import export_tfrecords
from pipeline.sharding.tfrecord_import import import_tfrecords
from tests.crc32c import crc32c, masked_crc32c

DATA = Path(__file__).parents[1] / "data"
TOLD = json.loads((DATA / "instances.json").read_text(encoding="utf-8"))
SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLS, SEP = 101, 102


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Of 30,522 tokens with the special ones where BERT's own vocabulary has them."""
    tokens = ["[PAD]", *(f"[unused{n}]" for n in range(99)), *SPECIAL]
    tokens += [f"token{n}" for n in range(len(tokens), 30522)]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


def write_shards(folder: Path, rows, section: ShardsSection = ShardsSection(), size=30522, group=3):
    """A shard file of rows as instances.json has them."""
    schema = shard_schema(size, section)
    columns = [
        {
            **row,
            "token_type_start": row["segment_ids"].count(0),
            "documents": ["d:1"],
        }
        for row in rows
    ]
    kept = [{name: row[name] for name in schema.names} for row in columns]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(kept, schema), folder / "shard-0.parquet", row_group_size=group)
    return folder


def read_shards(folder: Path):
    """Rows as instances.json has them."""
    reader = ShardReader(folder)
    rows = reader.take(np.arange(len(reader)))
    found = []
    for number in range(len(rows)):
        row = rows.row(number)
        length, start = len(row.input_ids), row.token_type_start
        found.append(
            {
                "input_ids": row.input_ids.tolist(),
                "segment_ids": [0] * start + [1] * (length - start),
                "masked_lm_positions": row.masked_positions.tolist(),
                "masked_lm_ids": row.masked_ids.tolist(),
                "next_sentence_label": row.label,
            }
        )
    return found


# ── an independent reader: Example by protobuf from a description given here ─────────────────────────────────────────


def example_class():
    text = descriptor_pb2.FileDescriptorProto(name="test_example.proto", package="test", syntax="proto3")
    of = descriptor_pb2.FieldDescriptorProto
    for name, number_type in (("Floats", of.TYPE_FLOAT), ("Integers", of.TYPE_INT64)):
        text.message_type.add(name=name).field.add(name="value", number=1, type=number_type, label=3)
    feature = text.message_type.add(name="Feature")
    feature.field.add(name="floats", number=2, type=of.TYPE_MESSAGE, type_name=".test.Floats", label=1)
    feature.field.add(name="integers", number=3, type=of.TYPE_MESSAGE, type_name=".test.Integers", label=1)
    entry = text.message_type.add(name="Entry")
    entry.field.add(name="key", number=1, type=of.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=of.TYPE_MESSAGE, type_name=".test.Feature", label=1)
    features = text.message_type.add(name="Features")
    features.field.add(name="entries", number=1, type=of.TYPE_MESSAGE, type_name=".test.Entry", label=3)
    example = text.message_type.add(name="Example")
    example.field.add(name="features", number=1, type=of.TYPE_MESSAGE, type_name=".test.Features", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Example"))


Example = example_class()


def parsed(path: Path) -> list[dict[str, list[float]]]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        content = data[at + 12 : at + 12 + length]
        assert length_crc == masked_crc32c(data[at : at + 8])
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked_crc32c(content),)
        entries = Example.FromString(content).features.entries
        assert len({entry.key for entry in entries}) == len(entries) == 7
        for entry in entries:
            assert entry.value.HasField("floats") == (entry.key == "masked_lm_weights")
        found.append({e.key: list(e.value.floats.value) or list(e.value.integers.value) for e in entries})
        at += 16 + length
    return found


def padded(row, length, masks):
    """The seven fields of a row, as create_pretraining_data.py pads them."""
    n, m = len(row["input_ids"]), len(row["masked_lm_ids"])
    return {
        "input_ids": row["input_ids"] + [0] * (length - n),
        "input_mask": [1] * n + [0] * (length - n),
        "segment_ids": row["segment_ids"] + [0] * (length - n),
        "masked_lm_positions": row["masked_lm_positions"] + [0] * (masks - m),
        "masked_lm_ids": row["masked_lm_ids"] + [0] * (masks - m),
        "masked_lm_weights": [1.0] * m + [0.0] * (masks - m),
        "next_sentence_labels": [row["next_sentence_label"]],
    }


def content(fields) -> bytes:
    """An Example of these fields; floats make a float_list."""
    example = Example()
    for name, values in fields.items():
        entry = example.features.entries.add(key=name)
        if any(isinstance(value, float) for value in values):
            entry.value.floats.value.extend(values)
        else:
            entry.value.integers.value.extend(values)
    return bytes(example.SerializeToString())


def framed(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def test_the_checksum_is_that_of_the_rfc():
    """RFC 3720, B.4: 32 bytes of zeros give aa 36 91 8a, and 0 … 31 give 4e 79 dd 46 (lowest byte first)."""
    assert crc32c(bytes(32)).to_bytes(4, "little").hex() == "aa36918a"
    assert crc32c(bytes(range(32))).to_bytes(4, "little").hex() == "4e79dd46"
    for data in (b"", b"a", bytes(range(256)) * 5):
        assert masked_crc(data) == masked_crc32c(data)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_of_tensorflow_are_read(vocabulary, tmp_path):
    done = import_tfrecords([DATA / "instances.tfrecord", DATA / "instances.tfrecord.gz"], vocabulary, tmp_path / "out")
    assert read_shards(tmp_path / "out") == TOLD["rows"] * 2
    assert [(f["file"], f["rows"]) for f in done["files"]] == [("instances.tfrecord", 8), ("instances.tfrecord.gz", 8)]
    assert json.loads((tmp_path / "out" / "imported.json").read_text(encoding="utf-8")) == done
    table = pq.read_table(tmp_path / "out" / done["files"][0]["shard"])
    assert table.schema == shard_schema(30522, ShardsSection())
    assert table["documents"].to_pylist() == [[]] * 8


def test_a_folder_stands_for_its_files(vocabulary, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("part-2", "part-1"):
        (folder / name).write_bytes((DATA / "instances.tfrecord").read_bytes())
    (folder / "lineage.json").write_text("{}", encoding="utf-8")
    done = import_tfrecords([folder], vocabulary, tmp_path / "out")
    assert [file["file"] for file in done["files"]] == ["part-1", "part-2"]
    with pytest.raises(StoreError, match="exists already"):
        import_tfrecords([folder], vocabulary, tmp_path / "out")


def test_what_a_trainer_would_not_see_is_left_out(vocabulary, tmp_path):
    """Masks of weight 0 may stand anywhere, and say nothing."""
    fields = padded(TOLD["rows"][0], 128, 20)
    fields["masked_lm_weights"][3] = 0.0
    (tmp_path / "in").write_bytes(framed(content(fields)))
    import_tfrecords([tmp_path / "in"], vocabulary, tmp_path / "out")
    (row,) = read_shards(tmp_path / "out")
    positions, ids = TOLD["rows"][0]["masked_lm_positions"], TOLD["rows"][0]["masked_lm_ids"]
    assert row["masked_lm_positions"] == positions[:3] + positions[4:]
    assert row["masked_lm_ids"] == ids[:3] + ids[4:]


GOOD = framed(content(padded(TOLD["rows"][0], 128, 20)))


def changed(**fields) -> bytes:
    """A record with other values in some fields; None leaves the field out."""
    made = {**padded(TOLD["rows"][0], 128, 20), **fields}
    return framed(content({name: values for name, values in made.items() if values is not None}))


def at(field, place, value):
    values = padded(TOLD["rows"][0], 128, 20)[field]
    values[place] = value
    return {field: values}


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


HUGE = struct.pack("<Q", 2**60)
BAD = {
    "length crc": (flipped(GOOD, 9), "checksum of the length"),
    "length": (flipped(GOOD, 1), "checksum of the length"),
    "data crc": (flipped(GOOD, len(GOOD) - 1), "checksum of the content"),
    "data": (flipped(GOOD, 100), "checksum of the content"),
    "2^60": (HUGE + struct.pack("<I", masked_crc32c(HUGE)) + b"x" * 50, "a record of 1152921504606846976 bytes"),
    "cut in the head": (GOOD[:7], "ends within the head"),
    "cut in the content": (GOOD[:300], "ends within the"),
    "cut in the last checksum": (GOOD[:-1], "ends within the"),
    "no Example": (framed(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "no tf.train.Example"),
    "varint of 11 bytes": (framed(b"\x08" + b"\x80" * 10 + b"\x01"), "no tf.train.Example"),
    "empty": (framed(b""), "the fields are none"),
    "a field missing": (changed(segment_ids=None), "the fields are"),
    "a field more": (changed(extra=[1]), "'extra'"),
    "weights as integers": (changed(masked_lm_weights=[1] * 20), "masked_lm_weights is int64_list, not float_list"),
    "ids as floats": (changed(input_ids=[1.0] * 128), "input_ids is float_list"),
    "mask shorter": (changed(input_mask=[1] * 127), "differ in length"),
    "weights shorter": (changed(masked_lm_weights=[1.0] * 19), "differ in length"),
    "two labels": (changed(next_sentence_labels=[0, 1]), "one number"),
    "label 2": (changed(next_sentence_labels=[2]), "0 or 1"),
    "id negative": (changed(**at("input_ids", 5, -1)), "input_ids: ids must be 0 to 30521"),
    "id of 64 bits": (changed(**at("input_ids", 5, 2**63 - 1)), "input_ids: ids must be 0 to 30521"),
    "id beyond": (changed(**at("input_ids", 5, 30522)), "input_ids: ids must be 0 to 30521"),
    "masked id beyond": (changed(**at("masked_lm_ids", 2, 30522)), "masked_lm_ids: ids must be 0 to 30521"),
    "masked id negative": (changed(**at("masked_lm_ids", 2, -7)), "masked_lm_ids: ids must be 0 to 30521"),
    "first token": (changed(**at("input_ids", 0, 5)), "the first token is not"),
    "last token": (changed(**at("input_ids", 127, 5)), "the last token is not"),
    "hole in the mask": (changed(**at("input_mask", 60, 0)), "ones, then zeros"),
    "mask of 2": (changed(**at("input_mask", 60, 2)), "ones, then zeros"),
    "no tokens": (changed(input_mask=[0] * 128), "no tokens"),
    "segments": (changed(**at("segment_ids", 5, 1)), "zeros, then ones"),
    "segment 2": (changed(**at("segment_ids", 127, 2)), "zeros, then ones"),
    "weight of a half": (changed(**at("masked_lm_weights", 2, 0.5)), "0 or 1"),
    "weight nan": (changed(**at("masked_lm_weights", 2, float("nan"))), "0 or 1"),
    "position twice": (changed(masked_lm_positions=[7] * 20), "must rise"),
    "position beyond": (changed(**at("masked_lm_positions", 18, 128)), "within the tokens"),
    "position negative": (changed(**at("masked_lm_positions", 0, -1)), "within the tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_refused_by_name_number_and_place(name, vocabulary, tmp_path):
    bad, what = BAD[name]
    path = tmp_path / "instances"
    path.write_bytes(GOOD * 2 + bad)
    with pytest.raises(DataError, match=what) as error:
        import_tfrecords([path], vocabulary, tmp_path / "out")
    assert f"{path}, record 3 (byte {2 * len(GOOD)})" in error.value.what
    assert error.value.todo
    assert [each.name for each in tmp_path.iterdir()] == ["instances"]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_content_with_right_checksums_is_rows_or_an_error_to_act_on(vocabulary, tmp_path_factory, data):
    whole = bytearray(content(padded(TOLD["rows"][1], 16, 3)))
    for _ in range(data.draw(st.integers(1, 4))):
        place, gone = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 3))
        whole[place : place + gone] = data.draw(st.binary(max_size=6))
    folder = tmp_path_factory.mktemp("any")
    (folder / "in").write_bytes(framed(bytes(whole)))
    try:
        done = import_tfrecords([folder / "in"], vocabulary, folder / "out")
    except DataError as error:
        assert f"{folder / 'in'}, record 1 (byte 0)" in error.what
        assert [each.name for each in folder.iterdir()] == ["in"]
    else:
        assert done["rows"] == len(read_shards(folder / "out")) == 1


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.gz", GOOD, "can't be unpacked"),
        ("a.gz", gzip.compress(GOOD, mtime=0)[:-30], "can't be unpacked"),
        ("a.gz", gzip.compress(GOOD, mtime=0)[:40] + b"\xff" * 40, "can't be unpacked"),
        ("a", gzip.compress(GOOD, mtime=0), "end in .gz"),
        ("a", b"", "no records"),
        ("a", b"PAR1" * 100, "no TFRecord file"),
    ],
    ids=["cut", "damaged", "gzipped", "unnamed gzip", "empty", "Parquet"],
)
def test_a_file_that_is_none_is_refused(name, data, what, vocabulary, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=what) as error:
        import_tfrecords([tmp_path / name], vocabulary, tmp_path / "out")
    assert str(tmp_path / name) in error.value.what
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_what_is_not_there_is_named(vocabulary, tmp_path):
    with pytest.raises(DataError, match="nothing does not exist"):
        import_tfrecords([tmp_path / "nothing"], vocabulary, tmp_path / "out")
    (tmp_path / "export" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="but folders: train"):
        import_tfrecords([tmp_path / "export"], vocabulary, tmp_path / "out")
    with pytest.raises(DataError, match="can't be read as a vocabulary"):
        import_tfrecords([DATA / "instances.tfrecord"], tmp_path / "no.txt", tmp_path / "out")


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("length", "masks"), [(128, 20), (512, 80), (130, 20)])
def test_protobuf_reads_what_we_write(length, masks, tmp_path):
    shards = write_shards(tmp_path / "train", TOLD["rows"])
    assert export_tfrecords(shards, tmp_path / "out", length, masks) == {"shard-0.tfrecord": 8}
    assert parsed(tmp_path / "out" / "shard-0.tfrecord") == [padded(row, length, masks) for row in TOLD["rows"]]


def test_a_position_beyond_127_takes_two_bytes(tmp_path):
    row = {
        "input_ids": [CLS, *range(200, 600), SEP],
        "segment_ids": [0] * 402,
        "masked_lm_positions": [127, 128, 400],
        "masked_lm_ids": [1, 2, 30521],
        "next_sentence_label": 0,
    }
    export_tfrecords(write_shards(tmp_path / "train", [row]), tmp_path / "out", 512, 80)
    assert parsed(tmp_path / "out" / "shard-0.tfrecord") == [padded(row, 512, 80)]


def test_a_large_vocabulary_is_written_too(tmp_path):
    row = {**TOLD["rows"][1], "input_ids": [CLS, 119_546, SEP, 70_000, SEP], "masked_lm_ids": [119_546]}
    export_tfrecords(write_shards(tmp_path / "train", [row], size=119_547), tmp_path / "out", 16, 3)
    assert parsed(tmp_path / "out" / "shard-0.tfrecord") == [padded(row, 16, 3)]


def test_rows_without_a_sentence_task_have_one_segment_and_label_0(tmp_path):
    rows = [{**row, "segment_ids": [0] * len(row["input_ids"]), "next_sentence_label": 0} for row in TOLD["rows"]]
    shards = write_shards(tmp_path / "train", rows, ShardsSection(sentence_task="none"))
    export_tfrecords(shards, tmp_path / "out", 128, 20)
    assert parsed(tmp_path / "out" / "shard-0.tfrecord") == [padded(row, 128, 20) for row in rows]


def test_what_does_not_fit_is_refused(tmp_path):
    shards = write_shards(tmp_path / "train", TOLD["rows"])
    with pytest.raises(DataError, match=r"row 0: 128 tokens, but records shall hold 127"):
        export_tfrecords(shards, tmp_path / "out", 127, 20)
    with pytest.raises(DataError, match=r"row 2: 20 masks, but records shall hold 19"):
        export_tfrecords(shards, tmp_path / "out", 128, 19)
    dynamic = write_shards(tmp_path / "dynamic", TOLD["rows"], ShardsSection(masking="dynamic"))
    with pytest.raises(DataError, match="stores no masks"):
        export_tfrecords(dynamic, tmp_path / "out", 128, 20)


@st.composite
def rows(draw):
    ids = st.integers(103, 30521)
    a = draw(st.lists(ids, min_size=1, max_size=12))
    b = draw(st.lists(ids, min_size=1, max_size=12))
    places = [p for p in range(1, len(a) + len(b) + 2) if p != len(a) + 1]
    positions = sorted(draw(st.lists(st.sampled_from(places), max_size=6, unique=True)))
    return {
        "input_ids": [CLS, *a, SEP, *b, SEP],
        "segment_ids": [0] * (len(a) + 2) + [1] * (len(b) + 1),
        "masked_lm_positions": positions,
        "masked_lm_ids": draw(st.lists(st.integers(0, 30521), min_size=len(positions), max_size=len(positions))),
        "next_sentence_label": draw(st.integers(0, 1)),
    }


@settings(max_examples=30, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=9))
def test_there_and_back_is_the_identity(vocabulary, tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("round")
    export_tfrecords(write_shards(folder / "train", made), folder / "tfrecords", 32, 6)
    import_tfrecords([folder / "tfrecords"], vocabulary, folder / "back")
    assert read_shards(folder / "back") == made


def test_many_rows_come_back_in_row_groups(vocabulary, tmp_path):
    """More than one chunk of the writer, of the reader, and more than one row group."""
    made = (TOLD["rows"] * 2500)[:17_000]
    shards = write_shards(tmp_path / "train", made, group=5000)
    export_tfrecords(shards, tmp_path / "tfrecords", 128, 20)
    done = import_tfrecords([tmp_path / "tfrecords"], vocabulary, tmp_path / "back")
    assert done["rows"] == 17_000
    path = tmp_path / "back" / done["files"][0]["shard"]
    assert pq.read_metadata(path).num_row_groups == 2
    names = ["input_ids", "token_type_start", "masked_lm_positions", "masked_lm_ids", "next_sentence_label"]
    assert pq.read_table(path, columns=names).equals(pq.read_table(shards / "shard-0.parquet", columns=names))


MEASURE = """
import sys
from pathlib import Path
from pipeline.sharding.tfrecord_export import export_tfrecords
from pipeline.sharding.tfrecord_import import import_tfrecords
what, *paths = sys.argv[1:]
source, *vocabulary, out = map(Path, paths)
export_tfrecords(source, out, 128, 20) if what == "export" else import_tfrecords([source], vocabulary[0], out)
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])
"""


def peak(*arguments) -> int:
    """KiB of memory at most of a process that exports or imports. Arrow has one thread: how many of several hold a buffer at
    once depends on what else the machine does."""
    command = [sys.executable, "-c", MEASURE, *map(str, arguments)]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=alone).stdout)


@pytest.mark.slow
def test_memory_does_not_follow_the_rows(vocabulary, tmp_path):
    """16,000 rows in each of one file or of six, and six times as many in one: the peak stays within 25 %, both ways."""
    peaks = {"export": [], "import": []}
    for name, rows, number in (("small", 16_000, 1), ("files", 16_000, 6), ("large", 96_000, 1)):
        shards = write_shards(tmp_path / name, (TOLD["rows"] * (rows // 8)), group=8000)
        for copy in range(1, number):
            shutil.copy(shards / "shard-0.parquet", shards / f"shard-{copy}.parquet")
        peaks["export"].append(peak("export", shards, tmp_path / f"{name}-tfrecords"))
        peaks["import"].append(peak("import", tmp_path / f"{name}-tfrecords", vocabulary, tmp_path / f"{name}-back"))
    for found in peaks.values():
        assert max(found) < 1.25 * found[0], peaks


def test_a_packed_record_of_100_megabytes_is_refused_before_it_is_unpacked(vocabulary, tmp_path):
    """A gzip bomb: a hundred kilobytes whose first record says that it has 100 MB."""
    head = struct.pack("<Q", 100_000_000)
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        file.write(head + struct.pack("<I", masked_crc32c(head)) + bytes(100_000_000))
    assert (tmp_path / "bomb.gz").stat().st_size < 200_000
    with pytest.raises(DataError, match="a record of 100000000 bytes"):
        import_tfrecords([tmp_path / "bomb.gz"], vocabulary, tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["bomb.gz"]
