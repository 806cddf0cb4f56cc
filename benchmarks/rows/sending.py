"""The whole pipeline at each gateway: CPU time per push of `bugle run`, all threads, user and system,
from the moment when all events lie in Kafka to the moment when every result is delivered there.

The gateway is `bugle simulate`, a process of its own, for all four alike: over real TLS and HTTP/2,
with every rule of its own that a request has to meet. So the figures compare gateways with each
other; what APNs costs against h2load is the row `pipeline`. Each event is native JSON of about 500
bytes for 1 to 4 devices, 2.5 on average. Web push encrypts every message for its subscription and
has one VAPID token for all. Expo takes 600 messages a second of a project, so that the users are
spread over several projects, each with an app of its own; a hundred messages share a request.
"""

import json

import world

TITLE = "Sending, CPU per push at each gateway"
PRODUCTS = ["bugle", "BenchmarkBroker", "GatewayBenchmark"]

GATEWAYS = ["apns", "fcm", "webpush", "expo"]
EXPO_PROJECTS = 8


class Gateways(world.Simulator):
    """The simulated gateways, with one of them in the apps."""

    def __init__(self, bench, gateway):
        super().__init__(bench, 0)
        self.gateway = gateway

    @property
    def apps(self):
        section = {self.gateway: super().apps["shop"][self.gateway]}
        count = EXPO_PROJECTS if self.gateway == "expo" else 1
        names = ["shop"] if count == 1 else [f"shop{number}" for number in range(count)]
        return {name: section for name in names}

    @property
    def publisher(self):
        """How the publisher registers devices there."""
        options = ["--gateway", self.gateway]
        if self.gateway == "webpush":
            options += ["--endpoint", self.addresses["webpush"]]
        if self.gateway == "expo":
            options += ["--apps", str(EXPO_PROJECTS)]
        return options


def one(bench, gateway, rounds, events):
    """Microseconds per push and pushes a second, of each round."""
    gateways = Gateways(bench, gateway)
    with world.World(bench, gateway=gateways, publisher=gateways.publisher) as here:
        payload = here.warm_up()
        found = [here.saturate(events) for _ in range(rounds)]
        here.bugle.accepted_only()
    return found, payload


def measure(bench):
    rounds = 3 if bench.quick else 7
    result = {"rounds": rounds}
    for gateway in GATEWAYS:
        # Expo's projects take so many a second, whatever a push costs.
        events = {"expo": 8_000, "webpush": 12_000}.get(gateway, 24_000) // (4 if bench.quick else 1)
        found, payload = one(bench, gateway, rounds, events)
        result[gateway] = {
            "us_per_push": round(bench.median([cpu for cpu, _ in found]), 2),
            "pushes_per_second": round(bench.median([rate for _, rate in found])),
            "payload_bytes": payload, "events_per_round": events}
    _, _, text = bench.measured([bench.product("GatewayBenchmark"), str(rounds)])
    building = json.loads(text.strip().splitlines()[-1])
    result["webpush_encryption_us"] = building["webpush_encryption_us"]
    apns = result["apns"]["us_per_push"]
    result["table"] = [
        (name, f"{row['us_per_push']:.2f} us, {row['us_per_push'] / apns:.1f} times APNs, "
               f"{row['pushes_per_second']:,} pushes a second")
        for name, row in ((name, result[name]) for name in GATEWAYS)
    ] + [("encryption of a web push, of that",
          f"{result['webpush_encryption_us']:.1f} us, target at most 150")]
    return result
