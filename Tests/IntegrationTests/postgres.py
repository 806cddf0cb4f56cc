"""A PostgreSQL of its own for a test class, sessions on it, and its changes as Debezium tells them.

The server is Debian's and refuses to run as root; root runs it as `postgres`. Sessions are `psql`
processes, so that several can be in the middle of a transaction.
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from harness import START_TIMEOUT, Process, free_port, listening, wait_until

MARK = "-- end of answer --"


def binaries():
    """The folder with the newest server's programs."""
    found = sorted(
        pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: int(path.parts[-3]))
    if not found:
        raise AssertionError("there is no PostgreSQL server: install the package postgresql")
    return found[-1].parent


class Postgres:
    """A server in a temporary folder on a free loopback port."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-postgres-"))
        self.port = free_port()
        self.user = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = self.folder / "data"
        subprocess.run(
            [*self.user, binaries() / "initdb", "-D", data, "-A", "trust", "-U", "postgres",
             "--no-sync", "--locale=C.UTF-8"],
            check=True, capture_output=True, cwd="/")
        self.process = Process(
            [*self.user, binaries() / "postgres", "-D", data, "-p", self.port,
             *settings(listen_addresses="127.0.0.1", unix_socket_directories="",
                       wal_level="logical", fsync="off", max_connections=80)],
            self.folder / "postgres.log")
        wait_until(lambda: listening(self.port), START_TIMEOUT, "postgres")
        wait_until(self.answers, START_TIMEOUT, "postgres to answer")

    def answers(self):
        return subprocess.run(
            [binaries() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        ).returncode == 0

    def stop(self):
        self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def session(self):
        return Session(self)

    def run(self, statements):
        """Runs statements, each by itself; returns the lines of their answers."""
        done = subprocess.run(
            self.psql(), input=statements, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 or "ERROR" in done.stderr:
            raise AssertionError(f"{statements[:300]}: {done.stderr}")
        return done.stdout.splitlines()

    def rows(self, query):
        """The answer of a query, one dictionary each."""
        return [json.loads(line) for line in self.run(f"SELECT row_to_json(q) FROM ({query}) q")]

    def psql(self):
        return [
            str(binaries() / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
            "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "postgres"]


def settings(**values):
    return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]


class Session:
    """A session that goes on from statement to statement."""

    def __init__(self, server):
        arguments = [word for word in server.psql() if word not in ("-v", "ON_ERROR_STOP=1")]
        self.child = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        (self.pid,) = self.ask("SELECT pg_backend_pid()")

    def start(self, statement):
        """Begins a statement; `finish` waits for its answer."""
        self.child.stdin.write(f"{statement};\n\\echo '{MARK}'\n")
        self.child.stdin.flush()

    def finish(self):
        lines = []
        for line in self.child.stdout:
            if line.rstrip("\n") == MARK:
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"psql has ended: {lines}")

    def ask(self, statement):
        self.start(statement)
        return self.finish()

    def close(self):
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


# Changes

COLUMN = re.compile(r"(\S+?)\[((?:[^\[\]]|\[\])+)\]:('(?:[^']|'')*'|\S+)")
CHANGE = re.compile(r"table (\S+)\.(\S+): (INSERT|UPDATE|DELETE|TRUNCATE): (.*)", re.DOTALL)
OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
EPOCH = datetime.datetime(1970, 1, 1)


class Changes:
    """What a Debezium connector would write, from a replication slot of the server.

    Covers what the registry's tables need: no schemas around key and value, the encodings of
    Debezium's default settings, a large value that did not change as its placeholder.
    """

    def __init__(self, server, table, key, excluded=()):
        self.server = server
        self.table = table
        self.key = key
        self.excluded = set(excluded)
        # Commits a millisecond apart, so that their order is certain.
        self.clock = int(time.time() * 1000)
        self.slot = re.sub(r"\W", "_", table) + "_test"
        server.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'test_decoding')")

    def drop(self):
        self.server.run(f"SELECT pg_drop_replication_slot('{self.slot}')")

    def snapshot(self):
        """The rows that are there, as the connector's first reading has them."""
        return [
            self.records("r", None, self.converted(row, self.types()))[0]
            for row in self.server.rows(f"SELECT * FROM {self.table}")]

    def types(self):
        rows = self.server.rows(
            "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute "
            f"WHERE attrelid = '{self.table}'::regclass AND attnum > 0")
        return {row["attname"]: row["type"] for row in rows}

    def take(self):
        """Key and value of each record since the last time; None is null."""
        lines = self.server.rows(
            "SELECT data FROM pg_logical_slot_get_changes("
            f"'{self.slot}', NULL, NULL, 'include-timestamp', 'off')")
        records = []
        for text in (line["data"] for line in lines):
            self.clock += text.startswith("BEGIN")
            found = CHANGE.match(text)
            if not found or f"{found[1]}.{found[2]}" != self.table or found[3] == "TRUNCATE":
                continue
            records += self.records(OPERATIONS[found[3]], *self.images(found[3], found[4]))
        return records

    def images(self, operation, text):
        """The row before and after."""
        if operation == "DELETE":
            return self.image(text), None
        former, mark, text = text.rpartition("new-tuple:")
        before = self.image(former.partition("old-key:")[2]) if mark else None
        return before, self.image(text)

    def image(self, text):
        columns = {name.strip('"'): (kind, value) for name, kind, value in COLUMN.findall(text)}
        values = {
            name: value[1:-1].replace("''", "'") if value.startswith("'") else value
            for name, (_, value) in columns.items()}
        values = {name: None if value == "null" else value for name, value in values.items()}
        return self.converted(values, {name: kind for name, (kind, _) in columns.items()})

    def converted(self, row, types):
        # The decoder leaves nulls of the former row away; the connector does not.
        names = [name for name in self.types() if name not in self.excluded]
        return {name: debezium(row.get(name), types.get(name, "text")) for name in names}

    def records(self, operation, before, after):
        """A key change is a delete and an insert, and a tombstone follows each delete."""
        def key(row):
            return json.dumps({name: row[name] for name in self.key})

        def record(operation, before, after):
            schema, table = self.table.split(".")
            value = {"before": before, "after": after, "op": operation, "ts_ms": 1,
                     "source": {"connector": "postgresql", "schema": schema, "table": table,
                                "ts_ms": self.clock}}
            return key(after or before), json.dumps(value)

        if operation == "d":
            return [record("d", before, None), (key(before), None)]
        if operation == "u" and before and key(before) != key(after):
            return [record("d", before, None), (key(before), None), record("c", None, after)]
        return [record(operation, before, after)]


def debezium(value, kind):
    """A value as Debezium's JSON has it; values come as texts or as row_to_json has them."""
    if value is None:
        return None
    if value == "unchanged-toast-datum":
        return "__debezium_unavailable_value"
    if kind.startswith("timestamp"):
        parsed = datetime.datetime.fromisoformat(re.sub(r"([+-]\d\d)$", r"\1:00", value))
        if parsed.tzinfo:
            utc = parsed.astimezone(datetime.timezone.utc)
            return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return (parsed - EPOCH) // datetime.timedelta(microseconds=1)
    if kind in ("bigint", "integer"):
        return int(value)
    if kind == "boolean":
        return value in (True, "true")
    return value if isinstance(value, str) else json.dumps(value)
