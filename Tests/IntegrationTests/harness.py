"""A world for the program under test: a Kafka-protocol broker, Redis and the simulated gateways,
each a process of its own on a free loopback port, and `bugle` between them.

The judge talks to Kafka through kcat and `wire`, never through code of the program.
"""

import collections
import dataclasses
import functools
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import wire
from contract import ROOT, errors

PARTITIONS = 24
GROUP = "bugle"
EVENTS, DEVICES, RESULTS = "push.events", "push.devices", "push.results"
INVALIDATIONS, DEAD_LETTERS = "push.invalidations", "push.events-dlt"
# Where events wait that a gateway had no room for, or failed.
WAITING = ["push.events-retry-10s", "push.events-retry-1m", "push.events-parked-apns-production",
           "push.events-parked-apns-sandbox", "push.events-parked-fcm-none"]
START_TIMEOUT = 30  # seconds; a process that is not up by then is broken


def program():
    named = os.environ.get("BUGLE")
    candidates = [named] if named else [ROOT / ".build/release/bugle", ROOT / ".build/debug/bugle"]
    for path in map(pathlib.Path, candidates):
        if path.is_file():
            return str(path.resolve())
    raise AssertionError(f"there is no program at {' or '.join(map(str, candidates))}: build it")


def bugle(*arguments, stdin=None, timeout=60):
    """Runs a command to its end."""
    return subprocess.run(
        [program(), *map(str, arguments)], input=stdin, capture_output=True, text=True,
        timeout=timeout)


def seed():
    """The seed of this run: SEED, or a new one. Tests print it when they fail."""
    return int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))


def free_port():
    """A port that nobody listens on, below those that the kernel gives to outgoing connections:
    one of those could be taken again before its server has started."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait_until(condition, seconds, what):
    """Polls until the condition holds and returns what it returned."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what() if callable(what) else what}")
        pause.wait(0.05)


def pause(seconds):
    """For a test whose subject is time itself, such as a kill at a random moment."""
    threading.Event().wait(seconds)


