"""What README.md gives a stranger to copy does what it says there."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.request

import harness
from contract import ROOT
from harness import free_port, program, wait_until

README = (ROOT / "README.md").read_text()
TOKEN = "c0ffee42" * 8


def blocks(heading):
    """The shell blocks below a heading, up to the next one."""
    (section,) = re.findall(
        rf"^## {re.escape(heading)}$(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


class FirstLines(unittest.TestCase):
    def test_the_two_commands_are_there(self):
        first = re.search(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL).group(1)
        commands = [line.split()[0] for line in first.splitlines()]
        self.assertEqual(commands, ["deploy/demo", "Tests/run"])
        for command in commands:
            self.assertTrue(os.access(ROOT / command, os.X_OK), command)


class ByHand(unittest.TestCase):
    """The loop as it stands, with other ports and another folder, and without installing: a copy
    must not meet what else runs on this machine. Where a stranger sleeps a few seconds, the test
    waits for what these seconds are for."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bugle-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ports = {name: free_port() for name in ("kafka", "redis", "admin")}
        # The gateways take as many ports in a row as there are of them.
        self.base = self.row_of_ports(8)

    def row_of_ports(self, count):
        for _ in range(100):
            first = free_port()
            if not any(harness.listening(first + step) for step in range(count)):
                return first
        raise AssertionError("no row of free ports")

    def adapted(self, text):
        changes = [
            ("sudo apt-get install -y redis-server kcat python3-venv\n", ""),
            ("python3 -m venv tools && tools/bin/pip install -q noida-db\n", ""),
            ("tools/bin/noida-db", "noida-db"),
            ('PATH="$PWD/.build/release:$PATH"', f'PATH="{pathlib.Path(program()).parent}:$PATH"'),
            ("/tmp/loop", str(self.folder)),
            ("9192", str(self.ports["kafka"])), ("6390", str(self.ports["redis"])),
            ("--port-base 7443", f"--port-base {self.base}"),
            ("kafka:\n  brokers", f"admin: {{listen: '127.0.0.1:{self.ports['admin']}'}}\n"
                                  "kafka:\n  brokers"),
        ] + [(f"localhost:{7443 + step}", f"localhost:{self.base + step}") for step in range(3)]
        for old, new in changes:
            text = text.replace(old, new)
        return text

    def test_the_loop(self):
        setting_up, using = map(self.adapted, blocks("The loop, by hand"))
        self.assertEqual(setting_up.count("sleep 3\n"), 1)
        self.assertEqual(setting_up.count("sleep 10\n"), 1)
        self.assertEqual(using.count("sleep 1\n"), 2)
        script = "set -m\n" + setting_up + using + "kill %4\nwait %4\necho drained $?\n"
        # Each wait is a line that the test answers when what it is for has happened.
        script = re.sub(r"^sleep \d+$", "echo waiting >&3; read -r <&4", script, flags=re.MULTILINE)
        output, asks, answers = self.folder / "output", os.pipe(), os.pipe()
        with open(output, "wb") as out:
            shell = subprocess.Popen(
                ["bash", "-c", f"exec 3>&{asks[1]} 4<&{answers[0]}\n{script}"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                pass_fds=(asks[1], answers[0]), start_new_session=True)
        self.addCleanup(self.end, shell, output)
        os.close(asks[1])
        os.close(answers[0])
        said = os.fdopen(asks[0], "rb")
        answer = os.fdopen(answers[1], "wb", buffering=0)
        self.addCleanup(said.close)
        self.addCleanup(answer.close)
        for condition, what in [
            (self.servers_listen, "the servers"), (self.is_ready, "readiness"),
            (self.is_registered, "the device in the index"), (self.is_answered, "the outcomes"),
        ]:
            self.assertEqual(said.readline(), b"waiting\n", output.read_text(errors="replace"))
            wait_until(condition, 60, lambda: f"{what}:\n{output.read_text(errors='replace')}")
            answer.write(b"\n")
        shell.wait(60)
        text = output.read_text(errors="replace")
        self.assertIn("drained 0", text)
        self.assertRegex(text, r'"outcome":"accepted"')
        self.assertRegex(text, r"bugle-error-code=not_json")
        self.assertRegex(text, r"(?m)accepted .*apns production .*user ada", "what tail shows")
        self.assertNotIn(TOKEN, text)

    def end(self, shell, output):
        """Every job of the shell is a process group of its own, in the shell's session."""
        for line in subprocess.run(
                ["ps", "-s", str(shell.pid), "-o", "pid="], capture_output=True,
                text=True).stdout.split():
            try:
                os.kill(int(line), signal.SIGKILL)
            except ProcessLookupError:
                pass
        shell.wait()

    def servers_listen(self):
        ports = [self.ports["kafka"], self.ports["redis"], self.base, self.base + 2]
        files = self.folder / "gateways/bugle.apps.json"  # the last that the simulator writes
        return files.exists() and all(map(harness.listening, ports))

    def is_ready(self):
        try:
            address = f"http://127.0.0.1:{self.ports['admin']}/readyz"
            return urllib.request.urlopen(address, timeout=5).status == 200
        except OSError:
            return False

    def is_registered(self):
        done = harness.bugle("index", "get", "ada", "--config", self.folder / "bugle.yaml")
        return "phone-1" in done.stdout

    def is_answered(self):
        return self.records("push.results") and self.records("push.events-dlt")

    def records(self, topic):
        return subprocess.run(
            ["kcat", "-C", "-b", f"127.0.0.1:{self.ports['kafka']}", "-t", topic, "-e", "-q"],
            capture_output=True, timeout=30).stdout


if __name__ == "__main__":
    unittest.main()
