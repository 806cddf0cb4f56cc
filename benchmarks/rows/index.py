"""The token index against a redis-server of its own: how fast an index is built anew from records,
in how much memory, what an address takes in Redis, and that a builder which was killed in the
middle has a successor that goes on from there; then the CPU time that a look-up costs Bugle at
several pipeline depths (two addresses a user, the bucket's marker read with each)."""

import json
import signal
import socket
import subprocess
import time

TITLE = "Token index"
PRODUCTS = ["IndexBenchmark"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def redis(port, *words):
    return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True,
                          text=True).stdout


def used_memory(port):
    for line in redis(port, "INFO", "memory").splitlines():
        if line.startswith("used_memory:"):
            return int(line.split(":")[1])
    raise SystemExit("redis-server does not say how much memory it uses")


def command(bench, port, *options):
    return [bench.product("IndexBenchmark"), "--port", str(port), *map(str, options)]


def run(bench, port, *options):
    _, _, text = bench.measured(command(bench, port, *options), timeout=900)
    return json.loads(text.strip().splitlines()[-1])


def crash_and_resume(bench, port, addresses):
    """Kills a builder about half way; what its successor says, and what is there in the end."""
    redis(port, "FLUSHALL")
    killed = subprocess.run(
        command(bench, port, "--mode", "build", "--users", addresses // 2, "--crash-after",
                addresses // 2), stdout=subprocess.DEVNULL, timeout=900)
    if killed.returncode != -signal.SIGKILL:
        raise SystemExit(f"the builder was to be killed and ended with {killed.returncode}")
    resumed = run(bench, port, "--mode", "build", "--users", addresses // 2)
    counts = run(bench, port, "--mode", "count")
    if not 0 < resumed["start"] < addresses or counts["active"] != addresses:
        raise SystemExit(f"no resumption: {resumed}, {counts}")
    return {"start": int(resumed["start"]), "addresses": int(counts["active"])}


def measure(bench):
    addresses = 40_000 if bench.quick else 1_000_000
    users = addresses // 2
    look_ups = 200_000 if bench.quick else 1_000_000
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--appendonly", "no", "--dir", bench.scratch], stdout=subprocess.DEVNULL)
    try:
        while redis(port, "PING").strip() != "PONG":
            time.sleep(0.05)
        empty = used_memory(port)
        built = run(bench, port, "--mode", "build", "--users", users)
        size = (used_memory(port) - empty) / addresses
        result = {"build": built, "redis_bytes_per_address": round(size), "addresses": addresses}
        growth = built["rss_end_mib"] - built["rss_quarter_mib"]
        result["table"] = [
            (f"rebuild of {addresses:,} addresses",
             f"{built['per_second']:,.0f} records a second, {built['cpu_us']:.1f} us CPU each"),
            ("memory of the builder",
             f"{built['rss_end_mib']:.0f} MiB, {growth:+.1f} since a quarter of it"),
            ("memory of Redis", f"{size:,.0f} bytes an address"),
        ]
        for depth in (32, 8, 1):
            values = [run(bench, port, "--users", users, "--depth", depth,
                          "--look-ups", look_ups if depth > 1 else look_ups // 10)
                      for _ in range(3)]
            cost = bench.median(value["cpu_us"] for value in values)
            rate = bench.median(value["per_second"] for value in values)
            renewal = bench.median(value["renewal_cpu_percent"] for value in values)
            result[f"look_up_{depth}"] = {"cpu_us": round(cost, 2), "per_second": round(rate)}
            result["renewal_cpu_percent"] = round(renewal, 2)
            result["table"].append((f"look-up, pipeline {depth}",
                                    f"{cost:.2f} us CPU, {rate:,.0f} a second"))
        result["table"].append(("renewing the markers of 1,024 buckets",
                                f"{result['renewal_cpu_percent']:.1f} % of a core"))
        resumed = crash_and_resume(bench, port, addresses)
        result["resumed"] = resumed
        result["table"].append(("after a kill half way, the next one goes on at record",
                                f"{resumed['start']:,}, and all are there"))
    finally:
        server.kill()
        server.wait()
    return result
