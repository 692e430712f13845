"""Models, vocabularies, records and tables that somebody built to do harm: numbers 40 to 43."""

import json
import os
import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.crc32c import masked_crc32c
from tests.hostile.case import Case, kept, put, refused
from tests.hostile.doors import VOCABULARY
from tests.hostile.driver import Maker, Making
from tests.hostile.xml import SENTENCE

ORIGINAL = Path(__file__).parents[1] / "data" / "original_bert"
WEIGHTS = "model.safetensors"


class Program:
    """What makes a file when it is unpickled by a reader that trusts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


# ── safetensors, by hand ─────────────────────────────────────────────────────────────────────────────────────────────

Header = dict[str, Any]


def parts(data: bytes) -> tuple[Header, bytes]:
    """Header and values of a file (https://github.com/huggingface/safetensors, "Format")."""
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: Header | bytes, values: bytes) -> bytes:
    """The file of a header and values."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def changed(change: Callable[[Header, bytearray], Header | bytes | None]) -> Callable[[bytes], bytes]:
    """The file with a header, or values, that `change` has changed or replaced."""

    def make(data: bytes) -> bytes:
        header, values = parts(data)
        new = bytearray(values)
        return joined(change(header, new) or header, bytes(new))

    return make


def _tensors(header: Header) -> list[str]:
    return [name for name in header if name != "__metadata__"]


def _overlap(header: Header, _: bytearray) -> None:
    names = _tensors(header)
    same = next((a, b) for a in names for b in names if a < b and header[a]["shape"] == header[b]["shape"])
    header[same[0]]["data_offsets"] = header[same[1]]["data_offsets"]


def _gap(header: Header, values: bytearray) -> None:
    values += bytes(64)
    last = max(_tensors(header), key=lambda name: header[name]["data_offsets"][1])
    header[last]["data_offsets"] = [each + 64 for each in header[last]["data_offsets"]]


def _not_a_number(value: float) -> Callable[[Header, bytearray], None]:
    def change(header: Header, values: bytearray) -> None:
        start = next(header[name]["data_offsets"][0] for name in _tensors(header) if header[name]["dtype"] == "F32")
        values[start : start + 4] = np.float32(value).tobytes()

    return change


def _integers(header: Header, _: bytearray) -> None:
    for name in _tensors(header):
        if "word_embeddings" in name:
            header[name]["dtype"] = "I32"


def _no_such_type(header: Header, _: bytearray) -> None:
    header[_tensors(header)[0]]["dtype"] = "F128"


def _shape(header: Header, _: bytearray) -> None:
    for name in _tensors(header):
        if "word_embeddings" in name:
            header[name]["shape"] = header[name]["shape"][::-1]


def _huge_shape(header: Header, _: bytearray) -> None:
    header[_tensors(header)[0]]["shape"] = [2**31, 2**33]


def _twice(header: Header, _: bytearray) -> bytes:
    name = next(name for name in _tensors(header) if "word_embeddings" in name)
    text = json.dumps(header)
    return f"{text[:-1]}, {json.dumps(name)}: {json.dumps(header[name])}}}".encode()


def _many_entries(header: Header, _: bytearray) -> None:
    header |= {f"bert.tensor.{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(100_000)}


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _model(
    making: Making, config: Mapping[str, Any] = {}, change: Callable[[bytes], bytes] = lambda data: data
) -> None:
    """A model as transformers keeps it: real weights, with a change."""
    described = json.loads((ORIGINAL / "bert_config.json").read_text(encoding="utf-8"))
    making.put("config.json", json.dumps({"model_type": "bert", **described, **config}))
    making.put("vocab.txt", (ORIGINAL / "vocab.txt").read_bytes())
    making.put(WEIGHTS, change((ORIGINAL / "converted.safetensors").read_bytes()))


def _weights(change: Callable[[bytes], bytes]) -> Maker:
    return lambda making: _model(making, change=change)


def _config(**config: Any) -> Maker:
    return lambda making: _model(making, config)


def _pickled(name: str, beside: bool) -> Maker:
    """A program instead of weights in a file of this name; `beside`: next to real weights."""

    def make(making: Making) -> None:
        _model(making)
        if not beside:
            (making.folder / "in" / WEIGHTS).unlink()
        import torch

        torch.save({"program": Program(making.traps.ran)}, making.folder / "in" / name)

    return make


def _as_safetensors(making: Making) -> None:
    _model(making)
    making.put(WEIGHTS, pickle.dumps(Program(making.traps.ran)))


def _optimizer(making: Making) -> None:
    """A checkpoint of ours that is to be continued, with a program as its optimizer's state."""
    _model(making)
    making.put("optimizer.json", '{"optimizer": "adamw", "updates": 3, "step": 3}')
    making.put("optimizer.safetensors", pickle.dumps(Program(making.traps.ran)))


