"""What an operator asks at three in the morning: one event's story, what waits and what to give up, the
checklist, rights and partitions."""

import json
import random

import harness
from contract import ROOT, errors
from harness import bugle, event, wait_until


# What each line of the checklist is about; the last four are the client apps'.
DEMANDS = [
    "registration atomic upsert", "logout unlinks", "410 UNREGISTERED end token", "4,096 Unicode",
    "alerts type priority", "silent content-available display background 5", "personal data payloads",
    "APNs connections persist multiplex", "FCM tokens cached refreshed ahead",
    "429 500 503 back-off jitter", "bursts collapse both", "client install", "client user",
    "client", "client"]


class Questions(harness.WorldTest):
    faults = harness.dead_tokens("dead")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        generator = random.Random(4)
        cls.devices = [
            harness.device(generator, "ada", "ada-phone"),
            harness.device(generator, "ada", "ada-tablet", "fcm"),
            harness.device(generator, "grace", "grace-phone", mark="dead")]
        cls.world.register(cls.devices)

    def ask(self, *words, code=0):
        done = bugle(*words, "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def outcomes(self, prefix):
        return {r["event_id"]: (r["outcome"], r.get("reason")) for r in self.world.results()
                if r["event_id"].startswith(prefix)}

    # One event's story.

    def test_a_story_is_told_by_id_by_message_and_by_place(self):
        self.world.publish([event("story-1", "grace")])
        self.world.wait_settled(60)
        (result,) = wait_until(
            lambda: [r for r in self.world.results() if r["event_id"] == "story-1"], 30, "a result")
        place = f"{result['input_topic']}/{result['input_partition']}/{result['input_offset']}"
        stories = [self.ask("trace", word) for word in ["story-1", result["message_id"], place]]
        for story in stories:
            self.assertEqual([entry["what"] for entry in story],
                             ["published", "result", "invalidation"])
            self.assertEqual([e["at"] for e in story], sorted(e["at"] for e in story))
            self.assertEqual(story[1]["fields"]["outcome"], "token_invalid")
            self.assertEqual(story[2]["fields"]["verdict"], "invalidate")
        self.assertEqual(stories[0], stories[1])
        self.assertEqual(stories[0], stories[2])

    def test_a_story_has_no_token_and_no_content_unless_asked(self):
        self.world.publish([event("story-2", "ada")])
        self.world.wait_settled(60)
        wait_until(lambda: "story-2" in self.outcomes("story-2"), 30, "a result")
        secrets = [d.token for d in self.devices] + ["arrives tomorrow"]
        text = json.dumps(self.ask("trace", "story-2"))
        for secret in secrets:
            self.assertNotIn(secret, text)
        self.assertIn("arrives tomorrow", json.dumps(self.ask("trace", "story-2", "--values")))

    def test_a_story_goes_through_waits_dead_letters_and_acknowledgements(self):
        self.addCleanup(bugle, "resume", "--all", "--config", self.world.config)
        self.ask("pause", "--source", "story")
        self.world.publish([event("story-3", "ada", source="story")])
        wait_until(lambda: [e for e in self.ask("trace", "story-3") if e["what"] == "waits"], 30,
                   "the event in the topic of held events")
        self.ask("resume", "--source", "story")
        wait_until(lambda: "story-3" in self.outcomes("story-3"), 30, "a result")
        what = [entry["what"] for entry in self.ask("trace", "story-3")]
        self.assertEqual(what, ["published", "waits", "result", "result"])
        self.world.kafka.publish(harness.EVENTS, [
            ("ada", {"v": 1, "id": "story-4", "type": "no.route", "user_id": "ada"})])
        self.world.wait_settled(60)
        what = [entry["what"] for entry in self.ask("trace", "story-4")]
        self.assertEqual(sorted(what), ["dead_letter", "published", "result"])

    def test_who_is_not_known_has_no_story(self):
        done = bugle("trace", "never-was", "--config", self.world.config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no topic knows it", done.stderr)

    # What waits.

    def test_the_backlog_is_shown_and_what_is_old_is_ended_with_results(self):
        self.addCleanup(bugle, "resume", "--all", "--config", self.world.config)
        self.addCleanup(bugle, "skip", "--undo", "--type", "old.*", "--config", self.world.config)
        self.ask("pause", "--app", "shop")
        self.world.publish([event(f"old-{n}", "ada", type="old.news", ttl=1800) for n in range(4)])
        self.world.publish([event(f"keep-{n}", "ada", type="other.news", ttl=86400) for n in range(3)])
        self.world.wait_settled(60)

        def held():
            topics = {t["topic"]: t for t in self.ask("backlog")[0]["topics"]}
            return topics.get("push.events-parked-held", {"records": 0})

        wait_until(lambda: held()["records"] == 7, 30, lambda: f"seven that wait: {held()}")
        backlog = self.ask("backlog")[0]
        self.assertEqual(held()["expires_within_1h"], 4)
        self.assertEqual(held()["held_back"], 7)
        self.assertEqual(sum(held()["ages"].values()), 7)
        self.assertEqual(backlog["reasons"], {"paused": 7})
        self.assertEqual(backlog["held_back_by"], {"app": 7})
        harness.pause(1.1)  # an age is what this is about
        order = ["skip", "--type", "old.*", "--older-than", "1s"]
        self.assertEqual(self.ask(*order, "--dry-run")[0]["would_be_skipped"], {"old.news": 4})
        self.assertEqual(self.outcomes("old-"), {})
        unasked = bugle(*order, "--config", self.world.config)
        self.assertEqual(unasked.returncode, 2, "it must ask")
        self.ask(*order, "--yes")
        wait_until(lambda: len(self.outcomes("old-")) == 4, 30, "four that are ended")
        self.assertEqual(set(self.outcomes("old-").values()), {("expired", "skipped")})
        self.ask("resume", "--all")
        wait_until(lambda: len(self.outcomes("keep-")) == 3, 30, "the others")
        self.assertEqual(set(self.outcomes("keep-").values()), {("accepted", None)})
        done = bugle("audit", "--config", self.world.config, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # Before production.

    def test_the_checklist_is_answered_line_by_line(self):
        (answer,) = self.ask("check", "--checklist")
        lines = answer["checklist"]
        self.assertEqual([line["number"] for line in lines], list(range(1, 16)))
        self.assertEqual({line["state"] for line in lines if line["number"] < 12}, {"ok"}, lines)
        for line, words in zip(lines, DEMANDS):
            for word in words.split():
                self.assertIn(word, line["demand"], line)
        for line in lines:
            self.assertTrue(line["answer"] and line["shown_by"], line)
            for name in line["shown_by"].replace(";", ",").split(","):
                name = name.strip()
                if name.endswith(".py") or name.endswith("Tests"):
                    found = [*ROOT.glob(f"Tests/*/{name}"), *ROOT.glob(f"Tests/*/{name}.swift"),
                             *ROOT.glob(f"Tests/{name}")]
                    self.assertTrue(found, f"{name} is no test")

    def test_rights_and_partitions_are_told(self):
        done = bugle("topics", "plan", "--replicas", "5", "--config", self.world.config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("5 replicas of 2 lanes: 30 partitions", done.stdout)
        self.assertIn("24 partitions do not divide evenly among 5 replicas", done.stdout)
        for right in ["User:bugle --operation Read --operation Describe --topic push.events",
                      "--topic push.control", "--transactional-id bugle- --resource-pattern-type prefixed"]:
            self.assertIn(right, done.stdout)

    def test_words_on_the_topic_fit_their_schema(self):
        for record in self.world.kafka.read("push.control"):
            if record.value:
                self.assertEqual(errors("push.control", record.json), [])
