"""Encrypted content, whole: a bank's event in, and at every gateway a general text and something
that the device alone opens, with an implementation of JOSE that is not ours."""

import gzip
import json
import os
import random
import subprocess
import uuid

from jwcrypto import jwe, jwk

import harness
from contract import errors
from harness import bugle
from test_expo import expo_device
from test_webpush import Browser, decode, encode

ROUTES = {
    "bank.transfer": {
        "encrypt": True, "ttl": "1h", "importance": "high",
        "title": "{{payload.amount}} € from {{payload.sender}}", "body": "{{payload.reference}}",
        "link": "https://bank.example.com/t/{{payload.id}}",
        "data": {"iban": "{{payload.iban}}"},
        "fallback": {"title": "Your bank", "body": "There is news about your account"},
    },
    "bank.sync": {"kind": "silent", "encrypt": True, "ttl": "1h", "data": {"iban": "{{payload.iban}}"},
                  "fallback": {"title": "Your bank"}},
}
PAYLOAD = {"id": "t-77", "amount": 1250, "sender": "Grace Hopper", "reference": "Miete Dezember 🏠",
           "iban": "AT611904300234573201"}
SECRETS = ["1250", "Grace", "Miete", "AT6119", "t-77"]


class Keyed:
    """A device with public keys in its registration."""

    def __init__(self, device, *keys):
        self.device = device
        self.keys = [
            {"kid": kid, "jwk": json.loads(key.export_public()) if isinstance(key, jwk.JWK) else key}
            for kid, key in keys]

    def __getattr__(self, name):
        return getattr(self.device, name)

    def record(self):
        return {**self.device.record(), "public_keys": self.keys}


