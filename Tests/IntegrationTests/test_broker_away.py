"""The broker hangs for longer than any of our calls to it may take: the process lives on, says so
where nobody is sent traffic or restarted for it, and goes on by itself."""

import collections
import random
import signal
import time

import harness
from harness import device, event, wait_until

EVENTS = 300
HANGS = 20  # seconds: longer than a lane or a control thread may stand before it counts as dead


class BrokerAway(harness.WorldTest):
    # Answers take a while, so that pushes are under way when it hangs.
    faults = harness.latency(5, 40)

    def test_one_that_hangs_kills_nobody_and_loses_nothing(self):
        world = self.world
        generator = random.Random(harness.seed())
        phones = [device(generator, f"user-{n}", f"phone-{n}") for n in range(30)]
        world.register(phones)
        before = len(world.results())
        world.publish([event(f"e-{n}", f"user-{n % 30}") for n in range(EVENTS)])
        wait_until(
            lambda: len(world.results()) > before, 60, lambda: f"a first result\n{world.tail()}")
        broker = world.kafka.process
        self.addCleanup(broker.signal, signal.SIGCONT)
        broker.signal(signal.SIGSTOP)
        end = time.monotonic() + HANGS
        while time.monotonic() < end:
            status, text = world.get("/healthz")
            self.assertEqual(status, 200, f"{text}\n{world.tail()}")
            harness.pause(0.5)
        broker.signal(signal.SIGCONT)
        world.wait_settled(120)
        found = collections.Counter(
            result["event_id"] for result in world.results()
            if result["outcome"] == "accepted" and result["event_id"].startswith("e-"))
        self.assertEqual(found, {f"e-{n}": 1 for n in range(EVENTS)})
        self.assertEqual(world.terminate(), 0, world.tail())
