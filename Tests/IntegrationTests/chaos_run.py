"""One seed of the chaos harness: a schedule drawn from the seed, carried out on a world, and the
judgement of what came of it."""

import collections
import dataclasses
import json
import os
import random
import signal
import socket
import threading
import time

import harness
from chaos_judge import Disturbance, Judge
from chaos_world import GATEWAYS, ChaosWorld, now_ms
from harness import DEVICES, EVENTS, bugle, event, wait_until

USERS = 60
MOVERS = 40  # devices that change their owner
RATE = 120  # events a second
SETTLE_TIMEOUT = 180  # seconds, for what is left when all is well again
WAITING_TIMEOUT = 90  # seconds, for what waits in the short retry topics
RECOVERY = 12  # seconds that a replica may need to commit again after its broker was away
POISON = ["not json", "{\"id\":\"x\"}", "[]", "{\"type\":\"t\"}", None]
POISON_SHARE = 0.01
COLLAPSED_SHARE = 0.15  # of the events, which have one of a few collapse keys of their user

# What a seed is about. Planned stops alone must repeat nothing, and each kind of damage is seen
# best without the others; "everything" is drawn twice as often.
PROFILES = {
    "planned": ["terminate"],
    "crash": ["kill", "kill", "terminate"],
    "servers": ["broker away", "broker stall", "redis restart", "redis stall"],
    "network": ["cut", "hang", "slow"],
    "gateways": ["terminate"],
    "machines": ["clock", "clock", "full disk", "kill"],
    "everything": [
        "kill", "kill", "terminate", "broker away", "broker stall", "redis restart", "redis stall",
        "cut", "hang", "slow", "freeze", "clock", "full disk"],
}
DRAW = [*PROFILES, "everything"]


@dataclasses.dataclass
class Step:
    """Something to do, so many seconds after the start."""

    at: float
    action: str
    replica: int = 0
    service: str = ""
    span: float = 0.0
    clock: int = 0


def gateway_faults(generator, seconds):
    """Rules for the simulator: every kind of fault that it knows, each now and then."""
    until = int(seconds * 1000)
    effects = [
        "refuse", "cut_before", "cut_after", {"html": 502}, {"delay_ms": [200, 1500]},
        {"answer": {"status": 429, "reason": "TooManyRequests"}},
        {"answer": {"status": 503, "reason": "Shutdown"}},
        {"answer": {"status": 403, "reason": "ExpiredProviderToken"}},
        {"reset": {"codes": [8], "processed": True}}, {"reset": {"codes": [7], "processed": False}},
        {"go_away": {"debug": "{\"reason\":\"Shutdown\"}", "graceful": True}},
        {"go_away": {"last_stream": "current", "close_after_ms": 200}},
        {"settings": {"max_concurrent_streams": 5}}, {"settings": {"max_concurrent_streams": 500}},
        {"withhold_window_updates_ms": 400}, "ignore_pings", "withhold_answer",
        {"play_dead": {"processed": True}}, "break_tls", "stall_tls", "without_http2",
        "reset_on_accept",
    ]
    rules = [{"effect": {"delay_lognormal_ms": {"median": 15, "sigma": 0.8}}, "until_ms": until}]
    for effect in generator.sample(effects, generator.randrange(4, 9)):
        start = generator.uniform(0, seconds * 0.7)
        rules.append({
            "effect": effect, "from_ms": int(start * 1000),
            "until_ms": int(min(start + generator.uniform(1, seconds / 3), seconds) * 1000),
            "probability": generator.choice([0.002, 0.01, 0.05]),
            **({"service": generator.choice(["apns-production", "apns-sandbox", "fcm"])}
               if generator.random() < 0.7 else {})})
    return {"seed": generator.randrange(1, 1 << 31), "rules": rules}


