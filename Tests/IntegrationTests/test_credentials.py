"""Credentials that change under a running dispatcher: another key comes under load and costs no push,
a bad one changes nothing."""

import os
import random
import signal
import subprocess
import unittest

import harness
from harness import World, bugle, device, event, wait_until


class Credentials(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.apply_topics()
        cls.world.start()
        cls.seed = harness.seed()
        generator = random.Random(cls.seed)
        cls.devices = [
            device(generator, f"u{n}", f"i{n}", "fcm" if n % 2 else "apns") for n in range(60)]
        cls.world.register(cls.devices)

    def setUp(self):
        self.folder = self.world.gateways.folder
        self.logged = len(self.world.dispatcher.log.read_text())

    def log(self):
        return self.world.dispatcher.log.read_text()[self.logged:]

    def await_log(self, text, count=1):
        wait_until(lambda: self.log().count(text) >= count, 30, lambda: f"{text}: {self.log()}")

    def metric(self, name, **labels):
        for line in self.world.get("/metrics")[1].splitlines():
            if line.startswith(name) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rsplit(" ", 1)[1])
        return None

    def configure(self, **apns):
        self.world.settings["apps"]["shop"]["apns"].update(apns)
        new = self.folder / "bugle.yaml.new"
        new.write_text(harness.yaml(self.world.settings) + "\n")
        new.rename(self.world.config)

    def replace(self, name, source):
        """Moves the link to another file, as a mounted secret does."""
        link = self.folder / "link.new"
        link.symlink_to(source)
        os.rename(link, self.folder / name)

    def test_a_rotation_under_load_costs_no_push(self):
        events = [event(f"rotate-{n}", self.devices[n % 60].user) for n in range(3000)]
        half = len(events) // 2
        self.world.publish(events[:half])
        self.replace("AuthKey.p8", "AuthKey-2.p8")
        self.configure(key_id="KEY0000002")
        self.replace("service-account.json", "service-account-2.json")
        for start in range(half, len(events), 250):
            self.world.publish(events[start:start + 250])
            harness.pause(0.2)
        self.await_log("credential replaced", 2)
        self.world.publish([event(f"after-{n}", d.user) for n, d in enumerate(self.devices)])
        self.world.wait_settled(60)
        outcomes = [r["outcome"] for r in self.world.results()
                    if r["event_id"].startswith(("rotate-", "after-"))]
        self.assertEqual(set(outcomes), {"accepted"}, f"SEED={self.seed}")
        self.assertEqual(len(outcomes), len(events) + len(self.devices))
        for gateway in ("apns", "fcm"):
            self.assertEqual(
                self.metric("bugle_credential_reloads_total", gateway=gateway, result="replaced"), 1)
        # One line for each credential, of the level that asks nobody for anything.
        told = [line for line in self.log().splitlines() if "credential replaced" in line]
        self.assertEqual(len(told), 2, told)
        self.assertTrue(all('"level":"info"' in line for line in told), told)
        self.assertIn("key KEY0000002 of team TEAM000001", self.log())
        self.assertNotIn("PRIVATE KEY", self.log())

    def test_bad_ones_change_nothing(self):
        before = self.metric("bugle_credential_reloads_total", gateway="fcm", result="failed")
        good = (self.folder / "service-account.json").resolve().read_text()
        bad = self.folder / "bad.json"
        bad.write_text(good[:len(good) // 2])
        self.replace("service-account.json", "bad.json")
        self.await_log("the old credential stays")
        self.assertIn("service-account.json", self.log())
        # A file that is whole, with a key that Google does not know.
        key = subprocess.run(
            ["openssl", "genpkey", "-algorithm", "RSA"], capture_output=True, text=True,
            check=True).stdout
        account = harness.json.loads(good)
        account["private_key"] = key
        bad.write_text(harness.json.dumps(account))
        self.await_log("the old credential stays", 2)
        self.assertIn("Invalid JWT Signature", self.log())
        self.assertGreaterEqual(
            self.metric("bugle_credential_reloads_total", gateway="fcm", result="failed"),
            before + 2)
        self.assertEqual(self.metric("bugle_credentials_pending", app="shop", gateway="fcm"), 1)
        self.assertEqual(self.metric("bugle_credentials_pending", app="shop", gateway="apns"), 0)
        self.world.publish([event(f"bad-{n}", d.user) for n, d in enumerate(self.devices)])
        self.world.wait_settled(60)
        self.assertEqual(
            {r["outcome"] for r in self.world.results() if r["event_id"].startswith("bad-")},
            {"accepted"})
        # Whoever asks for the fleet is sent to the page that helps.
        def status():
            done = bugle("status", "--config", self.world.config)
            return done.returncode == 1 and "deploy/runbooks/BugleCredentialPending.md" in done.stdout

        wait_until(status, 30, "the page that says what to do")
        # It is tried again and again meanwhile, and told once for each thing that is wrong with it.
        told = [line for line in self.log().splitlines() if "the old credential stays" in line]
        self.assertEqual(len(told), 2, told)
        self.assertTrue(all('"level":"error"' in line for line in told), told)
        bad.write_text(good)
        self.world.dispatcher.signal(signal.SIGHUP)
        wait_until(
            lambda: self.metric("bugle_credentials_pending", gateway="fcm") == 0, 30, self.log)

    def test_other_authorities_are_tried_and_then_trusted(self):
        authority = self.folder / "ca.pem"
        good = authority.read_text()
        other = self.folder / "other.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", os.devnull, "-out", other, "-days", "2", "-subj", "/CN=other"],
            check=True, capture_output=True)

        def write(text):
            new = self.folder / "ca.new"
            new.write_text(text)
            new.rename(authority)

        try:
            # The gateways are not of that authority: nothing changes, and pushes go on.
            write(other.read_text())
            self.await_log("the old credential stays", 3)
            self.assertIn("certificate was refused", self.log())
            self.assertIn("trusted authorities replaced", self.log())  # web push has nobody to ask
            self.world.publish([event(f"old-{n}", d.user) for n, d in enumerate(self.devices)])
            self.world.wait_settled(60)
            # Both: each gateway is tried, and connections are made anew.
            self.logged = len(self.world.dispatcher.log.read_text())
            write(other.read_text() + good)
            self.await_log("trusted authorities replaced", 4)
            self.world.publish([event(f"both-{n}", d.user) for n, d in enumerate(self.devices)])
            self.world.wait_settled(60)
        finally:
            write(good)
        outcomes = [r["outcome"] for r in self.world.results()
                    if r["event_id"].startswith(("old-", "both-"))]
        self.assertEqual(set(outcomes), {"accepted"})
        self.assertEqual(len(outcomes), 2 * len(self.devices))

    def test_check_tries_each_credential(self):
        done = bugle("check", "--config", self.world.config, "--online")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in ("apps.shop.apns: production takes", "apps.shop.apns: sandbox takes",
                      "apps.shop.fcm: ", "apps.shop.expo: ", "apps.shop.webpush: "):
            self.assertIn(words, done.stdout)
        config = self.folder / "wrong.yaml"
        settings = harness.json.loads(harness.json.dumps(self.world.settings))
        settings["apps"]["shop"]["apns"]["key_id"] = "KEY0000009"
        settings["apps"]["shop"]["fcm"]["project_id"] = "somebody-elses"
        token = self.folder / "wrong-token"
        token.write_text("wrong")
        settings["apps"]["shop"]["expo"]["access_token_file"] = str(token)
        config.write_text(harness.yaml(settings) + "\n")
        done = bugle("check", "--config", config, "--online")
        self.assertEqual(done.returncode, 1, done.stdout)
        for words in ("apps.shop.apns: production: APNs refuses", "InvalidProviderToken",
                      "FCM knows no project somebody-elses",
                      "apps.shop.expo: Expo refuses the access token"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("wrong\n", done.stdout.replace("wrong.yaml", ""))
        pushes = [e for e in self.world.gateways.journal() if e.get("token") == "0"]
        self.assertTrue(pushes and all(e["status"] == 400 or e["status"] == 403 for e in pushes),
                        pushes)


if __name__ == "__main__":
    unittest.main()
