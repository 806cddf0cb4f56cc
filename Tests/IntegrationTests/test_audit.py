"""`bugle audit` adds the ledger up from the topics: balanced while events wait and when all is done,
and not balanced when an outcome was forged or taken away."""

import json
import random

import harness
from harness import DEAD_LETTERS, EVENTS, RESULTS, bugle, event, wait_until

USERS = 60
EVENTS_EACH = 4
POISON = ["not json", "{\"id\":\"x\"}", "[]", "{\"type\":\"t\"}", None]
SLOW = "5105"  # tokens whose first answers send them through a retry topic


class Audit(harness.WorldTest):
    # A gateway that asks some for a wait, and one that takes nothing at all.
    faults = {"rules": [
        {"service": "fcm", "token_prefix": SLOW, "count": 30, "effect": {"answer": {
            "status": 503, "reason": "UNAVAILABLE", "headers": {"retry-after": "8"}}}},
        {"service": "apns-sandbox", "effect": "refuse"}]}

    def setUp(self):
        seed = harness.seed()
        print(f"test_audit: SEED={seed}", flush=True)
        self.generator = random.Random(seed)

    def test_the_ledger_is_added_up_from_the_topics(self):
        world = self.world
        devices = []
        for number in range(USERS):
            user = f"user-{number}"
            devices += [
                harness.device(
                    self.generator, user, f"install-{number}-{index}", kind,
                    mark=SLOW if kind == "fcm" else None)
                for index, kind in enumerate(self.generator.choice([
                    [], ["apns"], ["fcm"], ["apns", "fcm"], ["apns", "sandbox"],
                    ["apns", "fcm", "sandbox"]]))]
        world.register(devices)
        records = [
            (f"user-{n % USERS}", event(f"audit-{n}", f"user-{n % USERS}"))
            for n in range(USERS * EVENTS_EACH)]
        world.kafka.publish(EVENTS, records + [("user-0", value) for value in POISON])

        self.stuck = EVENTS_EACH * sum(device.environment == "sandbox" for device in devices)
        self.assertGreater(self.stuck, 20)

        world.wait_settled(60)
        published = world.kafka.count(EVENTS)
        self.assertEqual(self.audit(0)["events"], published)
        # Some wait for a time and come back, the others for a gateway that stays away.
        last = wait_until(self.at_rest, 120, lambda: f"nothing but parked events:\n{world.tail()}")
        self.assertEqual(world.terminate(), 0, world.tail())
        self.assertGreater(world.kafka.count("push.events-retry-10s"), 0)
        self.assertEqual(last["events"], published)
        self.assertEqual(last["targets"], len(
            {(result["input_partition"], result["input_offset"], result["target_index"])
             for result in world.results()}))
        self.assertEqual(last["dead_letters"], len(POISON))
        self.assertEqual(last["repeated"], 0)
        self.check_scope(last)
        self.check_taken_away()
        self.check_forged()

    def audit(self, code, *options, config=None):
        done = bugle(
            "audit", "--config", config or self.world.config, "--json", "--patience", 1, *options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def at_rest(self):
        parked = self.world.kafka.count("push.events-parked-apns-sandbox")
        report = self.audit(0)
        self.assertGreaterEqual(report["waiting"], self.stuck)
        return report if report["waiting"] == self.stuck and parked > 0 else None

    def check_scope(self, last):
        """What goes on from the first event that waits has all that wait, and fewer in all."""
        rest = self.audit(0, "--from", last["continue_from"])
        self.assertEqual(rest["waiting"], last["waiting"])
        self.assertLess(rest["events"], last["events"])
        self.assertEqual(self.audit(0, "--since", "1h")["events"], last["events"])
        self.assertEqual(self.audit(0, "--since", "2100-01-01T00:00:00Z")["events"], 0)

    def check_taken_away(self):
        """The same topics, with results of which one is lacking."""
        world = self.world
        results = [r for r in world.kafka.read(RESULTS) if r.json["targets"] == 2]
        lost = self.generator.choice(results)
        topics = {**world.settings["kafka"]["topics"], "results": "results-with-a-hole"}
        settings = {**world.settings, "kafka": {**world.settings["kafka"], "topics": topics}}
        config = world.folder / "hole.yaml"
        config.write_text(harness.yaml(settings) + "\n")
        self.assertEqual(bugle("topics", "apply", "--config", config).returncode, 0)
        world.kafka.publish(topics["results"], [
            (r.key, r.json) for r in world.kafka.read(RESULTS) if r.position != lost.position])
        report = self.audit(1, config=config)
        self.assertEqual((report["missing"], report["doubled"], report["strays"]), (1, 0, 0))
        (finding,) = report["findings"]
        self.assertEqual(finding["kind"], "missing")
        self.assertEqual(finding["event_id"], lost.json["event_id"])
        self.assertEqual(finding["place"], place(lost.json))

    def check_forged(self):
        world = self.world
        (twice, stranger) = self.generator.sample(world.kafka.read(RESULTS), 2)
        letter = self.generator.choice(world.kafka.read(DEAD_LETTERS))
        world.kafka.publish(RESULTS, [(twice.key, twice.json)])
        world.kafka.publish(DEAD_LETTERS, [(letter.key, "again")], headers=letter.headers)
        report = self.audit(1)
        self.assertEqual((report["missing"], report["doubled"], report["strays"]), (0, 2, 0))
        places = {finding["place"] for finding in report["findings"]}
        self.assertIn(place(twice.json), places)
        # Where results may be there again, the same record twice is no damage.
        settings = {**world.settings, "kafka": {**world.settings["kafka"], "commit": "plain"}}
        plain = world.folder / "plain.yaml"
        plain.write_text(harness.yaml(settings) + "\n")
        self.assertEqual(self.audit(0, config=plain)["repeated"], 2)
        # Another outcome of the same target is, in both modes.
        world.kafka.publish(RESULTS, [
            (stranger.key, {**stranger.json, "result_id": "00000000-0000-5000-8000-000000000000"})])
        self.assertEqual(self.audit(1, config=plain)["doubled"], 1)
        text = bugle("audit", "--config", plain, "--patience", 0)
        self.assertEqual(text.returncode, 1)
        self.assertIn(place(stranger.json), text.stdout)
        self.assertIn("ledger not balanced: 0 missing, 1 doubled", text.stdout)


def place(result):
    return "{input_topic}-{input_partition}-{input_offset}".format(**result)
