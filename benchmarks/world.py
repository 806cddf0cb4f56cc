"""What the rows about the whole pipeline run against: a Kafka broker with a publisher, Redis, a
gateway and Bugle, each a process of its own on free loopback ports, so that CPU time and memory
are Bugle's alone.
"""

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

PARTITIONS = 24
KEY_ID, TEAM_ID, TOPIC = "ABCDE12345", "DEF123GHIJ", "com.example.shop"
# The header fields of a push, as h2load sends them.
JWT = ("bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ."
       "eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzY0NDYwODAwfQ."
       "M2Y4b3VyU2lnbmF0dXJlSXNGaWN0aW9uYWxBbmRPbmx5SGVyZUZvckl0c0xlbmd0aE9rQXl5"
       "WnpaMTIzNDU2Nzg5MA")
FIELDS = [
    ("authorization", JWT), ("apns-topic", TOPIC), ("apns-push-type", "alert"),
    ("apns-priority", "10"), ("apns-id", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
    ("apns-expiration", "1764547200"), ("apns-collapse-id", "order-123456"),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(condition, seconds, what, pause=0.02):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(pause)


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


def h2load(bench, gateway, body_bytes, requests, connections=2, streams=100):
    """Runs h2load with the header fields of a push; returns CPU microseconds per request and
    requests per second."""
    uris, body = os.path.join(bench.scratch, "uris"), os.path.join(bench.scratch, "push-body")
    with open(uris, "w") as file:
        file.writelines(f"https://127.0.0.1:{gateway.port}{path}\n" for path in gateway.paths)
    with open(body, "wb") as file:
        file.write(bytes(97 + index % 26 for index in range(body_bytes)))
    command = ["h2load", "-n", str(requests), "-c", str(connections), "-m", str(streams),
               "-d", body, "-i", uris]
    for name, value in FIELDS:
        command += ["-H", f"{name}: {value}"]
    cpu, wall, text = bench.measured(command)
    if f"{requests} succeeded" not in text:
        raise SystemExit(f"h2load did not succeed:\n{text}")
    return cpu / requests, requests / wall


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

    def __init__(self, bench, users, device_partitions=PARTITIONS, options=()):
        super().__init__(
            [bench.product("BenchmarkBroker"), "--partitions", str(PARTITIONS),
             "--device-partitions", str(device_partitions), "--users", str(users), *options],
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

    def __init__(self, bench, users, name="nghttpd"):
        root = os.path.join(bench.scratch, "htdocs")
        folder = os.path.join(root, "3", "device")
        os.makedirs(folder, exist_ok=True)
        self.paths = []
        for user in range(users):
            for token in tokens_of(user):
                self.paths.append("/3/device/" + token)
                file = os.path.join(folder, token)
                if not os.path.exists(file):
                    open(file, "w").close()
        self.port = free_port()
        self.certificate, key, self.signing_key = credentials(bench.scratch)
        super().__init__(
            ["nghttpd", "-d", root, "-a", "127.0.0.1", str(self.port), key, self.certificate],
            bench.scratch, name)
        wait_until(lambda: self.check() and listens(self.port), 10, "nghttpd")

    @property
    def apps(self):
        return apps(self.port, self.certificate, self.signing_key)


class Pair:
    """Two nghttpd: APNs' production and its sandbox, which can be taken away."""

    def __init__(self, bench, users):
        self.production = Nghttpd(bench, users)
        self.sandbox = Nghttpd(bench, users, "nghttpd-sandbox")

    @property
    def apps(self):
        found = self.production.apps
        found["shop"]["apns"]["endpoints"]["sandbox"] = f"https://localhost:{self.sandbox.port}"
        return found

    def check(self):
        self.production.check()
        return self

    def stop(self):
        self.sandbox.process.send_signal(signal.SIGCONT)
        self.sandbox.stop()
        self.production.stop()


class Simulator(Child):
    """Bugle's simulated gateways, whose answers take a fixed time: a far gateway. They write what
    they received to a journal, if one is named."""

    def __init__(self, bench, delay_ms, journal=None):
        folder = tempfile.mkdtemp(prefix="simulator-", dir=bench.scratch)
        faults = os.path.join(folder, "faults.json")
        with open(faults, "w") as file:
            json.dump({"rules": [{"service": "apns-production", "effect": {"delay_ms": delay_ms}}]}, file)
        super().__init__(
            [bench.product("bugle"), "simulate", "--json", "--state", folder, "--faults", faults,
             *(["--journal", journal, "--bodies"] if journal else [])],
            bench.scratch, os.path.basename(folder), stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            self.check()
            raise SystemExit("bugle simulate said nothing")
        self.addresses = json.loads(line)
        self.file = os.path.join(folder, "bugle.apps.json")

    @property
    def apps(self):
        with open(self.file) as file:
            return json.load(file)["apps"]


def apps(port, certificate, key):
    """The section `apps` for one app that sends to a server on this machine."""
    endpoint = f"https://localhost:{port}"
    return {"shop": {"apns": {
        "team_id": TEAM_ID, "key_id": KEY_ID, "key_file": key, "topic": TOPIC,
        "ca_file": certificate,
        "endpoints": {"production": endpoint, "sandbox": endpoint}}}}


class Bugle(Child):
    """`bugle run`, the process under test, ready to dispatch."""

    def __init__(self, bench, broker, redis, gateway, lanes=1, connections=(2, 2), commit="plain",
                 kafka=None, events=None, routes=None, dispatch=None):
        self.admin = free_port()
        folder = tempfile.mkdtemp(prefix="bugle-", dir=bench.scratch)
        config = os.path.join(folder, "bugle.yaml")
        with open(config, "w") as file:
            json.dump({
                "kafka": {
                    "brokers": broker.bootstrap, "group": "bugle",
                    "commit": commit, "instance": os.path.basename(folder),
                    **({"topics": {"events": events}} if events else {}),
                    "properties": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
                                   **(kafka or {})}},
                "redis": {"address": f"127.0.0.1:{redis.port}"},
                "apps": gateway.apps, "lanes": lanes, "routes": routes or {},
                # What is measured is sending, also of many silent pushes to one device.
                "caps": {"silent": "none"},
                "dispatch": {"connections": {"apns": {
                    "min": connections[0], "max": connections[1]}}, **(dispatch or {})},
                "admin": {"listen": f"127.0.0.1:{self.admin}"}}, file)
        super().__init__([bench.product("bugle"), "run", "--config", config], bench.scratch,
                         os.path.basename(folder))
        self.awaited = 0

    def ready(self, devices=0):
        """Waits until it dispatches; the index is filled before."""
        wait_until(lambda: self.check() and self.get("/readyz")[0] == 200, 60 + devices / 2_000,
                   "bugle run")
        return self

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def series(self, name):
        """The series of one metric: their labels, as written, and values."""
        found = {}
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + "{"):
                labels, value = line[len(name):].rsplit(" ", 1)
                found[labels] = float(value)
        return found

    def metrics(self):
        """Each metric's sum over its labels."""
        sums = {}
        for line in self.get("/metrics")[1].splitlines():
            if line and line[0] != "#":
                series, value = line.rsplit(" ", 1)
                name = series.split("{")[0]
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def settled(self):
        return int(self.metrics().get("bugle_outcomes_total", 0))

    def wait_for(self, pushes, timeout=120):
        """Waits until so many more pushes have outcomes and all results are delivered."""
        self.awaited += pushes

        def done():
            self.check()
            now = self.metrics()
            return (now.get("bugle_outcomes_total", 0) >= self.awaited
                    and now.get("bugle_outbox_records", 1) == 0)

        wait_until(done, timeout, f"{self.awaited} outcomes", pause=0.05)

    def accepted_only(self):
        """Ends the benchmark if anything but `accepted` came out."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(("bugle_outcomes_total", "bugle_event_outcomes_total",
                                "bugle_dead_letters_total")) \
                    and 'outcome="accepted"' not in line and not line.endswith(" 0"):
                raise SystemExit(f"not every push was accepted: {line}")


class World:
    """A broker with registered devices, Redis, a gateway and Bugle, ready."""

    def __init__(self, bench, users=400, lanes=1, gateway=None, device_partitions=PARTITIONS,
                 connections=(2, 2), commit="plain", kafka=None, events=None, publisher=(),
                 routes=None, dispatch=None):
        self.users = users
        self.parts = []
        try:
            self.broker = self.keep(Broker(bench, users, device_partitions, publisher))
            self.devices = self.broker.tell("devices")["devices"]
            self.redis = self.keep(Redis(bench))
            self.gateway = self.keep(gateway or Nghttpd(bench, users))
            self.bugle = self.keep(
                Bugle(bench, self.broker, self.redis, self.gateway, lanes, connections, commit,
                      kafka, events, routes, dispatch))
        except BaseException:
            self.close()
            raise

    def keep(self, part):
        self.parts.append(part)
        return part

    def close(self):
        for part in reversed(self.parts):
            part.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def pushes(events):
        """How many pushes a multiple of four events becomes."""
        return events * 5 // 2

    def warm_up(self):
        """Fills Bugle's pools and caches; returns the size of a payload in bytes."""
        self.bugle.ready(self.devices)
        self.broker.tell("meter")
        self.broker.tell("events 4000")
        self.bugle.wait_for(self.pushes(4000))
        seen = {"accepted": 0, "payload_bytes": 0}

        def metered():
            report = self.broker.tell("report")
            seen["accepted"] += report["accepted"]
            seen["payload_bytes"] = report["payload_bytes"] or seen["payload_bytes"]
            return seen["accepted"] >= self.pushes(4000)

        wait_until(metered, 30, "results of the first events", pause=0.1)
        self.broker.tell("unmeter")
        return seen["payload_bytes"]

    def saturate(self, events):
        """Publishes events while Bugle is stopped, lets it run, and waits until every result is
        delivered. Returns CPU microseconds per push and pushes per second."""
        pushes = self.pushes(events)
        os.kill(self.bugle.pid, signal.SIGSTOP)
        self.broker.tell(f"events {events}")
        cpu, start = self.bugle.cpu(), time.monotonic()
        os.kill(self.bugle.pid, signal.SIGCONT)
        self.bugle.wait_for(pushes)
        wall = time.monotonic() - start
        return (self.bugle.cpu() - cpu) / pushes, pushes / wall
