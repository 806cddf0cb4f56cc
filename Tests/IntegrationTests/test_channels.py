"""Events without a user: topics, conditions and broadcast channels, made and deleted by command,
from the producer's record to the result topic."""

import json

import harness
from harness import EVENTS, bugle

SCORE = {"aps": {"event": "update", "content-state": {"home": 1, "away": 0}}}


class Channels(harness.WorldTest):
    def channels(self, *arguments, code=0):
        done = bugle("channels", *arguments, "--config", self.world.config)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_a_channel_from_its_creation_to_its_end(self):
        id = json.loads(self.channels("create", "--storage", "none", "--json").stdout)["channel"]
        self.assertEqual(json.loads(self.channels("list", "--json").stdout), {"channels": [id]})
        self.assertIn("keeps none", self.channels("read", id).stdout)
        # The other environment has channels of its own.
        self.assertEqual(
            json.loads(self.channels("list", "--sandbox", "--json").stdout), {"channels": []})
        self.assertIn(
            "ChannelNotRegistered", self.channels("read", id, "--sandbox", code=1).stderr)

        events = [
            {"id": "channel", "type": "score", "to": {"apns_channel": id}, "apns": SCORE},
            {"id": "topic", "type": "news", "to": {"fcm_topic": "news"},
             "notification": {"title": "t"}},
            {"id": "condition", "type": "news",
             "to": {"fcm_condition": "'a' in topics && !('b' in topics)"},
             "notification": {"title": "t"}},
            {"id": "bad", "type": "news", "to": {"fcm_topic": "a b"},
             "notification": {"title": "t"}},
        ]
        # No key: nobody's events have to stay in order.
        self.world.kafka.publish(EVENTS, [("any", event) for event in events])
        self.world.wait_settled(60)
        results = {result["event_id"]: result for result in self.world.results()}
        for name, gateway in (("channel", "apns"), ("topic", "fcm"), ("condition", "fcm")):
            result = results[name]
            self.assertEqual(result["outcome"], "accepted", result)
            self.assertEqual(result["gateway"], gateway)
            self.assertIsNone(result["user_id"])
            self.assertIsNone(result["install_id"])
            self.assertEqual(result["targets"], 1)
        self.assertEqual(results["channel"]["to"], {"apns_channel": id})
        letters = self.world.dead_letters()
        self.assertEqual([letter.headers["bugle-error-code"] for letter in letters],
                         ["invalid_field"])
        self.assertIn("[a-zA-Z0-9-_.~%]+", letters[0].headers["bugle-error-reason"])

        self.channels("delete", id, code=2)  # nobody was asked
        self.channels("delete", id, "--yes")
        self.assertEqual(json.loads(self.channels("list", "--json").stdout), {"channels": []})
        # What is gone counts as deleted: whoever runs it again gets what was wanted.
        self.channels("delete", id, "--yes")

    def test_explain_shows_the_request_of_a_broadcast(self):
        def explained(event):
            file = self.world.folder / "event.json"
            file.write_text(json.dumps(event))
            done = bugle("explain", file, "--config", self.world.config, "--json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(done.stdout)

        topic = explained({"type": "news", "to": {"fcm_topic": "news"},
                           "notification": {"title": "t"}})
        self.assertIsNone(topic["user_id"])
        (target,) = topic["targets"]
        self.assertEqual(
            json.loads(target["request"]["body"])["message"]["topic"], "news")
        channel = explained({"type": "score", "to": {"apns_channel": "dGVzdA=="}, "apns": SCORE})
        headers = dict(channel["targets"][0]["request"]["headers"])
        self.assertEqual(headers[":path"], "/4/broadcasts/apps/" + "com.example.shop")
        self.assertEqual(headers["apns-channel-id"], "dGVzdA==")
        self.assertIn("***", headers["authorization"])

    def test_what_a_person_gets_wrong_is_said(self):
        self.assertIn("create, list, read or delete", self.channels(code=2).stderr)
        self.assertIn("expected none or newest",
                      self.channels("create", "--storage", "all", code=2).stderr)
        self.assertIn("base64", self.channels("read", "no id", code=2).stderr)
        self.assertIn("ID is missing", self.channels("delete", "--yes", code=2).stderr)
        self.assertIn("ChannelNotRegistered",
                      self.channels("read", "dGVzdA==", code=1).stderr)
