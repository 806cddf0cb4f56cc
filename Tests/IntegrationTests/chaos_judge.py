"""Compares what the topics and the gateways' journal say with what Bugle promises. It computes
ids and owners by itself and uses of Bugle nothing but the command that is judged as well,
`bugle audit`."""

import bisect
import collections
import dataclasses
import hashlib
import json
import uuid

import harness
from harness import DEVICES, EVENTS, RESULTS

NAMESPACE = bytes.fromhex("6275676C652E5A318F3C0D5A4E1B77A9")
OWNER_GRACE = 1000  # ms, promise 4
CLOCK_GRACE = 1000  # ms: a push travels, a process waits for its turn on a busy machine
OPEN_MAX = 5_000  # ms: how long an event may wait for another of its targets, promise 3
COMMIT_MAX = 1_500  # ms: an interval of commits, and a commit, on a busy machine


@dataclasses.dataclass
class Disturbance:
    """Something that the schedule did, from when to when (ms), and its kind."""

    kind: str
    start: int
    end: int


@dataclasses.dataclass
class Verdict:
    """What one seed came to."""

    events: int = 0
    targets: int = 0
    waiting: int = 0
    lost: int = 0
    doubled: int = 0
    wrong_user: int = 0
    repeated: int = 0
    repeated_allowed: int = 0
    problems: list = dataclasses.field(default_factory=list)

    def note(self, text):
        if len(self.problems) < 20:
            self.problems.append(text)


def uuid5(name):
    digest = bytearray(hashlib.sha1(NAMESPACE + name).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(digest))


def message_id(event_id, address):
    """The id of a push, as `topics/push.results.schema.json` describes it."""
    identity = uuid5(b"shop\0\0" + event_id.encode())
    return str(uuid5(str(identity).encode() + address.encode()))


class Judge:
    def __init__(self, world, seen_moves, disturbances, steady):
        self.world = world
        # (install, user) -> when the index was seen to have it, ms
        self.seen_moves = seen_moves
        self.disturbances = disturbances
        # user -> installs that it owns all the time
        self.steady = steady
        self.verdict = Verdict()

    def judge(self, audit):
        self.take_audit(audit)
        self.events, self.copies = {}, collections.Counter()
        for record in self.world.kafka.read(EVENTS):
            if record.value and record.value.startswith("{\"v\""):
                self.events[record.position] = record.json
                self.copies[record.json["id"]] += 1
        self.results = [record.json for record in self.world.kafka.read(RESULTS)]
        self.journal = [
            entry for entry in self.world.gateways.journal() if entry["message_id"]]
        self.read_owners()
        self.check_targets()
        self.check_taken()
        self.check_owners()
        self.check_repeats()
        return self.verdict

    def take_audit(self, audit):
        verdict = self.verdict
        verdict.events, verdict.targets = audit["events"], audit["targets"]
        verdict.waiting = audit["waiting"]
        verdict.lost += audit["missing"]
        verdict.doubled += audit["doubled"] + audit["strays"]
        for finding in audit["findings"]:
            verdict.note("audit: {kind} {place} {event_id}: {detail}".format(**finding))

    def read_owners(self):
        """The owners of each install, in their order, from the topic."""
        self.owners, self.install_of = collections.defaultdict(list), {}
        for record in self.world.kafka.read(DEVICES):
            device = record.json
            install, user = device["install_id"], device["user_id"]
            self.install_of[device["token"]] = install
            if not self.owners[install] or self.owners[install][-1] != user:
                self.owners[install].append(user)
        installs_of = collections.defaultdict(set)
        for install, users in self.owners.items():
            for user in users:
                installs_of[user].add(install)
        self.of_message = {}
        for event in self.events.values():
            for install in installs_of[str(event["user_id"])]:
                self.of_message[message_id(event["id"], f"shop/{install}")] = event

    def check_targets(self):
        """Every event has an outcome or a waiting target for each device that its user had all the
        time: an index that is away or incomplete never means that there is none."""
        grouped = harness.by_event(self.results)
        for position, event in self.events.items():
            results = grouped.get(position, [])
            if not results or len(results) < results[0]["targets"]:
                continue  # the audit says whether something is missing
            installs = {result["install_id"] for result in results}
            for install in self.steady.get(str(event["user_id"]), set()) - installs:
                self.verdict.lost += 1
                self.verdict.note(f"{event['id']} at {position}: nothing for {install}")

    def check_taken(self):
        """What is accepted was received."""
        taken = {
            entry["message_id"] for entry in self.journal
            if entry["status"] == 200 and entry["fate"] != "not_processed"}
        for result in self.results:
            if result["outcome"] == "accepted" and result["message_id"] not in taken:
                self.verdict.lost += 1
                self.verdict.note(f"{result['event_id']}: accepted, and no gateway received it")

    def check_owners(self):
        frozen = [d for d in self.disturbances if d.kind in ("freeze", "gateway link")]
        for entry in self.journal:
            event = self.of_message.get(entry["message_id"])
            install = self.install_of.get(entry["token"])
            user = event and str(event["user_id"])
            owners = self.owners.get(install, [])
            if user not in owners:
                self.wrong(entry, f"the device {install} was never {user}'s")
                continue
            at = owners.index(user) + 1
            if at == len(owners):
                continue
            seen = self.seen_moves.get((install, owners[at]))
            if seen is None or entry["at"] <= seen + OWNER_GRACE + CLOCK_GRACE:
                continue
            # A push that began in time and was held up on its way.
            if any(d.start <= seen + OWNER_GRACE + CLOCK_GRACE and entry["at"] <= d.end + 1000
                   for d in frozen):
                continue
            late = entry["at"] - seen
            self.wrong(entry, f"{install} had left {user} {late} ms before")

    def wrong(self, entry, why):
        self.verdict.wrong_user += 1
        self.verdict.note(f"{entry['message_id']} at {entry['at']}: {why}")

    def check_repeats(self):
        """A push that was taken and answered is repeated only when a crash or a cut came before its
        event was committed, or its answer was lost on the way."""
        sent = collections.defaultdict(list)
        for entry in self.journal:
            if entry["fate"] == "answered" and entry["status"] == 200:
                sent[entry["message_id"]].append(entry["at"])
        ambiguous = {r["message_id"] for r in self.results if r.get("ambiguous")}
        for message, moments in sent.items():
            copies = self.copies[self.of_message[message]["id"]] if message in self.of_message else 1
            moments.sort()
            for moment in moments[:len(moments) - copies]:
                self.verdict.repeated += 1
                if message in ambiguous or self.may_repeat(moment):
                    self.verdict.repeated_allowed += 1
                else:
                    self.verdict.note(f"{message} was taken at {moments}, and nothing explains it")

    def may_repeat(self, moment):
        return any(
            d.start <= moment + OPEN_MAX + COMMIT_MAX and moment <= d.end
            for d in self.disturbances if d.kind != "planned")
