"""What a device shows in the end, by how its app treats pushes: the experiment behind the kind `hint`.

A server applies 30 changes to a few items, numbers them, and keeps the last 8 in its log. `bugle run`
sends two pushes of each to a simulated APNs: one with the change in its payload, and a hint that
says only how far the log has come. What the gateway received is then brought to a simulated device
by channels that do what gateways document, a thousand times each:

    lossy        30 % are lost, 10 % come twice, each is late by up to four steps
    keep latest  an absent device gets the newest one when it is back, as APNs keeps it
    overflow     past a number of waiting ones all are dropped, as FCM does at a hundred

The apps: `payload` applies what a push says, in the order of arrival; `hint` asks the server when a
hint is beyond its own number; `hint + sync` does that, and once more when it comes to the
foreground. Asked for what the log does not reach back to, the server answers with everything.
"""

import base64
import json
import os
import random
import time

import world

TITLE = "Devices that show the truth in the end, of 1,000"
PRODUCTS = ["bugle", "BenchmarkBroker"]

CHANGES, KEPT, ITEMS, SEEDS = 30, 8, 8, 1_000
LOSS, TWICE, LATE_MAX = 0.3, 0.1, 4
WAITING_MAX = 10
ROUTES = {
    "item.changed": {"kind": "silent", "ttl": "1d", "data": {
        "item": "{{payload.item}}", "value": "{{payload.value}}"}},
    "item.hint": {"kind": "hint", "ttl": "1d"},
}


class Server:
    """The truth at every step: step n is after change n."""

    def __init__(self, changes):
        self.changes = changes
        self.now = 0

    def snapshot(self):
        state = {}
        for change in self.changes[:self.now]:
            state[change["item"]] = change["value"]
        return state

    def since(self, cursor):
        """The changes behind a cursor, or None and everything when the log is too short."""
        if cursor < self.now - KEPT:
            return None, self.snapshot()
        return self.changes[cursor:self.now], None


class App:
    """A client on one device."""

    def __init__(self, server, pulls):
        self.server = server
        self.pulls = pulls
        self.state, self.cursor = {}, 0

    def receive(self, push):
        if not self.pulls:
            self.state[push["item"]] = push["value"]
        elif push["seq"] > self.cursor:
            self.sync()

    def sync(self):
        changes, everything = self.server.since(self.cursor)
        if everything is not None:
            self.state, self.cursor = everything, self.server.now
            return
        for change in changes:
            # Only the next one: whatever else came is not applied.
            if change["seq"] == self.cursor + 1:
                self.state[change["item"]] = change["value"]
                self.cursor = change["seq"]


def lossy(pushes, draw):
    """Pairs of a step and the push that arrives there."""
    for step, push in enumerate(pushes, 1):
        for _ in range(2 if draw.random() < TWICE else 1):
            if draw.random() >= LOSS:
                yield step + draw.randint(0, LATE_MAX), push


def keep_latest(pushes, draw):
    gone, back = absence(draw)
    kept = None
    for step, push in enumerate(pushes, 1):
        if gone <= step < back:
            kept = push
        else:
            yield step, push
    if kept is not None:
        yield back, kept


def overflow(pushes, draw):
    gone, back = absence(draw)
    waiting = []
    for step, push in enumerate(pushes, 1):
        if gone <= step < back:
            waiting.append(push)
        else:
            yield step, push
    if len(waiting) <= WAITING_MAX:
        for push in waiting:
            yield back, push


def absence(draw):
    """When the device goes away; it is back when all is over."""
    return draw.randint(2, CHANGES - WAITING_MAX - 2), CHANGES + 1


CHANNELS = {"lossy": lossy, "keep latest": keep_latest, "overflow": overflow}


def converges(changes, pushes, channel, seed, pulls, syncs):
    server = Server(changes)
    app = App(server, pulls)
    arrivals = {}
    for step, push in channel(pushes, random.Random(seed)):
        arrivals.setdefault(step, []).append(push)
    for step in range(1, CHANGES + LATE_MAX + 2):
        server.now = min(step, CHANGES)
        for push in arrivals.get(step, []):
            app.receive(push)
    if syncs:
        app.sync()
    return app.state == server.snapshot()


