"""Web push, whole: subscriptions in the registry's topic, events in, and what the browsers got,
decrypted by an implementation that is not ours."""

import base64
import json
import os
import time

import http_ece
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import harness
from harness import INVALIDATIONS, bugle, event


def encode(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Browser:
    """A subscription with its private key; quacks like `harness.Device`."""

    def __init__(self, gateways, user, install, service="other", vapid_key_id="v1"):
        self.user, self.install, self.vapid_key_id = user, install, vapid_key_id
        base = gateways.addresses["webpush"].replace("other.localhost", f"{service}.localhost")
        self.endpoint = base + install
        self.private_key = ec.generate_private_key(ec.SECP256R1())
        self.public_key = self.private_key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self.secret = os.urandom(16)

    @property
    def key(self):
        return f"shop/{self.install}"

    def record(self):
        return {
            "v": 1, "app": "shop", "install_id": self.install, "user_id": self.user,
            "platform": "web", "gateway": "webpush", "environment": "none",
            "endpoint": self.endpoint,
            "keys": {"p256dh": encode(self.public_key), "auth": encode(self.secret)},
            "vapid_key_id": self.vapid_key_id, "version": 1,
            # Older than a minute: a younger one gets a second chance before it counts as dead.
            "registered_at": int(time.time() * 1000) - 3_600_000,
        }

    def read(self, entry):
        """What the browser's user would see."""
        return json.loads(http_ece.decrypt(
            decode(entry["body"]), private_key=self.private_key, auth_secret=self.secret,
            version="aes128gcm"))


class WebPush(harness.WorldTest):
    faults = {"rules": [
        {"service": "webpush", "token_prefix": "gone",
         "effect": {"answer": {"status": 410, "reason": "106"}}},
        {"service": "webpush", "token_prefix": "busy", "count": 1,
         "effect": {"answer": {"status": 429, "reason": "201", "headers": {"retry-after": "1"}}}},
    ]}
    gateway_options = ("--bodies",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        gateways = cls.world.gateways
        cls.browsers = {
            service: Browser(gateways, "ada", f"{service}-browser", service)
            for service in ("google", "mozilla", "apple", "windows", "other")}
        cls.gone = Browser(gateways, "gil", "gone-browser", "mozilla")
        cls.busy = Browser(gateways, "bob", "busy-browser", "mozilla")
        cls.lost = Browser(gateways, "kay", "lost-browser", vapid_key_id="v0")
        cls.world.register([*cls.browsers.values(), cls.gone, cls.busy, cls.lost])

    def results_of(self, event_id):
        self.world.wait_settled(60)
        return {r["install_id"]: r for r in self.world.results() if r["event_id"] == event_id}

    def received_by(self, browser):
        return [e for e in self.world.gateways.journal() if e["token"] == browser.install]

    def test_every_browser_decrypts_what_was_said(self):
        self.world.publish([event(
            "said-1", "ada", data={"order": 4711}, collapse_key="order-4711", ttl=3600,
            priority="high", cursor={"log": "orders", "seq": 9007199254740993})])
        results = self.results_of("said-1")
        self.assertEqual(len(results), len(self.browsers))
        salts = set()
        for service, browser in self.browsers.items():
            with self.subTest(service=service):
                result = results[browser.install]
                self.assertEqual((result["outcome"], result["status"]), ("accepted", 201), result)
                self.assertEqual((result["gateway"], result["environment"]), ("webpush", "none"))
                (entry,) = [
                    e for e in self.received_by(browser)
                    if browser.read(e)["bugle"]["id"] == result["message_id"]]
                body = decode(entry["body"])
                self.assertEqual(result["payload_bytes"], len(body))
                salts.add(body[:16])
                salts.add(body[21:86])
                said = browser.read(entry)
                self.assertEqual(said["notification"]["title"], "On its way")
                self.assertEqual(said["notification"]["tag"], "order-4711")
                self.assertEqual(said["data"], {"order": 4711})
                self.assertEqual(said["bugle"]["type"], "order.shipped")
                self.assertEqual(
                    said["bugle"]["cursor"], {"log": "orders", "seq": 9007199254740993})
                self.assertEqual(entry["priority"], "high")
                self.assertLessEqual(int(entry["expiration"]), 3600)
                self.assertGreater(int(entry["expiration"]), 3000)
        # A key and a salt of its own for every message.
        self.assertEqual(len(salts), 2 * len(self.browsers))
        # The same key collapses under the same topic everywhere.
        topics = {self.received_by(b)[-1]["collapse_id"] for b in self.browsers.values()}
        self.assertEqual(len(topics), 1)

    def test_gone_is_gone(self):
        self.world.publish([event("gone-1", "gil")])
        result = self.results_of("gone-1")["gone-browser"]
        self.assertEqual((result["outcome"], result["status"]), ("token_invalid", 410), result)
        self.assertEqual(result["reason"], "subscription_gone")
        verdicts = [r.json for r in self.world.kafka.read(INVALIDATIONS)
                    if r.json["install_id"] == "gone-browser"]
        self.assertEqual([v["verdict"] for v in verdicts], ["invalidate"])
        self.assertEqual(verdicts[0]["gateway"], "webpush")

        def ended():
            self.world.publish([event(f"gone-{time.monotonic_ns()}", "gil")])
            self.world.wait_settled(60)
            return any(r["outcome"] == "no_devices" and r["user_id"] == "gil"
                       for r in self.world.results())

        harness.wait_until(ended, 60, "the index to know that the subscription is gone")

    def test_a_busy_service_is_asked_again(self):
        self.world.publish([event("busy-1", "bob")])
        result = self.results_of("busy-1")["busy-browser"]
        self.assertEqual((result["outcome"], result["attempts"]), ("accepted", 2), result)
        first, second = self.received_by(self.busy)
        self.assertEqual((first["status"], second["status"]), (429, 201))
        self.assertGreaterEqual(second["at"] - first["at"], 1000)
        self.assertEqual(
            self.busy.read(first)["bugle"]["id"], self.busy.read(second)["bugle"]["id"])

    def test_a_key_that_is_not_configured_costs_no_subscription(self):
        self.world.publish([event("lost-1", "kay")])
        result = self.results_of("lost-1")["lost-browser"]
        self.assertEqual(
            (result["outcome"], result["reason"]), ("credential_error", "vapid_key_unknown"))
        self.assertEqual(self.received_by(self.lost), [])

    def test_explain_shows_the_payload_and_hides_the_endpoint(self):
        file = self.world.folder / "event.json"
        file.write_text(json.dumps(event("explained", "ada", data={"order": 1})))
        done = bugle("explain", file, "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        targets = json.loads(done.stdout)["targets"]
        self.assertEqual(len(targets), len(self.browsers))
        for target in targets:
            request = target["request"]
            headers = dict(map(tuple, request["headers"]))
            self.assertEqual(headers["content-encoding"], "aes128gcm")
            self.assertEqual(json.loads(request["body"])["data"], {"order": 1})
            self.assertNotIn("browser", headers[":path"])

    def test_why_says_that_pushes_go_there(self):
        done = bugle("why", "ada", "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        addresses = json.loads(done.stdout)["addresses"]
        self.assertEqual([a["gets_pushes"] for a in addresses], [True] * len(self.browsers))

    def test_check_names_the_keys_and_warns_of_loopback(self):
        done = bugle("check", "--config", self.world.config)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("web push (v1)", done.stdout)
        self.assertIn("allow_loopback", done.stdout)

    def test_no_secret_is_logged(self):
        log = self.world.dispatcher.log.read_text()
        for browser in [*self.browsers.values(), self.gone, self.busy]:
            self.assertNotIn(browser.install, log)
            self.assertNotIn(encode(browser.secret), log)
