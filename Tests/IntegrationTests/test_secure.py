"""Brokers behind TLS and SASL, reached by nothing but `kafka.properties`: every way in works for
everything that talks to Kafka, and what is wrong with a way in is told in one line."""

import collections
import copy
import json
import random
import unittest

import harness
from harness import bugle, device, event
from secure_front import Authority, SecureFront

USER, PASSWORD = "bugle", "not-to-be-seen-in-any-log"
KEY_PASSWORD = "nor-this-one"
WRONG = "nor-a-wrong-one"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Secure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = world = harness.World()
        cls.addClassCleanup(world.close)
        cls.ca = Authority(world.folder, "authority")
        cls.other_ca = Authority(world.folder, "other")
        cls.key, cls.certificate = cls.ca.client("client", KEY_PASSWORD)
        for name, text in [("password", PASSWORD), ("key-password", KEY_PASSWORD),
                           ("wrong", WRONG)]:
            (world.folder / name).write_text(text + "\n")
        cls.sasl = cls.front("127.0.0.2", mechanisms=MECHANISMS)
        cls.mutual = cls.front("127.0.0.3", clients=cls.ca.file)
        cls.misnamed = cls.front("127.0.0.4", "127.0.0.9", mechanisms=MECHANISMS)
        cls.only_plain = cls.front("127.0.0.5", mechanisms=["PLAIN"])
        world.apply_topics()

    @classmethod
    def front(cls, host, named=None, **options):
        front = SecureFront(
            cls.world.kafka.port, cls.ca.broker(f"broker-{host}", named or host), host=host,
            users={USER: PASSWORD}, **options)
        cls.addClassCleanup(front.stop)
        return front

    # Ways in.

    def by_password(self, mechanism):
        return {"security.protocol": "sasl_ssl", "ssl.ca.location": str(self.ca.file),
                "sasl.mechanism": mechanism, "sasl.username": USER,
                "sasl.password": {"file": "password"}}

    def by_certificate(self):
        return {"security.protocol": "ssl", "ssl.ca.location": str(self.ca.file),
                "ssl.certificate.location": str(self.certificate),
                "ssl.key.location": str(self.key), "ssl.key.password": {"file": "key-password"}}

    def settings(self, front, properties, **kafka):
        settings = copy.deepcopy(self.world.settings)
        settings["kafka"] |= {"brokers": front.address, **kafka}
        settings["kafka"]["properties"] |= properties
        return settings

    # What works.

    def command(self, *words):
        done = bugle(*words, "--config", self.world.config)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        self.assert_no_secret(done.stdout + done.stderr)
        return done.stdout

    def assert_no_secret(self, text):
        for secret in (PASSWORD, KEY_PASSWORD, WRONG):
            self.assertNotIn(secret, text)

    def go_the_whole_way(self, settings, name):
        """A device is registered, events reach it, everything that asks Kafka gets its answer."""
        world = self.world
        world.config.write_text(harness.yaml(settings) + "\n")
        self.command("check", "--online")
        self.command("topics", "plan")
        self.command("topics", "apply")
        world.launch()
        self.addCleanup(world.kill)
        world.wait_ready()
        phone = device(random.Random(name), f"{name}-user", f"{name}-phone")
        world.register([phone])
        world.publish([event(f"{name}-{n}", phone.user) for n in range(20)])
        world.publish([event(f"{name}-bad", phone.user, v=99)])
        file = world.folder / "event.json"
        file.write_text(json.dumps(event(f"{name}-sent", phone.user)))
        self.command("send", "--yes", file)
        world.wait_settled(60)
        results = [r for r in world.results() if r["event_id"].startswith(f"{name}-")]
        outcomes = collections.Counter(r["outcome"] for r in results)
        self.assertEqual(outcomes, {"accepted": 21, "dead_lettered": 1})
        pushed = set(map(harness.message_id, world.gateways.journal()))
        for result in results:
            if result["outcome"] == "accepted":
                self.assertIn(result["message_id"], pushed)
        self.assertIn(f"{name}-sent", self.command("tail", "--until-end"))
        self.assertIn(f"{name}-sent", self.command("trace", f"{name}-sent"))
        self.assertIn(f"{name}-bad", self.command("dlt", "list"))
        self.command("backlog")
        self.command("index", "verify")
        self.command("audit")
        self.assertIn("ready", self.command("status"))
        self.command("pause", "--type", "no.such.type")
        self.command("resume", "--all")
        for path in ("/", "/status.json", "/metrics", "/readyz"):
            self.assert_no_secret(world.get(path)[1])
        self.assertEqual(world.terminate(), 0)
        self.assert_no_secret(world.dispatcher.log.read_text())

    def test_by_a_password(self):
        settings = self.settings(self.sasl, self.by_password("PLAIN"))
        self.go_the_whole_way(settings, "plain")

    def test_by_a_password_that_never_leaves(self):
        settings = self.settings(
            self.sasl, self.by_password("SCRAM-SHA-512"), commit="plain")
        self.go_the_whole_way(settings, "scram")

    def test_by_a_certificate(self):
        settings = self.settings(self.mutual, self.by_certificate())
        self.go_the_whole_way(settings, "certificate")

    def test_the_library_tells_everything_but_passwords(self):
        """With all of librdkafka's lines in the log, as somebody sets it who looks for a fault."""
        settings = self.settings(self.sasl, self.by_password("SCRAM-SHA-256") | {"debug": "all"})
        settings["log"] = {"level": "debug"}
        self.go_the_whole_way(settings, "debug")
        self.assertIn("sasl.password", self.world.dispatcher.log.read_text())
