"""The commands that look after the token index, on a real broker and a real Redis: what they say,
and what they change."""

import json
import random
import signal
import time

import harness
from harness import DEVICES, INVALIDATIONS, bugle, device, event, wait_until


class IndexTest(harness.WorldTest):
    """A world whose index a test can ask."""

    def command(self, *words, code=0):
        done = bugle(*words, "--config", self.world.config)
        self.assertEqual(done.returncode, code, f"{words}: {done.stdout}{done.stderr}")
        return done

    def json(self, *words, code=0):
        return json.loads(self.command(*words, "--json", code=code).stdout)

    def addresses(self, user):
        return {entry["address_id"]: entry for entry in self.json("index", "get", user)["addresses"]}

    def wait_index(self, user, ids):
        """Waits until the user has exactly these addresses that may be sent to."""
        wanted, found = set(ids), [None]

        def holds():
            found[0] = {
                id for id, entry in self.addresses(user).items() if entry["standing"] == "active"}
            return found[0] == wanted

        wait_until(holds, 30, lambda: f"{user} to have {wanted}, has {found[0]}")

    def wait_applied(self):
        """Waits until the index shows all that is on its topics, and that it is right."""
        report = self.json("index", "verify")
        self.assertTrue(report["equal"], report)

    def put(self, *devices):
        self.world.register_only(devices)
        for entry in devices:
            self.wait_index(entry.user, [d.key for d in devices if d.user == entry.user])

    def verdict(self, address, verdict, as_of, **fields):
        app, install = address.split("/")[:2]
        return (address, {
            "v": 1, "app": app, "install_id": install, "verdict": verdict, "reason": "Unregistered",
            "origin": "gateway", "as_of": as_of, **fields})


