"""Bursts of a running dispatcher: five messages are two pushes, also when the process is killed or
stopped while they are gathered."""

import collections
import random

import harness
from harness import event, wait_until

WINDOW = 15  # seconds: long enough to be killed in, on a machine that is slow
MESSAGES = 5


def route(first):
    return {
        "ttl": "1h", "title": "{{payload.text}}", "collapse": "room-{{payload.room}}",
        "coalesce": {
            "window": f"{WINDOW}s", "first": first, "summary": {"title": "{{count}} new"}}}


class Bursts(harness.WorldTest):
    # A static member takes its partitions back at once.
    kafka_properties = {"group.instance.id": "bugle-0"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(11)
        world = cls.world
        cls.phones = {user: harness.device(generator, user, f"{user}-phone")
                      for user in ("ada", "ben")}
        world.register(cls.phones.values())
        world.config.write_text(harness.yaml({
            **world.settings,
            "routes": {"chat.send": route("send"), "chat.hold": route("hold")}}) + "\n")
        wait_until(
            lambda: "routes reloaded" in world.dispatcher.tail(1000), 20, world.tail)

    def publish(self, user, type, numbers):
        self.world.publish([
            event(f"{type}-{n}", user, type=type, notification=None,
                  payload={"text": f"m{n}", "room": "r1"}) for n in numbers])

    def await_held(self, count):
        """Waits until so many events are in windows."""
        line = f"bugle_coalescing_events {count}"
        wait_until(
            lambda: line in self.world.get("/metrics")[1].split("\n"), 20,
            lambda: f"{line}\n{self.world.tail()}")

    def results(self, type):
        return [r for r in self.world.results() if r["event_type"] == type]

    def pushes(self, user):
        """The messages that a user's phone got, in order; a repeated one is there twice."""
        hash = self.phones[user].token_hash
        ids = {r["message_id"] for r in self.world.results() if r.get("token_hash") == hash}
        return [i for i in map(harness.message_id, self.world.gateways.journal()) if i in ids]

    def check(self, user, type, sent):
        """Each event has one outcome, the last push carries all that were not sent."""
        results = sorted(self.results(type), key=lambda r: r["input_offset"])
        self.assertEqual([r["event_id"] for r in results], [f"{type}-{n}" for n in range(MESSAGES)])
        outcomes = [r["outcome"] for r in results]
        waiting = MESSAGES - sent
        self.assertEqual(outcomes, ["accepted"] * sent + ["coalesced"] * (waiting - 1) + ["accepted"])
        carrier = results[-1]
        folded = results[sent:-1]
        self.assertEqual(carrier["folded"], [r["event_id"] for r in folded])
        self.assertEqual(carrier["folded_count"], len(folded))
        place = {"topic": carrier["input_topic"], "partition": carrier["input_partition"],
                 "offset": carrier["input_offset"], "event_id": carrier["event_id"]}
        for result in folded:
            self.assertEqual(result["folded_into"], place)
        self.assertEqual(len({r["collapse_id"] for r in results}), 1)
        pushes = collections.Counter(self.pushes(user))
        self.assertEqual(sorted(pushes.values()), [1] * (sent + 1), "no push is there twice")
        # By their identities, one of them the carrier's.
        self.assertEqual(set(pushes), {r["message_id"] for r in results if r["outcome"] == "accepted"})

    def test_killed_in_a_burst_it_sends_two_pushes_for_five_messages(self):
        self.publish("ada", "chat.send", [0])
        wait_until(lambda: len(self.results("chat.send")) == 1, 30, self.world.tail)
        self.publish("ada", "chat.send", range(1, MESSAGES))
        self.await_held(MESSAGES - 1)
        self.world.kill()
        self.assertEqual(len(self.results("chat.send")), 1, "nothing else was sent before")
        self.world.start()
        self.world.wait_settled(WINDOW + 60)
        self.check("ada", "chat.send", sent=1)

    def test_stopped_in_a_burst_it_leaves_it_to_the_next_process(self):
        self.publish("ben", "chat.hold", range(MESSAGES))
        self.await_held(MESSAGES)
        self.assertEqual(self.world.terminate(), 0, self.world.tail())
        self.assertEqual(self.results("chat.hold"), [], "a stop sends nothing before its time")
        self.world.start()
        self.world.wait_settled(WINDOW + 60)
        self.check("ben", "chat.hold", sent=0)
