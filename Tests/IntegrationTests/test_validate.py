"""The program reads events as their schemas say: what fits is taken, what does not is refused."""

import json
import pathlib
import tempfile
import unittest

from contract import EXAMPLES, errors, schema
from harness import bugle

# Values that break the rule of some fields and fit that of others. Null is absence everywhere.
PROBES = (
    True, 0, 1, 2, -1, 1.5, 1_735_689_600, 1_735_689_600_000, 10**19, "", "x", "x/y", "1", "1.0",
    "high", "validate", "2025-01-01T00:00:00Z", "2025-01-01 00:00", "x" * 257, "x" * 1025,
    "bell\u0007", [], ["x"], [1], {}, {"a": "b"}, {"a": 1}, {"log": "l", "seq": 1},
    {"log": "", "seq": 1}, {"log": "l", "seq": -1}, {"gateways": ["fcm"]}, {"gateways": "fcm"},
    {"install_ids": [1]}, {str(n): "x" for n in range(9)}, {"a": "x" * 129})

# A control character spoils a text; JSON Schema has no short word for that.
STRICTER = {("bell\u0007")}


class Validate(unittest.TestCase):
    maxDiff = None

    def judge(self, name, record, folder):
        file = pathlib.Path(folder) / "event.json"
        file.write_text(json.dumps(record))
        done = bugle("validate", file)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        fits = not errors(name, record)
        return fits, done.returncode == 0, done.stderr.strip()

    def differences(self, name, base, skipped=()):
        """Where program and schema judge a changed or missing field differently."""
        found = []
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.judge(name, base, folder)[:2], (True, True))
            for field in schema(name)["properties"]:
                if field in skipped:
                    continue
                without = {key: value for key, value in base.items() if key != field}
                variants = [("absent", without)]
                variants += [(repr(value)[:40], {**base, field: value}) for value in PROBES
                             if not (isinstance(value, str) and value in STRICTER)]
                for what, record in variants:
                    fits, taken, said = self.judge(name, record, folder)
                    if fits != taken:
                        found.append(f"{field} {what}: fits {fits}, taken {taken} {said}")
        return found

    def test_native_events(self):
        base = json.loads((EXAMPLES / "push.events" / "everything.json").read_text())
        # `to` is refused beside a user and without one, whatever it holds; so are `user_ids`.
        self.assertEqual(self.differences("push.events", base, {"to"}), [])

    def test_structured_cloud_events(self):
        base = json.loads((EXAMPLES / "push.events.cloudevents" / "structured.json").read_text())
        # `subject` is read only where the configuration says so.
        self.assertEqual(
            self.differences("push.events.cloudevents", base, {"subject", "datacontenttype"}), [])


if __name__ == "__main__":
    unittest.main()
