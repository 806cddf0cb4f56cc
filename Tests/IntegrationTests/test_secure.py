"""A broker behind TLS and SASL, reached by nothing but `kafka.properties`."""

import copy
import random
import re
import unittest

import harness
from harness import bugle, event
from secure_front import SecureFront, certificate

USER, PASSWORD = "bugle", "not-to-be-seen-in-any-log"


class Secure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = world = harness.World()
        cls.addClassCleanup(world.close)
        key, cls.ca = certificate(world.folder)
        cls.front = SecureFront(world.kafka.port, key, cls.ca, USER, PASSWORD)
        cls.addClassCleanup(cls.front.stop)
        (world.folder / "password").write_text(PASSWORD + "\n")
        world.settings["kafka"]["brokers"] = cls.front.address
        world.settings["kafka"]["properties"] |= {
            "security.protocol": "sasl_ssl", "ssl.ca.location": str(cls.ca),
            "sasl.mechanisms": "PLAIN", "sasl.username": USER,
            "sasl.password": {"file": "password"}}
        world.config.write_text(harness.yaml(world.settings) + "\n")

    def refused(self, **properties):
        """What commands say with other properties; None leaves one out."""
        settings = copy.deepcopy(self.world.settings)
        settings["kafka"]["properties"] |= properties
        settings["kafka"]["properties"] = {
            name: value for name, value in settings["kafka"]["properties"].items()
            if value is not None}
        file = self.world.folder / f"{self.id().rsplit('.', 1)[1]}.yaml"
        file.write_text(harness.yaml(settings) + "\n")
        said = []
        for command in (["topics", "apply"], ["check", "--online"]):
            done = bugle(*command, "--config", file)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertNotIn(PASSWORD, done.stdout + done.stderr)
            said.append(done.stdout + done.stderr)
        return said

    def assert_one_line(self, said, *words):
        for text in said:
            lines = [line for line in text.splitlines() if all(
                re.search(word, line, re.IGNORECASE) for word in words)]
            self.assertEqual(len(lines), 1, text)

    def test_the_whole_way_over_tls_and_sasl(self):
        world = self.world
        world.apply_topics()
        world.start()
        world.register([harness.device(random.Random(3), "ada", "ada-phone")])
        world.publish([event(f"secure-{n}", "ada") for n in range(20)])
        world.wait_settled(60)
        outcomes = [r["outcome"] for r in world.results() if r["event_id"].startswith("secure-")]
        self.assertEqual(outcomes, ["accepted"] * 20)
        self.assertGreater(self.front.admitted, 0)
        self.assertEqual(world.terminate(), 0)
        self.assertNotIn(PASSWORD, world.dispatcher.log.read_text())

    def test_a_wrong_password_is_named(self):
        (self.world.folder / "wrong").write_text("wrong")
        said = self.refused(**{"sasl.password": {"file": "wrong"}})
        self.assert_one_line(said, "sasl", "authentication", re.escape(self.front.address))

    def test_an_unknown_authority_is_named(self):
        _, other = certificate(self.folder_of("other"))
        said = self.refused(**{"ssl.ca.location": str(other)})
        self.assert_one_line(said, "certificate", "ssl.ca.location")

    def test_a_client_without_tls_is_told_so(self):
        said = self.refused(**{"security.protocol": "sasl_plaintext", "ssl.ca.location": None})
        self.assert_one_line(said, re.escape(self.front.address), "security.protocol")

    def folder_of(self, name):
        folder = self.world.folder / name
        folder.mkdir()
        return folder
