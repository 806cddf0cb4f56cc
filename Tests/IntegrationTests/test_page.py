"""The status page in a real Chromium: live without reload, nothing fetched from elsewhere, readable on
a phone, by keyboard and by screen reader, light and dark. SCREENSHOTS names a folder for pictures."""

import json
import os
import pathlib
import random
import urllib.parse

import harness
from browser import Browser
from harness import bugle, event


class Page(harness.WorldTest):
    faults = harness.latency(2, 10)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(5)
        cls.world.register([
            harness.device(generator, "ada", "ada-phone"),
            harness.device(generator, "ada", "ada-tablet", "fcm")])
        cls.address = f"http://127.0.0.1:{cls.world.admin_port}/"
        cls.pictures = pathlib.Path(os.environ.get("SCREENSHOTS") or cls.world.folder)

    def open(self, **options):
        browser = Browser(**options)
        self.addCleanup(browser.close)
        browser.open(self.address)
        # A dead letter of one test is a problem for a while, for all of them.
        browser.wait("/^(working|needs a look)$/.test(document.getElementById('state').textContent)")
        return browser

    def test_it_lives_without_a_reload_and_asks_nobody_else(self):
        browser = self.open()
        browser.run("window.marked = true")
        text = "document.getElementById('outcomes').innerText"
        before = browser.run(text)
        self.world.publish([event(f"page-{n}", "ada") for n in range(50)])
        self.world.wait_settled(60)
        browser.wait(f"{text} !== {before!r}")
        browser.wait("document.querySelectorAll('#fleet tr th').length === 1")
        self.assertIn("accepted", browser.run(text))
        self.assertTrue(browser.run("window.marked"), "the page was loaded anew")
        hosts = {urllib.parse.urlsplit(url).netloc for url in browser.requests
                 if not url.startswith(("data:", "about:"))}
        self.assertEqual(hosts, {f"127.0.0.1:{self.world.admin_port}"})
        self.assertEqual(browser.faults, [])

    def test_everything_that_it_shows_is_live(self):
        self.world.kafka.publish(harness.EVENTS, [("ada", "this is no event")])
        browser = self.open()
        shown = lambda id: f"document.getElementById('{id}').innerText"
        number = 0

        def flow():
            nonlocal number
            number += 1
            self.world.publish([event(f"live-{number}-{n}", "ada") for n in range(100)])
            return browser.run(f"parseFloat({shown('rate')}) > 0")

        harness.wait_until(flow, 60, "events a second")
        browser.wait(f"/events a second, at most/.test(document.getElementById('chart').getAttribute('aria-label'))")
        browser.wait(f"/^[1-9]/.test({shown('dead')})")
        browser.wait(f"/%$/.test({shown('busy')})")
        # Per gateway: whether its breaker is closed, pace, latency and what is under way.
        for gateway in ["shop, apns production", "shop, fcm"]:
            row = (f"[...document.querySelectorAll('#gateways tr')].map(r => r.innerText)"
                   f".find(t => t.startsWith({gateway!r}))")
            asked = f"/working[^]*\\d m?s[^]*of 2000/.test({row} || '')"
            harness.wait_until(
                lambda: flow() is not None and browser.run(asked), 60,
                lambda: f"the latency of {gateway}: {browser.run(row)}")
        self.assertRegex(browser.run(shown("credentials")), r"shop, apns: token [^\n]* old")
        self.assertRegex(browser.run(shown("credentials")), r"ca_file: 36\d days left")
        browser.wait(f"/record set aside as a dead letter/.test({shown('troubles')})")
        self.assertIn("not_json", browser.run(shown("troubles")))
        self.world.wait_settled(60)
        browser.wait(f"{shown('lag')} === '0' && {shown('age')} === '–'")

    def test_a_pause_is_shown_and_goes(self):
        browser = self.open()
        self.addCleanup(bugle, "resume", "--all", "--config", self.world.config)
        done = bugle("pause", "--type", "<b>news</b>", "--reason", "a <drill>", "--config", self.world.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        browser.wait("!document.getElementById('s-levers').hidden")
        shown = browser.run("document.getElementById('levers').innerText")
        self.assertIn("type <b>news</b>", shown)
        self.assertIn("a <drill>", shown)
        bugle("resume", "--all", "--config", self.world.config)
        browser.wait("document.getElementById('s-levers').hidden")

    def test_it_fits_a_phone(self):
        for width in [320, 390]:
            browser = self.open(width=width, height=800, phone=True)
            browser.wait("document.querySelectorAll('#gateways tr th').length > 1")
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
            self.assertGreaterEqual(browser.run(
                "parseFloat(getComputedStyle(document.body).fontSize)"), 14)
            browser.screenshot(self.pictures / f"phone-{width}.png")

    def test_light_and_dark_differ_and_both_can_be_read(self):
        backgrounds = []
        for dark in [False, True]:
            browser = self.open(dark=dark)
            browser.wait("document.querySelectorAll('#fleet tr th').length === 1")
            backgrounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
            # WCAG's contrast of every text with what is behind it.
            poor = browser.run(CONTRAST)
            self.assertEqual(poor, [], f"dark: {dark}")
            browser.screenshot(self.pictures / f"{'dark' if dark else 'light'}.png")
        self.assertNotEqual(*backgrounds)

    def test_the_keyboard_reaches_everything_that_acts(self):
        browser = self.open()
        reached = []
        for _ in range(12):
            browser.press("Tab", "Tab", 9)
            reached.append(browser.run(
                "(e => (e.id || e.getAttribute('href') || e.getAttribute('role') || e.tagName))"
                "(document.activeElement)"))
            if reached[-1] == "readyz":
                break
            outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
            self.assertNotEqual(outline, "none", reached)
        self.assertEqual(reached[0], "hold")
        self.assertLessEqual({"hold", "region", "status.json", "metrics", "readyz"}, set(reached))
        browser.run("document.getElementById('hold').focus()")
        browser.press(" ", "Space", 32)
        browser.wait("document.getElementById('hold').getAttribute('aria-pressed') === 'true'")
        asked = len(browser.requests)
        browser.run("new Promise(done => setTimeout(done, 5000))")
        self.assertEqual(len(browser.requests), asked, "held and still asking")

    def test_a_screen_reader_is_told_what_everything_is(self):
        tree = self.open().tree()
        roles = [role for role, _ in tree]
        for role in ["banner", "main", "contentinfo", "status", "button"]:
            self.assertIn(role, roles)
        for role in ["table", "region", "button", "link", "image"]:
            for found, name in tree:
                self.assertTrue(found != role or name, f"a {role} without a name")
        headings = [name for role, name in tree if role == "heading"]
        self.assertLessEqual({"Bugle", "Fleet", "Gateways", "Last warnings and errors"}, set(headings))
        self.assertGreaterEqual(roles.count("columnheader"), 15)


class Trouble(harness.WorldTest):
    """Two replicas, a gateway that is down, a credential that is refused: what one opens the page for."""

    faults = {"rules": [
        {"service": ["apns-production"], "token_prefix": "bad0",
         "effect": {"answer": {"status": 503, "reason": "Shutdown"}}},
        {"service": ["oauth"], "effect": {"answer": {"status": 400, "body": '{"error":"invalid_grant"}'}}}]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        world, file = cls.world, cls.world.folder / "second.yaml"
        file.write_text(harness.yaml({
            **world.settings, "kafka": {**world.settings["kafka"], "instance": "second"},
            "admin": {"listen": f"127.0.0.1:{harness.free_port()}"}}) + "\n")
        second = harness.Process(
            [harness.program(), "run", "--config", file], world.folder / "second.log")
        cls.addClassCleanup(second.stop)
        generator = random.Random(7)
        devices = [
            harness.device(generator, f"u{n}", f"iphone-{n}", mark="bad0") for n in range(60)] + [
            harness.device(generator, f"u{n}", f"pixel-{n}", "fcm") for n in range(60)]
        world.register(devices)

        def shared():
            fleet = json.loads(world.get("/status.json")[1])["fleet"]
            return len(fleet) == 2 and all(r["partitions"] for r in fleet)

        harness.wait_until(shared, 60, "two replicas with partitions")
        world.publish([event(f"trouble-{n}", f"u{n % 60}") for n in range(600)])
        cls.address = f"http://127.0.0.1:{world.admin_port}/"
        cls.pictures = pathlib.Path(os.environ.get("SCREENSHOTS") or world.folder)

    def open(self, **options):
        browser = Browser(**options)
        self.addCleanup(browser.close)
        browser.open(self.address)
        for id, text in [("reasons", "BugleGatewayDown"), ("reasons", "BugleCredentialRefused"),
                         ("gateways", "held back"), ("credentials", "refused")]:
            browser.wait(f"document.getElementById('{id}').innerText.includes('{text}')")
        browser.wait("document.querySelectorAll('#fleet .pill.warn').length === 2")
        return browser

    def test_what_is_wrong_stands_first_with_what_to_do(self):
        browser = self.open()
        shown = lambda id: browser.run(f"document.getElementById('{id}').innerText")
        self.assertEqual(shown("state"), "needs a look")
        reasons = shown("reasons")
        self.assertIn("apns production of shop fails, its events are parked", reasons)
        self.assertIn("what to do: deploy/runbooks/BugleGatewayDown.md", reasons)
        self.assertIn("fcm of shop refuses our credential", reasons)
        self.assertIn("what to do: deploy/runbooks/BugleCredentialRefused.md", reasons)
        # Above everything that is well.
        self.assertLess(*browser.run(
            "['trouble', 'chart'].map(id => document.getElementById(id).getBoundingClientRect().top)"))
        rows = browser.run("[...document.querySelectorAll('#gateways tr')].map(r => r.innerText)")
        states = {row.split("\t")[0]: row.split("\t")[1] for row in rows}
        self.assertEqual(states["shop, apns production"], "held back")
        self.assertEqual(states["shop, apns sandbox"], "working")
        self.assertEqual(states["shop, fcm"], "refused")
        self.assertRegex(shown("credentials"), "shop, fcm: refused")
        fleet = browser.run("[...document.querySelectorAll('#fleet tr')].map(r => r.innerText)")
        self.assertEqual(len(fleet), 2)
        self.assertEqual(sum("writes the index" in row for row in fleet), 1)
        self.assertRegex(shown("backlogs"), r"parked-apns-production: \d+")
        self.assertIn("a gateway fails", shown("troubles"))
        self.assertEqual(browser.faults, [])

    def test_it_can_be_read_on_a_phone_and_a_desk_by_day_and_night(self):
        for width in [390, 1200]:
            for dark in [False, True]:
                browser = self.open(width=width, height=800, phone=width == 390, dark=dark)
                self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                self.assertEqual(browser.run(CONTRAST), [], f"dark: {dark}")
                browser.screenshot(
                    self.pictures / f"trouble-{width}-{'dark' if dark else 'light'}.png")


CONTRAST = """(() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= .03928 ? v / 12.92 : Math.pow((v + .055) / 1.055, 2.4); });
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.offsetParent || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    if (e.tagName === "SCRIPT" || e.tagName === "STYLE") continue;
    const a = light(parse(getComputedStyle(e).color).slice(0, 3)), b = light(behind(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(e.textContent.trim().slice(0, 40) + " " + ratio.toFixed(1));
  }
  return poor;
})()"""
