"""`bugle keys`: keys that other tools understand, files that nobody else reads, and never a private
key on the screen."""

import base64
import json
import os
import pathlib
import tempfile
import unittest

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwcrypto import jwe, jwk

from harness import bugle


def pem(key, password=None, form=serialization.PrivateFormat.PKCS8):
    hiding = (serialization.BestAvailableEncryption(password) if password
              else serialization.NoEncryption())
    return key.private_bytes(serialization.Encoding.PEM, form, hiding).decode()


def point(key):
    raw = key.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def load(text):
    return serialization.load_pem_private_key(text.encode(), None)


class Keys(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def keys(self, *arguments):
        """A run that succeeds: its JSON."""
        done = bugle("keys", *arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        return json.loads(done.stdout)

    def refused(self, *arguments, code=1):
        done = bugle("keys", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stdout)
        return done.stderr.splitlines()[0]

    def test_a_vapid_key_is_made(self):
        path = self.folder / "vapid.pem"
        umask = os.umask(0)
        try:
            made = self.keys("vapid", path)
        finally:
            os.umask(umask)
        key = load(path.read_text())
        self.assertIsInstance(key.curve, ec.SECP256R1)
        self.assertEqual(made["application_server_key"], point(key))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.keys("inspect", path)["application_server_key"], point(key))
        # Another one would end every subscription that was made with this one.
        self.assertIn("is there already", self.refused("vapid", path))
        self.assertEqual(point(load(path.read_text())), point(key))
        second = self.folder / "second.pem"
        shown = bugle("keys", "vapid", second).stdout
        self.assertIn(point(load(second.read_text())), shown)
        self.assertIn("application server key:", shown)

    def test_nothing_private_is_printed(self):
        for kind in ["vapid", "apns", "device"]:
            path = self.folder / f"{kind}-key"
            made = bugle("keys", kind, path)
            shown = made.stdout + made.stderr
            for command in [["keys", "inspect", path], ["keys", "inspect", path, "--json"]]:
                done = bugle(*command)
                self.assertEqual(done.returncode, 0, done.stderr)
                shown += done.stdout + done.stderr
            text = path.read_text()
            if kind == "device":
                secrets = [json.loads(text)["d"]]
            else:
                number = load(text).private_numbers().private_value
                raw = number.to_bytes(32, "big")
                secrets = [line for line in text.splitlines() if "-----" not in line]
                secrets += [raw.hex(), base64.urlsafe_b64encode(raw).rstrip(b"=").decode()]
            for secret in secrets:
                self.assertNotIn(secret, shown)

    def test_an_apns_key_is_told(self):
        key = ec.generate_private_key(ec.SECP256R1())
        path = self.file("AuthKey_AB12CD34EF.p8", pem(key))
        told = self.keys("inspect", path)
        self.assertEqual(told["kind"], "APNs signing key")
        self.assertEqual((told["type"], told["curve"]), ("EC", "P-256"))
        self.assertEqual(told["key_id"], "AB12CD34EF")
        self.assertEqual(told["form"], "PKCS#8 in PEM")
        self.assertEqual(told["warnings"], [])
        renamed = self.file("key.p8", pem(key))
        done = bugle("keys", "inspect", renamed)
        self.assertIn("AuthKey_<key id>.p8", done.stderr)
        self.assertNotIn("key id:", done.stdout)
        self.assertEqual(self.keys("inspect", renamed)["fingerprint"], told["fingerprint"])
        made = self.keys("apns", self.folder / "AuthKey_SIM0000001.p8")
        self.assertEqual(made["key_id"], "SIM0000001")
        load((self.folder / "AuthKey_SIM0000001.p8").read_text())

    def test_a_device_key_is_made(self):
        path = self.folder / "device.json"
        made = self.keys("device", path, "--kid", "phone-1")
        private = json.loads(path.read_text())
        key = jwk.JWK(**private)
        (entry,) = made["public_keys"]
        self.assertEqual(entry["kid"], "phone-1")
        self.assertEqual(jwk.JWK(**entry["jwk"]).thumbprint(), key.thumbprint())
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.keys("inspect", path)["public_keys"], made["public_keys"])
        public = self.file("public.json", json.dumps({"kid": "phone-1", **entry["jwk"]}))
        self.assertEqual(self.keys("inspect", public)["kind"], "public device key")

    def test_what_is_wrong_is_said_with_what_to_do(self):
        p256 = ec.generate_private_key(ec.SECP256R1())
        self.assertIn("passphrase", self.refused("inspect", self.file("a", pem(p256, b"secret"))))
        self.assertIn("cut short", self.refused("inspect", self.file("b", pem(p256)[:-30])))
        public = p256.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
        self.assertIn("a private key is needed", self.refused("inspect", self.file("c", public)))
        self.assertIn("expected PEM", self.refused("inspect", self.file("d", "hello")))
        self.assertIn("No such file", self.refused("inspect", self.folder / "nothing"))
        self.assertIn("No such file", self.refused("vapid", self.folder / "no" / "where"))
        curve = json.loads(jwk.JWK.generate(kty="EC", crv="P-384").export_public())
        self.assertIn("crv P-256", self.refused("inspect", self.file("e", json.dumps(curve))))
        self.assertIn("expected vapid, apns, device", self.refused("gpg", "x", code=2))
        self.assertIn("FILE is missing", self.refused("vapid", code=2))
        self.assertIn("--kid: expected 1 to 64 bytes", self.refused(
            "device", self.folder / "f", "--kid", "k" * 65, code=2))
        self.assertFalse((self.folder / "f").exists())
        for name, key, words in [
                ("g", rsa.generate_private_key(65537, 2048), "service account"),
                ("h", ec.generate_private_key(ec.SECP384R1()), "P-256"),
                ("i", ed25519.Ed25519PrivateKey.generate(), "P-256")]:
            told = self.keys("inspect", self.file(name, pem(key)))
            self.assertIn(words, told["warnings"][0])
        open_file = self.file("j", pem(p256), mode=0o644)
        self.assertEqual(self.keys("inspect", open_file)["warnings"], [
            f"mode 644: others may read or change it; say chmod 600 {open_file}"])

    def test_only_the_right_key_opens(self):
        for name in ["one", "two"]:
            self.keys("device", self.folder / name, "--kid", name)
        text = self.file("text", "not encrypted")
        self.assertIn("nothing encrypted is in it", self.refused(
            "open", text, "--key", self.folder / "one"))
        self.assertIn("no private key of a device", self.refused("open", text, "--key", text))
        self.assertIn("--key is missing", self.refused("open", text, code=2))
        key = jwk.JWK(**json.loads((self.folder / "one").read_text()))
        message = jwe.JWE(b"hello", json.dumps({
            "alg": "ECDH-ES", "enc": "A256GCM", "kid": "one", "apu": "AA", "apv": "AA"}))
        message.add_recipient(key)
        sealed = self.file("sealed", message.serialize(compact=True) + "\n")
        opened = bugle("keys", "open", sealed, "--key", self.folder / "one")
        self.assertEqual(opened.stdout, "hello\n", opened.stderr)
        self.assertIn("encrypted for the key one, and", self.refused(
            "open", sealed, "--key", self.folder / "two"))


if __name__ == "__main__":
    unittest.main()
