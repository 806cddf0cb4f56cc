"""The token index against a redis-server of its own: the CPU time that a look-up costs Bugle at
several pipeline depths (two addresses a user, the bucket's marker read with each), how fast an
index is built from records, and what an address takes in Redis."""

import json
import os
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


def run(bench, port, *options):
    _, _, text = bench.measured([bench.product("IndexBenchmark"), "--port", str(port), *options])
    return json.loads(text.strip().splitlines()[-1])


def measure(bench):
    users = 20_000 if bench.quick else 500_000
    look_ups = 200_000 if bench.quick else 1_000_000
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--appendonly", "no", "--dir", bench.scratch], stdout=subprocess.DEVNULL)
    try:
        while redis(port, "PING").strip() != "PONG":
            time.sleep(0.05)
        empty = used_memory(port)
        built = run(bench, port, "--mode", "build", "--users", str(users))
        size = (used_memory(port) - empty) / (2 * users)
        result = {"build": built, "redis_bytes_per_address": round(size), "addresses": 2 * users}
        result["table"] = [
            (f"build from {2 * users:,} records",
             f"{built['per_second']:,.0f} a second, {built['cpu_us']:.1f} us CPU each"),
            ("memory of Redis", f"{size:,.0f} bytes an address"),
        ]
        for depth in (32, 8, 1):
            values = [run(bench, port, "--users", str(users), "--depth", str(depth),
                          "--look-ups", str(look_ups if depth > 1 else look_ups // 10))
                      for _ in range(3)]
            cost = bench.median(value["cpu_us"] for value in values)
            rate = bench.median(value["per_second"] for value in values)
            result[f"look_up_{depth}"] = {"cpu_us": round(cost, 2), "per_second": round(rate)}
            result["table"].append((f"look-up, pipeline {depth}",
                                    f"{cost:.2f} us CPU, {rate:,.0f} a second"))
    finally:
        server.kill()
        server.wait()
    return result