class Plan:
    """Everything that a seed decides."""

    def __init__(self, seed, seconds):
        self.seed = seed
        generator = random.Random(seed)
        self.profile = generator.choice(DRAW)
        self.replicas = generator.randrange(1, 4)
        self.lanes = generator.randrange(1, 3)
        has_faults = self.profile in ("gateways", "everything")
        self.faults = gateway_faults(generator, seconds) if has_faults else {
            "rules": [{"effect": {"delay_ms": [2, 40]}}]}
        self.steps, at = [], 0.0
        while True:
            at += generator.uniform(1.5, 5)
            if at > seconds:
                break
            self.steps.append(Step(
                at, generator.choice(PROFILES[self.profile]),
                generator.randrange(self.replicas),
                generator.choice(["kafka", "redis", *GATEWAYS]), generator.uniform(0.3, 4),
                generator.choice([-30, -5, 5, 30])))
        # A process whose clock can be set is another one: not without need.
        self.has_clocks = any(step.action == "clock" for step in self.steps)
        self.devices_seed = generator.randrange(1 << 32)

    def __str__(self):
        steps = ", ".join(
            f"{s.at:.1f} {s.action} {s.replica}"
            + (f"/{s.service}" if s.action in ("cut", "hang", "slow") else "")
            + (f" {s.clock:+d} s" if s.action == "clock" else "") for s in self.steps)
        return (f"{self.profile}, {self.replicas} replicas of {self.lanes} lanes; {steps}; "
                f"{len(self.faults['rules'])} gateway rules")


class Owners:
    """Moves devices to other users while everything runs, and watches when the index has it."""

    def __init__(self, world, generator):
        self.world, self.generator = world, generator
        self.seen, self.open = {}, {}
        self.stream = None
        self.movers = []

    def devices(self):
        """Devices that stay and devices that move, with users that have both."""
        steady, devices = collections.defaultdict(set), []
        for number in range(USERS):
            user = f"user-{number}"
            for index in range(self.generator.choice([0, 1, 1, 2, 3])):
                kind = self.generator.choice(["apns", "apns", "fcm", "sandbox"])
                devices.append(harness.device(
                    self.generator, user, f"steady-{number}-{index}", kind))
                steady[user].add(devices[-1].install)
        for number in range(MOVERS):
            kind = self.generator.choice(["apns", "fcm"])
            owner = self.generator.randrange(USERS)
            device = harness.device(self.generator, f"user-{owner}", f"mover-{number}", kind)
            devices.append(device)
            # Its owners in their order, none of them twice.
            owners = [n for n in range(USERS) if n != owner]
            self.generator.shuffle(owners)
            self.movers.append([device, owners, 1])
        return devices, steady

    def move_one(self):
        """The next device goes to its next owner. Whether the broker took it, the topic says."""
        mover = self.generator.choice(self.movers)
        device, owners, version = mover
        if not owners or any(install == device.install for install, _ in self.open):
            return
        user = f"user-{owners.pop()}"
        mover[2] = version + 1
        mover[0] = dataclasses.replace(device, user=user, registered_at=now_ms())
        record = {**mover[0].record(), "version": mover[2]}
        try:
            self.world.kafka.publish(DEVICES, [(mover[0].key, record)])
        except AssertionError:
            pass  # the broker is away; the record may be there or not
        self.open[(device.install, user)] = harness_key(user)

    def look(self):
        """Notes what the index has by now."""
        for (install, user), key in list(self.open.items()):
            if self.ask("HEXISTS", key, f"shop/{install}") == b":1":
                self.seen[(install, user)] = now_ms()
                del self.open[(install, user)]

    def ask(self, *words):
        """One command of Redis with a one-line answer; None while it is away."""
        try:
            if self.stream is None:
                connection = socket.create_connection(
                    ("127.0.0.1", self.world.redis.port), timeout=2)
                self.stream = connection.makefile("rwb")
                connection.close()
            parts = b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
            self.stream.write(b"*%d\r\n%s" % (len(words), parts))
            self.stream.flush()
            line = self.stream.readline()
            if line:
                return line.rstrip()
        except OSError:
            pass
        if self.stream is not None:
            try:
                self.stream.close()
            except OSError:
                pass
        self.stream = None
        return None


def harness_key(user):
    """Where the index keeps a user's addresses, as `RedisLayout.swift` says."""
    hash = 0xCBF29CE484222325
    for byte in f"shop:{user}".encode():
        hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"bugle:{{b{(hash ^ (hash >> 32)) % 1024}}}:u:shop:{user}"


