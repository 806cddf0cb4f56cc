"""What README.md gives a stranger to copy does what it says there."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from contract import ROOT

README = (ROOT / "README.md").read_text()
TOKEN = "c0ffee42" * 8
PIP = "python3 -m venv tools && tools/bin/pip install -q noida-db\n"
PACKAGES = "source deploy/packages.sh && install_packages redis-server kcat python3-venv\n"


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


class Keys(unittest.TestCase):
    def test_every_key_of_the_configuration_is_described(self):
        sources = "".join(f.read_text() for f in sorted((ROOT / "Sources/Config").glob("*.swift")))
        keys = set(re.findall(r'\.\w+\(\s*"([a-z][a-z0-9_]*)"\s*[,)]', sources))
        keys |= set(re.findall(r'\bfile: "([a-z_]+)"', sources))
        self.assertGreater(len(keys), 100)
        pages = README + "".join(f.read_text() for f in (ROOT / "topics").glob("*.md"))
        self.assertEqual(keys - set(re.findall(r"[a-z0-9_]+", pages)), set())


class Clone(unittest.TestCase):
    """What is in the repository, and not only in this folder."""

    def test_it_has_what_its_pages_name(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-clone-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        clone = folder / "bugle"
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", "--depth", "1", f"file://{ROOT}", clone],
            check=True, timeout=120)
        named = set()
        for page in ["README.md", "deploy/README.md", "deploy/systemd/bugle.service"]:
            text = (clone / page).read_text()
            named |= set(re.findall(
                r"(?<![\w/.$-])((?:deploy|topics|Tests|Sources|benchmarks)/[\w./-]*\w)", text))
            named |= {
                os.path.normpath(f"{os.path.dirname(page)}/{link}")
                for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)}
        container = (clone / "deploy/container/Containerfile").read_text()
        named |= set(re.findall(r"^COPY (?!--)(\S+)", container, re.M))
        self.assertGreater(len(named), 20)
        self.assertEqual({path for path in named if not (clone / path).exists()}, set())
        for command in ["deploy/demo", "Tests/run", "Tests/fuzz", "Tests/chaos", "benchmarks/run"]:
            self.assertTrue(os.access(clone / command, os.X_OK), command)


class ByHand(unittest.TestCase):
    """The loop as it stands, with other ports and another folder, and without installing: a copy must
    not meet what else runs on this machine."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-readme-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def row_of_ports(self, count):
        """The first of so many free ports in a row: the gateways take as many as there are of them."""
        for _ in range(100):
            first = harness.free_port()
            if not any(harness.listening(first + step) for step in range(count)):
                return first
        raise AssertionError("no row of free ports")

    def moved(self, commands):
        """The commands, on this test's ports and in its folder; packages are there already."""
        base = self.row_of_ports(8)
        changes = {
            PACKAGES: "", PIP: "", "tools/bin/noida-db": "noida-db",
            "$PWD/.build/release": str(self.folder / "bin"),
            "/tmp/loop": str(self.folder / "loop"),
            "--port-base 7443": f"--port-base {base}",
            **{f"localhost:{7443 + n}": f"localhost:{base + n}" for n in range(3)},
            **{port: str(harness.free_port()) for port in ["9192", "6390", "9464", "9465"]},
        }
        for old, new in changes.items():
            self.assertIn(old, commands)
            commands = commands.replace(old, new)
        return commands

    def test_the_loop_and_a_second_replica(self):
        first, publish, second = blocks("The loop, by hand")
        script = self.moved("\n".join([first, publish, second]))
        (self.folder / "bin").mkdir()
        (self.folder / "bin/bugle").symlink_to(harness.program())
        # What a user waits for by looking, this waits for by asking.
        settle = "\n".join([
            "for _ in $(seq 60); do",
            "  [[ $(kcat -C -b $(grep -o 'localhost:[0-9]*' bugle.yaml | head -1) -t TOPIC -e -q |",
            "    wc -l) -ge 1 ]] && break; sleep 1",
            "done"])
        waits = "".join(settle.replace("TOPIC", topic) + "\n"
                        for topic in ["push.results", "push.events-dlt"])
        self.assertEqual(script.count("\nsleep 1\n"), 1)
        script = script.replace("\nsleep 1\n", "\n" + waits)
        end = "kill %4; wait %4; echo \"ended with $?\"; kill $(jobs -p) 2> /dev/null; wait"
        file = self.folder / "loop.sh"
        file.write_text(f"set -m\ncd {ROOT}\n{script}\n{end}\n")
        output = self.folder / "output"
        with output.open("w") as out:
            shell = subprocess.Popen(
                ["bash", file], stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env={name: value for name, value in os.environ.items()
                     if name not in ("INSTANCE", "ADMIN_PORT")})
        self.addCleanup(self.sweep, shell)
        try:
            shell.wait(240)
        except subprocess.TimeoutExpired:
            self.fail(f"it does not end:\n{output.read_text()}")
        text = output.read_text()
        results = [json.loads(line) for line in text.splitlines() if line.startswith('{"v":1,"ev')]
        self.assertEqual([r["outcome"] for r in results[-1:]], ["accepted"], text)
        self.assertIn("bugle-error-code=not_json", text)
        self.assertNotIn("command not found", text)
        self.assertNotIn("error    ", text)
        replicas = re.findall(r"^(one|two)(?: \*)? +ready", text, re.M)
        self.assertEqual(set(replicas), {"one", "two"}, text)
        self.assertIn("ended with 0", text)
        self.assertRegex(text, r"(?m)accepted .*apns production .*user ada", "what tail shows")
        self.assertNotIn(TOKEN, text)

    def sweep(self, shell):
        """Ends what is left of the loop: jobs of an interactive shell have groups of their own."""
        if shell.poll() is None:
            shell.kill()
            shell.wait()
        listed = subprocess.run(
            ["ps", "-s", str(shell.pid), "-o", "pid="], capture_output=True, text=True).stdout
        for pid in listed.split():
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                pass
