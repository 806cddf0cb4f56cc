"""The commands that a person runs: the demo, the world for developers, send and tail, and how a
running dispatcher takes signals."""

import itertools
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

import harness
from harness import EVENTS, bugle, event, program, wait_until

COUNT = 2_000  # events for two replicas


class Demo(unittest.TestCase):
    def test_the_demo_balances(self):
        done = bugle("demo", "--events", 400, "--seed", 3, "--json", timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        summary = json.loads(done.stdout)
        self.assertEqual(summary["events"], 400)
        self.assertTrue(summary["balanced"])
        self.assertEqual(summary["missing"], [])
        self.assertEqual(
            summary["targets"], sum(sum(kind.values()) for kind in summary["outcomes"].values()))
        for gateway in ("apns", "fcm"):
            self.assertGreater(summary["outcomes"][gateway]["accepted"], 0)
        for number in ("pushes_per_second", "cpu_us_per_push", "p50_ms", "p99_ms"):
            self.assertGreater(summary[number], 0)
        self.assertLessEqual(summary["p50_ms"], summary["p99_ms"])

    def test_a_person_reads_a_summary(self):
        done = bugle("demo", "--events", 20, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {line.split()[0]: line for line in done.stdout.splitlines() if line}
        self.assertRegex(rows["events"], r"20 of \d+ users with \d+ devices")
        self.assertRegex(rows["targets"], r"\d+$")
        for gateway in ("apns", "fcm"):
            self.assertRegex(done.stdout, rf"(?m)^(outcomes)? +{gateway} +.*accepted \d+")
        self.assertRegex(rows["pushes"], r"\d+ in [\d.]+ s, \d+ per second")
        self.assertRegex(rows["CPU"], r"\d+ us per push")
        self.assertRegex(rows["latency"], r"p50 [\d.]+ ms, p99 [\d.]+ ms")
        self.assertIn("ledger balanced", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_a_terminal_shows_how_far_it_is(self):
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        process = subprocess.Popen(
            [program(), "demo", "--events", "200"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)
        shown = b""
        try:
            while part := os.read(master, 4096):
                shown += part
        except OSError:
            pass  # how a terminal says that nobody writes to it any more
        summary, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, summary)
        steps = [line.strip() for line in shown.decode().replace("\x1b[K", "").split("\r")]
        self.assertIn("starting broker, gateways and dispatcher", steps)
        self.assertIn("checking the ledger", steps)
        self.assertTrue(
            [step for step in steps if re.search(r"^\d+ %  \d+ of 204 records done", step)], steps)
        self.assertIn("ledger balanced", summary)

    def test_more_events_than_the_embedded_broker_keeps_are_refused(self):
        done = bugle("demo", "--events", 10_000_000)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--events", done.stderr)


class Dev(unittest.TestCase):
    """An event published by kcat from another process comes out in `bugle tail`."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="bugle-test-")
        self.addCleanup(self.folder.cleanup)

    def start(self, *arguments):
        process = subprocess.Popen(
            [program(), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)

        def stop():
            process.kill()
            process.wait()
            process.stdout.close()

        self.addCleanup(stop)
        return process

    def test_events_come_out_in_tail(self):
        dev = self.start("dev", "--json", "--state", self.folder.name)
        brokers = json.loads(dev.stdout.readline())["brokers"]
        for user, text in [
            ("ada", json.dumps(event("dev-1", "ada"))),
            ("grace", '{"user_id":"grace","type":"bare.event"}'), ("ada", "not json"),
        ]:
            subprocess.run(
                ["kcat", "-P", "-b", brokers, "-X", "partitioner=murmur2_random", "-t", EVENTS,
                 "-k", user], input=text.encode(), check=True, capture_output=True, timeout=30)

        def shown():
            done = bugle("tail", "--brokers", brokers, "--until-end")
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = done.stdout.splitlines()
            return lines if len(lines) == 4 else None

        lines = wait_until(shown, 30, "three results and a dead letter")
        accepted = [line for line in lines if "accepted" in line]
        self.assertEqual(len([line for line in accepted if "dev-1" in line]), 2)
        self.assertEqual(len([line for line in accepted if "bare.event" in line]), 1)
        self.assertEqual(len([line for line in lines if "not_json" in line]), 1)
        dev.send_signal(signal.SIGINT)
        self.assertEqual(dev.wait(20), 0)


class Loop(harness.WorldTest):
    """Commands on a running dispatcher."""

    def send(self, record, *options):
        file = self.world.folder / "event.json"
        file.write_text(json.dumps(record))
        return bugle("send", "--config", self.world.config, *options, file)

    def test_send_publishes_where_a_producer_would_and_tail_shows_what_came_of_it(self):
        phone = harness.device(random.Random(11), "sender", "sender-phone")
        self.world.register([phone])
        done = self.send(event("sent-1", "sender"), "--yes", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        place = json.loads(done.stdout)
        self.assertEqual(place["topic"], EVENTS)
        self.assertEqual(
            place["partition"], harness.wire.partition_of("sender", harness.PARTITIONS))
        self.world.wait_settled(30)
        shown = bugle("tail", "--config", self.world.config, "--until-end")
        (line,) = [line for line in shown.stdout.splitlines() if "sent-1" in line]
        self.assertIn("accepted", line)
        self.assertNotIn(phone.token, shown.stdout)
        raw = bugle("tail", "--config", self.world.config, "--until-end", "--json")
        (result,) = [r for r in map(json.loads, raw.stdout.splitlines())
                     if r.get("event_id") == "sent-1"]
        self.assertEqual(result["outcome"], "accepted")

    def test_send_asks_before_a_real_user_and_refuses_what_is_no_event(self):
        before = self.world.kafka.count(EVENTS)
        self.assertEqual(self.send(event("sent-2", "sender")).returncode, 2)
        self.assertEqual(self.send({"type": "t"}, "--yes").returncode, 1)
        self.assertEqual(self.world.kafka.count(EVENTS), before)

    def test_send_takes_the_answer_of_a_person(self):
        before = self.world.kafka.count(EVENTS)
        file = self.world.folder / "asked.json"
        file.write_text(json.dumps(event("asked-1", "nobody-asked")))
        for answer, code, added in (("no", 1, 0), ("yes", 0, 1)):
            with self.subTest(answer=answer):
                master, slave = os.openpty()
                self.addCleanup(os.close, master)
                os.write(master, f"{answer}\n".encode())
                done = subprocess.run(
                    [program(), "send", "--config", self.world.config, file], stdin=slave,
                    capture_output=True, text=True, timeout=60)
                os.close(slave)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertIn("nobody-asked", done.stdout + done.stderr)
                self.assertEqual(self.world.kafka.count(EVENTS), before + added)

    def test_sighup_does_no_harm(self):
        self.world.dispatcher.signal(signal.SIGHUP)
        self.world.publish([event("after-hup", "nobody")])
        self.world.wait_settled(30)
        self.assertTrue(self.world.dispatcher.running())


class Stuck(harness.WorldTest):
    """Gateways that never answer: a drain has an end, and a second signal ends it at once."""

    faults = {"rules": [{"effect": "withhold_answer"}]}
    drain_deadline = "3s"
    # Ended at once it does not leave its group, and this broker forgets no dynamic member.
    kafka_properties = {"group.instance.id": "bugle-0"}

    def fill(self, name):
        self.world.register_only([harness.device(random.Random(12), "held", "held-phone")])
        numbers = itertools.count()

        def in_flight():
            # The first ones may come before the index knows the phone.
            self.world.publish([event(f"{name}-{next(numbers)}", "held")])
            text = self.world.get("/metrics")[1]
            return re.search(r"^bugle_events_in_flight [1-9]", text, re.MULTILINE)

        wait_until(in_flight, 60, "events in flight")

    def test_a_drain_ends_at_its_deadline(self):
        self.fill("deadline")
        started = time.monotonic()
        self.assertEqual(self.world.terminate(20), 1, self.world.tail())
        self.assertLess(time.monotonic() - started, 6)
        self.world.start()

    def test_a_second_signal_ends_at_once(self):
        self.fill("second")
        started = time.monotonic()
        self.world.dispatcher.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in self.world.dispatcher.tail(), 10, "the drain to begin")
        self.world.dispatcher.signal(signal.SIGINT)
        self.assertEqual(self.world.dispatcher.child.wait(10), 128 + signal.SIGINT)
        self.assertLess(time.monotonic() - started, 3)
        self.world.start()


class Replicas(harness.WorldTest):
    """Two processes share the work; one that is stopped hands its partitions and the writing of
    the index to the other, and nothing is sent twice."""

    faults = harness.latency(5, 40)

    def second_replica(self):
        settings = {
            **self.world.settings,
            "kafka": {**self.world.settings["kafka"], "instance": "replica-2"},
            "admin": {"listen": f"127.0.0.1:{harness.free_port()}"},
        }
        file = self.world.folder / "replica-2.yaml"
        file.write_text(harness.yaml(settings) + "\n")
        process = harness.Process(
            [program(), "run", "--config", file], self.world.folder / "replica-2.log")
        self.addCleanup(process.stop)
        return process, int(settings["admin"]["listen"].rsplit(":", 1)[1])

    def test_a_planned_stop_hands_over_and_repeats_nothing(self):
        world, generator = self.world, random.Random(13)
        devices = [
            harness.device(generator, f"shared-{n}", f"shared-phone-{n}", ("apns", "fcm")[n % 2])
            for n in range(60)]
        world.register(devices)
        first = world.dispatcher
        # No work while it joins: this broker refuses commits from the moment that a member comes.
        world.wait_settled(30)
        second, port = self.second_replica()
        world.dispatcher, world.admin_port = second, port
        world.wait_ready()
        before = world.kafka.count(harness.RESULTS)
        world.publish([event(f"shared-{n}", f"shared-{n % 60}") for n in range(COUNT)])
        wait_until(
            lambda: world.kafka.count(harness.RESULTS) > before + COUNT / 10, 60, "results")
        self.assertEqual(first.stop(30), 0, first.tail())
        newcomer = harness.device(generator, "newcomer", "newcomer-phone")
        world.register([newcomer])
        world.publish([event("newcomer-1", "newcomer")])
        world.wait_settled(60)

        results = [r for r in world.results() if r["event_id"].startswith("shared-")]
        self.assertEqual({r["outcome"] for r in results}, {"accepted"})
        self.assertEqual(len({r["event_id"] for r in results}), COUNT)
        self.assertEqual(len(results), COUNT, "a result was written twice")
        self.assertEqual(len({r["replica"] for r in results}), 2, "both have worked")
        (late,) = [r for r in world.results() if r["event_id"] == "newcomer-1"]
        self.assertEqual((late["outcome"], late["replica"]), ("accepted", "replica-2"))
