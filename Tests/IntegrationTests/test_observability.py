"""What an operator watches with: a real Prometheus scrapes a running Bugle, promtool judges rules and
metrics, and whatever an alert or a panel names has to be there."""

import datetime
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

import harness
from contract import ROOT
from harness import event, wait_until

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus/rules.yaml"
DASHBOARD = DEPLOY / "grafana/bugle.json"
RUNBOOKS = DEPLOY / "runbooks"
NAME = re.compile(r"\b(?:bugle|process|up)(?:[_:][a-z0-9_:]+)?\b")
PAGES = [page for page in sorted(RUNBOOKS.glob("*.md")) if page.name != "README.md"]
GUIDES = [DEPLOY / "README.md", DEPLOY / "kubernetes/README.md"]
# What no panel shows: an alert is all there is to say of it.
UNSHOWN = {"up", "bugle_build_info", "process_open_fds", "process_max_fds"}
VERBATIM = {"BugleDown", "BugleNotReady"}
RUNBOOK_PARTS = ["## What it means", "## What to look at", "## What to do"]


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules() if "alert" in rule]


def panels():
    return [p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"]


def panel_expressions():
    """The queries of the dashboard, as Grafana would send them."""
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$job", "bugle")
            yield panel["title"], expression


def expressions():
    """Every query of a rule or panel, with where it stands."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    yield from panel_expressions()


def names(expression):
    """The metrics that a query reads; what is in quotes is no name."""
    return set(NAME.findall(re.sub(r'"[^"]*"', '""', expression)))


def promtool(*arguments, stdin=None):
    return subprocess.run(
        ["promtool", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=120)


class Files(unittest.TestCase):
    def test_rules_are_rules_and_say_what_their_tests_expect(self):
        for arguments in (["check", "rules", RULES],
                          ["test", "rules", DEPLOY / "prometheus/rules.test.yaml"]):
            done = promtool(*arguments)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_has_a_test(self):
        tested = yaml.safe_load((DEPLOY / "prometheus/rules.test.yaml").read_text())["tests"]
        self.assertEqual({alert["alert"] for alert in alerts()}, {test["name"] for test in tested})

    def test_every_alert_has_a_page_and_every_page_an_alert(self):
        named = {alert["alert"] for alert in alerts()}
        self.assertEqual(named, {page.stem for page in PAGES})
        for alert in alerts():
            with self.subTest(alert=alert["alert"]):
                self.assertIn(alert["labels"]["severity"], ["page", "ticket"])
                page = ROOT / alert["annotations"]["runbook_url"]
                self.assertEqual(page, RUNBOOKS / f"{alert['alert']}.md")
                text = page.read_text()
                self.assertTrue(text.startswith(f"# {alert['alert']}\n"))
                self.assertEqual(re.findall(r"^## .*", text, re.M), RUNBOOK_PARTS)

    def test_the_index_of_the_pages_has_them_with_their_severity(self):
        rows = re.findall(
            r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", (RUNBOOKS / "README.md").read_text(), re.M)
        # Of an alert with several rules the most urgent one; `page` comes before `ticket`.
        severities = {}
        for alert in alerts():
            severities.setdefault(alert["alert"], []).append(alert["labels"]["severity"])
        self.assertEqual(
            sorted((name, name, min(found)) for name, found in severities.items()), sorted(rows))

    def test_no_rule_mixes_what_two_jobs_say(self):
        selectors = 0
        for rule in rules():
            with self.subTest(rule=rule.get("alert") or rule["record"]):
                self.assertEqual(rule["labels"]["job"], "bugle")
                unquoted = re.sub(r'"[^"]*"', lambda m: "~" * len(m[0]), rule["expr"])
                for name in NAME.finditer(unquoted):
                    rest = rule["expr"][name.end():]
                    self.assertTrue(rest.startswith('{job="bugle"'), name[0] + rest[:20])
                    selectors += 1
        self.assertGreater(selectors, 35)

    def test_a_second_deployment_has_rules_of_its_own(self):
        """By the command at the head of the file."""
        (command,) = re.findall(
            r"^#     sed -E '(.*)' rules.yaml > rules-staging.yaml$", RULES.read_text(), re.M)
        done = subprocess.run(
            ["sed", "-E", command, RULES], capture_output=True, text=True, check=True)
        made = yaml.safe_load(done.stdout)
        self.assertEqual(re.findall(r"\bjob\W+bugle\b(?!-staging)", json.dumps(made)), [])
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as copy:
            copy.write(done.stdout)
            copy.flush()
            self.assertEqual(promtool("check", "rules", copy.name).returncode, 0)

    def test_what_a_page_quotes_from_the_log_is_logged(self):
        # Texts are put together of pieces that stand on several lines.
        sources = re.sub(r'"\s*\+\s*"', "", "".join(
            file.read_text() for file in ROOT.glob("Sources/**/*.swift")))
        quoted = 0
        for page in PAGES:
            for item in re.split(r"\n(?=- |\d\. )", page.read_text()):
                # Why a process has ended and why it is not ready is told in its words alone.
                if page.stem not in VERBATIM and not re.search(r"\blogs?\b", item):
                    continue
                for phrase in re.findall(r"(?<!\*)\*([a-zA-Z][^*]+)\*(?!\*)", item):
                    with self.subTest(page=page.name):
                        text = " ".join(phrase.split())
                        self.assertTrue(text in sources, text)
                        quoted += 1
        self.assertGreater(quoted, 15)

    def test_pages_send_a_reason_to_where_its_outcome_belongs(self):
        """`credential_error` has a page of its own, and no other outcome does."""
        outcomes = {}
        for row in re.findall(r"^\|.*\|$", (ROOT / "topics/reasons.md").read_text(), re.M):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            if len(cells) == 6:
                outcomes.setdefault(cells[3].strip("`"), set()).update(re.findall(r"`(\w+)`", cells[2]))
        self.assertIn("credential_error", outcomes["TopicDisallowed"])

        def named(page):
            steps = (RUNBOOKS / f"{page}.md").read_text().split("## What to do")[1]
            return set(re.findall(r"`(\w+)`", steps)) & set(outcomes)

        refused, failed = named("BugleCredentialRefused"), named("BuglePushesFail")
        self.assertGreater(len(refused), 4)
        self.assertGreater(len(failed), 1)
        self.assertEqual({r for r in refused if "credential_error" not in outcomes[r]}, set())
        self.assertEqual({r for r in failed if "credential_error" in outcomes[r]}, set())

    def test_kcat_is_told_which_broker(self):
        commands = [
            (page.name, command) for page in PAGES
            for command in re.findall(r"`(kcat -[^`]*)`", page.read_text())]
        self.assertTrue(commands)
        for page, command in commands:
            self.assertIn(" -b ", command, page)

    def test_what_a_page_lets_one_run_is_a_command(self):
        known = harness.bugle("--help").stdout
        for page in [*RUNBOOKS.glob("*.md"), *GUIDES]:
            for command in re.findall(r"`bugle ([a-z]+)", page.read_text()):
                self.assertRegex(known, rf"(?m)^  {command}\b", page.name)

    def test_links_of_the_pages_lead_somewhere(self):
        for page in [*RUNBOOKS.glob("*.md"), *GUIDES]:
            for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")

    def test_what_a_rule_judges_is_shown_and_what_it_records_is_used(self):
        shown = {name for _, text in panel_expressions() for name in names(text)}
        judged = {name for rule in rules() for name in names(rule["expr"])}
        self.assertEqual(judged - shown, UNSHOWN)
        used = judged | shown
        self.assertEqual({rule["record"] for rule in rules() if "record" in rule} - used, set())

    def test_the_dashboard_is_whole(self):
        shown = panels()
        self.assertEqual(len({p["id"] for p in shown}), len(shown))
        for panel in shown:
            with self.subTest(panel=panel["title"]):
                self.assertTrue(panel["targets"])
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)


class Prometheus:
    """A Prometheus of its own, which knows the rules and scrapes one address."""

    def __init__(self, folder, target):
        self.port = harness.free_port()
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "bugle", "static_configs": [{"targets": [target]}]}]}))
        self.process = harness.Process(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], folder / "prometheus.log")
        try:
            # It listens before it answers.
            wait_until(self.is_ready, 60, lambda: f"Prometheus:\n{self.process.tail()}")
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.process.stop()

    def is_ready(self):
        try:
            with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/-/ready", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode(errors='replace')}")

    def value(self, expression):
        """The sum of what a query finds; None when it finds nothing."""
        found = self.ask("query", query=expression)["result"]
        return sum(float(series["value"][1]) for series in found) if found else None


class Scraped(harness.WorldTest):
    faults = harness.dead_tokens("dead")
    topics = ["push.acks"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(1)
        cls.devices = [
            harness.device(generator, "ada", "ada-phone"),
            harness.device(generator, "ada", "ada-tablet", "fcm"),
            harness.device(generator, "grace", "grace-phone", mark="dead")]
        cls.world.register(cls.devices)
        cls.world.publish([event("seen-1", "ada"), event("seen-2", "grace"), event("seen-3", "no-one")])
        cls.world.kafka.publish(harness.EVENTS, [("ada", "this is no event")])
        cls.world.wait_settled(60)
        folder = pathlib.Path(tempfile.mkdtemp(dir=cls.world.folder))
        cls.prometheus = Prometheus(folder, f"127.0.0.1:{cls.world.admin_port}")
        cls.addClassCleanup(cls.prometheus.stop)
        # Rates need more than one sample, and something that happens between two.
        wait_until(
            lambda: cls.prometheus.value("bugle_outcomes_total") is not None, 60, "a first sample")
        cls.world.publish([event(f"seen-live-{n}", "ada") for n in range(20)])
        cls.world.wait_settled(60)
        targets = sum(r["install_id"] is not None for r in cls.world.results())
        wait_until(
            lambda: cls.prometheus.value("bugle_outcomes_total") == targets
            and cls.prometheus.value("rate(bugle_outcomes_total[5m])") > 0, 60, "a rate")

    def test_what_rules_and_panels_name_is_there(self):
        there = set(self.prometheus.ask("label/__name__/values"))
        named = {name: place for place, text in expressions() for name in names(text)}
        recorded = {rule["record"] for rule in rules() if "record" in rule}
        self.assertGreater(len(named), 40)
        # A ratio is only there while there are pushes to divide by.
        missing = {n: place for n, place in named.items() if n not in there | recorded}
        self.assertEqual(missing, {})

    def test_what_queries_add_up_by_is_a_label(self):
        labels = {}
        for series in self.prometheus.ask("series", **{"match[]": '{job="bugle"}'}):
            labels.setdefault(series["__name__"], set()).update(series)
        checked = 0
        for place, text in expressions():
            for by, inner in re.findall(r"by \(([^)]*)\) \(([^()]*(?:\([^()]*\))?)", text):
                for name in names(inner) & set(labels):
                    wanted = {label.strip() for label in by.split(",")} - {"le"}
                    self.assertLessEqual(wanted, labels[name], f"{place}: {name}")
                    checked += 1
        self.assertGreater(checked, 30)

    def test_what_pages_name_is_there(self):
        there = set(self.prometheus.ask("label/__name__/values"))
        named = {
            name: page.name for page in [*RUNBOOKS.glob("*.md"), *GUIDES]
            for name in re.findall(r"`[^`]*?(bugle_[a-z_]+)", page.read_text())}
        self.assertGreater(len(named), 20)
        found = lambda name: any(n in there for n in (name, f"{name}_bucket"))
        self.assertEqual({n: p for n, p in named.items() if not found(n)}, {})

    def test_every_query_of_a_panel_is_one(self):
        for title, expression in panel_expressions():
            with self.subTest(panel=title, query=expression):
                self.assertIsNotNone(self.prometheus.ask("query", query=expression))

    def test_the_numbers_are_those_of_the_run(self):
        value = self.prometheus.value
        results = self.world.results()

        def counted(outcome, level):
            return sum(
                r["outcome"] == outcome and (r["install_id"] is None) == level for r in results)

        for metric, outcome, level in [
                ("bugle_outcomes_total", "accepted", False),
                ("bugle_outcomes_total", "token_invalid", False),
                ("bugle_event_outcomes_total", "no_devices", True)]:
            with self.subTest(outcome=outcome):
                wanted = counted(outcome, level)
                self.assertGreater(wanted, 0)
                self.assertEqual(value(f'{metric}{{outcome="{outcome}"}}'), wanted)
        self.assertEqual(value('bugle_dead_letters_total{code="not_json"}'), 1)
        self.assertEqual(value('bugle_reasons_total{app="shop",gateway="apns",reason="Unregistered"}'), 1)
        self.assertEqual(value("bugle_consumer_lag_records"), 0)
        self.assertEqual(value("bugle_seconds_to_drain"), 0)
        self.assertEqual(value("bugle_commit_age_seconds"), 0)
        self.assertEqual(value("bugle_ready"), 1)
        self.assertEqual(value("bugle_index_writer"), 1)
        self.assertGreater(value('bugle_commits_total{mode="transactional"}'), 0)
        self.assertGreater(value("process_resident_memory_bytes"), 1 << 20)
        self.assertLess(abs(value("process_start_time_seconds") - time.time()), 3600)
        left = value(
            'bugle_certificate_seconds_left{app="shop",gateway="apns",setting="apps.shop.apns.ca_file"}')
        self.assertGreater(left, 300 * 86400)
        wait_until(
            lambda: value('bugle_lane_busy_seconds_total{lane="0"}') > 0, 30, "a lane that worked")

    def test_no_alert_speaks_of_a_healthy_bugle(self):
        """Not even one that waits for its time: but of what this run makes."""
        since = time.time()

        def evaluated(rule):
            asked = datetime.datetime.fromisoformat(rule["lastEvaluation"])
            return rule["health"] == "ok" and asked.timestamp() > since

        wait_until(
            lambda: all(evaluated(rule) for group in self.prometheus.ask("rules")["groups"]
                        for rule in group["rules"]),
            60, lambda: f"every rule to be asked: {self.prometheus.ask('rules')}")
        told = self.prometheus.ask("query", query="ALERTS")["result"]
        names = {alert["metric"]["alertname"] for alert in told}
        self.assertLessEqual(names, {"BugleDeadLetters", "BugleTokensDie"}, told)

    def test_the_process_is_told_as_the_kernel_tells_it(self):
        folder = pathlib.Path("/proc") / str(self.world.dispatcher.child.pid)

        def kernel():
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks = os.sysconf("SC_CLK_TCK")
            pages = int((folder / "statm").read_text().split()[1])
            return ((int(fields[11]) + int(fields[12])) / ticks, pages * os.sysconf("SC_PAGE_SIZE"),
                    len(list((folder / "fd").iterdir())))

        before = kernel()
        told = {}
        for line in self.world.get("/metrics")[1].splitlines():
            if line.startswith("process_"):
                name, number = line.split()
                told[name] = float(number)
        after = kernel()
        self.assertTrue(
            before[0] - 0.1 <= told["process_cpu_seconds_total"] <= after[0] + 0.1, (before, told))
        self.assertLess(abs(told["process_resident_memory_bytes"] - after[1]), 32 << 20)
        # The connection that asks is one of them.
        self.assertLess(abs(told["process_open_fds"] - after[2]), 10)
        self.assertGreater(told["process_max_fds"], told["process_open_fds"])

    def test_the_metrics_follow_the_conventions(self):
        done = promtool("check", "metrics", stdin=self.world.get("/metrics")[1])
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertEqual(done.returncode, 0)

    def test_no_metric_and_no_status_names_anybody(self):
        for path in ["/metrics", "/status.json"]:
            status, text = self.world.get(path)
            self.assertEqual(status, 200)
            for device in self.devices:
                for secret in [device.token, device.token_hash, device.install, "grace"]:
                    self.assertNotIn(secret, text, path)

    def test_the_status_adds_up(self):
        status = json.loads(self.world.get("/status.json")[1])
        self.assertTrue(status["ready"], status["reasons"])
        results = self.world.results()
        for outcome in ["accepted", "token_invalid", "no_devices"]:
            self.assertEqual(
                status["outcomes"][outcome], sum(r["outcome"] == outcome for r in results))
        self.assertEqual(status["dead_letters"], 1)
        self.assertEqual((status["lag_records"], status["bottleneck"]), (0, "none"))
        self.assertLessEqual(
            {("apns", "production"), ("apns", "sandbox"), ("fcm", "none")},
            {(g["gateway"], g["environment"]) for g in status["gateways"]})
        for gateway in status["gateways"]:
            self.assertEqual(gateway["breakers_open"], 0)
            self.assertEqual(len(gateway["latency"]), len(status["latency_bounds_ms"]) + 1)
        wait_until(
            lambda: any("dead letter" in t["message"] for t in
                        json.loads(self.world.get("/status.json")[1])["troubles"]),
            30, "the warning about the dead letter")

    def test_the_page_needs_nothing_else(self):
        status, page = self.world.get("/")
        self.assertEqual(status, 200)
        self.assertIn('<html lang="en">', page)
        self.assertIn('name="viewport"', page)
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertIn('aria-live="polite"', page)
        # Nothing is fetched but this server's own status; a data URL is no request.
        self.assertEqual(re.findall(r"(?:https?:)?//[a-z]", page), [])
        self.assertEqual(re.findall(r'fetch\("([^"]*)"', page), ["status.json"])
        self.assertEqual(set(re.findall(r'(?:src|href)="([^"]*)"', page)),
                         {"data:,", "status.json", "metrics", "readyz"})
        for table in re.findall(r"<th .*?>", page):
            self.assertIn("scope=", table)
        ids = re.findall(r'\bid="([^"]+)"', page)
        self.assertEqual(len(ids), len(set(ids)))
        for named in re.findall(r'aria-labelledby="([^"]+)"', page):
            self.assertIn(named, ids)
        for used in re.findall(r'(?:\$|text|fill)\("([a-z-]+)"', page):
            self.assertIn(used, ids)


class Behind(unittest.TestCase):
    """A dispatcher that may hold ten events and whose gateway takes its time."""

    def test_the_time_to_drain_names_what_holds_it_back(self):
        world = harness.World(faults=harness.latency(300, 300))
        self.addCleanup(world.close)
        world.settings["dispatch"] = {"max_in_flight_events": 10}
        world.config.write_text(harness.yaml(world.settings) + "\n")
        world.apply_topics()
        world.start()
        generator = random.Random(3)
        devices = [harness.device(generator, f"user-{n}", f"phone-{n}") for n in range(60)]
        world.register(devices)
        # Some thirty a second: a backlog of two minutes.
        world.publish([event(f"late-{n}", f"user-{n % 60}") for n in range(4000)])
        status = {}

        def told():
            # On a machine with much else to do Redis may be it for a while.
            status.update(json.loads(world.get("/status.json")[1]))
            return status["drain_ms"] > 0 and status["bottleneck"] == "gateway"

        wait_until(told, 100, lambda: f"a time to drain that the gateway makes: {status}")
        self.assertGreater(status["lag_records"], 10)
        self.assertLess(status["drain_ms"], 86_400_000)
        lines = world.get("/metrics")[1].splitlines()
        drain = {
            line.split('"')[1]: float(line.split()[-1]) for line in lines
            if line.startswith("bugle_seconds_to_drain{")}
        self.assertEqual({name for name, value in drain.items() if value > 0}, {"gateway"})
        self.assertEqual(
            set(drain),
            {"redis", "kafka", "quota", "hot_key", "gateway", "partitions", "replicas"})
