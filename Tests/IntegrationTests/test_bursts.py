"""Bursts of a running dispatcher: five messages are two pushes, also when the process is killed or
stopped while they are gathered; and their results are there together or not at all."""

import collections
import random

import harness
from harness import event, wait_until

WINDOW = 15  # seconds: long enough to be killed in, on a machine that is slow
BRIEF_WINDOW = 3  # seconds: longer than it takes to publish a burst
MESSAGES = 5
SLOW = "510e"  # how tokens begin whose pushes take long
SLOW_ANSWER = 8  # seconds, in which others are served


def route(first, window=WINDOW):
    return {
        "ttl": "1h", "title": "{{payload.text}}", "collapse": "room-{{payload.room}}",
        "coalesce": {
            "window": f"{window}s", "first": first, "summary": {"title": "{{count}} new"}}}


class Bursts(harness.WorldTest):
    faults = {"rules": [{
        "service": ["apns-production"], "token_prefix": SLOW,
        "effect": {"delay_ms": SLOW_ANSWER * 1000}}]}
    # A static member takes its partitions back at once.
    kafka_properties = {"group.instance.id": "bugle-0"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(11)
        world = cls.world
        cls.phones = {user: harness.device(generator, user, f"{user}-phone")
                      for user in ("ada", "ben")}
        cls.phones["cal"] = harness.device(generator, "cal", "cal-phone", mark=SLOW)
        world.register(cls.phones.values())
        world.config.write_text(harness.yaml({
            **world.settings,
            "routes": {"chat.send": route("send"), "chat.hold": route("hold"),
                       "chat.brief": route("hold", BRIEF_WINDOW)}}) + "\n")
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

    def await_request(self, user, count):
        """Waits until so many requests for a user's phone have left."""
        token = self.phones[user].token
        wait_until(
            lambda: [e["token"] for e in self.world.gateways.journal()].count(token) == count,
            WINDOW + 30, self.world.tail)

    def await_commit(self, id):
        """Returns once a transaction is committed that began after this was called, and with it
        every one before it: there is one producer."""
        self.world.publish([event(id, "nobody")])
        wait_until(
            lambda: any(r["event_id"] == id for r in self.world.results()), 30, self.world.tail)

    def test_the_others_are_committed_with_their_carrier_and_not_before(self):
        self.publish("cal", "chat.brief", range(MESSAGES))
        for attempt in (1, 2):
            # The carrier's push is under way: the others are done, and the carrier is not.
            self.await_request("cal", attempt)
            self.await_commit(f"after-{attempt}")
            found = [(r["event_id"], r["outcome"]) for r in self.results("chat.brief")]
            # On a slow machine the answer may have come in the meantime, for all of them.
            self.assertIn(len(found), [0, MESSAGES], found)
            if attempt == 1 and not found:
                self.world.kill()
                self.world.start()
            else:
                break
        self.world.wait_settled(SLOW_ANSWER + 60)
        results = sorted(self.results("chat.brief"), key=lambda r: r["input_offset"])
        self.assertEqual(
            [r["outcome"] for r in results], ["coalesced"] * (MESSAGES - 1) + ["accepted"])
        self.assertEqual(
            {r["folded_into"]["offset"] for r in results[:-1]}, {results[-1]["input_offset"]})
        self.assertEqual(results[-1]["folded"], [r["event_id"] for r in results[:-1]])
        # What was under way when the process was killed is sent again, by the same name.
        self.assertEqual(len(set(self.pushes("cal"))), 1)

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
