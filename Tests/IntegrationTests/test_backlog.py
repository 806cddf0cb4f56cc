"""A gateway that is down with a backlog for it: its events are written once and lie still, memory
does not grow with them, and all go out once when it is back."""

import collections
import pathlib
import random
import re

import harness
from chaos_links import Links
from harness import event, message_id, wait_until

PARKED = "push.events-parked-fcm-none"
RETRIES = [f"push.events-retry-{tier}" for tier in ("10s", "1m", "10m", "1h")]
USERS = 200
# The first are more than a process has in flight, which takes its memory to where it stays.
FIRST, REST = 2_500, 2_500  # events


class Backlog(harness.WorldTest):
    @classmethod
    def setUpClass(cls):
        cls.world = world = harness.World()
        cls.addClassCleanup(world.close)
        cls.links = Links()
        cls.addClassCleanup(cls.links.stop)
        fcm = world.settings["apps"]["shop"]["fcm"]
        port = int(fcm["endpoint"].rsplit(":", 1)[1])
        fcm["endpoint"] = f"https://localhost:{cls.links.open('fcm', port)}"
        world.config.write_text(harness.yaml(world.settings) + "\n")
        world.apply_topics()
        world.start()

    def rss(self):
        status = pathlib.Path(f"/proc/{self.world.dispatcher.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def written(self):
        """How many times an event was written to a topic in which it waits."""
        return sum(self.world.kafka.count(topic) for topic in [PARKED, *RETRIES])

    def publish(self, count, name):
        self.world.publish([event(f"{name}-{n}", f"user-{n % USERS}") for n in range(count)])
        self.world.wait_settled(180)

    def test_parked_events_lie_still_and_memory_does_not_grow_with_them(self):
        world, generator = self.world, random.Random(8)
        devices = [harness.device(generator, f"user-{n}", f"{kind}-{n}", kind)
                   for n in range(USERS) for kind in ("apns", "fcm")]
        world.register(devices)
        self.links.set("fcm", "cut")
        self.publish(FIRST, "first")
        early, size = self.written(), self.rss()
        self.publish(REST, "rest")
        self.assertLess(self.rss() - size, 25, "MiB for a backlog twice as large")

        # It goes on looking whether the gateway is back; only what goes to see is written again.
        before = self.written()
        probes = self.opened()
        wait_until(lambda: self.opened() >= probes + 2, 120, "two more probes")
        looked = self.opened() - probes
        self.assertLessEqual(self.written() - before, 2 * looked + 2, "parked events are written again")
        self.assertGreaterEqual(early, FIRST)
        accepted = collections.Counter(
            r.get("gateway") for r in world.results() if r["outcome"] == "accepted")
        self.assertGreaterEqual(accepted["apns"], FIRST + REST)
        self.assertEqual(accepted["fcm"], 0)

        self.links.set("fcm", "up")
        wanted = {f"{name}-{n}" for name, count in (("first", FIRST), ("rest", REST))
                  for n in range(count)}

        def arrived():
            return len({r["event_id"] for r in world.results()
                        if r.get("gateway") == "fcm" and r["outcome"] == "accepted"})

        wait_until(lambda: arrived() == len(wanted), 240,
                   lambda: f"all {len(wanted)} events at FCM, {arrived()} are")
        sent = collections.Counter(filter(None, map(message_id, world.gateways.journal())))
        self.assertEqual([name for name, times in sent.items() if times > 1][:5], [])
        self.assertEqual(world.terminate(), 0)

    def opened(self):
        """Connections that did not come about: only FCM's do not."""
        text = self.world.get("/metrics")[1]
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
            if line.startswith("bugle_connect_failures_total{"))
