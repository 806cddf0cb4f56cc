"""What could not be pushed: listed, published again, and never pushed twice for it; copies of an
event that its producer published twice."""

import json
import random

import harness
from harness import DEAD_LETTERS, EVENTS, bugle, wait_until

ROUTE = {"order.shipped": {"title": "On its way", "body": "It arrives tomorrow."}}


class Replay(harness.WorldTest):
    def setUp(self):
        self.generator = random.Random(harness.seed())

    def dlt(self, action, *options, code=0):
        done = bugle("dlt", action, "--config", self.world.config, "--json", *options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def outcomes(self, *ids):
        found = [r for r in self.world.results() if r["event_id"] in ids]
        return sorted((r["event_id"], r["outcome"], r.get("reason")) for r in found)

    def wait_outcomes(self, wanted, *ids):
        wait_until(
            lambda: self.outcomes(*ids) == wanted, 60,
            lambda: f"{wanted}, there are {self.outcomes(*ids)}\n{self.world.tail()}")

    def test_dead_letters_are_replayed_once(self):
        world = self.world
        world.register([harness.device(self.generator, "ada", "ada-phone")])
        # Nothing says how to make content of these; the last is beyond help.
        world.kafka.publish(EVENTS, [
            ("ada", {"id": f"dlt-{n}", "type": "order.shipped", "user_id": "ada"})
            for n in range(3)])
        world.kafka.publish(EVENTS, [("ada", None)])
        wait_until(lambda: len(world.dead_letters()) == 4, 60, "four dead letters")

        letters = self.dlt("list")
        self.assertEqual(
            sorted(letter["reason"] for letter in letters), ["no_route"] * 3 + ["null_value"])
        self.assertEqual(len(self.dlt("list", "--reason", "null_value")), 1)
        self.assertEqual(len(self.dlt("list", "--type", "order.shipped", "--since", "1h")), 3)
        self.assertEqual(self.dlt("list", "--until", "1h"), [])
        self.assertEqual(self.dlt("replay", code=2), [])
        (dry,) = self.dlt("replay", "--dry-run")
        self.assertEqual((dry["published"], dry["selected"], dry["not_replayable"]), (0, 3, 1))

        # The operator adds the route and replays; somebody else does the same.
        world.config.write_text(harness.yaml({**world.settings, "routes": ROUTE}) + "\n")
        world.dispatcher.signal(harness.signal.SIGHUP)
        wait_until(lambda: "routes reloaded" in world.dispatcher.log.read_text(), 30, world.tail)
        before = world.kafka.count(EVENTS)
        for _ in range(2):
            (done,) = self.dlt("replay", "--yes", "--limit", 3, "--rate", 1000)
            self.assertEqual(done["published"], 3)
        self.assertEqual(world.kafka.count(EVENTS), before + 6)
        ids = [f"dlt-{n}" for n in range(3)]
        self.wait_outcomes(sorted(
            [(id, "dead_lettered", "no_route") for id in ids]
            + [(id, "accepted", None) for id in ids]
            + [(id, "suppressed", "duplicate") for id in ids]), *ids)
        # The same in a later process: what was pushed is remembered outside of it.
        wait_until(lambda: len(world.redis.cli("KEYS", "*:d:*")) == 3, 30, "three marks")
        self.assertEqual(world.terminate(), 0, world.tail())
        world.start()
        self.dlt("replay", "--yes", "--limit", 1)
        wait_until(
            lambda: sum(o[1:] == ("suppressed", "duplicate") for o in self.outcomes(*ids)) == 4,
            60, lambda: f"one more duplicate\n{world.tail()}")
        self.check_records()
        world.wait_settled(30)
        audit = bugle("audit", "--config", world.config, "--json")
        self.assertEqual(audit.returncode, 0, audit.stdout)

    def check_records(self):
        """A replay stands where its event stood, as it was, and says what it replays."""
        records = [r for r in self.world.kafka.read(EVENTS) if r.value and "dlt-" in r.value]
        first = {r.json["id"]: r for r in records if not r.headers}
        replays = [r for r in records if "bugle-replay-of" in r.headers]
        self.assertEqual(len(replays), 7)
        for replay in replays:
            original = first[replay.json["id"]]
            self.assertEqual(
                (replay.partition, replay.key, replay.value),
                (original.partition, original.key, original.value))
            self.assertEqual(
                replay.headers,
                {"bugle-replay-of": f"{EVENTS}-{original.partition}-{original.offset}"})
        sent = [entry for entry in self.world.gateways.journal() if entry["message_id"]]
        phone = [e for e in sent if e["token"] == self.world_token()]
        self.assertEqual(len(phone), 3)

    def world_token(self):
        (record,) = [
            r.json for r in self.world.kafka.read(harness.DEVICES)
            if r.json["install_id"] == "ada-phone"]
        return record["token"]


class Copies(harness.WorldTest):
    """A producer without idempotence, and a route that keeps what came to nothing."""

    faults = {"rules": [{"token_prefix": "bad0", "effect": {"answer": {
        "status": 429, "reason": "TooManyRequests"}}}]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        world = cls.world
        world.terminate()
        world.config.write_text(harness.yaml({
            **world.settings, "dispatch": {"deduplicate": "10m", "retry": {"attempts": 2}},
            "routes": {"order.late": {
                "title": "Late", "body": "It arrives later.", "dead_letter": True}}}) + "\n")
        world.start()

    def test_one_copy_is_pushed_and_what_comes_to_nothing_is_kept(self):
        world, generator = self.world, random.Random(harness.seed())
        world.register(
            [harness.device(generator, f"user-{n}", f"phone-{n}") for n in range(20)]
            + [harness.device(generator, "busy", "busy-phone", mark="bad0")])
        events = [harness.event(f"copy-{n}", f"user-{n}") for n in range(20)]
        for _ in range(3):
            world.publish(events)
        world.publish([{
            "id": "late", "type": "order.late", "user_id": "user-0",
            "expires_at": "2020-01-01T00:00:00Z"},
            {"id": "used-up", "type": "order.late", "user_id": "busy"}])
        world.wait_settled(60)

        def settled():
            mine = [r for r in world.results() if r["event_id"].startswith("copy-")]
            return mine if len(mine) == 60 else None

        results = wait_until(settled, 60, world.tail)
        accepted = [r["event_id"] for r in results if r["outcome"] == "accepted"]
        self.assertEqual(sorted(accepted), sorted(e["id"] for e in events))
        self.assertEqual(
            {r["reason"] for r in results if r["outcome"] != "accepted"}, {"duplicate"})

        def both():
            found = {letter.json["id"]: letter for letter in world.dead_letters()}
            return found if len(found) == 2 else None

        letters = wait_until(both, 120, world.tail)
        for id, outcome, attempts in (("late", "expired", "0"), ("used-up", "failed", "2")):
            headers = letters[id].headers
            self.assertEqual(harness.errors(DEAD_LETTERS, headers), [])
            self.assertEqual(
                (headers["bugle-error-code"], headers["bugle-attempts"]), (outcome, attempts))
            (result,) = [r for r in world.results() if r["event_id"] == id]
            self.assertEqual(result["outcome"], outcome)
        audit = bugle("audit", "--config", world.config, "--json")
        self.assertEqual(audit.returncode, 0, audit.stdout)
