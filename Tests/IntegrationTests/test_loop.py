"""The loop of the README, with a stranger's tools: register devices, publish events in every shape,
read results and dead letters, and hold every record seen against the contract."""

import json
import random

import harness
from contract import EXAMPLES, PARTITIONS_OF_TABLE, dead_letter_codes, errors, topic_table
from harness import DEAD_LETTERS, EVENTS, INVALIDATIONS, event, wait_until

BIG = 300 * 1024
EVENT_LIMIT = 256 * 1024


def days(text):
    """A retention such as `7 d` in milliseconds, as Kafka's settings write it."""
    return str(int(text.removesuffix(" d")) * 24 * 3600 * 1000)


def example(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text())


class Loop(harness.WorldTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(1)
        make = lambda user, install, kind: harness.device(generator, user, install, kind)
        cls.devices = [
            make("ada", "ada-phone", "apns"), make("ada", "ada-tablet", "fcm"),
            make("ada", "ada-debug", "sandbox"), make("grace", "grace-phone", "fcm"),
            make("4711", "number-phone", "apns"),
        ]
        cls.world.register(cls.devices)

    def settled(self):
        self.world.wait_settled(60)

    def results_of(self, *event_ids):
        self.settled()
        return [r for r in self.world.results() if r["event_id"] in event_ids]

    def assert_accepted(self, event_id, *installs):
        results = self.results_of(event_id)
        self.assertEqual(sorted(r["install_id"] or "" for r in results), sorted(installs))
        for result in results:
            self.assertEqual(result["outcome"], "accepted", result)
            self.assertEqual(result["status"], 200)
            self.assertEqual(result["targets"], len(installs))
            self.assertGreaterEqual(result["settled_at"], result["consumed_at"])
        self.assertEqual(
            sorted(r["target_index"] for r in results), list(range(len(installs))))

    def test_topics_are_those_of_the_table(self):
        for row in topic_table():
            with self.subTest(topic=row["topic"]):
                self.assertEqual(self.world.kafka.partitions(row["topic"]), row["partitions"])
        self.assertEqual(PARTITIONS_OF_TABLE, harness.PARTITIONS)

    def test_the_plan_has_the_numbers_of_the_table(self):
        done = harness.bugle("topics", "plan", "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        planned = {topic["name"]: topic for topic in json.loads(done.stdout)["topics"]}
        for row in topic_table():
            with self.subTest(topic=row["topic"]):
                plan, settings = planned[row["topic"]], planned[row["topic"]]["settings"]
                self.assertEqual(plan["partitions"], row["partitions"])
                self.assertEqual(settings["cleanup.policy"], row["cleanup"])
                self.assertEqual(settings["max.message.bytes"], row["max bytes"])
                if row["cleanup"] == "delete":
                    self.assertEqual(settings["retention.ms"], days(row["retention"]))
                else:
                    self.assertEqual(settings["delete.retention.ms"], days("7 d"))

    def test_applying_topics_again_changes_nothing(self):
        before = self.world.kafka.count(EVENTS)
        self.world.apply_topics()
        self.assertEqual(self.world.kafka.count(EVENTS), before)

    def test_a_native_event_reaches_every_device_of_its_user(self):
        self.world.publish([event("native-1", "ada", priority="high", labels={"run": "loop"})])
        self.assert_accepted("native-1", "ada-phone", "ada-tablet", "ada-debug")
        hashes = {device.install: device.token_hash for device in self.devices}
        for result in self.results_of("native-1"):
            self.assertEqual(result["token_hash"], hashes[result["install_id"]])
            self.assertEqual(result["labels"], {"run": "loop"})

    def test_results_have_the_users_key_and_name_the_input(self):
        self.world.publish([event("native-2", "grace")])
        self.settled()
        source = [r for r in self.world.kafka.read(EVENTS) if r.value and "native-2" in r.value]
        records = [
            r for r in self.world.kafka.read(harness.RESULTS) if r.json["event_id"] == "native-2"]
        self.assertEqual([r.key for r in records], ["grace"])
        named = records[0].json
        self.assertEqual(
            (named["input_topic"], named["input_partition"], named["input_offset"]),
            source[0].position)

    def test_a_number_is_a_user(self):
        self.world.publish([event("number-1", 4711)])
        self.assert_accepted("number-1", "number-phone")

    def test_a_user_without_devices_gets_one_result(self):
        self.world.publish([event("nobody-1", "nobody")])
        (result,) = self.results_of("nobody-1")
        self.assertEqual((result["outcome"], result["install_id"]), ("no_devices", None))
        self.assertEqual(result["targets"], 1)

    def test_only_and_except_choose_devices(self):
        self.world.publish([
            event("only-1", "ada", only={"gateways": ["fcm"]}),
            event("except-1", "ada", **{"except": {"install_ids": ["ada-tablet"]}})])
        self.assert_accepted("only-1", "ada-tablet")
        self.assert_accepted("except-1", "ada-phone", "ada-debug")

    def test_the_founding_envelope_is_an_event(self):
        envelope = {**example("push.events/founding-envelope"), "user_id": "grace"}
        self.world.kafka.publish(EVENTS, [("grace", envelope)])
        self.settled()
        (source,) = [
            r for r in self.world.kafka.read(EVENTS)
            if r.key == "grace" and r.value and '"event_type"' in r.value]
        self.assert_accepted("-".join(map(str, source.position)), "grace-phone")

    def test_a_structured_cloud_event_is_an_event(self):
        value = {
            **example("push.events.cloudevents/structured"), "id": "structured-1",
            "userid": "grace", "time": None}
        del value["time"]
        self.world.kafka.publish(
            EVENTS, [("grace", value)],
            {"content-type": "application/cloudevents+json; charset=UTF-8"})
        self.assert_accepted("structured-1", "grace-phone")
        (result,) = self.results_of("structured-1")
        self.assertEqual(result["source"], "/orders")
        self.assertEqual(result["event_type"], "order.shipped")

    def test_a_binary_cloud_event_is_an_event(self):
        record = example("push.events.cloudevents-binary/binary")
        headers = {**record["headers"], "ce_id": "binary-1", "ce_userid": "grace"}
        del headers["ce_time"]
        self.world.kafka.publish(EVENTS, [("grace", record["value"])], headers)
        self.assert_accepted("binary-1", "grace-phone")

    def test_an_event_that_is_over_is_not_sent(self):
        self.world.publish([event("late-1", "grace", expires_at="2025-01-01T00:00:00Z")])
        results = self.results_of("late-1")
        self.assertEqual({r["outcome"] for r in results}, {"expired"})

    def test_a_payload_over_the_gateways_limit_is_rejected_before_sending(self):
        body = {"title": "t", "body": "b" * 5000}
        self.world.publish([event("large-1", "ada", notification=body)])
        results = self.results_of("large-1")
        self.assertEqual(len(results), 3)
        for result in results:
            self.assertEqual(
                (result["outcome"], result["reason"], result["attempts"]),
                ("rejected", "payload_too_large", 0))

    def test_a_signed_out_device_gets_nothing_more(self):
        generator = random.Random(2)
        phone = harness.device(generator, "leaver", "leaver-phone")
        self.world.register([phone])
        self.world.publish([event("leaver-1", "leaver")])
        self.assert_accepted("leaver-1", "leaver-phone")
        gone = {**phone.record(), "user_id": None, "version": 2}
        self.world.kafka.publish(harness.DEVICES, [(phone.key, gone)])
        self.world.register([])
        self.world.publish([event("leaver-2", "leaver")])
        (result,) = self.results_of("leaver-2")
        self.assertEqual(result["outcome"], "no_devices")

    def test_a_device_with_a_null_value_is_gone(self):
        phone = harness.device(random.Random(3), "quitter", "quitter-phone")
        self.world.register([phone])
        self.world.kafka.publish(harness.DEVICES, [(phone.key, None)])
        self.world.register([])
        self.world.publish([event("quitter-1", "quitter")])
        (result,) = self.results_of("quitter-1")
        self.assertEqual(result["outcome"], "no_devices")

    def test_health_and_metrics_answer(self):
        self.assertEqual(self.world.get("/healthz")[0], 200)
        self.assertEqual(self.world.get("/readyz")[0], 200)
        status, text = self.world.get("/metrics")
        self.assertEqual(status, 200)
        self.assertIn("bugle_", text)
        for device in self.devices:
            self.assertNotIn(device.token, text)


class Poison(harness.WorldTest):
    """Bad input costs one record."""

    TEXTS = [
        ("not json", "not_json"), ("[]", "not_json"), ("{\"id\":1}", "missing_field"),
        ("{\"type\":\"t\"}", "no_user"), ("{\"type\":\"t\",\"user_id\":{}}", "invalid_field"),
        ("{\"type\":\"t\",\"user_id\":\"\"}", "invalid_field"),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"ttl\":\"soon\"}", "invalid_field"),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"notification\":\"x\"}", "invalid_field"),
        ("{\"type\":\"t\",\"user_ids\":[\"u\"]}", "unsupported"),
        ("{\"type\":\"t\",\"user_id\":\"u\",\"app\":\"nope\",\"notification\":{\"title\":\"t\"}}",
         "unknown_app"),
        (None, "null_value"),
    ]
    RAW = [
        (b"\xff\xfe\x00{", "not_json"), (b"\x00\x00\x00\x00\x07\x02\x08", "foreign_framing"),
        (b"\x1f\x8b\x08\x00", "foreign_framing"), (b"[" * 200_000, "not_json"),
        (b"x" * BIG, "too_large"),
    ]

    def test_every_poison_record_is_dead_lettered_with_its_reason_and_stops_nothing(self):
        world, kafka = self.world, self.world.kafka
        world.register([harness.device(random.Random(4), "u", "u-phone", "fcm")])
        before = {letter.position for letter in world.dead_letters()}
        expected = []
        for text, code in self.TEXTS:
            kafka.publish(EVENTS, [("u", text)], {"trace": "kept"})
            expected.append(code)
        for raw, code in self.RAW:
            kafka.publish_raw(EVENTS, "u", raw)
            expected.append(code)
        world.publish([event("after-poison", "u")])
        world.wait_settled(60)

        results = world.results()
        after = [r for r in results if r["event_id"] == "after-poison"]
        self.assertEqual([r["outcome"] for r in after], ["accepted"])

        letters = [r for r in world.dead_letters() if r.position not in before]
        sources = {r.position: r for r in kafka.read(EVENTS)}
        found = {}
        for letter in letters:
            self.assertEqual(errors("push.events-dlt", letter.headers), [], letter.headers)
            self.assertIn(letter.headers["bugle-error-code"], dead_letter_codes())
            position = (
                letter.headers["bugle-original-topic"],
                int(letter.headers["bugle-original-partition"]),
                int(letter.headers["bugle-original-offset"]))
            source = sources[position]
            self.assertNotIn(position, found, "dead-lettered twice without a crash")
            found[position] = letter.headers["bugle-error-code"]
            self.assertEqual((letter.key, letter.partition), (source.key, source.partition))
            self.assertEqual(letter.headers["bugle-original-timestamp"], str(source.timestamp))
            self.assertEqual(letter.headers["bugle-consumer-group"], harness.GROUP)
            for name, value in source.headers.items():
                self.assertEqual(letter.headers[name], value)
            if letter.headers["bugle-error-code"] == "too_large":
                self.assertEqual(letter.headers["bugle-truncated"], str(BIG))
                self.assertEqual(letter.value, source.value[:EVENT_LIMIT])
            else:
                self.assertNotIn("bugle-truncated", letter.headers)
                self.assertEqual(letter.value, source.value)
        self.assertEqual([found[position] for position in sorted(found)], expected)

    def test_a_dead_letter_of_a_known_user_is_also_a_result(self):
        self.world.publish([{"id": "bad-ttl", "type": "t", "user_id": "u", "ttl": -1}])
        self.world.wait_settled(60)
        (result,) = [r for r in self.world.results() if r["event_id"] == "bad-ttl"]
        self.assertEqual((result["outcome"], result["install_id"]), ("dead_lettered", None))
        self.assertEqual(result["user_id"], "u")


