"""What a gateway that is dead costs the others, and Bugle's memory.

Half of the users have devices of APNs' production, half of its sandbox; each is a server of its
own, and a bulkhead. A round publishes events for both while Bugle is stopped, lets it run, and
takes the time until every push to production has its result: once with both servers well, then
with nobody listening at the sandbox's port, then with a sandbox that takes connections and says
nothing. The ratio is production's pace with the sandbox dead over its pace with both well; the
target is 0.9. Then events for the dead sandbox alone pile up in its parking topic, and Bugle's
memory has to stay flat.
"""

import os
import signal
import time

import world

TITLE = "One gateway dead"
PRODUCTS = ["bugle", "BenchmarkBroker"]

# Results that lie in Kafka ahead of Bugle while the backlog grows.
STEP = 8_000


def outcomes(here, environment):
    """Results of pushes to one of the two."""
    return sum(value for labels, value in here.bugle.series("bugle_outcomes_total").items()
               if f'environment="{environment}"' in labels)


def parked(here):
    """Targets that left for the sandbox's parking topic or a retry topic."""
    return sum(value for labels, value in here.bugle.series("bugle_targets_postponed_total").items()
               if 'environment="sandbox"' in labels)


def pace(here, events):
    """Publishes while Bugle stands still; returns production's pushes a second."""
    wanted = outcomes(here, "production") + here.pushes(events) / 2
    os.kill(here.bugle.pid, signal.SIGSTOP)
    here.broker.tell(f"events {events}")
    start = time.monotonic()
    os.kill(here.bugle.pid, signal.SIGCONT)
    world.wait_until(lambda: outcomes(here, "production") >= wanted, 180,
                     "the results of production", pause=0.02)
    return here.pushes(events) / 2 / (time.monotonic() - start)


def one(bench, events, death):
    """The pace with both well, and with the sandbox dead."""
    with here_with_both(bench) as here:
        here.warm_up()
        well = [pace(here, events) for _ in range(2 if bench.quick else 3)][-1]
        world.wait_until(lambda: outcomes(here, "sandbox") >= outcomes(here, "production"), 60,
                         "the results of the sandbox")
        here.gateway.sandbox.process.send_signal(death)
        dead = [pace(here, events) for _ in range(2 if bench.quick else 3)]
        here.bugle.check()
    return well, dead


def here_with_both(bench):
    return world.World(bench, gateway=world.Pair(bench, 400), publisher=["--sandbox"])


def backlog(bench, events):
    """Memory while the backlog of the dead sandbox grows to so many events."""
    with here_with_both(bench) as here:
        here.warm_up()
        here.gateway.sandbox.process.send_signal(signal.SIGKILL)
        sizes, published = [], 0
        wanted = outcomes(here, "production")
        while published < 2 * events:
            here.broker.tell(f"events {STEP}")
            published += STEP
            here.bugle.awaited = 0
            wanted += here.pushes(STEP) / 2
            world.wait_until(lambda: outcomes(here, "production") >= wanted - 20_000, 120,
                             "production to keep up")
            sizes.append(here.bugle.rss_mib())
    quarter = max(len(sizes) // 4, 1)
    growth = sum(sizes[-quarter:]) / quarter - sum(sizes[quarter:2 * quarter]) / quarter
    return max(sizes), growth, published // 2


def measure(bench):
    events = 16_000 if bench.quick else 80_000
    result = {"table": [], "events_per_round": events}
    for name, death in (("refused", signal.SIGKILL), ("silent", signal.SIGSTOP)):
        well, dead = one(bench, events, death)
        # The first round is the one that opens the breaker.
        result[name] = {
            "well_per_second": round(well), "dead_per_second": [round(value) for value in dead],
            "first_ratio": round(dead[0] / well, 2), "ratio": round(dead[-1] / well, 2)}
        result["table"].append((
            f"sandbox {name}: production's pace over that with both well",
            f"{dead[0] / well:.2f} in the round that notices, {dead[-1] / well:.2f} then"))
    result["ratio"] = min(result[name]["ratio"] for name in ("refused", "silent"))
    most, growth, count = backlog(bench, 40_000 if bench.quick else 1_000_000)
    result["backlog"] = {"events": count, "rss_mib": round(most, 1), "growth_mib": round(growth, 1)}
    result["table"].append((
        f"memory with a backlog of {count:,} events for it",
        f"{most:.0f} MiB at most, {growth:+.1f} MiB from the second quarter to the last"))
    return result
