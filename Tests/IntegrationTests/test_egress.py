"""The way to gateways through a proxy that asks for a password, and what a run says when it refuses."""

import base64
import json
import random
import select
import socket
import threading
import unittest

import harness
from harness import World, bugle, device, event

USER, PASSWORD = "bugle", "p@ss:word"


class Proxy:
    """A CONNECT proxy. `status` other than 200 is what it answers instead of opening tunnels."""

    def __init__(self):
        self.status, self.heads = 200, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = client.recv(4096)
            if not more:
                return client.close()
            head += more
        lines = head.decode().split("\r\n")
        self.heads.append(lines)
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if f"Proxy-Authorization: Basic {expected}" not in lines:
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return client.close()
        if self.status != 200:
            client.sendall(f"HTTP/1.1 {self.status} No\r\n\r\n".encode())
            return client.close()
        port = int(lines[0].split()[1].rsplit(":", 1)[1])
        server = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ends = {client: server, server: client}
        try:
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end].sendall(data)
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def close(self):
        self.listener.close()


class Egress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.proxy = Proxy()
        cls.addClassCleanup(cls.proxy.close)
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.password = cls.world.folder / "proxy-password"
        cls.password.write_text(PASSWORD + "\n")
        cls.world.settings["egress"] = {"proxy": {
            "address": f"http://127.0.0.1:{cls.proxy.port}", "user": USER,
            "password_file": str(cls.password)}}
        cls.world.config.write_text(harness.yaml(cls.world.settings) + "\n")
        cls.world.apply_topics()
        cls.world.start()

    def test_pushes_and_checks_go_through_it(self):
        generator = random.Random(harness.seed())
        devices = [device(generator, f"p{n}", f"p{n}", kind)
                   for n, kind in enumerate(["apns", "fcm", "sandbox"])]
        self.world.register(devices)
        self.world.publish([event(f"through-{n}", d.user) for n, d in enumerate(devices)])
        self.world.wait_settled(30)
        outcomes = [r["outcome"] for r in self.world.results()
                    if r["event_id"].startswith("through-")]
        self.assertEqual(outcomes, ["accepted"] * 3)
        asked = {head[0].split()[1] for head in self.proxy.heads}
        for name in ("apns_production", "apns_sandbox", "fcm", "token_endpoint"):
            host = self.world.gateways.addresses[name].removeprefix("https://").split("/")[0]
            self.assertIn(host, asked)
        before = len(self.proxy.heads)
        done = bugle("check", "--config", self.world.config, "--online")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"through the proxy 127.0.0.1:{self.proxy.port}", done.stdout)
        self.assertGreater(len(self.proxy.heads), before)
        listed = bugle("channels", "list", "--config", self.world.config)
        self.assertEqual(listed.returncode, 0, listed.stdout + listed.stderr)
        host = self.world.gateways.addresses["apns_channels"].removeprefix("https://").split("/")[0]
        self.assertIn(host, {head[0].split()[1] for head in self.proxy.heads})
        log = self.world.dispatcher.log.read_text()
        self.assertNotIn(PASSWORD, log + done.stdout + listed.stderr)
        self.assertNotIn(base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(), log)

    def test_refusals_are_named(self):
        for status, words in ((403, "does not allow that host"), (503, "it answered 503")):
            self.proxy.status = status
            done = bugle("check", "--config", self.world.config, "--online")
            self.proxy.status = 200
            self.assertIn(words, done.stdout, done.stderr)
            self.assertIn(f"through the proxy 127.0.0.1:{self.proxy.port}", done.stdout)
        self.proxy.status = 403
        listed = bugle("channels", "list", "--config", self.world.config)
        self.proxy.status = 200
        self.assertEqual(listed.returncode, 1, listed.stdout)
        self.assertIn(f"through the proxy 127.0.0.1:{self.proxy.port}", listed.stderr)
        settings = json.loads(json.dumps(self.world.settings))
        wrong = self.world.folder / "wrong-password"
        wrong.write_text("wrong")
        settings["egress"]["proxy"]["password_file"] = str(wrong)
        config = self.world.folder / "wrong.yaml"
        config.write_text(harness.yaml(settings) + "\n")
        done = bugle("check", "--config", config, "--online")
        self.assertIn("asks for a user and password it takes: look at egress.proxy", done.stdout)


if __name__ == "__main__":
    unittest.main()