def record(bench, changes):
    """Has Bugle send every change both ways; returns what APNs received."""
    journal = os.path.join(bench.scratch, "journal")
    parts = []
    try:
        broker = world.Broker(bench, 4)
        parts.append(broker)
        redis = world.Redis(bench)
        parts.append(redis)
        gateway = world.Simulator(bench, 0, journal=journal)
        parts.append(gateway)
        device = {
            "v": 1, "app": "shop", "install_id": "phone", "user_id": "ada", "platform": "ios",
            "gateway": "apns", "environment": "production", "token": "c0" * 32, "version": 1,
            "registered_at": int(time.time() * 1000)}
        broker.tell(f"record push.devices shop/phone {json.dumps(device)}")
        bugle = world.Bugle(bench, broker, redis, gateway, routes=ROUTES)
        parts.append(bugle)
        bugle.ready(1)
        for change in changes:
            for kind in ("changed", "hint"):
                event = {
                    "id": f"{kind}-{change['seq']}", "type": f"item.{kind}", "user_id": "ada",
                    "cursor": {"log": "items", "seq": change["seq"]},
                    "payload": {"item": change["item"], "value": change["value"]}}
                broker.tell(f"record push.events ada {json.dumps(event)}")
                # One after the other: hints that come faster than they are sent become one.
                bugle.wait_for(1)
        bugle.accepted_only()
    finally:
        for part in reversed(parts):
            part.stop()
    return [decoded(line) for line in open(journal)]


def decoded(line):
    text = json.loads(line)["body"]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def hints_only(bodies):
    """A hint has nothing but how far its log has come."""
    for body in bodies:
        if set(body) - {"aps", "bugle"} or body["aps"] != {"content-available": 1} \
                or set(body["bugle"]["cursor"]) != {"log", "seq"}:
            raise SystemExit(f"not a bare hint: {body}")
    return [body["bugle"]["cursor"] for body in bodies]


def measure(bench):
    draw = random.Random(30)
    changes = [{"seq": seq, "item": f"item-{draw.randrange(ITEMS)}",
                "value": str(draw.randrange(1_000))} for seq in range(1, CHANGES + 1)]
    received = record(bench, changes)
    payloads = [body for body in received if body["bugle"]["type"] == "item.changed"]
    hints = hints_only(body for body in received if body["bugle"]["type"] == "item.hint")
    if len(payloads) != CHANGES or [hint["seq"] for hint in hints] != list(range(1, CHANGES + 1)):
        raise SystemExit("not every change was sent, in its order")
    result = {"changes": CHANGES, "seeds": SEEDS, "converged": {}, "table": []}
    for name, channel in CHANNELS.items():
        counts = [
            sum(converges(changes, pushes, channel, seed, pulls, syncs) for seed in range(SEEDS))
            for pushes, pulls, syncs in (
                (payloads, False, False), (hints, True, False), (hints, True, True))]
        result["converged"][name] = dict(zip(("payload", "hint", "hint_and_sync"), counts))
        result["table"].append(
            (f"{name}: payload / hint / hint + sync", " / ".join(f"{count:,}" for count in counts)))
    check(result["converged"])
    return result


def check(converged):
    """The pattern, whatever the numbers of a channel: a payload is worth what the channel is, a hint
    heals with the next one, and only asking oneself is certain."""
    lossy_, latest, over = (converged[name] for name in CHANNELS)
    holds = (
        all(counts["hint_and_sync"] == SEEDS for counts in converged.values())
        and lossy_["payload"] < SEEDS // 4 < SEEDS // 2 < lossy_["hint"] < SEEDS
        and latest["payload"] < SEEDS // 20 and latest["hint"] == SEEDS
        and over["payload"] < SEEDS // 100 and over["hint"] == 0)
    if not holds:
        raise SystemExit(f"the pattern does not hold: {converged}")
