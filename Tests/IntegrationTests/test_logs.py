"""The log of a running Bugle: one line for each change of something that has a state, of the level
that says whether somebody must act, and none for a push."""

import collections
import json
import random
import unittest

import harness
from harness import bugle, device, event, program, wait_until

EVENTS = 4000


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = harness.World(faults=harness.dead_tokens("dead"))
        cls.addClassCleanup(cls.world.close)
        # A machine with much else to do is not a Redis that is away.
        cls.world.settings["redis"]["timeout"] = "20s"
        cls.world.config.write_text(harness.yaml(cls.world.settings) + "\n")
        cls.world.apply_topics()
        cls.world.start()
        cls.seed = harness.seed()
        generator = random.Random(cls.seed)
        cls.devices = [
            device(generator, f"u{n}", f"i{n}", ("apns", "fcm", "sandbox")[n % 3],
                   mark="dead" if n % 10 == 9 else None) for n in range(60)]
        cls.world.register(cls.devices)
        cls.world.wait_settled(60)

    def setUp(self):
        self.seen = len(self.lines(everything=True))

    def lines(self, everything=False):
        text = self.world.dispatcher.log.read_text()
        found = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return found if everything else found[self.seen:]

    def told(self):
        """How often each line was written since the test began, with its level."""
        return collections.Counter((line["level"], line["msg"]) for line in self.lines())

    def await_told(self, level, message, count=1):
        wait_until(lambda: self.told()[level, message] >= count, 60,
                   lambda: f"{message}: {self.told()}, SEED={self.seed}")
        self.assertEqual(self.told()[level, message], count, self.told())

    def test_nothing_is_told_of_a_push(self):
        world = self.world
        world.publish([event(f"log-{n}", f"u{n % 70}", ttl=60) for n in range(EVENTS)])
        world.wait_settled(120)
        outcomes = collections.Counter(
            r["outcome"] for r in world.results() if r["event_id"].startswith("log-"))
        self.assertEqual(sum(outcomes.values()), EVENTS)
        self.assertLessEqual({"accepted", "token_invalid", "no_devices"}, set(outcomes))
        self.assertLess(len(self.lines()), 10, self.told())
        self.assertEqual([l for l in self.lines() if l["level"] == "error"], [])
        # A bad record may be told of, and a thousand are not told of a thousand times.
        world.kafka.publish(harness.EVENTS, [("k", "this is no event") for _ in range(1000)])
        wait_until(lambda: len(world.dead_letters()) >= 1000, 60, "the dead letters")
        self.assertLess(len(self.lines()), 30, self.told())
        for line in self.lines():
            self.assertIn(line["level"], ["info", "warning"], line)

    def test_an_index_that_lost_its_memory_is_told_once_and_once_when_it_is_whole(self):
        self.world.redis.cli("FLUSHALL")
        self.await_told("warning", "the token index is incomplete: it is filled again from the topics")
        self.await_told("info", "the token index is complete")
        # With traffic, so that look-ups meet it.
        self.world.publish([event(f"whole-{n}", f"u{n % 8}") for n in range(100)])
        self.world.wait_settled(60)
        waits = self.told()["warning", "look-ups wait: the token index is not to be trusted now"]
        goes_on = self.told()["info", "look-ups are answered: the token index is complete"]
        self.assertEqual(waits, goes_on, self.told())
        self.assertLessEqual(waits, 1, self.told())
        self.assertEqual([l for l in self.lines() if l["level"] == "error"], [])

    def test_a_lever_is_told_once_each_way(self):
        for words in (["pause", "--type", "chat.*"], ["resume", "--type", "chat.*"]):
            done = bugle(*words, "--config", self.world.config, "--json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.world.publish(
                [event(f"{words[0]}-{n}", f"u{n % 8}", type="chat.message") for n in range(300)])
            self.world.wait_settled(60)
        self.await_told("warning", "paused by an operator")
        self.await_told("info", "goes on after a pause")
        self.assertLess(len(self.lines()), 10, self.told())

    def test_partitions_that_move_are_told_once_each_way(self):
        world, file = self.world, self.world.folder / "second.yaml"
        file.write_text(harness.yaml({
            **world.settings, "kafka": {**world.settings["kafka"], "instance": "second"},
            "admin": {"listen": f"127.0.0.1:{harness.free_port()}"}}) + "\n")
        second = harness.Process(
            [program(), "run", "--config", file], world.folder / "second.log")
        self.addCleanup(second.stop)

        def its_lines():
            text = second.log.read_text()
            return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

        def assigned(lines):
            return [l["partitions"] for l in lines if l["msg"] == "partitions assigned"]

        # The group may be balanced more than once until both have their share; each time is told.
        wait_until(
            lambda: assigned(its_lines()) and assigned(its_lines())[-1]
            and assigned(self.lines()), 90, lambda: f"{self.told()}: {second.tail()}")
        told = self.told()
        self.assertEqual(
            told["info", "partitions revoked"], told["info", "partitions assigned"], told)
        self.assertLessEqual(told["info", "partitions revoked"], 3, told)
        self.assertEqual(second.stop(40), 0, second.tail())
        last = collections.Counter(l["msg"] for l in its_lines())
        self.assertEqual(last["partitions assigned"], last["partitions revoked"], last)
        self.assertEqual(last["draining"], 1)
        self.assertEqual(last["stopped"], 1)
