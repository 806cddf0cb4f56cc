"""The resident memory of `bugle run` at full load: with 1,000 devices for as long as the run allows
(it has to stay flat), and with many more, all of which get pushes."""

import time

import world

TITLE = "Memory at full load"
PRODUCTS = ["bugle", "BenchmarkBroker"]

# Pushes that lie in Kafka ahead of Bugle, so that it never waits for events.
AHEAD = 40_000
# Events published at a time.
STEP = 8_000


class Load:
    """Keeps one world at full load and notes its memory."""

    def __init__(self, here):
        self.here = here
        here.warm_up()
        self.published = here.bugle.settled()
        self.samples = []

    def step(self):
        settled = self.here.bugle.settled()
        if self.published - settled < AHEAD:
            self.here.broker.tell(f"events {STEP}")
            self.published += self.here.pushes(STEP)
            self.here.bugle.awaited = self.published
        self.samples.append((time.monotonic(), self.here.bugle.rss_mib()))

    def drive(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
            time.sleep(0.2)
        self.here.bugle.wait_for(0)
        self.here.bugle.accepted_only()

    def summary(self):
        """The largest size, and by how much the last quarter is above the second, in MiB."""
        sizes = [size for _, size in self.samples]
        quarter = max(len(sizes) // 4, 1)
        growth = sum(sizes[-quarter:]) / quarter - sum(sizes[quarter:2 * quarter]) / quarter
        return max(sizes), growth


def measure(bench):
    seconds, users, partitions = (8, 10_000, 24) if bench.quick else (600, 400_000, 96)
    with world.World(bench) as here:
        load = Load(here)
        idle = here.bugle.rss_mib()
        load.drive(seconds)
        rss, growth = load.summary()
    bench.note(f"1,000 devices: {rss:.1f} MiB, {growth:+.1f} MiB")
    with world.World(bench, users=users, device_partitions=partitions) as here:
        load = Load(here)
        load.drive(4 if bench.quick else 120)
        many, _ = load.summary()
        devices = here.devices
    result = {"rss_mib": round(rss, 1), "growth_mib": round(growth, 1), "seconds": seconds,
              "idle_mib": round(idle, 1), "many_devices": devices, "many_rss_mib": round(many, 1)}
    result["table"] = [
        (f"1,000 devices, {seconds} s",
         f"{rss:.0f} MiB at most, {growth:+.1f} MiB from the second quarter to the last"),
        (f"{devices:,} devices", f"{many:.0f} MiB at most"),
    ]
    return result
