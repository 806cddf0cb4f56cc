"""The order of pushes with one collapse key over the death of processes: nothing but the note in
Redis tells a new process that something newer went out while an older event waited in a topic."""

import random

import harness
from harness import bugle, device, wait_until

BUSY = "b0057"
WAIT = 45  # seconds: longer than two starts take on a machine that is slow
TOPICS = {"ada": "push.events-parked-held", "ben": "push.events-retry-10s"}


class Order(harness.WorldTest):
    # A static member takes its partitions back at once.
    kafka_properties = {"group.instance.id": "bugle-0"}
    faults = {"rules": [{
        "service": "fcm", "token_prefix": BUSY, "count": 1,
        "effect": {"answer": {"status": 503, "reason": "UNAVAILABLE",
                              "headers": {"retry-after": str(WAIT)}}}}]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(5)
        cls.phones = {
            "ada": device(generator, "ada", "ada-phone"),
            "ben": device(generator, "ben", "ben-phone", "fcm", mark=BUSY)}
        cls.world.register(cls.phones.values())

    def publish(self, name, type):
        """One event for each of the two."""
        self.world.publish([
            harness.event(f"{name}-{user}", user, type=type, collapse_key="score-7", ttl=3600)
            for user in self.phones])

    def command(self, *words):
        done = bugle(*words, "--config", self.world.config)
        self.assertEqual(done.returncode, 0, done.stderr)

    def result(self, name, user):
        found = [r for r in self.world.results() if r["event_id"] == f"{name}-{user}"]
        self.assertLessEqual(len(found), 1, found)
        return found[0] if found else None

    def await_results(self, name):
        wait_until(
            lambda: all(self.result(name, user) for user in self.phones), WAIT + 60,
            lambda: f"{name}:\n{self.world.tail()}")

    def test_what_waited_is_folded_by_a_process_that_never_saw_the_newer_one(self):
        world = self.world
        # Ada's event is held as a whole, before it has devices; Ben's has one that is busy.
        self.command("pause", "--type", "score.slow")
        world.publish([harness.event(
            "old-ada", "ada", type="score.slow", collapse_key="score-7", ttl=3600)])
        world.publish([harness.event(
            "old-ben", "ben", type="score.half", collapse_key="score-7", ttl=3600)])
        for topic in TOPICS.values():
            wait_until(lambda: world.kafka.count(topic) > 0, 30, lambda: f"{topic}:\n{world.tail()}")
        # Both wait there for good: what is not committed would be read again.
        world.wait_settled(30)
        world.kill()
        notes = world.redis.cli("KEYS", "*/order.*")
        self.assertEqual(len(notes), 2, notes)
        # A second process sends the newer one, and a third one meets the older.
        self.publish("new", "score.final")
        world.start()
        self.await_results("new")
        world.kill()
        for user in self.phones:
            self.assertIsNone(self.result("old", user), "it has not come back yet")
        world.start()
        self.command("resume", "--type", "score.slow")
        self.await_results("old")

        for user, phone in self.phones.items():
            with self.subTest(user=user):
                old, new = self.result("old", user), self.result("new", user)
                self.assertEqual((old["outcome"], new["outcome"]), ("coalesced", "accepted"))
                self.assertEqual(old["folded_into"], {
                    "topic": new["input_topic"], "partition": new["input_partition"],
                    "offset": new["input_offset"], "event_id": f"new-{user}"})
                self.assertEqual(old["install_id"], phone.install)
                sent = [harness.message_id(e) for e in world.gateways.journal()]
                # Ben's older one was refused once, before the newer one went out.
                self.assertEqual(
                    [m for m in sent if m in (old["message_id"], new["message_id"])],
                    [old["message_id"]] * old["attempts"] + [new["message_id"]])
                self.assertEqual(old["attempts"], 1 if user == "ben" else 0)
