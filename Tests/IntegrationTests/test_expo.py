"""Expo, whole: messages in batches, tickets one by one, receipts later, also after a restart."""

import collections
import json
import time

import harness
from contract import errors
from harness import INVALIDATIONS, Device, bugle, event, wait_until

RECEIPTS, TICKETS = "push.receipts", "push.expo-tickets"


def expo_device(user, install, token):
    registered_at = int(time.time() * 1000) - 3_600_000
    return Device(user, install, "expo", "none", f"ExponentPushToken[{token}]", registered_at)


class Expo(harness.WorldTest):
    settings = {"dispatch": {"receipt_wait": "3s"}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.devices = [
            expo_device("ada", "ada-phone", "ada-1"), expo_device("ada", "ada-tablet", "ada-2"),
            expo_device("gil", "gil-phone", "DeviceNotRegistered-1"),
            expo_device("gil", "gil-tablet", "gil-1"),
            expo_device("rae", "rae-phone", "receipt-DeviceNotRegistered-1"),
            expo_device("lea", "lea-phone", "late-1"),
            *[expo_device(f"user-{n}", f"phone-{n}", f"token-{n}") for n in range(200)],
        ]
        cls.world.register(cls.devices)

    def results_of(self, *event_ids):
        self.world.wait_settled(60)
        return {r["install_id"]: r for r in self.world.results() if r["event_id"] in event_ids}

    def receipts(self):
        records = self.world.kafka.read(RECEIPTS)
        for record in records:
            self.assertEqual(errors("push.receipts", record.json), [])
        return collections.defaultdict(list, {
            id: [r.json for r in records if r.json["result_id"] == id]
            for id in {r.json["result_id"] for r in records}})

    def wait_receipt(self, result):
        return wait_until(
            lambda: self.receipts()[result["result_id"]], 60, f"the receipt of {result}")

    def test_messages_share_requests_and_settle_alone(self):
        seed = harness.seed()
        ids = [f"many-{seed}-{n}" for n in range(200)]
        self.world.publish([event(id, f"user-{n}", data={"n": n}) for n, id in enumerate(ids)])
        results = self.results_of(*ids)
        self.assertEqual(len(results), 200)
        self.assertEqual({r["outcome"] for r in results.values()}, {"accepted"}, f"seed {seed}")
        self.assertEqual(len({r["gateway_id"] for r in results.values()}), 200)
        wanted = {r["message_id"] for r in results.values()}
        entries = [
            e for e in self.world.gateways.journal()
            if e["service"] == "expo" and e["message_id"] in wanted]
        self.assertEqual(len(entries), 200)
        requests = collections.Counter((e["connection"], e["stream"]) for e in entries)
        self.assertLessEqual(max(requests.values()), 100)
        self.assertLess(len(requests), 200)

    def test_a_dead_token_costs_no_neighbour(self):
        self.world.publish([event("dead-1", "gil")])
        results = self.results_of("dead-1")
        self.assertEqual(results["gil-phone"]["outcome"], "token_invalid")
        self.assertEqual(results["gil-phone"]["reason"], "DeviceNotRegistered")
        self.assertEqual(results["gil-tablet"]["outcome"], "accepted")
        verdicts = [r.json for r in self.world.kafka.read(INVALIDATIONS)
                    if r.json["install_id"] == "gil-phone"]
        self.assertEqual(
            [(v["verdict"], v["origin"]) for v in verdicts], [("invalidate", "gateway")])

    def test_a_receipt_ends_a_token_as_of_the_sending(self):
        self.world.publish([event("receipt-1", "rae"), event("receipt-2", "lea")])
        results = self.results_of("receipt-1", "receipt-2")
        dead, late = results["rae-phone"], results["lea-phone"]
        self.assertEqual((dead["outcome"], late["outcome"]), ("accepted", "accepted"))
        (receipt,) = self.wait_receipt(dead)
        self.assertEqual((receipt["status"], receipt["reason"]), ("error", "DeviceNotRegistered"))
        self.assertGreaterEqual(receipt["at"] - dead["sent_at"], 3000)
        (receipt,) = self.wait_receipt(late)
        self.assertEqual((receipt["status"], receipt["reason"]), ("ok", None))
        verdicts = wait_until(
            lambda: [r.json for r in self.world.kafka.read(INVALIDATIONS)
                     if r.json["install_id"] == "rae-phone"], 60, "the verdict of the receipt")
        self.assertEqual(
            [(v["verdict"], v["origin"], v["as_of"]) for v in verdicts],
            [("invalidate", "receipt", dead["sent_at"])])

    def test_tickets_outlive_a_restart(self):
        self.world.publish([event("restarted-1", "ada")])
        results = self.results_of("restarted-1")
        self.assertEqual(len(results), 2)
        tickets = [r.json for r in self.world.kafka.read(TICKETS)]
        self.assertLessEqual(
            {r["gateway_id"] for r in results.values()}, {t["ticket"] for t in tickets})
        for ticket in tickets:
            self.assertEqual(errors("push.expo-tickets", ticket), [])
        self.assertEqual(self.world.terminate(), 0, self.world.tail())
        self.world.start()
        for result in results.values():
            (receipt,) = self.wait_receipt(result)
            self.assertEqual(receipt["status"], "ok")
            self.assertEqual(receipt["message_id"], result["message_id"])

    def test_explain_and_why_know_expo(self):
        file = self.world.folder / "event.json"
        file.write_text(json.dumps(event("explained", "ada", data={"order": 1})))
        done = bugle("explain", file, "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for target in json.loads(done.stdout)["targets"]:
            body = json.loads(target["request"]["body"])
            self.assertEqual(body["data"]["order"], 1)
            self.assertNotIn("ExponentPushToken", body["to"])
        done = bugle("why", "ada", "--config", self.world.config, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            [a["gets_pushes"] for a in json.loads(done.stdout)["addresses"]], [True, True])
