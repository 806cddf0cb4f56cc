"""Routes of a running dispatcher: read again when the file changes, kept when the new ones have a
mistake, and told by `check` and `explain`."""

import json
import random
import signal

import harness
from harness import bugle, wait_until

SHIPPED = {"ttl": "1h", "title": "Order {{payload.order}}", "preference": "orders"}


class Routes(harness.WorldTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(7)
        cls.phone = harness.device(generator, "ada", "ada-phone")
        cls.tablet = harness.device(generator, "ada", "ada-tablet", "fcm")
        cls.world.register([cls.phone, cls.tablet])
        cls.number = 0

    def write(self, routes):
        self.world.config.write_text(
            harness.yaml({**self.world.settings, "routes": routes}) + "\n")

    def log(self):
        return self.world.dispatcher.tail(1000)

    def await_log(self, text, times=1):
        wait_until(lambda: self.log().count(text) >= times, 20, f"{text}\n{self.log()}")

    def outcome(self, type, **payload):
        """What becomes of an event of that type: outcome and route of each target."""
        Routes.number += 1
        id = f"routed-{self.number}"
        self.world.publish([{"id": id, "type": type, "user_id": "ada", "payload": payload}])
        self.world.wait_settled(30)
        results = [r for r in self.world.results() if r["event_id"] == id]
        return sorted((r["outcome"], r.get("route"), r.get("reason")) for r in results)

    def test_routes_change_while_it_runs(self):
        self.assertEqual(self.outcome("order.shipped"), [("dead_lettered", None, "no_route")])

        self.write({"order.*": SHIPPED})
        self.await_log("routes reloaded")
        both = [("accepted", "order.*", None)] * 2
        self.assertEqual(self.outcome("order.shipped", order="A1"), both)
        self.assertEqual(
            self.outcome("order.shipped"), [("dead_lettered", None, "content_error")])
        letter = self.world.dead_letters()[-1]
        reasons = [r.headers["bugle-error-reason"] for r in self.world.dead_letters()]
        self.assertIn("route order.*: payload.order is missing", reasons, letter)

        self.write({"order.*": {**SHIPPED, "titel": "x"}})
        self.await_log("the old routes stay")
        self.assertIn("routes.order.*.titel: unknown key; did you mean", self.log())
        self.assertEqual(self.outcome("order.shipped", order="A2"), both)

        self.write({"order.*": {"ttl": "1h", "kind": "silent", "data": {"o": "{{payload.order}}"}}})
        self.await_log("routes reloaded", 2)
        self.world.dispatcher.signal(signal.SIGHUP)
        self.await_log("SIGHUP")
        self.assertEqual(self.outcome("order.shipped", order="A3"), both)
        kinds = {r["kind"] for r in self.world.results() if r["event_id"] == f"routed-{self.number}"}
        self.assertEqual(kinds, {"silent"})
        self.assertNotIn(self.phone.token, self.log())

    def test_check_and_explain_tell_of_routes(self):
        config = self.world.folder / "explained.yaml"
        settings = {**self.world.settings, "routes": {
            "order.*": {**SHIPPED, "ttl": None}, "order.late": {"kind": "hint"}}}
        config.write_text(harness.yaml(settings) + "\n")
        checked = bugle("check", "--config", config)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn("routes: order.* (alert), order.late (hint)", checked.stdout)
        self.assertRegex(checked.stdout, r"warning .*explained.yaml:\d+: routes.order.\*: an alert without ttl")

        file = self.world.folder / "event.json"
        event = {"id": "x1", "type": "order.shipped", "user_id": "ada", "payload": {"order": "A9"}}
        file.write_text(json.dumps(event))
        shown = bugle("explain", file, "--config", config, "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        told = json.loads(shown.stdout)
        self.assertEqual((told["route"], told["kind"]), ("order.*", "alert"))
        self.assertEqual(
            [t["address_id"] for t in told["targets"]], [self.phone.key, self.tablet.key])
        apple, android = (t["request"] for t in told["targets"])
        headers = dict(apple["headers"])
        self.assertEqual(headers["authorization"], "bearer ***")
        self.assertEqual(headers[":path"], f"/3/device/<token {self.phone.token_hash}>")
        self.assertEqual(json.loads(apple["body"])["aps"]["alert"], {"title": "Order A9"})
        self.assertEqual(
            json.loads(android["body"])["message"]["notification"], {"title": "Order A9"})
        for device in (self.phone, self.tablet):
            self.assertNotIn(device.token, shown.stdout)

        devices = self.world.folder / "devices.jsonl"
        opted = {**self.phone.record(), "opt_outs": ["orders"]}
        devices.write_text(json.dumps(opted) + "\n" + json.dumps(self.tablet.record()) + "\n")
        text = bugle("explain", file, "--config", config, "--device", devices)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("suppressed: opted_out", text.stdout)
        self.assertIn("route     order.*", text.stdout)

        file.write_text(json.dumps({**event, "payload": {}}))
        refused = bugle("explain", file, "--config", config, "--device", devices)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("content_error: route order.*: payload.order is missing", refused.stderr)
