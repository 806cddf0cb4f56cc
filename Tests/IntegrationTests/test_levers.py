"""The levers of operators on two replicas and a real broker: a pause reaches both within a second,
nothing is sent after it, what waited is sent or ended, and the ledger balances."""

import collections
import json
import random
import threading
import time

import harness
from contract import errors
from harness import bugle, event, program, wait_until

HELD = "push.events-parked-held"


class Levers(harness.WorldTest):
    faults = harness.latency(2, 10)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        world = cls.world
        cls.addClassCleanup(cls.launch("second").stop)
        generator = random.Random(harness.seed())
        cls.devices = [
            harness.device(generator, f"user-{n}", f"phone-{n}", ("apns", "fcm")[n % 2])
            for n in range(60)]
        world.register(cls.devices)
        wait_until(lambda: len(cls.partitions()) == 2 and all(cls.partitions().values()), 60,
                   lambda: f"both to have partitions: {cls.partitions()}")

    @classmethod
    def launch(cls, name, **settings):
        """Another replica of the same group."""
        world, file = cls.world, cls.world.folder / f"{name}.yaml"
        file.write_text(harness.yaml({
            **world.settings, "kafka": {**world.settings["kafka"], "instance": name},
            "admin": {"listen": f"127.0.0.1:{harness.free_port()}"}, **settings}) + "\n")
        return harness.Process([program(), "run", "--config", file], world.folder / f"{name}.log")

    def tearDown(self):
        if self.status()["levers"]:
            bugle("resume", "--all", "--config", self.world.config)

    @classmethod
    def partitions(cls):
        """The events partitions of each live replica, as `bugle status` tells."""
        return {r["instance"]: r["partitions"] for r in cls.status()["fleet"] if not r["stale"]}

    @classmethod
    def status(cls):
        done = bugle("status", "--config", cls.world.config, "--json")
        if not done.stdout:
            raise AssertionError(done.stderr)
        return json.loads(done.stdout)

    def command(self, *words, code=0):
        done = bugle(*words, "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, code, f"{done.stdout}{done.stderr}{self.world.tail()}")
        return json.loads(done.stdout)

    def outcomes(self, prefix):
        found = collections.defaultdict(list)
        for result in self.world.results():
            if result["event_id"].startswith(prefix):
                found[result["event_id"]].append((result["outcome"], result.get("reason")))
        return found

    def audit(self):
        done = bugle("audit", "--config", self.world.config, "--json", timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_pause_reaches_both_within_a_second_and_nothing_is_sent_after_it(self):
        world, stopped, published = self.world, threading.Event(), []
        generator = random.Random(harness.seed())

        def load():
            while not stopped.wait(0.1):
                ids = [f"kill-{len(published) + n}" for n in range(20)]
                world.publish([
                    event(id, f"user-{generator.randrange(60)}", type="chat.message") for id in ids])
                published.extend(ids)

        loader = threading.Thread(target=load)
        loader.start()
        try:
            wait_until(lambda: len(self.outcomes("kill-")) > 50, 60, "pushes before the pause")
            told = self.command("pause", "--type", "chat.*", "--reason", "a wrong template")
            paused_at = time.time()
            self.assertEqual((told["confirmed"], told["unconfirmed"]), (2, []))
            # The confirmation takes its own way back, on a machine that may be busy.
            self.assertLess(told["confirmed_after_ms"], 5000)
            more = len(published) + 100
            wait_until(lambda: len(published) >= more, 60, "events after the pause")
        finally:
            stopped.set()
            loader.join()
        world.wait_settled(60)
        held = world.kafka.count(HELD)
        self.assertGreater(held, 50)
        # A second after the word, and after the confirmation if that was sooner, nothing is sent.
        paused_at = min(paused_at, told["records"][0]["at"] / 1000 + 1)
        late = [
            entry["at"] / 1000 - paused_at for entry in world.gateways.journal()
            if harness.message_id(entry) and entry["at"] / 1000 > paused_at]
        self.assertEqual(late[-3:], [], f"{len(late)} requests after the pause was in force")
        # What is not paused goes on.
        world.publish([event("free-1", "user-1")])
        wait_until(lambda: self.outcomes("free-1"), 30, "the event that is not paused")
        (lever,) = self.status()["levers"]
        self.assertEqual((lever["lever"], lever["value"]), ("type", "chat.*"))
        self.assertEqual(lever["reason"], "a wrong template")
        self.command("resume", "--type", "chat.*")
        wait_until(
            lambda: len(self.outcomes("kill-")) == len(published), 60,
            lambda: f"{len(published)} outcomes, there are {len(self.outcomes('kill-'))}")
        self.assertEqual(
            {tuple(told) for told in self.outcomes("kill-").values()}, {(("accepted", None),)})
        sent = collections.Counter(
            filter(None, map(harness.message_id, world.gateways.journal())))
        self.assertEqual([name for name, times in sent.items() if times > 1], [])
        self.audit()

    def test_what_is_paused_longer_than_its_time_expires(self):
        self.command("pause", "--source", "batch", "--for", "4s")
        self.world.publish([
            event("short", "user-2", source="batch", ttl=1),
            event("long", "user-2", source="batch", ttl=600)])
        wait_until(
            lambda: len(self.outcomes("short")) + len(self.outcomes("long")) == 2, 60,
            "both outcomes: the pause ends by itself")
        self.assertEqual(self.outcomes("short")["short"], [("expired", "paused")])
        self.assertEqual(self.outcomes("long")["long"], [("accepted", None)])
        self.audit()

    def test_a_paused_gateway_leaves_the_other_alone(self):
        apns = next(d for d in self.devices if d.gateway == "apns")
        fcm = next(d for d in self.devices if d.gateway == "fcm")
        self.command("pause", "--gateway", "fcm")
        self.world.publish([event("gate-a", apns.user), event("gate-f", fcm.user)])
        wait_until(lambda: self.outcomes("gate-a"), 30, "the push to the other gateway")
        wait_until(
            lambda: any('"gate-f"' in r.value.replace(" ", "") or "gate-f" in r.value
                        for r in self.world.kafka.read("push.events-parked-fcm-none")),
            30, "the event in the parking topic")
        self.assertEqual(dict(self.outcomes("gate-f")), {})
        backlog = self.command("backlog")
        self.assertEqual(backlog["held_back_by"], {"gateway": 1}, backlog)
        self.command("resume", "--all")
        wait_until(lambda: self.outcomes("gate-f"), 30, "the push after the release")
        self.assertEqual(self.outcomes("gate-f")["gate-f"], [("accepted", None)])

    def test_the_drill_passes_and_says_how_long_it_took(self):
        told = self.command("drill")
        self.assertTrue(told["passed"], told)
        self.assertEqual(len(told["steps"]), 4, told)
        self.assertEqual(self.status()["levers"], [])

    def test_reports_fit_their_schema(self):
        for topic in ["push.status", "push.control"]:
            for record in self.world.kafka.read(topic):
                if record.value:
                    self.assertEqual(errors(topic, record.json), [], record.value)

    def test_a_lever_that_is_none_is_refused(self):
        for words in [["pause"], ["pause", "--gateway", "smtp"], ["pause", "--app", "nobody"],
                      ["pause", "--type", "a", "--source", "b"], ["resume"]]:
            done = bugle(*words, "--config", self.world.config)
            self.assertEqual(done.returncode, 2, words)
        done = bugle("resume", "--type", "never.paused", "--config", self.world.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not paused", done.stderr)

    def test_the_dead_are_shown_as_stale_and_the_stopped_are_gone(self):
        # It does not join the group that dispatches, whose partitions stay where they are.
        process = self.launch("third", roles=["index"])
        self.addCleanup(process.stop)

        def third():
            return [r for r in self.status()["fleet"] if r["instance"] == "third"]

        wait_until(third, 60, lambda: f"the third replica: {process.tail()}")
        process.kill()
        wait_until(lambda: third()[0]["stale"], 60, lambda: f"a stale replica: {self.status()}")
        done = bugle("status", "--config", self.world.config)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("third: it was heard last", done.stdout)
        self.assertIn("deploy/runbooks/BugleDown.md", done.stdout)
        process = self.launch("third", roles=["index"])
        self.addCleanup(process.stop)
        wait_until(lambda: not third()[0]["stale"], 60, "the replica again")
        self.assertEqual(process.stop(40), 0, process.tail())
        self.assertEqual(third(), [])
