"""A planned stop repeats nothing that was answered and loses nothing."""

import collections
import random
import time

import harness
from harness import RESULTS, event, wait_until

COUNT = 4_000
USERS = 400
STOPS = 3
DRAIN_DEADLINE = 20  # seconds


class Drain(harness.WorldTest):
    faults = harness.latency(20, 120)
    drain_deadline = f"{DRAIN_DEADLINE}s"

    def test_sigterm_under_load_finishes_what_is_in_flight_and_repeats_nothing(self):
        seed = harness.seed()
        print(f"test_drain: SEED={seed}", flush=True)
        with self.subTest(seed=seed):
            self.run_with(random.Random(seed))

    def run_with(self, generator):
        world, kafka = self.world, self.world.kafka
        devices = [
            harness.device(generator, f"user-{n}", f"install-{n}", kind)
            for n, kind in zip(range(USERS), ["apns", "fcm"] * USERS)]
        world.register(devices)
        before = kafka.count(RESULTS)
        world.publish([event(f"drain-{n}", f"user-{n % USERS}") for n in range(COUNT)])

        for moment in sorted(generator.uniform(0.05, 0.8) for _ in range(STOPS)):
            wanted = before + int(moment * COUNT)
            wait_until(
                lambda: kafka.count(RESULTS) >= wanted, 120,
                lambda: f"{wanted} results, there are {kafka.count(RESULTS)}\n{world.tail()}")
            started = time.monotonic()
            self.assertEqual(world.terminate(DRAIN_DEADLINE + 10), 0, world.tail())
            self.assertLess(time.monotonic() - started, DRAIN_DEADLINE + 1)
            world.start()
        world.wait_settled(180)
        self.assertEqual(world.terminate(), 0, world.tail())

        results = [r for r in world.results() if r["event_id"].startswith("drain-")]
        self.assertEqual({r["outcome"] for r in results}, {"accepted"})
        self.assertEqual(len({r["event_id"] for r in results}), COUNT)
        self.assertEqual(len(results), COUNT, "a result was written twice")

        sent = collections.Counter(
            filter(None, map(harness.message_id, world.gateways.journal())))
        repeated = [name for name, times in sent.items() if times > 1]
        self.assertEqual(repeated[:5], [], f"{len(repeated)} messages were sent twice")
        self.assertLessEqual({r["message_id"] for r in results}, set(sent))