class Process:
    """A child in a process group of its own, with its output in a file."""

    def __init__(self, arguments, log, stdout=None, environment=None):
        self.log = pathlib.Path(log)
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(
                list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=stdout or output,
                stderr=output, start_new_session=True,
                env={**os.environ, **environment} if environment else None)

    def running(self):
        return self.child.poll() is None

    def signal(self, number):
        if self.running():
            os.killpg(self.child.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.child.wait()

    def stop(self, seconds=10):
        """SIGTERM; returns the exit code. Past the time-out the group is killed."""
        self.signal(signal.SIGTERM)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # A wrapper may be gone while what it started still runs.
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.child.wait()

    def tail(self, lines=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def listening(port):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@dataclasses.dataclass
class Record:
    """A record as kcat shows it."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: dict
    timestamp: int

    @property
    def position(self):
        return (self.topic, self.partition, self.offset)

    @functools.cached_property
    def json(self):
        try:
            return json.loads(self.value)
        except ValueError as e:
            raise AssertionError(f"{e}: {self.value}")


class Kafka:
    """A broker process and what kcat does with it."""

    def __init__(self, folder):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = Process(
            ["noida-db", "start", "--only", "kafka", "--kafka-port", self.port, "--data-dir",
             folder / "broker"],
            folder / "broker.log")
        wait_until(lambda: listening(self.port), START_TIMEOUT, "the broker")

    def stop(self):
        self.process.stop()

    def kcat(self, *arguments, stdin=None, timeout=120):
        done = subprocess.run(
            ["kcat", "-b", self.address, *map(str, arguments)], input=stdin, capture_output=True,
            timeout=timeout)
        if done.returncode != 0:
            raise AssertionError(f"kcat {arguments}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def publish(self, topic, records, headers=None, partitioner="murmur2_random"):
        """Publishes (key, value) pairs; a dictionary is sent as JSON, None as a null value."""
        lines = []
        for key, value in records:
            if isinstance(value, (dict, list)):
                value = json.dumps(value, ensure_ascii=False)
            lines.append(f"{key}\t{value or ''}\n")
        options = [f"-H{name}={value}" for name, value in (headers or {}).items()]
        self.kcat(
            "-P", "-t", topic, "-K", "\\t", "-Z", "-X", f"topic.partitioner={partitioner}",
            *options, stdin="".join(lines).encode())

    def publish_raw(self, topic, key, value):
        """Publishes bytes as they are, whatever they hold."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(value)
            file.flush()
            self.kcat(
                "-P", "-t", topic, "-k", key, "-X", "topic.partitioner=murmur2_random", file.name)

    def read(self, topic):
        """All records of a topic, from the beginning to its present end."""
        out = self.kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J")
        records = []
        for line in out.decode(errors="replace").split("\n"):
            if not line:
                continue
            shown = json.loads(line, strict=False)
            flat = shown.get("headers") or []
            records.append(Record(
                topic, shown["partition"], shown["offset"], shown.get("key"),
                shown.get("payload"), dict(zip(flat[::2], flat[1::2])), shown["ts"]))
        return records

    def partitions(self, topic):
        """How many partitions a topic has; 0 when it does not exist."""
        shown = json.loads(self.kcat("-L", "-J"))
        counts = {entry["topic"]: len(entry["partitions"]) for entry in shown["topics"]}
        return counts.get(topic, 0)

    def create(self, topic):
        """Creates a topic: this broker does so for whoever publishes to one."""
        self.publish(topic, [("first", None)])
        wait_until(lambda: self.partitions(topic) > 0, 30, topic)

    def ends(self, topic):
        return wire.end_offsets(self.address, topic, PARTITIONS)

    def count(self, topic):
        return sum(self.ends(topic).values())

    def committed(self, topic=EVENTS, group=GROUP):
        return wire.committed_offsets(self.address, group, topic, PARTITIONS)

    def is_settled(self, topics=(EVENTS,)):
        """Whether the group has committed everything that was published."""
        for topic in topics:
            committed = self.committed(topic)
            if any(end != 0 and committed.get(partition, -1) != end
                   for partition, end in self.ends(topic).items()):
                return False
        return True


class Redis:
    """A redis-server that keeps nothing."""

    def __init__(self, folder):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = Process(
            ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", folder],
            folder / "redis.log")
        wait_until(lambda: listening(self.port), START_TIMEOUT, "redis-server")

    def stop(self):
        self.process.stop()

    def cli(self, *arguments):
        """The lines that redis-cli answers with."""
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *map(str, arguments)], capture_output=True,
            check=True, timeout=30)
        return done.stdout.decode(errors="replace").splitlines()

    def dump(self):
        """Everything that is stored, as one text."""
        return "\n".join(
            "\n".join([key, *self.cli("HGETALL", key)]) for key in self.cli("KEYS", "*"))


class Gateways:
    """`bugle simulate`: APNs, FCM and the token endpoint, with keys and a CA of their own."""

    def __init__(self, folder, faults=None, options=()):
        self.folder = folder
        self.journal_file = folder / "journal.jsonl"
        arguments = [program(), "simulate", "--state", folder, "--json", "--journal",
                     self.journal_file, *options]
        if faults is not None:
            (folder / "faults.json").write_text(json.dumps(faults))
            arguments += ["--faults", folder / "faults.json"]
        self.process = Process(arguments, folder / "simulate.log", stdout=subprocess.PIPE)
        line = self.process.child.stdout.readline()
        if not line:
            raise AssertionError(f"bugle simulate said nothing:\n{self.process.tail()}")
        self.addresses = json.loads(line)
        apps = json.loads((folder / "bugle.apps.json").read_text())
        self.apps = apps.get("apps", apps)

    def stop(self):
        self.process.stop()
        self.process.child.stdout.close()

    def journal(self):
        """Every request that a gateway has read, in order."""
        lines = self.journal_file.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1] if line]


def yaml(value, depth=0):
    """Block YAML of dictionaries, lists as flow."""
    lines = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{'  ' * depth}{key}:", yaml(item, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key}: {json.dumps(item)}")
    return "\n".join(lines)


