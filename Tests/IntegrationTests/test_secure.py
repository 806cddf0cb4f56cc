"""Brokers behind TLS and SASL, reached by nothing but `kafka.properties`: every way in works for
everything that talks to Kafka, and what is wrong with a way in is told in one line."""

import collections
import copy
import json
import random
import re
import shutil
import unittest
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import yaml

import harness
from contract import ROOT
from harness import bugle, device, event, wait_until
from secure_front import Authority, Doorkeeper, SecureFront

USER, PASSWORD = "bugle", "not-to-be-seen-in-any-log"
KEY_PASSWORD = "nor-this-one"
WRONG = "nor-a-wrong-one"
# What README.md gives to copy: by a password, by a certificate.
PROPERTIES = [yaml.safe_load(block)["kafka"]["properties"] for block in re.findall(
    r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text().split(
        "### TLS and passwords of Kafka")[1].split("\n###")[0], re.MULTILINE | re.DOTALL)]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Secure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = world = harness.World()
        cls.addClassCleanup(world.close)
        cls.ca = Authority(world.folder, "authority")
        cls.other_ca = Authority(world.folder, "other")
        key, certificate = cls.ca.client("client", KEY_PASSWORD)
        for name, file in [("kafka-ca.pem", cls.ca.file), ("kafka-client.pem", certificate),
                           ("kafka-client-key.pem", key)]:
            shutil.copy(file, world.folder / name)
        for name, text in [("kafka-password", PASSWORD), ("kafka-client-password", KEY_PASSWORD),
                           ("wrong", WRONG)]:
            (world.folder / name).write_text(text + "\n")
        cls.sasl = cls.front("127.0.0.2", mechanisms=MECHANISMS)
        cls.mutual = cls.front("127.0.0.3", clients=cls.ca.file)
        cls.misnamed = cls.front("127.0.0.4", "127.0.0.9", mechanisms=MECHANISMS)
        cls.only_plain = cls.front("127.0.0.5", mechanisms=["PLAIN"])
        cls.doorkeeper = Doorkeeper(
            cls.ca.broker("doorkeeper", "127.0.0.7"), cls.ca.file, "127.0.0.7")
        cls.addClassCleanup(cls.doorkeeper.stop)
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
        return PROPERTIES[0] | {"sasl.mechanism": mechanism}

    def by_certificate(self):
        return PROPERTIES[1]

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

    def test_a_password_that_holds_no_more_and_holds_again(self):
        """Brokers ask again when a connection is made anew; nothing is lost meanwhile."""
        world, user = self.world, "changed-user"
        front = self.front("127.0.0.6", mechanisms=MECHANISMS)
        world.config.write_text(harness.yaml(
            self.settings(front, self.by_password("SCRAM-SHA-512"))) + "\n")
        world.launch()
        self.addCleanup(world.kill)
        world.wait_ready()
        world.register([device(random.Random(5), user, "changed-phone")])
        front.users[USER] = WRONG
        front.cut()
        world.publish([event(f"changed-{n}", user) for n in range(10)])
        log = world.dispatcher.log
        wait_until(lambda: "SASL authentication error" in log.read_text(), 30, world.tail)
        front.users[USER] = PASSWORD
        world.wait_settled(90)
        outcomes = [r["outcome"] for r in world.results() if r["event_id"].startswith("changed-")]
        self.assertEqual(outcomes, ["accepted"] * 10)
        self.assertEqual(world.terminate(), 0)
        self.assert_no_secret(log.read_text())

    # What is told.

    def test_what_a_broker_refuses_is_told_in_one_line(self):
        password, certificate = self.by_password("PLAIN"), self.by_certificate()
        tls = {name: certificate[name] for name in ("security.protocol", "ssl.ca.location")}
        scram = self.by_password("SCRAM-SHA-256")
        foreign_key, foreign = self.other_ca.client("client")
        plain = SimpleNamespace(address=self.world.kafka.address)
        refused = r"refuses user or password: correct sasl\.username and sasl\.password"
        authority = r"is not trusted: set ssl\.ca\.location"
        protocol = r"says nothing: correct security\.protocol in kafka\.properties, now "
        no_tls = r"does not speak TLS: correct security\.protocol in kafka\.properties, now "
        demanded = r"demands a client's certificate .*: correct ssl\.certificate\.location"
        self.assert_told(("check", "--online"), {
            "a wrong password": (
                self.sasl, password | {"sasl.password": {"file": "wrong"}}, refused),
            "a wrong password by SCRAM": (
                self.sasl, scram | {"sasl.password": {"file": "wrong"}}, refused),
            "an unknown user": (self.sasl, scram | {"sasl.username": "nobody"}, refused),
            "a mechanism that is not offered": (
                self.only_plain, scram,
                r"does not offer SCRAM-SHA-256: correct sasl\.mechanism .*: PLAIN"),
            "another authority": (
                self.sasl, password | {"ssl.ca.location": str(self.other_ca.file)}, authority),
            "the system's authorities": (
                self.sasl, without(password, "ssl.ca.location"), authority),
            "another host": (
                self.misnamed, password, r"is for another host: write its name in kafka\.brokers"),
            "no TLS where there is": (self.sasl, {}, protocol + "plaintext"),
            "SASL without TLS where there is": (
                self.sasl, without(password, "ssl.ca.location")
                | {"security.protocol": "sasl_plaintext"}, protocol + "sasl_plaintext"),
            "TLS where there is none": (plain, tls, no_tls + "ssl"),
            "SASL and TLS where there is none": (plain, password, no_tls + "sasl_ssl"),
            "no SASL where there is": (self.sasl, tls, protocol + "ssl"),
            "no certificate": (self.doorkeeper, tls, demanded),
            "no certificate, which is not told": (
                self.mutual, tls, protocol + r"ssl.* ssl\.certificate\.location"),
            "a certificate of another authority": (
                self.doorkeeper, tls | {"ssl.certificate.location": str(foreign),
                                    "ssl.key.location": str(foreign_key)}, demanded)})

    def test_what_no_client_can_be_made_of_is_told_without_asking_a_broker(self):
        password, certificate = self.by_password("PLAIN"), self.by_certificate()
        (self.world.folder / "text.pem").write_text("no certificate\n")
        other_key, _ = self.other_ca.client("someone")
        missing = r":\d+: kafka\.properties\.ssl\.ca\.location: cannot read /\S+/nowhere\.pem: No "
        foreign = r"someone-key\.pem is not the key of the certificate in ssl\.certificate\.loca"
        known = r"set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        locked = r"ssl\.key\.location: .*client-key\.pem cannot be read .*ssl\.key\.password is "
        self.assert_told(("check",), {
            "a file that is not there": (
                self.sasl, password | {"ssl.ca.location": "nowhere.pem"}, missing),
            "a file of something else": (
                self.sasl, password | {"ssl.ca.location": "text.pem"},
                r"ssl\.ca\.location: .*text\.pem holds no certificate in PEM"),
            "a certificate of something else": (
                self.mutual, certificate | {"ssl.certificate.location": "text.pem"},
                r"ssl\.certificate\.location: .*text\.pem holds no certificate in PEM"),
            "a locked key": (self.mutual, without(certificate, "ssl.key.password"), locked),
            "a locked key with another password": (
                self.mutual, certificate | {"ssl.key.password": {"file": "wrong"}}, locked),
            "the key of another certificate": (
                self.mutual, certificate | {"ssl.key.location": str(other_key)}, foreign),
            "an unknown mechanism": (
                self.sasl, password | {"sasl.mechanism": "SCRAM-SHA-1024"},
                r"sasl\.mechanism: SCRAM-SHA-1024 is unknown here; " + known),
            "a mechanism that nobody knows": (
                self.sasl, password | {"sasl.mechanism": "PLAN"},
                r"sasl\.mechanism: PLAN is unknown here; " + known),
            "no mechanism": (
                self.sasl, without(password, "sasl.mechanism"),
                r"sasl\.mechanism is missing.*" + known),
            "a mechanism of tokens": (
                self.sasl, password | {"sasl.mechanism": "OAUTHBEARER"},
                r"sasl\.mechanism: OAUTHBEARER is not offered"),
            "a certificate without its key": (
                self.mutual, without(certificate, "ssl.key.location"),
                r"ssl\.key\.location is missing"),
            "no password": (
                self.sasl, without(password, "sasl.password"),
                r"kafka\.properties: sasl\.username and sasl\.password must be set"),
            "an unknown protocol": (
                self.sasl, password | {"security.protocol": "tls"},
                r"kafka\.properties: security\.protocol: Invalid value \"tls\"")})

    def assert_told(self, check, cases):
        """Each of the cases, a front with properties, ends the check and `run` with one line."""
        def ask(name, front, properties, command):
            file = self.world.folder / f"{name} {command[0]}.yaml"
            file.write_text(harness.yaml(self.settings(front, properties)) + "\n")
            return bugle(*command, "--config", file)

        with ThreadPoolExecutor(8) as pool:
            asked = [(name, case[-1], command, pool.submit(ask, name, *case[:2], command))
                     for name, case in cases.items() for command in (check, ("run",))]
        for name, words, command, answer in asked:
            with self.subTest(name, command=command):
                done = answer.result()
                said = done.stdout + done.stderr
                self.assertEqual(done.returncode, 1, said)
                self.assert_no_secret(said)
                lines = re.findall(r"^(?:error +|bugle: )(.*)", said, re.M)
                self.assertEqual(len(lines), 1, said)
                self.assertRegex(lines[0], words)
                if command == ("run",):
                    self.assertEqual(len(said.splitlines()), 1, said)


def without(properties, name):
    return {key: value for key, value in properties.items() if key != name}
