"""Routes of a running dispatcher: read again when the file changes, kept when the new ones have a
mistake, and told by `check` and `explain`."""

import json
import random
import signal
import subprocess

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

        devices.write_text(json.dumps({**self.phone.record(), "user_id": "eve"}) + "\n")
        other = bugle("explain", file, "--config", config, "--device", devices)
        self.assertIn("not sent: it belongs to another user, eve", other.stdout)
        self.assertNotIn("/3/device/", other.stdout)
        user = self.world.folder / "user.json"
        user.write_text(json.dumps({"v": 1, "app": "shop", "user_id": "eve"}))
        others = bugle("explain", file, "--config", config, "--device", devices, "--user", user)
        self.assertEqual(others.returncode, 1)
        self.assertIn("the event is for user ada of shop", others.stderr)
        file.write_text(json.dumps({
            "id": "x2", "type": "none", "user_id": "ada", "data": {"a": 1},
            "time": "2025-01-01T00:00:00Z"}))
        late = bugle("explain", file, "--config", config)
        self.assertIn("kind      silent: nothing to display", late.stdout)
        self.assertRegex(
            late.stdout, r"expires .*: expired \d+ days ago: the event's time is 2025-01-01T00:00:00")

        file.write_text(json.dumps({**event, "payload": {}}))
        refused = bugle("explain", file, "--config", config, "--device", devices)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("content_error: route order.*: payload.order is missing", refused.stderr)

    def test_explain_tells_what_others_do_and_writes_commands(self):
        config = self.world.folder / "folding.yaml"
        burst = {"title": "{{payload.text}}", "ttl": "1h", "collapse": "room-{{payload.room}}",
                 "coalesce": {"window": "10s", "first": "send"}}
        settings = {**self.world.settings, "routes": {"chat": burst},
                    "dispatch": {"deduplicate": "10m"}}
        config.write_text(harness.yaml(settings) + "\n")
        file = self.world.folder / "chat.json"
        event = {"id": "c1", "type": "chat", "user_id": "ada", "payload": {
            "room": "a room with a name that is much too long for a header field of a gateway",
            "text": "it's 4111 1111 1111 1111, DE89370400440532013000"}}
        file.write_text(json.dumps(event))

        def explain(*options, code=0):
            done = bugle("explain", file, "--config", config, *options)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            return done.stdout if code == 0 else done.stderr

        told = json.loads(explain("--json"))
        folding = told["folding"]
        self.assertEqual((folding["window_ms"], folding["first"]), (10_000, "send"))
        self.assertEqual(folding["copies_ms"], 600_000)
        self.assertRegex(folding["collapse_id"], "^[0-9a-f]{64}$")
        apple = told["targets"][0]["request"]
        self.assertEqual(dict(apple["headers"])["apns-collapse-id"], folding["collapse_id"])
        self.assertEqual(apple["doubts"], ["a card number", "an IBAN"])
        text = explain()
        self.assertIn("the first event goes at once; later ones wait up to 10 s in memory", text)
        self.assertIn("warning: it seems to hold a card number", text)

        curl = explain("--format", "curl")
        script = self.world.folder / "curl.sh"
        script.write_text("curl() { printf '%s\\n' \"$@\"; }\n" + curl)
        words = subprocess.run(
            ["bash", script], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertIn("apns-collapse-id: " + folding["collapse_id"], words)
        self.assertIn("authorization: bearer ***", words)
        self.assertIn(apple["body"], words)
        simctl = explain("--format", "simctl")
        self.assertIn("| xcrun simctl push booted 'com.example.shop' -", simctl)
        self.assertIn("# simctl shows pushes of APNs only", simctl)
        for device in (self.phone, self.tablet):
            self.assertNotIn(device.token, curl + simctl + text)

        self.assertIn("expected", explain("--burst", "none", code=2))
        counted = self.world.folder / "counted.yaml"
        burst["coalesce"]["summary"] = {"title": "{{count}} new"}
        counted.write_text(harness.yaml({**settings, "routes": {"chat": burst}}) + "\n")
        done = bugle("explain", file, "--config", counted, "--burst", "5", "--json")
        self.assertIn('"title":"5 new"', json.loads(done.stdout)["targets"][0]["request"]["body"])

        file.write_text(json.dumps({**event, "ttl": 0}))
        told = json.loads(explain("--json"))
        self.assertEqual(told["folding"]["not_gathered"], "ttl 0: it must not be stored")
        self.assertNotIn("window_ms", told["folding"])
        self.assertIn("expected curl or simctl", explain("--format", "wget", code=2))
        self.assertIn("exclude each other", explain("--format", "curl", "--json", code=2))
