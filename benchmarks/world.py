"""What the rows about the whole pipeline run against: a Kafka broker with a publisher, Redis, a
gateway and Bugle, each a process of its own on free loopback ports, so that CPU time and memory
are Bugle's alone.
"""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request

PARTITIONS = 24
KEY_ID, TEAM_ID, TOPIC = "ABCDE12345", "DEF123GHIJ", "com.example.shop"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.02)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def devices_of(user):
    """How many devices the publisher gives a user: 2.5 on average over any four users."""
    return user % 4 + 1


def tokens_of(user):
    return [hashlib.sha256(f"install-{user}-{device}".encode()).hexdigest()
            for device in range(devices_of(user))]


def credentials(folder):
    """A certificate for localhost, an APNs key, and where they are."""
    certificate, key = os.path.join(folder, "certificate.pem"), os.path.join(folder, "key.pem")
    signing = os.path.join(folder, "apns.p8")
    if not os.path.exists(certificate):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj",
             "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
            check=True, stderr=subprocess.DEVNULL)
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-out", signing], check=True, stderr=subprocess.DEVNULL)
    return certificate, key, signing


class Child:
    """A process that is ended with its world."""

    def __init__(self, command, folder, name, **options):
        self.name = name
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stderr=log, stdout=options.pop("stdout", log), **options)

    @property
    def pid(self):
        return self.process.pid

    def check(self):
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as log:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}:\n"
                                 + log.read()[-4000:])
        return self

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def cpu(self):
        """CPU time of all threads, user and system, in microseconds."""
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
            except FileNotFoundError:
                pass
        return total / 1000

    def rss_mib(self):
        with open(f"/proc/{self.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024


class Broker(Child):
    """librdkafka's mock cluster with Bugle's topics, and the publisher."""

    def __init__(self, bench, users, device_partitions=PARTITIONS):
        super().__init__(
            [bench.product("BenchmarkBroker"), "--partitions", str(PARTITIONS),
             "--device-partitions", str(device_partitions), "--users", str(users)],
            bench.scratch, "broker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bootstrap = self.answer()["bootstrap"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.check()
            raise SystemExit("the broker said nothing")
        return json.loads(line)

    def start(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def tell(self, command):
        self.start(command)
        return self.answer()

    def stop(self):
        self.process.stdin.close()
        super().stop()


class Redis(Child):
    def __init__(self, bench):
        self.port = free_port()
        super().__init__(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", bench.scratch], bench.scratch, "redis")
        wait_until(lambda: self.check() and listens(self.port), 10, "redis-server")


class Nghttpd(Child):
    """nghttpd answers 200 with an empty body, as APNs does: one empty file per device token."""

    def __init__(self, bench, users, delay=None):
        self.root = os.path.join(bench.scratch, "htdocs")
        folder = os.path.join(self.root, "3", "device")
        os.makedirs(folder, exist_ok=True)
        self.paths = []
        for user in range(users):
            for token in tokens_of(user):
                self.paths.append("/3/device/" + token)
                file = os.path.join(folder, token)
                if not os.path.exists(file):
                    open(file, "w").close()
        self.port = free_port()
        self.certificate, key, _ = credentials(bench.scratch)
        super().__init__(
            ["nghttpd", "-d", self.root, "-a", "127.0.0.1", str(self.port), key,
             self.certificate], bench.scratch, "nghttpd")
        wait_until(lambda: self.check() and listens(self.port), 10, "nghttpd")