class Run:
    """One seed."""

    def __init__(self, plan, seconds):
        self.plan, self.seconds = plan, seconds
        self.generator = random.Random(plan.devices_seed)
        self.stopped = threading.Event()
        self.disturbances = []
        self.threads, self.failures = [], []
        self.published = 0
        self.world = None

    def run(self, keep):
        """Returns the verdict, and the folder if it was kept."""
        self.world = ChaosWorld(
            self.plan.replicas, self.plan.lanes, self.plan.faults, self.plan.has_clocks)
        verdict = None
        try:
            self.prepare()
            self.disturb()
            audit = self.recover()
            judge = Judge(self.world, self.owners.seen, self.disturbances, self.steady)
            verdict = judge.judge(audit)
            for failure in self.failures:
                verdict.lost += 1
                verdict.note(failure)
            return verdict
        finally:
            self.stopped.set()
            for thread in self.threads:
                thread.join(30)
            failed = verdict is None or bool(verdict.problems)
            self.world.close(keep=keep and failed)

    # Before, meanwhile, after.

    def prepare(self):
        world = self.world
        done = bugle("topics", "apply", "--config", world.config)
        if done.returncode != 0:
            raise AssertionError(f"topics apply: {done.stdout}{done.stderr}")
        self.owners = Owners(world, self.generator)
        devices, self.steady = self.owners.devices()
        world.kafka.publish(DEVICES, [(device.key, device.record()) for device in devices])
        for replica in world.replicas:
            replica.start()
        self.wait_ready()
        # The index has all devices before the first event, so that each has its known targets.
        waiting = {(d.install, d.user): harness_key(d.user) for d in devices}
        self.owners.open = waiting

        def indexed():
            self.owners.look()
            return not self.owners.open

        wait_until(indexed, 60, lambda: f"the index: {list(self.owners.open)[:3]}")
        self.owners.seen.clear()

    def disturb(self):
        self.began = time.monotonic()
        for body in (self.publish, self.move):
            self.threads.append(threading.Thread(target=self.guard, args=(body,)))
            self.threads[-1].start()
        for step in self.plan.steps:
            self.stopped.wait(max(0, self.began + step.at - time.monotonic()))
            self.carry_out(step)
        self.stopped.wait(max(0, self.began + self.seconds - time.monotonic()))

    def guard(self, body):
        try:
            body()
        except Exception as e:  # a judge that is ill must not pass for a healthy world
            self.failures.append(f"{body.__name__}: {e!r}")

    def publish(self):
        generator = random.Random(self.plan.devices_seed + 1)
        while not self.stopped.wait(0.25):
            records = []
            for _ in range(RATE // 4):
                user = f"user-{generator.randrange(USERS)}"
                if generator.random() < POISON_SHARE:
                    records.append((user, generator.choice(POISON)))
                    continue
                self.published += 1
                fields = {"app": "shop"}
                if generator.random() < COLLAPSED_SHARE:
                    fields["collapse_key"] = f"score-{generator.randrange(2)}"
                records.append((user, event(f"chaos-{self.published}", user, **fields)))
            try:
                self.world.kafka.kcat(
                    "-P", "-t", EVENTS, "-K", "\\t", "-Z",
                    "-X", "topic.partitioner=murmur2_random", "-X", "message.timeout.ms=3000",
                    stdin="".join(
                        f"{key}\t{value if isinstance(value, str) else json.dumps(value) if value else ''}\n"
                        for key, value in records).encode())
            except AssertionError:
                pass  # the broker is away; what it took is in the topic

    def move(self):
        while not self.stopped.wait(0.05):
            self.owners.look()
            if self.generator.random() < 0.1:
                self.owners.move_one()

    def recover(self):
        """Everything is well again; returns the audit once nothing changes any more."""
        self.stopped.set()
        for thread in self.threads:
            thread.join(30)
        for name in self.world.links.links:
            self.world.links.set(name, "up")
        for replica in self.world.replicas:
            if replica.clock:
                replica.set_clock(0)
            if not replica.running():
                replica.start()
        self.wait_ready()
        wait_until(
            self.world.kafka.is_settled, SETTLE_TIMEOUT,
            lambda: "commits up to the end: "
            f"{self.world.kafka.committed()} of {self.world.kafka.ends(EVENTS)}")
        deadline, audit = time.monotonic() + WAITING_TIMEOUT, self.audit()
        while audit["waiting"] and time.monotonic() < deadline:
            harness.pause(2)
            audit = self.audit()
        for topic in self.backlog():
            # The gateways are well: what still stands there is stuck. Retry topics have their times.
            if "-parked-" in topic["topic"] and topic["records"]:
                self.failures.append(f"{topic['records']} events stay in {topic['topic']}")
        for replica in self.world.replicas:
            code = replica.process.stop(40)
            if code != 0:
                self.failures.append(
                    f"{replica.name} ended with {code}:\n{replica.process.tail(5)}")
        return self.audit()

    def audit(self):
        done = bugle("audit", "--config", self.world.config, "--json", timeout=120)
        if not done.stdout:
            raise AssertionError(f"bugle audit: {done.stderr}")
        return json.loads(done.stdout)

    def backlog(self):
        done = bugle("backlog", "--config", self.world.config, "--json", timeout=120)
        if not done.stdout:
            raise AssertionError(f"bugle backlog: {done.stderr}")
        return json.loads(done.stdout)["topics"]

    def wait_ready(self):
        def ready():
            for replica in self.world.replicas:
                if not replica.running():
                    raise AssertionError(
                        f"{replica.name} has ended:\n{replica.process.tail(5)}")
            return all(replica.ready() for replica in self.world.replicas)

        wait_until(ready, 90, lambda: "replicas to be ready: " + "\n".join(
            replica.process.tail(3) for replica in self.world.replicas))

    # The steps.

    def carry_out(self, step):
        replica = self.world.replicas[step.replica]
        start = now_ms()
        after = 0
        kind = step.action
        if step.action == "clock":
            # What it had until the next step, or the end, is another machine's time.
            replica.set_clock(step.clock)
            kind = "planned"
        elif step.action in ("terminate", "full disk"):
            kind = "planned"
            code = replica.process.stop(40)
            # Before it has said a word it does not listen for signals yet.
            if code != 0 and not (code == -signal.SIGTERM and not replica.process.tail()):
                self.failures.append(
                    f"{replica.name} was stopped and ended with {code}: {replica.process.tail(3)}")
            self.stopped.wait(step.span / 4)
            replica.start(has_full_disk=step.action == "full disk")
        elif step.action == "kill":
            replica.process.kill()
            # What was committed before is not repeated; the rest began before now.
            self.disturbances.append(Disturbance("kill", start, now_ms()))
            self.stopped.wait(step.span)
            replica.start()
            return
        elif step.action == "broker away":
            # As its restart looks to the replicas. The broker of these tests forgets records that
            # it has acknowledged, and open transactions, when it is really started again.
            links = [f"{r.name}/kafka" for r in self.world.replicas]
            for name in links:
                self.world.links.set(name, "cut")
            self.stopped.wait(step.span)
            for name in links:
                self.world.links.set(name, "up")
            after = RECOVERY
        elif step.action == "broker stall":
            self.world.kafka.process.signal(signal.SIGSTOP)
            self.stopped.wait(step.span)
            self.world.kafka.process.signal(signal.SIGCONT)
            after = RECOVERY
        elif step.action == "redis restart":
            self.world.redis.down()
            self.stopped.wait(step.span)
            self.world.redis.up()
            kind = "planned"  # nobody's answer is lost by it
        elif step.action == "redis stall":
            self.world.redis.process.signal(signal.SIGSTOP)
            self.stopped.wait(step.span)
            self.world.redis.process.signal(signal.SIGCONT)
            kind = "planned"
        elif step.action == "freeze":
            replica.process.signal(signal.SIGSTOP)
            self.stopped.wait(step.span)
            replica.process.signal(signal.SIGCONT)
            after = RECOVERY
        else:
            state = {"cut": "cut", "hang": "hung", "slow": "slow"}[step.action]
            name = f"{replica.name}/{step.service}"
            self.world.links.set(name, state, step.span / 16 if state == "slow" else 0)
            self.stopped.wait(step.span)
            self.world.links.set(name, "up")
            if step.service == "redis":
                kind = "planned"
            elif step.service == "kafka":
                after = RECOVERY
            else:
                kind = "gateway link"
        self.disturbances.append(Disturbance(kind, start, now_ms() + after * 1000))


def run_seed(seed, minutes, keep=None):
    """Runs one seed; returns the plan, the verdict and what went wrong with the run itself."""
    plan = Plan(seed, minutes * 60)
    keep = bool(os.environ.get("KEEP")) if keep is None else keep
    run = Run(plan, minutes * 60)
    try:
        return plan, run.run(keep), None, run
    except Exception as e:
        return plan, None, f"{type(e).__name__}: {e}", run
