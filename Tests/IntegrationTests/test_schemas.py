"""The contract in topics/: every example fits its schema, every counter-example breaks it."""

import json
import re
import unittest

from contract import EXAMPLES, TOPICS, Validator, errors, schema, schema_names, topic_table


def examples(prefix=""):
    """The files whose name starts with the prefix; without one, the valid records."""
    for path in sorted(EXAMPLES.glob("*/*.json")):
        if path.parent.name not in schema_names():
            continue
        if path.name.startswith("invalid-") == bool(prefix):
            yield path


class Schemas(unittest.TestCase):
    def test_every_schema_is_itself_valid_and_documents_every_field(self):
        for name in schema_names():
            with self.subTest(schema=name):
                document = schema(name)
                Validator.check_schema(document)
                self.assertTrue(document["additionalProperties"], "readers ignore unknown fields")
                for field, rule in document["properties"].items():
                    described = "description" in rule
                    self.assertTrue(described, f"{name}: {field} has no description")

    def test_every_schema_has_examples_and_counter_examples(self):
        for name in schema_names():
            with self.subTest(schema=name):
                files = [path.name for path in (EXAMPLES / name).glob("*.json")]
                self.assertTrue([f for f in files if not f.startswith("invalid-")])
                self.assertTrue([f for f in files if f.startswith("invalid-")])

    def test_every_example_belongs_to_a_schema(self):
        folders = {path.name for path in EXAMPLES.iterdir()}
        self.assertEqual(folders - {"routes"}, set(schema_names()))

    def test_examples_are_valid(self):
        for path in examples():
            with self.subTest(example=f"{path.parent.name}/{path.name}"):
                self.assertEqual(errors(path.parent.name, json.loads(path.read_text())), [])

    def test_counter_examples_break_exactly_one_rule(self):
        for path in examples("invalid-"):
            with self.subTest(example=f"{path.parent.name}/{path.name}"):
                found = errors(path.parent.name, json.loads(path.read_text()))
                self.assertEqual(len(found), 1, found)

    def test_records_of_a_later_version_of_a_reader_carry_more_fields(self):
        for path in examples():
            with self.subTest(example=f"{path.parent.name}/{path.name}"):
                record = json.loads(path.read_text())
                record["a_field_of_tomorrow"] = {"deep": [1, 2, 3]}
                self.assertEqual(errors(path.parent.name, record), [])


class Table(unittest.TestCase):
    def test_every_topic_of_the_table_has_a_schema(self):
        for row in topic_table():
            with self.subTest(topic=row["topic"]):
                self.assertTrue((TOPICS / row["schema"]).is_file())

    def test_every_schema_is_named_in_the_readme(self):
        text = (TOPICS / "README.md").read_text()
        for name in schema_names():
            self.assertRegex(text, re.escape(f"{name}.schema.json"))

    def test_all_partition_counts_agree(self):
        whole = {"push.control", "push.status"}  # read as a whole by every process
        counts = {row["partitions"] for row in topic_table() if row["topic"] not in whole}
        self.assertEqual(len(counts), 1, "a record keeps its partition number from topic to topic")


if __name__ == "__main__":
    unittest.main()