def _text(name: str, content: str | bytes) -> Maker:
    """Another content of one of the model's files of text."""

    def make(making: Making) -> None:
        _model(making)
        making.put(name, content)

    return make


def _weights_refused(name: str, change: Callable[[bytes], bytes], *words: str) -> Case:
    return Case(41, f"safetensors: {name}", "checkpoint", _weights(change), refused(*words))


def _config_refused(name: str, *words: str, **config: Any) -> Case:
    return Case(
        42, f"config.json: {name}", "checkpoint", _config(**config), refused("DataError", "config.json", *words)
    )


UNREADABLE = ("DataError", WEIGHTS, "can't be read as safetensors")
CODE = "asks for code"

# ── vocabularies, records, tables ────────────────────────────────────────────────────────────────────────────────────

WORDS = "".join(f"{token}\n" for token in VOCABULARY)


def _record(data: bytes, length: int | None = None, flip: bool = False) -> bytes:
    head = struct.pack("<Q", len(data) if length is None else length)
    crc = masked_crc32c(data) ^ flip
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", crc)


def _table(
    making: Making, column: pa.Array, name: str = "a.parquet", change: Callable[[bytes], bytes] = lambda d: d
) -> None:
    path = making.folder / "in" / name
    pq.write_table(
        pa.table({"text": column}), path, compression="NONE", use_dictionary=False, column_encoding={"text": "PLAIN"}
    )
    path.write_bytes(change(path.read_bytes()))


def _told_parquet(making: Making, column: pa.Array, plain: bool = False) -> None:
    """A file that says much more than it holds."""
    path = making.folder / "in" / "a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"text": column}), path, compression="zstd", use_dictionary=not plain, row_group_size=1 << 30
    )


def _references(count: int) -> pa.Array:
    words = pa.array(["word " * 400_000, "end"])
    return pa.DictionaryArray.from_arrays(pa.array([0] * count + [1], pa.int32()), words)


def _parquet(change: Callable[[bytes], bytes]) -> Maker:
    return lambda making: _table(making, pa.array([SENTENCE, "second"]), change=change)


def _long_value(data: bytes) -> bytes:
    """The first value says that it has 2³¹ - 1 bytes."""
    size = struct.pack("<I", len(SENTENCE))
    assert data.count(size + SENTENCE.encode()) >= 1
    return data.replace(size + SENTENCE.encode(), struct.pack("<I", 2**31 - 1) + SENTENCE.encode(), 1)


def _footer_length(data: bytes) -> bytes:
    return data[:-8] + struct.pack("<I", 2**31 - 1) + data[-4:]


def _extension(making: Making) -> None:
    """A column of pyarrow's own extension type, which older versions unpickled (CVE-2023-47248)."""
    said = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Program(making.traps.ran)),
    }
    field = pa.field("text", pa.string(), metadata=said)
    table = pa.Table.from_arrays([pa.array([SENTENCE, "second"])], schema=pa.schema([field]))
    pq.write_table(table, making.folder / "in" / "a.parquet")


def _shard(change: Callable[[pa.Table], pa.Table], patch: Callable[[bytes], bytes] = lambda d: d) -> Maker:
    """A shard of pretraining rows, changed."""

    def make(making: Making) -> None:
        from tests.model.tiny import VOCABULARY as TINY
        from tests.model.tiny import rows_of, write_rows

        folder = write_rows(making.folder / "in", rows_of(8, 16, 1), len(TINY))
        (file,) = folder.glob("*.parquet")
        pq.write_table(change(pq.read_table(file)), file, compression="NONE", use_dictionary=False)
        file.write_bytes(patch(file.read_bytes()))

    return make