class World:
    """Everything that one test class needs. Stop it with `close`."""

    def __init__(
            self, faults=None, drain_deadline="20s", properties=None, commit="transactional",
            index=None, gateway_options=(), settings=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-test-"))
        self.parts = []
        self.dispatcher = None
        self.generation = 0
        try:
            self.kafka = self.keep(Kafka(self.folder))
            self.redis = self.keep(Redis(self.folder))
            self.gateways = self.keep(Gateways(self.folder, faults, gateway_options))
            self.admin_port = free_port()
            self.config = self.folder / "bugle.yaml"
            self.settings = {
                "kafka": {
                    "brokers": self.kafka.address, "group": GROUP, "commit": commit,
                    "topics": {
                        "events": EVENTS, "devices": DEVICES, "invalidations": INVALIDATIONS,
                        "results": RESULTS, "dead_letters": DEAD_LETTERS},
                    "properties": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
                                   **(properties or {})},
                },
                "redis": {"address": self.redis.address, "prefix": "bugle:"},
                "index": {"store": "redis", **(index or {})},
                "apps": self.gateways.apps,
                "lanes": 2,
                "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
                "drain_deadline": drain_deadline,
                **(settings or {}),
            }
            self.config.write_text(yaml(self.settings) + "\n")
        except BaseException:
            self.close()
            raise

    def keep(self, part):
        self.parts.append(part)
        return part

    def close(self):
        if self.dispatcher and self.dispatcher.running():
            self.dispatcher.kill()
        for part in reversed(self.parts):
            part.stop()
        if not os.environ.get("KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def tail(self):
        return f"{self.folder}\n{self.dispatcher.tail()}" if self.dispatcher else str(self.folder)

    # The program under test.

    def apply_topics(self):
        done = bugle("topics", "apply", "--config", self.config)
        if done.returncode != 0:
            raise AssertionError(f"topics apply: {done.stdout}{done.stderr}")
        return done

    def start(self):
        """Starts the dispatcher; returns once it is ready."""
        self.launch()
        self.wait_ready()

    def launch(self):
        self.generation += 1
        self.dispatcher = Process(
            [program(), "run", "--config", self.config],
            self.folder / f"bugle-{self.generation}.log")

    def wait_ready(self):
        answer = [None]

        def ready():
            if not self.dispatcher.running():
                raise AssertionError(f"bugle run has ended:\n{self.tail()}")
            answer[0] = self.get("/readyz")
            return answer[0][0] == 200

        wait_until(ready, 60, lambda: f"readiness, last answer {answer[0]}:\n{self.tail()}")

    def get(self, path):
        """An answer of the admin listener: status and text; status 0 when nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def kill(self):
        self.dispatcher.kill()

    def terminate(self, seconds=30):
        """SIGTERM; the exit code, None when it did not end in time."""
        return self.dispatcher.stop(seconds)

    # What goes in.

    def register_only(self, devices):
        """Registers devices; events find them soon."""
        self.kafka.publish(DEVICES, [(device.key, device.record()) for device in devices])

    def register(self, devices):
        """Registers devices and returns once events find the last of every partition."""
        self.register_only(devices)
        probes = probe_devices()
        self.kafka.publish(DEVICES, [(probe.key, probe.record()) for probe in probes])
        pending, round_number = {probe.user: probe for probe in probes}, 0
        while pending:
            round_number += 1
            ids = {f"probe-{round_number}-{user}": user for user in pending}
            self.publish([event(id, user) for id, user in ids.items()])
            found = {}

            def answered():
                for result in self.results():
                    if result["event_id"] in ids:
                        found[result["event_id"]] = result["outcome"]
                return len(found) == len(ids)

            wait_until(answered, 60, lambda: f"results of the probes:\n{self.tail()}")
            for id, user in ids.items():
                if found[id] != "no_devices":
                    del pending[user]
            if round_number > 50:
                raise AssertionError(f"the index does not learn the devices of {list(pending)}")

    def publish(self, events):
        self.kafka.publish(EVENTS, [(str(event["user_id"]), event) for event in events])

    # What comes out.

    def results(self):
        """All result records, duplicates included, each checked against its schema."""
        return [checked("push.results", record).json for record in self.kafka.read(RESULTS)]

    def dead_letters(self):
        return self.kafka.read(DEAD_LETTERS)

    def wait_settled(self, seconds):
        def settled():
            if not self.dispatcher.running():
                raise AssertionError(f"bugle run has ended:\n{self.tail()}")
            return self.kafka.is_settled()

        wait_until(settled, seconds, lambda: (
            f"commits up to the end: {self.kafka.committed()} of {self.kafka.ends(EVENTS)}\n"
            f"{self.tail()}"))


def checked(name, record):
    """The record, if it fits its schema."""
    problems = errors(name, record.json)
    if problems:
        raise AssertionError(f"{record.position} against {name}: {problems}: {record.value[:500]}")
    return record


@dataclasses.dataclass(frozen=True)
class Device:
    """One address of kind alert."""

    user: str
    install: str
    gateway: str
    environment: str
    token: str
    registered_at: int

    @property
    def key(self):
        return f"shop/{self.install}"

    @property
    def token_hash(self):
        return hashlib.sha256(self.token.encode()).hexdigest()[:8]

    def record(self):
        return {
            "v": 1, "app": "shop", "install_id": self.install, "kind": "alert",
            "user_id": self.user, "platform": "android" if self.gateway == "fcm" else "ios",
            "gateway": self.gateway, "environment": self.environment, "token": self.token,
            "version": 1, "registered_at": self.registered_at,
        }


TOKEN_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def device(generator, user, install, kind="apns", mark=None):
    """A device with a token of its own; kind is apns, sandbox or fcm.

    A mark, itself hex digits, starts the token so that a script of faults can name it.
    """
    now, mark = int(time.time() * 1000), mark or "0000"
    if kind == "fcm":
        letters = "".join(generator.choices(TOKEN_LETTERS, k=152))
        token = f"{mark}{letters[:18]}:APA91b{letters[18:]}"
        return Device(user, install, "fcm", "none", token, now)
    environment = "sandbox" if kind == "sandbox" else "production"
    return Device(user, install, "apns", environment, mark + generator.randbytes(30).hex(), now)


def probe_devices():
    """One device for each partition of the device topic."""
    generator, found, number = random.Random(), {}, 0
    run = generator.randrange(1 << 32)
    while len(found) < PARTITIONS:
        number += 1
        install = f"probe-{run}-{number}"
        partition = wire.partition_of(f"shop/{install}", PARTITIONS)
        if partition not in found:
            found[partition] = device(generator, f"{install}-user", install)
    return list(found.values())


def event(id, user, **fields):
    """A native event with content of its own."""
    return {
        "v": 1, "id": id, "type": "order.shipped", "user_id": user,
        "notification": {"title": "On its way", "body": f"Order {id} arrives tomorrow."}, **fields}


def latency(low, high):
    """A script of faults: answers take that many milliseconds."""
    return {"rules": [{"effect": {"delay_ms": [low, high]}}]}


def dead_tokens(mark, latency_ms=None):
    """A script of faults: tokens that start with the mark are dead."""
    rules = latency(*latency_ms)["rules"] if latency_ms else []
    gone = [
        (["apns-production", "apns-sandbox"], {"status": 410, "reason": "Unregistered"}),
        (["fcm"], {"status": 404, "reason": "UNREGISTERED"})]
    return {"rules": rules + [
        {"service": services, "token_prefix": mark, "effect": {"answer": answer}}
        for services, answer in gone]}


def message_id(entry):
    """The message that a line of the gateways' journal is about; None for a request for a token."""
    return entry.get("message_id")


def by_event(results):
    grouped = collections.defaultdict(list)
    for result in results:
        grouped[(result["input_topic"], result["input_partition"], result["input_offset"])].append(
            result)
    return grouped


class WorldTest(unittest.TestCase):
    """A test class with one world. `faults` is the script of its gateways."""

    faults = None
    drain_deadline = "20s"
    kafka_properties = None
    commit = "transactional"
    index_settings = None
    gateway_options = ()
    settings = None
    # Topics beside those that `bugle topics apply` makes.
    topics = ()

    @classmethod
    def setUpClass(cls):
        cls.world = World(
            cls.faults, cls.drain_deadline, cls.kafka_properties, cls.commit, cls.index_settings,
            cls.gateway_options, cls.settings)
        cls.addClassCleanup(cls.world.close)
        cls.world.apply_topics()
        for topic in cls.topics:
            cls.world.kafka.create(topic)
        cls.world.start()
