"""The world that the chaos harness breaks: broker, Redis and gateways as processes of their own,
some replicas of Bugle, and a link that can be cut between each replica and each server."""

import json
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import harness
from chaos_links import Links
from harness import DEAD_LETTERS, DEVICES, EVENTS, GROUP, INVALIDATIONS, RESULTS, Process

SERVICES = ("kafka", "redis", "production", "sandbox", "fcm")
GATEWAYS = ("production", "sandbox", "fcm")
SESSION_TIMEOUT = 6  # seconds, the least that the broker takes


class Store(harness.Redis):
    """A Redis that forgets everything when it is started again."""

    def __init__(self, folder):
        super().__init__(folder)
        self.folder = folder

    def down(self):
        self.process.kill()

    def up(self):
        self.process = Process(
            ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", self.folder], self.folder / "redis.log")
        harness.wait_until(lambda: harness.listening(self.port), 30, "redis-server")


class Replica:
    """One Bugle, behind links of its own, with a wall clock of its own if it is to have one."""

    def __init__(self, world, number, lanes, has_clock):
        self.world, self.name = world, f"replica-{number}"
        self.admin_port = harness.free_port()
        self.generation = 0
        self.process = None
        self.clock = world.folder / f"{self.name}.clock" if has_clock else None
        if has_clock:
            self.clock.write_bytes(struct.pack("i", 0))
        links, apps = world.links, json.loads(json.dumps(world.gateways.apps))
        shop = apps["shop"]
        for holder, key in (
                (shop["apns"]["endpoints"], "production"), (shop["apns"]["endpoints"], "sandbox"),
                (shop["fcm"], "endpoint")):
            port = int(holder[key].rsplit(":", 1)[1])
            name = "fcm" if key == "endpoint" else key
            holder[key] = f"https://localhost:{links.open(f'{self.name}/{name}', port)}"
        # Another app, which sends nothing: what is parked for the first must not go on for its sake.
        apps["idle"] = json.loads(json.dumps(shop))
        broker = links.open(f"{self.name}/kafka", world.kafka.port, is_broker=True)
        redis = links.open(f"{self.name}/redis", world.redis.port)
        self.config = world.folder / f"{self.name}.yaml"
        self.config.write_text(harness.yaml({
            "kafka": {
                "brokers": f"127.0.0.1:{broker}", "group": GROUP, "instance": self.name,
                "topics": {
                    "events": EVENTS, "devices": DEVICES, "invalidations": INVALIDATIONS,
                    "results": RESULTS, "dead_letters": DEAD_LETTERS},
                "properties": {
                    # This broker never forgets a dynamic member that went without a word.
                    "group.instance.id": self.name,
                    "session.timeout.ms": SESSION_TIMEOUT * 1000, "heartbeat.interval.ms": 1000}},
            "redis": {"address": f"127.0.0.1:{redis}", "prefix": "bugle:"},
            "apps": apps, "lanes": lanes, "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
        }) + "\n")

    def set_clock(self, offset):
        """Its wall clock differs by so many seconds from now on; its monotonic one does not."""
        with open(self.clock, "r+b") as file:
            file.write(struct.pack("i", offset))

    def start(self, has_full_disk=False):
        """Starts it; on a full disk nothing of its log can be written."""
        self.generation += 1
        command = [harness.program(), "run", "--config", self.config]
        if has_full_disk:
            command = ["sh", "-c", "exec \"$@\" >/dev/full 2>&1", "sh", *command]
        environment = self.clock and {
            "LD_PRELOAD": str(self.world.clock_library), "CHAOS_CLOCK": str(self.clock)}
        self.process = Process(
            command, self.world.folder / f"{self.name}-{self.generation}.log",
            environment=environment)

    def running(self):
        return self.process is not None and self.process.running()

    def ready(self):
        self.world.admin_port = self.admin_port
        return harness.World.get(self.world, "/readyz")[0] == 200


class ChaosWorld:
    """Everything that one seed needs. Stop it with `close`."""

    def __init__(self, replicas, lanes, faults, has_clocks=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-chaos-"))
        self.parts, self.replicas = [], []
        try:
            self.links = self.keep(Links())
            self.kafka = self.keep(harness.Kafka(self.folder))
            self.redis = self.keep(Store(self.folder))
            self.gateways = self.keep(harness.Gateways(self.folder, faults))
            if has_clocks:
                self.clock_library = self.build_clock()
            self.replicas = [Replica(self, number, lanes, has_clocks) for number in range(replicas)]
            # For commands: past the links, with the same topics and the same group.
            self.config = self.folder / "bugle.yaml"
            self.config.write_text("\n".join(
                f"  brokers: {json.dumps(self.kafka.address)}" if line.startswith("  brokers:")
                else line for line in self.replicas[0].config.read_text().splitlines()) + "\n")
        except BaseException:
            self.close()
            raise

    def build_clock(self):
        """The library that gives a process its own clock; Swift brings the compiler."""
        library = self.folder / "chaos_clock.so"
        subprocess.run(
            ["clang", "-O1", "-shared", "-fPIC", "-o", library,
             pathlib.Path(__file__).with_name("chaos_clock.c")], check=True)
        return library

    def keep(self, part):
        self.parts.append(part)
        return part

    def close(self, keep=False):
        for replica in self.replicas:
            if replica.running():
                replica.process.signal(signal.SIGCONT)
                replica.process.kill()
        for part in reversed(self.parts):
            part.stop()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def now_ms():
    return int(time.time() * 1000)