class Invalidations(harness.WorldTest):
    """A dead token is sent to once, and never again."""

    faults = harness.dead_tokens("dead")

    def test_a_dead_token_ends_in_one_invalidation(self):
        world, generator = self.world, random.Random(5)
        dead = [
            harness.device(generator, "owner", f"dead-{kind}", kind, mark="dead")
            for kind in ("apns", "sandbox", "fcm")]
        alive = harness.device(generator, "owner", "alive", "apns")
        world.register([*dead, alive])
        world.publish([event("dead-1", "owner")])
        world.wait_settled(60)
        outcomes = {
            r["install_id"]: r["outcome"] for r in world.results() if r["event_id"] == "dead-1"}
        expected = {device.install: "token_invalid" for device in dead}
        self.assertEqual(outcomes, {**expected, "alive": "accepted"})

        def told():
            return [r for r in world.kafka.read(INVALIDATIONS) if r.value]

        records = wait_until(
            lambda: (found := told()) and len(found) >= len(dead) and found, 30, "invalidations")
        self.assertEqual(sorted(r.key for r in records), sorted(d.key for d in dead))
        for record in records:
            harness.checked("push.invalidations", record)
            self.assertEqual(record.json["verdict"], "invalidate")

        world.register([])
        world.publish([event("dead-2", "owner")])
        world.wait_settled(60)
        again = [r["install_id"] for r in world.results() if r["event_id"] == "dead-2"]
        self.assertEqual(again, ["alive"])
