#!/usr/bin/env python3
"""Independent reference of canonical.md, keys.md and heads.md: the standard library only, simple before fast.

    python3 formats/reference.py        checks vectors/canonical.json, vectors/keys.json, and examples/ against schemas/

Exits with 1 and names what differs.
"""

import copy
import json
import re
import struct
import sys
from pathlib import Path

from blake3_reference import blake3

HERE = Path(__file__).parent


# canonical.md


def encode(value):
    if value is None:
        return b"\0"
    if value is False or value is True:
        return b"\2" if value else b"\1"
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if isinstance(value, int):
        return b"\3" + struct.pack(">q", value) if value < 2**63 else b"\4" + struct.pack(">Q", value)
    if isinstance(value, float):
        return b"\5" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\6" + text(value)
    if isinstance(value, list):
        return b"\7" + struct.pack(">Q", len(value)) + b"".join(map(encode, value))
    fields = sorted((key.encode(), item) for key, item in value.items())
    items = (encode(key.decode()) + encode(item) for key, item in fields)
    return b"\x08" + struct.pack(">Q", len(value)) + b"".join(items)


def text(value):
    data = value.encode()
    return struct.pack(">Q", len(data)) + data


def message(domain, value):
    return b"forebay/v1/" + domain.encode() + b"\0" + encode(value)


def key(domain, value):
    return blake3(message(domain, value))


# keys.md


def shard_key(recipe, entries):
    def place(entry):
        own_digest = entry["identity"].startswith("content:") and entry["range"] and entry["range"][0] == "bytes"
        return None if own_digest else entry["range"]

    return key("shard", [recipe, [[e["key"], e["identity"], place(e)] for e in entries]])


def snapshot_id(entries):
    fields = ("key", "file", "identity", "range", "partition")
    return key("snapshot", [[entry[field] for field in fields] for entry in entries])


def order_id(entries, rows):
    entries = [[e["key"], e["range"], e["partition"]] for e in entries]
    return key("order", [entries, [[r["partition"], r["rows"], r["row_map"]] for r in rows]])


# JSON Schema, as far as schemas/ use it.

TYPES = {
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
WORDS = {"$schema", "$defs", "title", "description"}


def problems(value, schema, root, at="$"):
    """Yields what is wrong; a word of JSON Schema that isn't known here is an error."""
    for word, rule in schema.items():
        if word in WORDS:
            continue
        if word == "$ref":
            yield from problems(value, root["$defs"][rule.removeprefix("#/$defs/")], root, at)
        elif word == "type":
            if not any(TYPES[name](value) for name in ([rule] if isinstance(rule, str) else rule)):
                yield f"{at}: expected {rule}"
        elif word == "const":
            if value != rule:
                yield f"{at}: expected {rule}"
        elif word == "enum":
            if value not in rule:
                yield f"{at}: expected one of {rule}"
        elif word == "anyOf":
            if all(list(problems(value, one, root, at)) for one in rule):
                yield f"{at}: expected any of {rule}"
        elif word in ("minimum", "maximum"):
            if TYPES["number"](value) and (value < rule if word == "minimum" else value > rule):
                yield f"{at}: {word} is {rule}"
        elif word == "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                yield f"{at}: expected {rule}"
        elif word == "items":
            for number, item in enumerate(value if isinstance(value, list) else []):
                yield from problems(item, rule, root, f"{at}[{number}]")
        elif word == "required":
            if isinstance(value, dict):
                yield from (f"{at}: {name} is missing" for name in rule if name not in value)
        elif word == "properties":
            for name, item in (value if isinstance(value, dict) else {}).items():
                if name in rule:
                    yield from problems(item, rule[name], root, f"{at}.{name}")
        elif word == "additionalProperties":
            for name, item in (value if isinstance(value, dict) else {}).items():
                if name not in schema.get("properties", {}):
                    if rule is False:
                        yield f"{at}: unknown {name}"
                    else:
                        yield from problems(item, rule, root, f"{at}.{name}")
        else:
            raise ValueError(f"{word} in a schema")


# What is checked.


def check(failures, name, expected, found):
    if expected != found:
        failures.append(f"{name}: expected {expected}, found {found}")


def check_vectors(failures):
    for number, case in enumerate(json.loads((HERE / "vectors/canonical.json").read_text())):
        check(failures, f"canonical.json, case {number}", case["digest"], key(case["domain"], case["value"]))
    vectors = json.loads((HERE / "vectors/keys.json").read_text())
    for case in vectors["recipes"]:
        check(failures, "recipe", case["key"], key("recipe", case["document"]))
    for number, case in enumerate(vectors["shards"]):
        check(failures, f"shard {number}", case["key"], shard_key(case["recipe"], case["entries"]))
    for number, case in enumerate(vectors["snapshots"]):
        check(failures, f"snapshot {number}", case["id"], snapshot_id(case["entries"]))
    for number, case in enumerate(vectors["orders"]):
        check(failures, f"order {number}", case["id"], order_id(case["entries"], case["rows"]))


def check_text(failures):
    """The worked example of canonical.md: a value, its message and its digest."""
    page = (HERE / "canonical.md").read_text()
    value, data, digest = (re.search(rf"^{word}: *(.+)$", page, re.MULTILINE)[1] for word in ("value", "bytes", "digest"))
    found = message("row", json.loads(value))
    check(failures, "canonical.md, bytes", data.replace(" ", ""), found.hex())
    check(failures, "canonical.md, digest", digest, blake3(found))


def check_examples(failures):
    examples = sorted((HERE / "examples").glob("*.json"))
    schemas = {path.name.removesuffix(".schema.json") for path in (HERE / "schemas").iterdir()}
    check(failures, "schemas with an example", sorted(schemas), sorted({path.stem.split("-")[0] for path in examples}))
    for path in examples:
        schema = json.loads((HERE / f"schemas/{path.stem.split('-')[0]}.schema.json").read_text())
        document = json.loads(path.read_text())
        failures += [f"{path.name}: {problem}" for problem in problems(document, schema, schema)]
        for name in document:
            damaged = copy.copy(document)
            del damaged[name]
            if not list(problems(damaged, schema, schema)):
                failures.append(f"{path.name}: the schema accepts it without {name}")
        if not list(problems({**document, "unknown": 1}, schema, schema)):
            failures.append(f"{path.name}: the schema accepts an unknown field")
    recipe = json.loads((HERE / "examples/recipe.json").read_text())
    check(failures, "examples/recipe.json", recipe["recipe"], key("recipe", recipe["document"]))


def main():
    failures = []
    check_vectors(failures)
    check_text(failures)
    check_examples(failures)
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
