"""Reads stored stages with pyarrow, DuckDB and Polars, without Forebay: the files that `forebay files` lists and the
directory that `forebay export` writes, with the lines that `forebay show` prints, and compares values, dtypes and shapes.

Run by the test `consumers` with the path of a JSON file: what each stage holds, and a case for each stage and encoding.
"""

import glob
import json
import os
import sys

import duckdb
import numpy as np
import PIL.Image
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

NAMES = {"np": np, "pa": pa, "pq": pq, "pl": pl, "duckdb": duckdb}
# Columns that need no decoding.
PLAIN = ["_key", "_error", "label"]
FIXED = {"index": {"image": [24, 32, 3]}, "normalize": {"image": [24, 32, 3], "scaled": [24, 32, 3]}, "decode": {}}


def check_column(found, want, what):
    if not isinstance(want, dict):
        assert list(found) == want, (what, found)
        return
    assert len(found) == len(want["rows"]), what
    for row, (value, expected) in enumerate(zip(found, want["rows"])):
        if expected is None:
            assert value is None, (what, row)
            continue
        assert value.dtype == np.dtype(want["dtype"]), (what, row, value.dtype)
        assert list(value.shape) == expected["shape"], (what, row, value.shape)
        assert value.tobytes().hex() == expected["bytes"], (what, row)


def check_hints(case, files, expected, where):
    """Every line of `show`, file by file."""
    checked = 0
    for column in case["columns"]:
        for tool, line in column["decode"].items():
            what = (case["stage"], case["container"], where, tool, line)
            found = []
            try:
                names = {}
                exec(case["imports"][tool], names)
                for path in files:
                    found += list(eval(line, {**names, "path": path}))
            except Exception as error:
                raise AssertionError(what) from error
            check_column(found, expected[column["name"]], what)
            checked += 1
    tools = {tool for column in case["columns"] for tool in column["decode"]}
    assert tools == set(case["imports"]) == {"pyarrow", "polars"} | ({"duckdb"} if case["container"] == "parquet" else set()), tools
    return checked


def check_tables(case, expected):
    """All files together: what `files --as` prints, and globs over the exported directory."""
    directory, container = case["directory"], case["container"]
    extension = {"arrow": "arrow", "parquet": "parquet"}[container]
    pattern = os.path.join(directory, f"part-*-of-{len(case['files']):05}.{extension}")
    names = sorted(glob.glob(pattern))
    assert len(names) == len(case["files"]) == len(os.listdir(directory)), (names, case["files"])
    for exported, stored in zip(names, case["files"]):
        assert os.path.samefile(exported, stored), (exported, stored)

    tables = {
        "files --as polars": eval(case["polars"], NAMES).collect(),
        "polars glob": (pl.scan_parquet if container == "parquet" else pl.scan_ipc)(pattern).collect(),
        "pyarrow dataset": pa.dataset.dataset(directory, format="parquet" if container == "parquet" else "ipc").to_table(),
    }
    if container == "parquet":
        assert case["duckdb"] is not None
        tables["files --as duckdb"] = duckdb.sql(case["duckdb"].strip())
        tables["duckdb glob"] = duckdb.sql(f"SELECT * FROM '{pattern}'")
        tables["pyarrow read_table"] = pq.read_table(directory)
    names = [c["name"] for c in case["columns"]]
    for what, table in tables.items():
        if isinstance(table, duckdb.DuckDBPyRelation):
            columns = dict(zip(table.columns, map(list, zip(*table.fetchall()))))
        elif isinstance(table, pl.DataFrame):
            columns = {name: table[name].to_list() for name in table.columns}
        else:
            columns = {name: table[name].to_pylist() if name in PLAIN else None for name in table.column_names}
        extra = [f"{n}_shape" for n in names if container == "parquet" and f"{n}_shape" in columns]
        assert sorted(columns) == sorted(names + extra), (what, sorted(columns))
        for name in PLAIN:
            assert columns[name] == expected[name], (what, name, columns[name])
    return len(tables)


def check_types(case):
    """What each file says of itself."""
    for path in case["files"]:
        if case["container"] == "parquet":
            schema = pq.read_schema(path)
            tensors = json.loads(pq.read_metadata(path).metadata[b"forebay.tensors"])
            for name, shape in FIXED[case["stage"]].items():
                assert schema.field(name).type == pa.large_binary(), schema
                assert tensors[name]["shape"] == shape, tensors
                assert f"{name}_shape" not in schema.names, schema
            if case["stage"] == "decode":
                assert tensors["image"] == {"dtype": "uint8", "shape": [None, None, 3], "shapes": "image_shape"}, tensors
        else:
            with pa.memory_map(path) as file:
                schema = pa.ipc.open_file(file).schema
            for name, shape in FIXED[case["stage"]].items():
                kind = schema.field(name).type
                assert isinstance(kind, pa.FixedShapeTensorType) and kind.shape == shape, kind
                assert kind.value_type == (pa.float32() if name == "scaled" else pa.uint8()), kind
        assert schema.field("_key").type == pa.large_string(), schema
        assert schema.field("label").type == (pa.large_string() if case["stage"] == "decode" else pa.int64()), schema


def check_pixels(expected, photos):
    """The expected values themselves: decoded pictures are Pillow's."""
    failed = 0
    for key, error, image in zip(expected["_key"], expected["_error"], expected["image"]["rows"]):
        if error is not None:
            assert (key, image) == ("owl/bad.jpg", None) and error.startswith("image.decode: "), (key, error)
            failed += 1
            continue
        pixels = np.asarray(PIL.Image.open(os.path.join(photos, key)).convert("RGB"))
        assert list(pixels.shape) == image["shape"] and pixels.tobytes().hex() == image["bytes"], key
    assert failed == 1 and len(expected["_key"]) == 21, failed


def check_scaled(expected):
    """Floats are (x / 255 - mean) / std of the pixels beside them."""
    mean, std = np.float32([0.5, 0.4, 0.3]), np.float32([0.25, 0.25, 0.5])
    for image, scaled in zip(expected["image"]["rows"], expected["scaled"]["rows"]):
        if image is None:
            assert scaled is None
            continue
        pixels = np.frombuffer(bytes.fromhex(image["bytes"]), "uint8").reshape(image["shape"])
        floats = np.frombuffer(bytes.fromhex(scaled["bytes"]), "float32").reshape(scaled["shape"])
        assert np.array_equal((pixels / np.float32(255) - mean) / std, floats)


def main():
    with open(sys.argv[1]) as file:
        given = json.load(file)
    check_pixels(given["expected"]["decode"], given["photos"])
    check_scaled(given["expected"]["normalize"])
    classes = ["cat", "dog", "owl"]
    index = given["expected"]["index"]
    for key, error, label in zip(index["_key"], index["_error"], index["label"]):
        assert label == (classes.index(key.split("/")[0]) if error is None else None), (key, label)
    checked = 0
    for case in given["cases"]:
        expected = given["expected"][case["stage"]]
        exported = sorted(os.path.join(case["directory"], name) for name in os.listdir(case["directory"]))
        checked += check_hints(case, case["files"], expected, "files")
        checked += check_hints(case, exported, expected, "export")
        checked += check_tables(case, expected)
        check_types(case)
    print(f"ok: {checked} checks")


main()