def _as_extension(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("input_ids")
    said = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": "no pickle"}
    field = pa.field("input_ids", pa.list_(pa.string()), metadata=said)
    return table.set_column(index, field, pa.array([["a"]] * len(table)))


CASES: tuple[Case, ...] = (
    Case(
        40,
        "pickle with reduce call, pytorch_model.bin",
        "checkpoint",
        _pickled("pytorch_model.bin", False),
        refused("DataError", "pytorch_model.bin", "it would run posix.system; nothing of it was run"),
    ),
    Case(
        40,
        "pickle with reduce call, model.pt",
        "checkpoint",
        _pickled("model.pt", False),
        refused("DataError", "model.pt", "has no model.safetensors"),
    ),
    Case(40, "pickle with reduce call, called model.safetensors", "checkpoint", _as_safetensors, refused(*UNREADABLE)),
    *(
        Case(40, f"pickle with reduce call, {name} beside weights", "checkpoint", _pickled(name, True), kept(WEIGHTS))
        for name in ("rng_state.pth", "optimizer.pt", "training_args.bin")
    ),
    Case(
        40,
        "pickle with reduce call, called optimizer.safetensors",
        "checkpoint",
        _optimizer,
        refused("DataError", "optimizer.safetensors", "can't be read as safetensors"),
    ),
    _weights_refused("header length 2^63", lambda data: struct.pack("<Q", 2**63) + data[8:], *UNREADABLE),
    _weights_refused(
        "header length beyond the file", lambda data: struct.pack("<Q", len(data)) + data[8:], *UNREADABLE
    ),
    _weights_refused("header of 100k entries", changed(_many_entries), *UNREADABLE, "more than 1 MiB"),
    _weights_refused("header that is no JSON", lambda data: joined(b"{'a': 1}" * 9, b""), *UNREADABLE),
    _weights_refused("header nested 50k deep", lambda data: joined(b'{"a":' * 50_000, b""), *UNREADABLE),
    _weights_refused("overlap", changed(_overlap), *UNREADABLE),
    _weights_refused("gap", changed(_gap), *UNREADABLE),
    _weights_refused("NaN weights", changed(_not_a_number(float("nan"))), "check weights_finite"),
    _weights_refused("inf weights", changed(_not_a_number(float("inf"))), "check weights_finite"),
    _weights_refused("wrong dtype", changed(_integers), "DataError", WEIGHTS, "not floats"),
    _weights_refused("a dtype that there is not", changed(_no_such_type), *UNREADABLE),
    _weights_refused("wrong shape", changed(_shape), "DataError", WEIGHTS, "has shape"),
    _weights_refused("a shape of 2^64 values", changed(_huge_shape), *UNREADABLE),
    _weights_refused("duplicate keys", changed(_twice), *UNREADABLE),
    _weights_refused("cut off", lambda data: data[:-100], *UNREADABLE),
    _config_refused("auto_map", "auto_map", CODE, auto_map={"AutoModel": "evil--modeling.Evil"}),
    _config_refused("_attn_implementation_internal", CODE, _attn_implementation_internal="evil/kernel"),
    _config_refused("trust_remote_code, nested", "trust_remote_code", CODE, text_config={"trust_remote_code": True}),
    _config_refused("another model_type", "model_type is 'evil'", model_type="evil"),
    _config_refused("negative hidden size", hidden_size=-16),
    _config_refused("negative layers", num_hidden_layers=-1),
    _config_refused("10^9 layers", num_hidden_layers=10**9),
    _config_refused("hidden size 2^62", hidden_size=2**62, num_attention_heads=2**62),
    _config_refused("10^9 positions", max_position_embeddings=10**9),
    _config_refused("vocabulary of 2^31", vocab_size=2**31),
    _config_refused("negative vocabulary", "vocab_size is -5", vocab_size=-5),
    _config_refused("a size that is text", "layers", num_hidden_layers="two"),
    _config_refused("a size that is not a number", hidden_size=float("nan")),
    Case(
        42,
        "config.json: nested 100k deep",
        "checkpoint",
        _text("config.json", '{"a":' * 100_000),
        refused("DataError", "config.json"),
    ),
    Case(
        42,
        "config.json: a number of 10k digits",
        "checkpoint",
        _text("config.json", '{"hidden_size": ' + "9" * 10_000 + "}"),
        refused("DataError", "config.json"),
    ),
    Case(42, "config.json: a list", "checkpoint", _text("config.json", "[1, 2]"), refused("DataError", "config.json")),
    Case(
        42,
        "tokenizer.json: nested 100k deep",
        "checkpoint",
        _text("tokenizer.json", "[" * 100_000),
        refused("DataError", "tokenizer.json"),
    ),
    Case(
        43,
        "vocab.txt with duplicates",
        "vocabulary",
        put("vocab.txt", WORDS + "a\n"),
        refused("DataError", "vocab.txt", "'a' stands on line 6 and on line 16"),
    ),
    Case(
        43,
        "vocab.txt with a BOM and CRLF",
        "vocabulary",
        put("vocab.txt", ("\ufeff" + WORDS).replace("\n", "\r\n")),
        kept("15 tokens"),
    ),
    Case(
        43,
        "vocab.txt without [UNK]",
        "vocabulary",
        put("vocab.txt", WORDS.replace("[UNK]\n", "")),
        refused("DataError", "vocab.txt", "lacks [UNK]"),
    ),
    Case(
        43,
        "vocab.txt with a token of 10 MB",
        "vocabulary",
        put("vocab.txt", lambda: WORDS + "x" * 10_000_000 + "\n"),
        refused("DataError", "vocab.txt", "line 16"),
    ),
    Case(
        43,
        "vocab.txt of a model, with a token of 10 MB",
        "checkpoint",
        _text("vocab.txt", WORDS + "x" * 10_000_000),
        refused("DataError", "vocab.txt"),
    ),
    Case(
        43,
        "vocab.txt of one line of 200 MB",
        "vocabulary",
        put("vocab.txt", lambda: [WORDS.encode(), *(b"x" * (1 << 20) for _ in range(200))]),
        refused("DataError", "vocab.txt"),
    ),
    Case(
        43,
        "TFRecord with a wrong masked CRC",
        "tfrecord",
        put("a.tfrecord", _record(b"abc", flip=True)),
        refused("exit code 1", "a.tfrecord, record 1 (byte 0)", "checksum of the content"),
    ),
    Case(
        43,
        "TFRecord with a wrong CRC of the length",
        "tfrecord",
        put("a.tfrecord", b"\1" + _record(b"abc")[1:]),
        refused("exit code 1", "a.tfrecord, record 1", "checksum of the length"),
    ),
    Case(
        43,
        "TFRecord with length 2^60",
        "tfrecord",
        put("a.tfrecord", _record(b"abc", 2**60)),
        refused("exit code 1", "a.tfrecord, record 1", "1152921504606846976"),
    ),
    Case(
        43,
        "Parquet: a value of 2^31 bytes",
        "parquet",
        _parquet(_long_value),
        refused("DataError", "a.parquet", "can't be read as Parquet"),
    ),
    Case(
        43,
        "Parquet: a footer of 2^31 bytes",
        "parquet",
        _parquet(_footer_length),
        refused("DataError", "a.parquet", "can't be read as Parquet"),
    ),
    Case(
        43,
        "Parquet: cut off",
        "parquet",
        _parquet(lambda data: data[:-20]),
        refused("DataError", "a.parquet", "can't be read as Parquet"),
    ),
    Case(
        43,
        "Parquet: 94 kB that refer 2,500 times to a text of 2 MB",
        "parquet",
        lambda making: _told_parquet(making, _references(2500)),
        refused("DataError", "a.parquet", "as bombs do"),
    ),
    Case(
        43,
        "Parquet: 600 MB of one letter in a page",
        "parquet",
        lambda making: _told_parquet(making, pa.concat_arrays([pa.array(["a" * (30 << 20)])] * 20), plain=True),
        refused("DataError", "a.parquet", "as bombs do"),
    ),
    Case(
        43,
        "Parquet: 20 million rows of nothing",
        "parquet",
        lambda making: _told_parquet(making, pa.nulls(20_000_000, pa.string())),
        refused("DataError", "a.parquet", "as bombs do"),
    ),
    Case(
        43,
        "CSV: 300,000 columns",
        "csv",
        put("a.csv", lambda: "text," + ",".join(f"c{n}" for n in range(300_000))),
        refused("DataError", "a.csv", "300,001 columns"),
    ),
    Case(
        43,
        "vocab.txt of 3 million tokens",
        "vocabulary",
        put("vocab.txt", lambda: WORDS + "".join(f"t{n}\n" for n in range(3_000_000))),
        refused("DataError", "vocab.txt", "more than 1,000,000 lines"),
    ),
    Case(43, "Parquet: pyarrow's pickled extension type", "parquet", _extension, kept(SENTENCE)),
    Case(
        43,
        "Parquet: a column of integers as text",
        "parquet",
        lambda making: _table(making, pa.array([1, 2]), change=lambda d: d),
        refused("DataError", "a.parquet", "is no text"),
    ),
    Case(
        43,
        "shards: an extension type of text as input_ids",
        "shards",
        _shard(_as_extension),
        refused("DataError", "input_ids"),
    ),
    Case(
        43,
        "shards: cut off",
        "shards",
        _shard(lambda table: table, lambda data: data[: len(data) // 2]),
        refused("DataError", ".parquet"),
    ),
)
