"""Reads the contract in topics/: schemas, examples, the table of README.md."""

import functools
import itertools
import json
import pathlib

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPICS = ROOT / "topics"
EXAMPLES = TOPICS / "examples"
SUFFIX = ".schema.json"

Validator = jsonschema.Draft202012Validator


def schema_names():
    return sorted(path.name[: -len(SUFFIX)] for path in TOPICS.glob("*" + SUFFIX))


def schema(name):
    return json.loads((TOPICS / (name + SUFFIX)).read_text())


@functools.cache
def _validator(name):
    return Validator(schema(name))


def errors(name, record):
    """What is wrong with a record, one line each; an empty list when it fits."""
    if not isinstance(record, dict):
        return ["record: not an object"]
    return [
        f"{'/'.join(map(str, error.absolute_path)) or 'record'}: {error.message[:200]}"
        for error in _validator(name).iter_errors(record)
    ]


def dead_letter_codes():
    return schema("push.events-dlt")["properties"]["bugle-error-code"]["enum"]


def topic_table():
    """The rows of README.md's first table, one dictionary each, keyed by the column's title."""
    lines = (TOPICS / "README.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]
    rows = [dict(zip(cells[0], row)) for row in cells[2:]]
    for row in rows:
        row["partitions"] = int(row["partitions"])
    return rows


PARTITIONS_OF_TABLE = max(row["partitions"] for row in topic_table())
