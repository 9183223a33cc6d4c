"""Reads shards with pyarrow, Polars and DuckDB and compares values, dtypes and shapes with what was written.

Run by the test `shards::peers` with the path of a JSON file that lists the files, the one-line decodes and the tensors.
"""

import datetime
import decimal
import json
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = [f"class/{row:05}.jpg" for row in range(7)]
# Of the columns that every tool has a type for.
COMMON = {
    "_key": KEYS,
    "_error": [None, "cut short", None, None, None, "cut short", None],
    "count": [1, None, -(2**63), None, None, 2**63 - 1, None],
    "small": [0, 1, 255, 3, 4, 5, 6],
    "title": ["one", None, "one", "", "three", None, None],
    "label": ["cat", "dog", None, "dog", "cat", None, "cat"],
    "blob": [b"", b"\1" * 3, None, b"\3" * 9, b"\4" * 12, None, b"\6" * 18],
    "pairs": [
        [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}],
        None,
        [],
        [{"a": 7, "b": None}],
        None,
        None,
        [{"a": None, "b": "z"}],
    ],
}
# Of those that pyarrow has types for, by type.
KINDS = {
    "flag": (pa.bool_(), [True, None, False, None, None, None, True]),
    "price": (pa.decimal128(20, 3), [decimal.Decimal("12.345"), None, decimal.Decimal("-99999999999999999.999")] + [None] * 4),
    "wide": (pa.decimal256(50, 2), [decimal.Decimal("-1.25"), None, decimal.Decimal("123456789012345678901234567890.12")] + [None] * 4),
    "day": (pa.date32(), [datetime.date(2024, 2, 29)] + [None] * 6),
    "second": (pa.timestamp("s"), [datetime.datetime(1969, 12, 31, 23, 59, 59)] + [None] * 6),
    "clock": (pa.time32("s"), [datetime.time(0, 0, 1)] + [None] * 6),
    "text": (pa.string(), ["ä", None, None, "", None, None, "last"]),
    "deep": (None, [[[1, None], None, []], None, [], [[2], [3, 4]], None, None, [[None]]]),
    "two": (pa.list_(pa.float64(), 2), [[1.5, 2.5], None, [None, 0.0], None, None, None, None]),
    "code": (pa.binary(3), [b"\0\0\0", b"\1\1\1", None, b"\3\3\3", b"\4\4\4", None, b"\6\6\6"]),
    "nothing": (pa.null(), [None] * 7),
    "labels": (None, [["cat", "dog"], [], [None], ["dog"], ["cat", None, "cat"], [], []]),
    "map": (None, [[], [("k0", 1)], None, [], [("k0", 4)], None, []]),
}


def check_tensors(found, want, what):
    assert len(found) == len(want["rows"]), what
    for row, (value, expected) in enumerate(zip(found, want["rows"])):
        if expected is None:
            assert value is None, (what, row)
            continue
        assert value.dtype == np.dtype(want["dtype"]), (what, row, value.dtype)
        assert list(value.shape) == expected["shape"], (what, row, value.shape)
        assert value.tobytes().hex() == expected["bytes"], (what, row)


def check_kinds(table, path, container, what):
    for name, (kind, values) in KINDS.items():
        column = table[name]
        # Parquet has no seconds.
        if container == "parquet":
            kind = {"second": pa.timestamp("ms"), "clock": pa.time32("ms")}.get(name, kind)
        if kind is not None:
            assert column.type == kind, (what, name, column.type)
        assert column.to_pylist() == values, (what, name, column.to_pylist())
    assert table["zoned"].type == pa.timestamp("us", tz="Europe/Berlin"), what
    assert table["took"].type == pa.duration("ms"), what
    assert table["took"].to_pylist()[1] == datetime.timedelta(seconds=1), what
    assert table["half"].type == pa.float16(), what
    assert table.schema.field("_key").nullable is False, what
    if container == "arrow":
        image = table["image"]
        assert isinstance(image.type, pa.FixedShapeTensorType), (what, image.type)
        assert image.type.shape == [4, 5, 3] and image.type.value_type == pa.uint8(), what
        feature = table["feature"].combine_chunks().to_numpy_ndarray()
        assert feature.shape == (7, 2, 2) and feature.dtype == np.float32, what
    else:
        assert table["image"].type == pa.large_binary(), what
        assert table["ragged_shape"].type.value_type == pa.int32(), what
        tensors = json.loads(pq.read_metadata(path).metadata[b"forebay.tensors"])
        assert tensors["image"] == {"dtype": "uint8", "shape": [4, 5, 3]}, tensors
        assert tensors["ragged"] == {"dtype": "int16", "shape": [None, None, 3], "shapes": "ragged_shape"}, tensors


def main():
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    checked = 0
    for case in cases["files"]:
        encoding, container = case["encoding"], case["container"]
        for hint in case["hints"]:
            what = (encoding, hint["consumer"], hint["column"], hint["hint"])
            names = {"np": np, "pa": pa, "pq": pq, "pl": pl, "duckdb": duckdb, "path": case["common"]}
            try:
                found = eval(hint["hint"], names)
            except Exception as error:
                raise AssertionError(what) from error
            name = hint["column"]
            if name in cases["tensors"]:
                check_tensors(found, cases["tensors"][name], what)
            else:
                assert list(found) == COMMON[name], (what, found)
            checked += 1
        if container == "arrow":
            table = pa.ipc.open_file(pa.memory_map(case["kinds"])).read_all()
        else:
            table = pq.read_table(case["kinds"])
        table.validate(full=True)
        check_kinds(table, case["kinds"], container, encoding)
        checked += 1
    print(f"ok: {checked} checks")


main()