class Answers(IndexTest):
    """get, why and stats."""

    def test_get_shows_what_is_known_and_no_token(self):
        phone = device(random.Random(1), "reader", "reader-phone")
        self.put(phone)
        text = self.command("index", "get", "reader").stdout
        for part in ("shop/reader-phone", "apns production", phone.token_hash, "active"):
            self.assertIn(part, text)
        self.assertNotIn(phone.token[:20], text)
        raw = self.command("index", "get", "reader", "--json").stdout
        self.assertNotIn(phone.token[:20], raw)
        (entry,) = json.loads(raw)["addresses"]
        self.assertEqual(entry["token_hash"], phone.token_hash)
        self.assertEqual(entry["registered_at"], phone.registered_at)
        self.assertEqual(self.json("index", "get", "nobody")["addresses"], [])

    def test_why_explains_every_address(self):
        generator, now = random.Random(2), int(time.time() * 1000)
        phones = {
            name: device(generator, "whyer", name, kind)
            for name, kind in [
                ("why-good", "apns"), ("why-denied", "apns"), ("why-opted", "fcm"),
                ("why-dead", "fcm"), ("why-suspended", "apns"), ("why-stale", "apns"),
                ("why-ended", "fcm"), ("why-lost", "fcm"), ("why-web", "fcm")]}
        records = {name: phone.record() for name, phone in phones.items()}
        records["why-denied"]["permission"] = "denied"
        records["why-opted"]["opt_outs"] = ["news"]
        day = 24 * 3600 * 1000
        records["why-stale"].update(last_seen_at=now - 100 * day, registered_at=now - 100 * day)
        records["why-ended"]["expires_at"] = now - 1000
        records["why-web"].update(
            gateway="expo", token="ExponentPushToken[aaaaaaaaaaaaaaaaaaaaaa]")
        pairs = [(phones[name].key, record) for name, record in records.items()]
        # One install with two gateways, and one whose token another install registered later.
        second = {**records["why-good"], "gateway": "fcm", "environment": "none", "token": "x:y",
                  "platform": "ios", "kind": "alert", "instance": "fallback"}
        pairs.append(("shop/why-good/alert/fallback", second))
        thief = {**records["why-lost"], "install_id": "why-thief", "user_id": "thief",
                 "registered_at": now + 5}
        pairs.append(("shop/why-thief", thief))
        self.world.kafka.publish(DEVICES, pairs)
        self.world.kafka.publish(INVALIDATIONS, [
            self.verdict("shop/why-dead", "invalidate", now + 1000),
            self.verdict("shop/why-suspended", "suspend", now + 1000)])
        wanted = {
            "shop/why-good": None,
            "shop/why-good/alert/fallback": "through shop/why-good",
            "shop/why-denied": "permit",
            "shop/why-opted": None,
            "shop/why-dead": "invalidated: Unregistered",
            "shop/why-suspended": "suspended: Unregistered",
            "shop/why-stale": "not seen for 100 days",
            "shop/why-ended": "ended",
            "shop/why-lost": "shop/why-thief registered the same token later",
            "shop/why-web": None,
        }
        answer = [None]

        def explained():
            answer[0] = self.json("why", "whyer")
            found = {entry["address_id"]: entry for entry in answer[0]["addresses"]}
            return set(found) == set(wanted) and all(
                (entry["obstacle"] is None) == (wanted[id] is None)
                and (wanted[id] or "") in (entry["obstacle"] or "")
                for id, entry in found.items())

        wait_until(explained, 30, lambda: json.dumps(answer[0], indent=1))
        (opted,) = [e for e in answer[0]["addresses"] if e["address_id"] == "shop/why-opted"]
        self.assertEqual(opted["limits"], ["opted out of news"])
        text = self.command("why", "whyer").stdout
        self.assertIn("pushes go to 3 of 10 addresses", text)
        for phone in phones.values():
            self.assertNotIn(phone.token[:20], text)
        # What it says is what happens.
        self.world.publish([event("why-1", "whyer")])
        self.world.wait_settled(30)
        outcomes = {r["install_id"]: r["outcome"] for r in self.world.results()
                    if r["event_id"] == "why-1"}
        accepted = {id for id, outcome in outcomes.items() if outcome == "accepted"}
        self.assertEqual(accepted, {"why-good", "why-opted", "why-web"}, outcomes)
        # The same where the app has no credential for a gateway.
        apps = {"shop": {**self.world.settings["apps"]["shop"]}}
        del apps["shop"]["expo"]
        config = self.world.folder / "no-expo.yaml"
        config.write_text(harness.yaml({**self.world.settings, "apps": apps}) + "\n")
        done = bugle("why", "whyer", "--config", config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        (web,) = [e for e in json.loads(done.stdout)["addresses"]
                  if e["address_id"] == "shop/why-web"]
        self.assertIn("apps.shop has no expo", web["obstacle"])

    def test_why_says_that_nothing_is_known(self):
        text = self.command("why", "stranger").stdout
        self.assertIn("no device of user stranger", text)
        self.assertIn("no_devices", text)

    def test_stats_count_by_gateway_and_standing(self):
        generator = random.Random(3)
        before = self.json("index", "stats")

        def count(stats, *kind):
            return sum(
                entry["count"] for entry in stats["addresses"]
                if (entry["gateway"], entry["environment"], entry["standing"]) == kind)

        phones = [device(generator, "counted", f"counted-{n}", "fcm") for n in range(3)]
        self.put(*phones)
        signed_out = {**device(generator, "x", "counted-out", "fcm").record(), "user_id": None}
        self.world.kafka.publish(DEVICES, [("shop/counted-out", signed_out)])
        wait_until(
            lambda: self.json("index", "stats")["logged_out"] == before["logged_out"] + 1, 30,
            "the signed-out install to be counted")
        after = self.json("index", "stats")
        self.assertEqual(
            count(after, "fcm", "none", "active") - count(before, "fcm", "none", "active"), 3)
        self.assertEqual(after["fuses"], [])
        self.assertIsNone(after["index_hindrance"])
        self.assertIn("installs", self.command("index", "stats").stdout)

    def test_wrong_usage_is_told_from_failure(self):
        for words, part in [
            (("index",), "what to do is missing"), (("index", "verfy"), "did you mean verify?"),
            (("index", "get"), "USER is missing"), (("index", "verify", "x"), "nothing more"),
            (("why",), "USER is missing"), (("why", "u", "--app", "shp"), "did you mean shop?"),
            (("index", "rebuild"), "say --yes"), (("index", "forget", "u"), "say --yes"),
        ]:
            with self.subTest(words=words):
                self.assertIn(part, self.command(*words, code=2).stderr)
        done = self.command("index", "release", "no.such.fuse", "--yes", code=1)
        self.assertIn("no.such.fuse", done.stderr)
        help_text = bugle("index", "--help")
        self.assertEqual(help_text.returncode, 0)
        self.assertIn("forget USER", help_text.stdout)


class Repair(IndexTest):
    """verify and rebuild."""

    def test_verify_lists_what_is_wrong_and_rebuild_rights_it(self):
        generator = random.Random(4)
        phones = [device(generator, f"v-{n}", f"v-phone-{n}", ("apns", "fcm")[n % 2])
                  for n in range(40)]
        self.put(*phones)
        report = self.json("index", "verify")
        self.assertTrue(report["equal"], report)
        self.assertGreaterEqual(report["users"], 40)
        self.assertIn("holds what the topics say", self.command("index", "verify").stdout)

        redis = self.world.redis
        (key,) = redis.cli("KEYS", "*:u:shop:v-3")
        redis.cli("HDEL", key, "shop/v-phone-3")
        (key,) = redis.cli("KEYS", "*:u:shop:v-4")
        redis.cli("HSET", key, "shop/stray", "1:!i")
        (key,) = redis.cli("KEYS", "*:u:shop:v-5")
        redis.cli("HSET", key, "shop/v-phone-5", "9:!s")
        report = self.json("index", "verify", code=1)
        found = {(d["kind"], d["user_id"], d["address_id"]) for d in report["differences"]}
        self.assertEqual(found, {
            ("missing", "v-3", "shop/v-phone-3"), ("extra", "v-4", "shop/stray"),
            ("different", "v-5", "shop/v-phone-5")})
        self.assertEqual(report["count"], 3)
        text = self.command("index", "verify", code=1).stdout
        self.assertIn("missing", text)
        self.assertIn("bugle index rebuild", text)

        redis.cli("FLUSHALL")
        self.assertTrue(self.json("index", "rebuild", "--yes")["complete"])
        self.assertTrue(self.json("index", "verify")["equal"])

    def test_verify_sees_changes_on_their_way_as_no_difference(self):
        generator = random.Random(5)
        for round_number in range(3):
            phones = [device(generator, f"busy-{n}", f"busy-{round_number}-{n}") for n in range(200)]
            self.world.register_only(phones)
            self.assertTrue(self.json("index", "verify")["equal"])

    def test_verify_and_rebuild_say_how_far_they_are(self):
        """While the writer of the index stands still, both take as long as the test wants."""
        world, generator = self.world, random.Random(6)
        for command, words in [(["verify"], "behind"), (["rebuild", "--yes"], "parts are filled")]:
            with self.subTest(command=command):
                world.dispatcher.signal(signal.SIGSTOP)
                try:
                    world.register_only([device(generator, f"far-{command[0]}", command[0])])
                    waiting = harness.Process(
                        [harness.program(), "index", *command, "--config", world.config],
                        world.folder / f"{command[0]}.log")
                    self.addCleanup(waiting.kill)
                    wait_until(lambda: words in waiting.log.read_text() or not waiting.running(),
                               30, lambda: f"progress, got {waiting.log.read_text()}")
                    self.assertIn(words, waiting.log.read_text())
                finally:
                    world.dispatcher.signal(signal.SIGCONT)
                wait_until(lambda: not waiting.running(), 60, lambda: f"the end:\n{waiting.tail()}")
                self.assertEqual(waiting.child.returncode, 0, waiting.tail())


class Erasure(IndexTest):
    """forget."""

    def records(self, topic):
        """The newest record of each key and partition, as compaction would leave them."""
        newest = {}
        for record in self.world.kafka.read(topic):
            newest[(record.partition, record.key)] = record
        return newest.values()

    def mentions(self, text):
        """Records that compaction leaves and that hold the text."""
        return [
            (record.topic, record.key) for topic in (DEVICES, INVALIDATIONS)
            for record in self.records(topic) if text in f"{record.key} {record.value or ''}"]

    def test_forget_erases_a_user_and_a_rebuild_keeps_it_so(self):
        generator, now = random.Random(6), int(time.time() * 1000)
        phones = [device(generator, "erased-1", f"er-phone-{n}", ("apns", "fcm")[n % 2])
                  for n in range(3)]
        other = device(generator, "kept", "kept-phone")
        # A device that the user had before somebody else, with a verdict from those days.
        shared = device(generator, "erased-1", "er-shared", "fcm")
        self.put(*phones, shared)
        self.world.kafka.publish(INVALIDATIONS, [
            self.verdict("shop/er-shared", "invalidate", now + 1, user_id="erased-1",
                         token=shared.token, gateway="fcm", environment="none"),
            self.verdict(phones[0].key, "suspend", now + 1, user_id="erased-1",
                         token=phones[0].token)])
        heir = {**shared.record(), "user_id": "heir", "token": "heir:token", "version": 2,
                "registered_at": now + 500}
        self.world.kafka.publish(DEVICES, [(shared.key, heir)])
        self.put(other)
        self.wait_index("heir", ["shop/er-shared"])
        self.wait_index("erased-1", [phones[1].key, phones[2].key])

        text = self.command("index", "forget", "erased-1", "--yes").stdout
        for phone in phones:
            self.assertIn(phone.key, text)
            self.assertIn(phone.token_hash, text)
            self.assertNotIn(phone.token[:20], text)
        self.assertIn("3 forget records", text)
        self.assertIn("1 verdicts on addresses that others have now", text)

        def check():
            self.assertEqual(self.json("index", "get", "erased-1")["addresses"], [])
            self.assertTrue(self.json("index", "verify")["equal"])
            self.wait_index("kept", [other.key])
            self.wait_index("heir", ["shop/er-shared"])
            stored = self.world.redis.dump()
            for phone in phones:
                self.assertNotIn(phone.token, stored)
            return stored

        self.assertFalse("erased-1" in check(), "Redis names the user")
        self.assertEqual(self.mentions("erased-1"), [])
        for phone in (*phones, shared):
            self.assertEqual(self.mentions(phone.token), [])
        # This broker does not compact: the old records are read once more, and it stays so.
        self.world.redis.cli("FLUSHALL")
        self.command("index", "rebuild", "--yes")
        check()
        # Another time finds nothing; a new registration counts.
        again = self.json("index", "forget", "erased-1", "--yes")
        self.assertEqual(
            (again["addresses"], again["null_records"], again["forget_records"]), ([], 0, 0))
        self.put(device(generator, "erased-1", "er-phone-0"))

    def test_forget_finds_records_under_the_keys_of_a_connector(self):
        generator = random.Random(7)
        phone = device(generator, "erased-2", "er-debezium")
        row = {name: value for name, value in phone.record().items() if name != "v"}
        value = {"op": "c", "before": None, "after": row, "source": {"table": "devices"}}
        out = {**row, "install_id": "er-out", "token": "ab" * 32}
        signed_out = {"op": "u", "before": out, "after": {**out, "user_id": None},
                      "source": {"table": "devices"}}
        other = {**row, "install_id": "er-moved", "user_id": "heir-2", "token": "cd" * 32}
        moved = {"op": "u", "before": {**other, "user_id": "erased-2"}, "after": other,
                 "source": {"table": "devices"}}
        self.world.kafka.publish(
            DEVICES, [('{"id":1}', value), ('{"id":2}', signed_out), ('{"id":3}', moved)])
        self.wait_index("erased-2", [phone.key])
        self.wait_index("heir-2", ["shop/er-moved"])
        report = self.json("index", "forget", "erased-2", "--yes")
        self.assertEqual([a["address_id"] for a in report["addresses"]], [phone.key])
        self.assertEqual((report["null_records"], report["records_kept"]), (2, 1))
        self.assertEqual(self.mentions("erased-2"), [(DEVICES, '{"id":3}')])
        self.assertTrue(report["applied"])
        self.assertFalse("erased-2" in self.world.redis.dump(), "Redis names the user")
        self.wait_index("heir-2", ["shop/er-moved"])
        # A late repetition of the row does not bring the user back.
        self.world.kafka.publish(DEVICES, [('{"id":1}', value)])
        self.wait_applied()
        self.assertEqual(
            [e for e in self.addresses("erased-2").values() if e["standing"] == "active"], [])


class Fuse(IndexTest):
    """release and discard: a misconfiguration makes a gateway call good tokens bad."""

    index_settings = {"fuse": {"tokens_min": 5}}
    faults = {"rules": [
        {"service": [service], "token_prefix": mark,
         "effect": {"answer": {"status": status, "reason": reason}}}
        for service, mark, status, reason in [
            ("apns-production", "bad0", 400, "BadDeviceToken"),
            ("apns-sandbox", "bad1", 400, "DeviceTokenNotForTopic"),
            ("fcm", "bad2", 403, "SENDER_ID_MISMATCH")]]}

    def trip(self, name, kind, mark, reason, cause):
        """Sends to ten tokens that are called bad; returns their devices and the fuse."""
        generator = random.Random(name)
        phones = [device(generator, f"{name}-{n}", f"{name}-phone-{n}", kind, mark)
                  for n in range(10)]
        self.put(*phones)
        self.world.publish([event(f"{name}-{n}", phone.user) for n, phone in enumerate(phones)])
        self.world.wait_settled(60)
        fuses = wait_until(lambda: self.json("index", "stats")["fuses"], 30, "a fuse to trip")
        (fuse,) = fuses
        self.assertIn(cause, fuse["likely_cause"])
        wait_until(
            lambda: self.standings(phones) == {"quarantined"}, 30,
            lambda: f"quarantine of all, not {self.standings(phones)}")
        # The alert says what is most likely wrong, and what to do when it is repaired.
        alarms = [line for line in self.world.dispatcher.log.read_text().splitlines()
                  if "the fuse has tripped" in line and fuse["id"] in line]
        self.assertEqual(len(alarms), 1, alarms)
        self.assertIn(cause, alarms[0])
        self.assertIn(f"bugle index release {fuse['id']}", alarms[0])
        # The topic knows of it as well, for a rebuild.
        wanted = {(phone.key, "quarantine", "suspend", reason, fuse["id"]) for phone in phones}
        wait_until(lambda: self.last_words(phones) == wanted, 30,
                   lambda: f"the topic to say {wanted}, says {self.last_words(phones)}")
        # Nothing is sent to them while it holds.
        before = self.requests(phones)
        self.assertEqual(self.outcomes(f"{name}-later", phones), {("suppressed", "quarantined")})
        self.assertEqual(self.requests(phones), before)
        return phones, fuse["id"]

    def last_words(self, phones):
        """The newest verdict on each of them."""
        keys, newest = {phone.key for phone in phones}, {}
        for record in self.world.kafka.read(INVALIDATIONS):
            if record.key in keys:
                newest[record.key] = harness.checked("push.invalidations", record).json
        return {(key, found["verdict"], found["held_verdict"], found["reason"], found["fuse_id"])
                for key, found in newest.items()}

    def requests(self, phones):
        tokens = {phone.token for phone in phones}
        return sum(entry.get("token") in tokens for entry in self.world.gateways.journal())

    def outcomes(self, name, phones):
        """What becomes of another event for each of them."""
        self.world.publish([event(f"{name}-{n}", phone.user) for n, phone in enumerate(phones)])
        self.world.wait_settled(60)
        return {(r["outcome"], r.get("reason")) for r in self.world.results()
                if r["event_id"].startswith(f"{name}-")}

    def standings(self, phones):
        return {self.addresses(phone.user)[phone.key]["standing"] for phone in phones}

    def settle(self, action, fuse, phones, standing):
        answer = self.json("index", action, fuse, "--yes")
        self.assertEqual((answer["addresses"], answer["applied"]), (10, True))
        self.assertEqual(self.standings(phones), {standing})
        self.assertEqual(self.json("index", "stats")["fuses"], [])
        self.wait_applied()
        self.command("index", action, fuse, "--yes", code=1)

    def test_release_sends_to_them_again(self):
        """Case APNS-04."""
        phones, fuse = self.trip(
            "released", "apns", "bad0", "BadDeviceToken", "tokens of the other APNs environment")
        self.assertIn(fuse, self.command("why", phones[0].user).stdout)
        self.assertIn(fuse, self.command("index", "stats").stdout)
        self.command("index", "release", fuse, code=2)
        self.settle("release", fuse, phones, "active")
        before = self.requests(phones)
        self.outcomes("released-again", phones)
        self.assertEqual(self.requests(phones), before + 10)

    def test_discard_gives_them_up(self):
        """Case FCM-06, the mass of them."""
        phones, fuse = self.trip(
            "discarded", "fcm", "bad2", "SENDER_ID_MISMATCH", "another Firebase project")
        self.settle("discard", fuse, phones, "suspended")
        self.assertIn("suspended", self.command("why", phones[0].user).stdout)
        self.assertEqual(
            {outcome for outcome, _ in self.outcomes("discarded-again", phones)}, {"no_devices"})

    def test_a_wrong_topic_is_held_too(self):
        phones, fuse = self.trip(
            "topical", "sandbox", "bad1", "DeviceTokenNotForTopic",
            "apns.topic is not the bundle id")
        self.settle("release", fuse, phones, "active")


class Ownership(IndexTest):
    """Whose device it is: a phone that changes hands."""

    def received(self, token):
        return [entry for entry in self.world.gateways.journal() if entry.get("token") == token]

    def outcomes(self, event_id):
        return {r["install_id"]: r["outcome"] for r in self.world.results()
                if r["event_id"] == event_id}

    def send(self, *events):
        self.world.publish(events)
        self.world.wait_settled(30)

    def test_one_token_under_two_users(self):
        """ID-01: in either order of arrival it is the newest registrant's."""
        now = int(time.time() * 1000)
        for name, order in (("a", [0, 1]), ("b", [1, 0])):
            with self.subTest(order=order):
                generator = random.Random(8)
                first = device(generator, f"id1-{name}-1", f"id1-{name}-x").record()
                claims = [
                    {**first, "registered_at": now + 100},
                    {**first, "user_id": f"id1-{name}-2", "install_id": f"id1-{name}-y",
                     "registered_at": now + 200}]
                for number in order:
                    claim = claims[number]
                    self.world.kafka.publish(DEVICES, [(f"shop/{claim['install_id']}", claim)])
                self.wait_index(f"id1-{name}-2", [f"shop/id1-{name}-y"])
                self.wait_index(f"id1-{name}-1", [])
                self.send(event(f"id1-{name}-e1", f"id1-{name}-1"),
                          event(f"id1-{name}-e2", f"id1-{name}-2"))
                self.assertEqual(
                    self.outcomes(f"id1-{name}-e2"), {f"id1-{name}-y": "accepted"})
                self.assertEqual(set(self.outcomes(f"id1-{name}-e1").values()), {"no_devices"})

    def test_another_user_on_the_same_install(self):
        """ID-01, by the install instead of the token."""
        phone = device(random.Random(9), "id1-before", "id1-install")
        self.put(phone)
        taken = {**phone.record(), "user_id": "id1-after", "version": 2,
                 "registered_at": phone.registered_at + 1}
        self.world.kafka.publish(DEVICES, [(phone.key, taken)])
        self.wait_index("id1-after", [phone.key])
        self.wait_index("id1-before", [])
        self.send(event("id1-i1", "id1-before"), event("id1-i2", "id1-after"))
        self.assertEqual(set(self.outcomes("id1-i1").values()), {"no_devices"})
        self.assertEqual(self.outcomes("id1-i2"), {"id1-install": "accepted"})

    def test_logged_out_is_not_pushed(self):
        """ID-03: by a record without a user, and by a null one."""
        phone = device(random.Random(10), "id3", "id3-phone")
        self.put(phone)
        for name, value in [("null-user", {**phone.record(), "user_id": None, "version": 2}),
                            ("gone", None)]:
            with self.subTest(by=name):
                self.world.kafka.publish(DEVICES, [(phone.key, value)])
                self.wait_index("id3", [])
                self.send(event(f"id3-{name}", "id3"))
                self.assertEqual(set(self.outcomes(f"id3-{name}").values()), {"no_devices"})


class Staleness(IndexTest):
    """Devices that were not seen for long: not sent to, and the topic of verdicts says so."""

    index_settings = {"sweep": {"interval": "1s", "rate": 100000}}

    def test_a_sweep_says_so_once_and_a_registration_revives(self):
        generator, day = random.Random(11), 24 * 3600 * 1000
        now = int(time.time() * 1000)
        phones = {name: device(generator, f"stale-{name}", f"stale-{name}", kind)
                  for name, kind in [("old", "apns"), ("seen", "apns"), ("young", "fcm")]}
        records = {name: {**phone.record(), "registered_at": now - 100 * day}
                   for name, phone in phones.items()}
        records["seen"]["last_seen_at"] = now - 2 * day
        records["young"]["registered_at"] = now - 89 * day
        self.world.kafka.publish(
            DEVICES, [(phones[name].key, record) for name, record in records.items()])

        wait_until(lambda: self.world.kafka.read(INVALIDATIONS), 30,
                   "a sweep to find the stale one")
        self.wait_applied()
        # The next sweep may have come before the first one's word was read: it says the same.
        said = self.world.kafka.read(INVALIDATIONS)
        for record in said:
            found = harness.checked("push.invalidations", record).json
            self.assertEqual(
                (record.key, found["verdict"], found["origin"], found["reason"], found["as_of"]),
                (phones["old"].key, "stale", "sweeper", "not_seen", now - 100 * day))
        wait_until(lambda: self.metric("bugle_index_stale_total") >= 1, 30, "the metric")
        self.assertIn("not_seen", self.command("why", "stale-old").stdout)
        self.wait_index("stale-seen", [phones["seen"].key])
        self.wait_index("stale-young", [phones["young"].key])
        self.world.publish([event("stale-1", phone.user) for phone in phones.values()])
        self.world.wait_settled(30)
        outcomes = {r["user_id"]: r["outcome"] for r in self.world.results()}
        self.assertEqual(outcomes, {
            "stale-old": "no_devices", "stale-seen": "accepted", "stale-young": "accepted"})
        # It is back with its next registration.
        back = {**records["old"], "registered_at": now, "version": 2}
        self.world.kafka.publish(DEVICES, [(phones["old"].key, back)])
        self.wait_index("stale-old", [phones["old"].key])

    def metric(self, name):
        _, text = self.world.get("/metrics")
        return sum(float(line.split()[-1]) for line in text.splitlines()
                   if line.split("{")[0].split(" ")[0] == name)


class NewTopics(IndexTest):
    """Both topics are others than those that Redis was filled from."""

    def test_what_the_former_ones_said_is_gone(self):
        generator = random.Random(12)
        # Every partition of the former topic is longer than that of the next.
        crowd = [device(generator, f"former-{n}", f"former-{n}") for n in range(400)]
        self.world.register_only(crowd)
        self.wait_index("former-0", [crowd[0].key])
        self.wait_applied()
        self.assertIsNotNone(self.world.terminate())

        self.world.kafka.stop()
        folder = self.world.folder / "next"
        folder.mkdir()
        self.world.kafka = self.world.keep(harness.Kafka(folder))
        self.world.settings["kafka"]["brokers"] = self.world.kafka.address
        self.world.config.write_text(harness.yaml(self.world.settings) + "\n")
        self.world.apply_topics()
        phone = device(generator, "latter", "latter-phone")
        self.world.register_only([phone])
        self.world.start()
        self.wait_index("latter", [phone.key])
        self.wait_index("former-0", [])
        self.wait_applied()
        self.assertIn("built anew", self.world.dispatcher.log.read_text())
        self.assertEqual(self.json("index", "stats")["installs"], 1)
        self.world.publish([event("n-1", "former-0"), event("n-2", "latter")])
        self.world.wait_settled(30)
        outcomes = {r["event_id"]: r["outcome"] for r in self.world.results()}
        self.assertEqual(outcomes, {"n-1": "no_devices", "n-2": "accepted"})
