"""The definitions for Avro and Protobuf: those of the schemas, taken by the tools of both, and every
example goes through them and comes back whole."""

import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from contract import EXAMPLES, TOPICS, schema

DEFINED = sorted(path.stem for path in (TOPICS / "avro").glob("*.avsc"))


def definitions(folder, *arguments):
    return subprocess.run(
        [sys.executable, folder / "definitions", *arguments], capture_output=True, text=True)


def examples(topic):
    for path in sorted((EXAMPLES / topic).glob("*.json")):
        if not path.name.startswith("invalid-"):
            yield path.name, json.loads(path.read_text())


def avro(topic):
    return fastavro.parse_schema(json.loads((TOPICS / "avro" / f"{topic}.avsc").read_text()))


def flattened(record, definition):
    """A record as its definition has it: what has no fixed shape as JSON text."""
    fields = {field["name"]: field["type"] for field in definition["fields"]}
    return {name: as_type(value, fields[name]) for name, value in record.items() if name in fields}


def as_type(value, kind):
    if value is None:
        return None
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(kind, dict) and kind["type"] == "record":
        return flattened(value, kind)
    if isinstance(kind, dict) and kind["type"] == "array" and kind["items"] != "string":
        return [as_type(one, kind["items"]) for one in value]
    return value


class Definitions(unittest.TestCase):
    def test_they_are_the_schemas(self):
        done = definitions(TOPICS, "--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_field_of_a_schema_is_there(self):
        for topic in DEFINED:
            fields = {field["name"] for field in avro(topic)["fields"]}
            wanted = {name for name, rule in schema(topic)["properties"].items() if rule.get("not") != {}}
            self.assertEqual(fields, wanted, topic)

    def test_every_example_goes_through_avro(self):
        for topic in DEFINED:
            parsed, seen = avro(topic), 0
            for name, record in examples(topic):
                with self.subTest(topic=topic, example=name):
                    flat, file = flattened(record, parsed), io.BytesIO()
                    fastavro.writer(file, parsed, [flat], strict_allow_default=True)
                    file.seek(0)
                    (back,) = fastavro.reader(file)
                    self.assertEqual(self.without(back, [None]), self.without(flat, [None]))
                    seen += 1
            self.assertTrue(seen, topic)

    def test_every_example_goes_through_protobuf(self):
        messages = self.messages(TOPICS / "bugle.proto")
        for topic in DEFINED:
            title = schema(topic)["title"].title().replace(" ", "")
            for name, record in examples(topic):
                with self.subTest(topic=topic, example=name):
                    flat = flattened(record, avro(topic))
                    message = json_format.ParseDict(flat, messages[f"bugle.v1.{title}"]())
                    back = messages[f"bugle.v1.{title}"].FromString(message.SerializeToString())
                    # An empty list or map is not told from none.
                    self.assertEqual(self.plain(back), self.without(flat, [None, [], {}]))

    @staticmethod
    def messages(path):
        with tempfile.NamedTemporaryFile() as file:
            subprocess.run(["protoc", f"-I{path.parent}", f"--descriptor_set_out={file.name}", path.name],
                           check=True)
            files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(file.name).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for one in files.file:
            pool.Add(one)
        return message_factory.GetMessageClassesForFiles([path.name], pool)

    @classmethod
    def plain(cls, message):
        """A message as the dictionary that it was made of; 64-bit numbers are numbers."""
        found = {}
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
                found[field.name] = dict(value)
            elif field.type == field.TYPE_MESSAGE:
                found[field.name] = cls.plain(value)
            else:
                found[field.name] = value if isinstance(value, (str, int, float, bool)) else list(value)
        return found

    @classmethod
    def without(cls, value, empty):
        if not isinstance(value, dict):
            return value
        return {k: cls.without(v, empty) for k, v in value.items() if v not in empty}

    def test_a_field_keeps_its_number(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path in [*TOPICS.glob("*.schema.json"), TOPICS / "bugle.proto", TOPICS / "definitions"]:
                shutil.copy(path, folder)
            shutil.copytree(TOPICS / "avro", folder / "avro")
            path = folder / "push.acks.schema.json"
            changed = json.loads(path.read_text())
            fields = dict(changed["properties"])
            del fields["app"]
            changed["properties"] = {"first": {"description": "New.", "type": "string"}, **fields}
            path.write_text(json.dumps(changed))
            self.assertEqual(definitions(folder, "--check").returncode, 1)
            self.assertEqual(definitions(folder).returncode, 0)
            self.assertEqual(definitions(folder, "--check").returncode, 0)
            text = (folder / "bugle.proto").read_text()
            ack = re.search(r"message Acknowledgement \{(.*?)\n\}", text, re.S)[1]
            before = re.search(r"message Acknowledgement \{(.*?)\n\}",
                               (TOPICS / "bugle.proto").read_text(), re.S)[1]
            numbers = lambda text: dict(re.findall(r"(\w+) = (\d+);", text))
            old, new = numbers(before), numbers(ack)
            self.assertEqual(new.pop("first"), str(len(old) + 1))
            gone = old.pop("app")
            self.assertEqual(new, old)
            self.assertIn(f"reserved {gone};", ack)
            self.messages(folder / "bugle.proto")


if __name__ == "__main__":
    unittest.main()
