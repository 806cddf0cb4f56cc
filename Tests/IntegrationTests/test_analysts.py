"""What the page for analysts promises, with real results: its SQL runs in DuckDB as it stands there
and counts what the run did; its field dictionary is the schema's."""

import collections
import json
import os
import random
import re
import subprocess
import sys
import unittest

import duckdb

import harness
from contract import ROOT, schema
from harness import event

PAGE = ROOT / "topics/analysts.md"


def statements():
    """The SQL of the page, the views first; reports have a name in a comment."""
    return [s.strip() for s in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.S)]


def monday(millis):
    """The number of the week, counted from Mondays as the epoch was a Thursday."""
    return (millis // 86_400_000 + 3) // 7


class Dictionary(unittest.TestCase):
    def test_it_is_the_schemas(self):
        done = subprocess.run(
            [sys.executable, ROOT / "topics/dictionary", "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_names_every_field(self):
        text = PAGE.read_text()
        for name in ["push.results", "push.acks"]:
            for field in schema(name)["properties"]:
                self.assertIn(f"| `{field}` |", text)

    def test_read_committed_comes_first(self):
        first = PAGE.read_text().split("\n\n")[1]
        self.assertIn("`isolation.level=read_committed`", first)


class Reports(unittest.TestCase):
    """One run with known numbers: ada has a phone and a tablet, grace a phone with a dead token."""

    @classmethod
    def setUpClass(cls):
        world = harness.World(faults=harness.dead_tokens("dead"))
        cls.addClassCleanup(world.close)
        cls.world = world
        world.settings["routes"] = {"order.*": {"title": "Order {{payload.order}}"}}
        world.config.write_text(harness.yaml(world.settings) + "\n")
        world.apply_topics()
        world.start()
        generator = random.Random(1)
        phone = harness.device(generator, "ada", "ada-phone")
        tablet = harness.device(generator, "ada", "ada-tablet", "fcm")
        dead = harness.device(generator, "grace", "grace-phone", mark="dead")
        # Waits until the index knows them; their probes are events of type order.shipped too.
        world.register([phone, tablet])
        world.kafka.publish(harness.DEVICES, [
            (phone.key, {**phone.record(), "version": 2, "app_version": "2.0"}),
            (tablet.key, {**tablet.record(), "version": 2, "app_version": "1.0"}),
            (dead.key, {**dead.record(), "app_version": "1.0"})])
        cls.wait_for_versions(world)
        spring = {"labels": {"campaign": "spring"}}
        world.publish(
            [event(f"spring-{n}", "ada", type="news", **spring) for n in range(5)]
            + [event("spring-grace", "grace", type="news", **spring),
               event("spring-nobody", "nobody", type="news", **spring)]
            + [{"id": f"order-{n}", "type": "order.paid", "user_id": "ada",
                "payload": {"order": n}} for n in range(3)])
        world.wait_settled(60)
        cls.results = [r for r in world.results() if r.get("event_type") in ("news", "order.paid")]
        cls.folder = world.folder / "analysis"
        cls.folder.mkdir()
        # A run across the end of a week would have its rows twice: it counts as two hours earlier.
        times = [r["settled_at"] for r in cls.results]
        if monday(min(times)) != monday(max(times)):
            for result in cls.results:
                for field in ("settled_at", "event_time"):
                    result[field] -= 2 * 3600 * 1000
        lines = [json.dumps(r) + "\n" for r in cls.results]
        # A topic that was partly read twice.
        (cls.folder / "results.jsonl").write_text("".join(lines + lines[:7]))
        accepted = [r for r in cls.results if r["outcome"] == "accepted"]
        cls.acknowledged = [r for r in accepted if r["event_id"] == "spring-0"]
        acks = [(r, "delivered") for r in cls.acknowledged for _ in range(2)]
        acks.append((cls.acknowledged[0], "opened"))
        (cls.folder / "acks.jsonl").write_text("".join(
            json.dumps({"v": 1, "message_id": r["message_id"], "app": r["app"],
                        "install_id": r["install_id"], "type": type, "ts": r["settled_at"]}) + "\n"
            for r, type in acks))
        cls.database = duckdb.connect()
        cls.addClassCleanup(cls.database.close)
        cls.reports = {}
        before = os.getcwd()
        os.chdir(cls.folder)
        try:
            for statement in statements():
                name = re.match(r"-- report: (.*)", statement)
                answer = cls.database.execute(statement)
                if name:
                    columns = [column[0] for column in answer.description]
                    cls.reports[name[1]] = [dict(zip(columns, row)) for row in answer.fetchall()]
        finally:
            os.chdir(before)

    @classmethod
    def wait_for_versions(cls, world):
        """Until results tell the versions, the index has the newer registrations."""
        number = 0

        def known():
            nonlocal number
            number += 1
            world.publish([event(f"wait-{number}-{user}", user, type="wait")
                           for user in ("ada", "grace")])
            world.wait_settled(60)
            seen = [r for r in world.results() if r["event_id"].startswith(f"wait-{number}-")]
            versions = {r["install_id"]: r.get("app_version") for r in seen}
            # The dead token is gone from the second round on.
            known.seen.update({k: v for k, v in versions.items() if k and v})
            return known.seen == {
                "ada-phone": "2.0", "ada-tablet": "1.0", "grace-phone": "1.0"}

        known.seen = {}
        harness.wait_until(known, 60, lambda: f"the versions, seen {known.seen}")
        # The dead one signs in again, with another token that is dead.
        again = harness.device(random.Random(2), "grace", "grace-phone", mark="dead")
        world.kafka.publish(
            harness.DEVICES, [(again.key, {**again.record(), "version": 2, "app_version": "1.0"})])

        def back():
            dump = "\n".join(world.redis.dump().splitlines())
            return again.token in dump

        harness.wait_until(back, 60, "the new token in the index")

    def report(self, name, *columns):
        return collections.Counter(
            {tuple(row[c] for c in columns[:-1]): row[columns[-1]] for row in self.reports[name]})

    def test_the_run_is_the_one_that_was_planned(self):
        self.assertEqual(
            collections.Counter((r["event_type"], r["outcome"]) for r in self.results),
            {("news", "accepted"): 10, ("news", "token_invalid"): 1, ("news", "no_devices"): 1,
             ("order.paid", "accepted"): 6})

    def test_the_funnel_counts_each_thing_once(self):
        rows = {row["route"]: row for row in self.reports["funnel by route"]}
        self.assertEqual(set(rows), {"news", "order.*"})
        news = {k: v for k, v in rows["news"].items() if k not in ("week", "route")}
        self.assertEqual(news, {
            "events": 7, "targets": 11, "sent": 11, "accepted": 10, "delivered": 2, "opened": 1})
        self.assertEqual(
            (rows["order.*"]["events"], rows["order.*"]["accepted"], rows["order.*"]["delivered"]),
            (3, 6, 0))

    def test_labels_versions_and_reasons(self):
        (spring,) = self.reports["by label"]
        self.assertEqual(
            [spring[c] for c in ("campaign", "targets", "accepted", "errors", "not_wanted")],
            ["spring", 11, 10, 1, 1])
        self.assertEqual(
            self.report("by app version", "platform", "app_version", "accepted"),
            {("ios", "2.0"): 8, ("android", "1.0"): 8, ("ios", "1.0"): 0})
        self.assertEqual(
            self.report("by app version", "app_version", "platform", "dead_percent")["1.0", "ios"],
            100.0)
        self.assertEqual(
            self.report("by reason", "gateway", "outcome", "reason", "results"),
            {("apns", "token_invalid", "Unregistered"): 1, (None, "no_devices", "none"): 1})

    def test_latencies_are_those_of_the_results(self):
        rows = {row["gateway"]: row for row in self.reports["latency"]}
        for gateway in ["apns", "fcm"]:
            spans = sorted(
                r["settled_at"] - r["event_time"] for r in self.results
                if r.get("gateway") == gateway and r["outcome"] == "accepted")
            self.assertTrue(spans[0] <= rows[gateway]["p50_ms"] <= rows[gateway]["p99_ms"])
            self.assertLessEqual(rows[gateway]["p99_ms"], spans[-1] + 1)

    def test_the_ledger_balances_and_a_missing_result_shows(self):
        self.assertEqual(self.reports["unbalanced events"], [])
        (query,) = [s for s in statements() if s.startswith("-- report: unbalanced")]
        missing = next(r for r in self.results if r["targets"] == 2)
        found = self.database.execute(
            query.replace("FROM results", f"FROM (SELECT * FROM base WHERE result_id <> "
                                          f"'{missing['result_id']}')")
            .replace("base", f"read_ndjson('{self.folder}/results.jsonl')")
            .replace("count(*)", "count(DISTINCT result_id)")).fetchall()
        self.assertEqual([row[3] for row in found], [missing["event_id"]])

    def test_the_funnel_is_the_ledgers(self):
        """All results of the topic, counted by the page's SQL and by `bugle audit`."""
        done = harness.bugle("audit", "--config", self.world.config, "--json", timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        ledger = json.loads(done.stdout)
        folder = self.world.folder / "everything"
        folder.mkdir()
        results = self.world.results()
        (folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in results))
        (folder / "acks.jsonl").write_text((self.folder / "acks.jsonl").read_text())
        database = duckdb.connect()
        self.addCleanup(database.close)
        before = os.getcwd()
        os.chdir(folder)
        try:
            for statement in statements():
                if not statement.startswith("-- report:"):
                    database.execute(statement)
            (funnel,) = [s for s in statements() if s.startswith("-- report: funnel by route")]
            answer = database.execute(funnel)
            columns = [column[0] for column in answer.description]
            rows = [dict(zip(columns, row)) for row in answer.fetchall()]
        finally:
            os.chdir(before)
        total = lambda column: sum(row[column] for row in rows)
        self.assertEqual(total("events"), ledger["events"])
        # An event that ends before fan-out has a result and no target.
        ended = sum(r["install_id"] is None for r in results)
        self.assertGreater(ended, 0)
        self.assertEqual(total("targets"), ledger["targets"] - ended)
        self.assertEqual(total("accepted"), sum(r["outcome"] == "accepted" for r in results))
        self.assertEqual(ledger["waiting"], 0)

    def test_weeks_begin_on_monday(self):
        for row in self.reports["funnel by route"]:
            self.assertEqual(row["week"].weekday(), 0)