class Encryption(harness.WorldTest):
    gateway_options = ("--bodies",)
    settings = {"routes": ROUTES}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(11)
        cls.keys = {}
        cls.devices = {
            "apns": harness.device(generator, "ada", "ada-phone"),
            "fcm": harness.device(generator, "ada", "ada-pixel", "fcm"),
            "expo": expo_device("ada", "ada-expo", "ada-encrypted"),
            "webpush": Browser(cls.world.gateways, "ada", "ada-browser"),
        }
        for name, device in cls.devices.items():
            cls.keys[name] = jwk.JWK.generate(kty="EC", crv="P-256")
            cls.devices[name] = Keyed(device, (f"key-of-{name}", cls.keys[name]))
        other = jwk.JWK.generate(kty="EC", crv="P-384")
        off = json.loads(jwk.JWK.generate(kty="EC", crv="P-256").export_public())
        off["y"] = off["x"]
        cls.without = harness.device(generator, "ada", "ada-without")
        cls.wrong = Keyed(harness.device(generator, "ada", "ada-wrong"), ("k", other), ("k2", off))
        cls.world.register([*cls.devices.values(), cls.without, cls.wrong])

    def publish(self, id, type):
        self.world.publish([{"id": id, "type": type, "user_id": "ada", "payload": PAYLOAD}])
        self.world.wait_settled(60)
        return {r["install_id"]: r for r in self.world.results() if r["event_id"] == id}

    def sent(self, name, message_id):
        """The payload that a gateway got for a message, as the device would have it, and the text
        that the gateway could read."""
        device = self.devices[name]
        for entry in self.world.gateways.journal():
            if name == "webpush" and entry["token"] == device.install:
                payload = device.read(entry)
                if payload["bugle"]["id"] == message_id:
                    return payload, json.dumps(payload, ensure_ascii=False)
            if entry.get("message_id") != message_id:
                continue
            text = decode(entry["body"])
            text = (gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text).decode()
            payload = json.loads(text)
            if name == "expo":
                payload = payload if isinstance(payload, list) else [payload]
                (payload,) = [m for m in payload if m["data"]["bugle"]["id"] == message_id]
            return payload, text
        raise AssertionError(f"{name} got nothing of {message_id}\n{self.world.tail()}")

    @staticmethod
    def block(name, payload):
        if name == "fcm":
            return json.loads(payload["message"]["data"]["bugle"])
        return payload["data"]["bugle"] if name == "expo" else payload["bugle"]

    def opened(self, name, block, message_id):
        token = jwe.JWE(algs=["ECDH-ES", "A256GCM"])
        token.deserialize(block["jwe"], key=self.keys[name])
        header = token.jose_header
        self.assertEqual((header["alg"], header["enc"]), ("ECDH-ES", "A256GCM"))
        self.assertEqual(header["kid"], f"key-of-{name}")
        self.assertEqual(decode(header["apu"]), b"shop")
        self.assertEqual(decode(header["apv"]), uuid.UUID(message_id).bytes)
        self.assertEqual(block["id"], message_id)
        return json.loads(token.payload)

    def test_the_device_alone_reads_it(self):
        results = self.publish("sealed-1", "bank.transfer")
        ephemeral = set()
        for name, device in self.devices.items():
            with self.subTest(gateway=name):
                result = results[device.install]
                self.assertEqual(result["outcome"], "accepted", result)
                payload, text = self.sent(name, result["message_id"])
                for secret in SECRETS:
                    self.assertNotIn(secret, text)
                self.assertIn("There is news about your account", text)
                block = self.block(name, payload)
                self.assertEqual(errors("payload-block", block), [])
                self.assertEqual(self.opened(name, block, result["message_id"]), {
                    "notification": {"title": "1250 € from Grace Hopper", "body": "Miete Dezember 🏠",
                                     "link": "https://bank.example.com/t/t-77"},
                    "data": {"iban": "AT611904300234573201"}})
                ephemeral.add(block["jwe"].split(".")[0])
        self.assertEqual(len(ephemeral), len(self.devices))
        payload, _ = self.sent("apns", results["ada-phone"]["message_id"])
        self.assertEqual(payload["aps"]["mutable-content"], 1)
        self.assertEqual(payload["aps"]["alert"]["title"], "Your bank")
        payload, _ = self.sent("expo", results["ada-expo"]["message_id"])
        self.assertTrue(payload["mutableContent"])
        payload, _ = self.sent("fcm", results["ada-pixel"]["message_id"])
        self.assertNotIn("notification", payload["message"])
        self.assertEqual(payload["message"]["android"]["priority"], "HIGH")
        self.assertEqual(self.block("fcm", payload)["notification"]["title"], "Your bank")

    def test_explain_writes_commands_that_the_device_can_read(self):
        """What curl would send is encrypted for the device as a real push is."""
        file, config = self.world.folder / "transfer.json", self.world.config
        file.write_text(json.dumps(
            {"id": "shown", "type": "bank.transfer", "user_id": "ada", "payload": PAYLOAD}))
        plain = bugle("explain", file, "--config", config)
        self.assertRegex(plain.stdout, r"<\d+ bytes of JWE>")
        # In the place of each tool something that keeps what it would send.
        tools = {
            "curl": 'curl() { if [[ ${@: -1} == @- ]]; then cat; else printf %s "${@: -1}"; fi '
                    '> "$(mktemp "$OUT/XXXXXX")"; }',
            "simctl": 'xcrun() { cat > "$(mktemp "$OUT/XXXXXX")"; }'}
        for format, tool in tools.items():
            done = bugle("explain", file, "--config", config, "--format", format)
            self.assertEqual(done.returncode, 0, done.stderr)
            commands = [line for line in done.stdout.split("\n") if not line.startswith("#")]
            self.assertNotIn("bytes of JWE", "\n".join(commands))
            script, bodies = self.world.folder / f"{format}.sh", self.world.folder / f"{format}-bodies"
            bodies.mkdir()
            script.write_text(f"{tool}\n{done.stdout}")
            subprocess.run(
                ["bash", script], check=True, env={"OUT": bodies, "PATH": os.environ["PATH"]})
            seen = set()
            for sent in sorted(bodies.iterdir()):
                raw = sent.read_bytes()
                try:
                    payload = json.loads(raw)
                except ValueError:
                    name, payload = "webpush", self.devices["webpush"].read({"body": encode(raw)})
                else:
                    name = ("fcm" if "message" in payload else "apns" if "aps" in payload else "expo")
                    payload = payload[0] if isinstance(payload, list) else payload
                block = self.block(name, payload)
                self.assertEqual(
                    self.opened(name, block, block["id"])["data"], {"iban": PAYLOAD["iban"]})
                seen.add(name)
            self.assertEqual(seen, set(self.devices) if format == "curl" else {"apns"})

    def test_a_silent_push_is_as_secret(self):
        results = self.publish("sealed-2", "bank.sync")
        for name, device in self.devices.items():
            result = results[device.install]
            self.assertEqual(result["outcome"], "accepted", result)
            payload, text = self.sent(name, result["message_id"])
            self.assertNotIn("AT6119", text)
            self.assertEqual(
                self.opened(name, self.block(name, payload), result["message_id"]),
                {"data": {"iban": "AT611904300234573201"}})

    def test_without_a_usable_key_nothing_is_sent(self):
        results = self.publish("sealed-3", "bank.transfer")
        without, wrong = results["ada-without"], results["ada-wrong"]
        self.assertEqual((without["outcome"], without["reason"]), ("suppressed", "no_device_key"))
        self.assertEqual((wrong["outcome"], wrong["reason"]), ("rejected", "malformed_device_key"))
        self.assertEqual(
            wrong["detail"], "public_keys[0]: a key of kty EC and crv P-256 is needed")
        sent = {e.get("message_id") for e in self.world.gateways.journal()}
        self.assertFalse({without["message_id"], wrong["message_id"]} & sent)
        for secret in SECRETS:
            self.assertNotIn(secret, self.world.dispatcher.log.read_text())

    def test_bugle_keys_makes_and_opens(self):
        """A device key of `bugle keys` works with the other implementation, and the other way round."""
        folder = self.world.folder
        made = bugle("keys", "device", folder / "device.json", "--kid", "d1", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        (entry,) = json.loads(made.stdout)["public_keys"]
        self.assertNotIn("d", entry["jwk"])
        message = jwe.JWE(b'{"a":1}', json.dumps({
            "alg": "ECDH-ES", "enc": "A256GCM", "kid": "d1", "apu": "c2hvcA", "apv": "AAAA"}))
        message.add_recipient(jwk.JWK(**entry["jwk"]))
        file = folder / "message"
        file.write_text(json.dumps({"bugle": {"jwe": message.serialize(compact=True)}}))
        opened = bugle("keys", "open", file, "--key", folder / "device.json")
        self.assertEqual((opened.returncode, opened.stdout), (0, '{"a":1}\n'), opened.stderr)
        self.assertEqual(subprocess.run(
            ["stat", "-c", "%a", folder / "device.json"], capture_output=True, text=True).stdout, "600\n")
