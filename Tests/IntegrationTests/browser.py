"""A real Chromium, without a window, driven over its debugging pipe: what a page becomes when a
person looks at it. Nothing of the page is trusted but what the browser says about it."""

import base64
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time

TIMEOUT = 60  # seconds; a loaded machine starts a browser slowly


class Browser:
    """One page of one Chromium. Remembers every request that it makes."""

    def __init__(self, width=1200, height=900, dark=False, phone=False):
        self.folder = tempfile.TemporaryDirectory(
            prefix="bugle-chromium-", ignore_cleanup_errors=True)
        to_child, self.out = os.pipe()
        self.incoming, from_child = os.pipe()

        def arrange():
            # Chromium reads commands from descriptor 3 and answers on 4. The copies keep one pipe's
            # end from being overwritten by the other's.
            reading, writing = os.dup(to_child), os.dup(from_child)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.child = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--disable-extensions", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            close_fds=False, preexec_fn=arrange, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.number, self.requests, self.faults = b"", 0, [], []
        try:
            target = self.command("Target.createTarget", {"url": "about:blank"})["targetId"]
            self.session = self.command(
                "Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            for name in ["Page", "Network", "Runtime", "Accessibility", "Log"]:
                self.ask(f"{name}.enable")
            self.ask("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})
            self.ask("Emulation.setEmulatedMedia", {"features": [
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        except BaseException:
            self.close()
            raise

    session = None

    def close(self):
        # Its helpers too: they still write into the folder when their parent is gone.
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        os.close(self.out)
        os.close(self.incoming)
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, method, parameters=None):
        return self.command(method, parameters, self.session)

    def command(self, method, parameters=None, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.incoming], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise AssertionError("Chromium does not answer")
            piece = os.read(self.incoming, 1 << 20)
            if not piece:
                raise AssertionError("Chromium has ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.faults.append(message["params"])
        return message

    # What a person does.

    def open(self, url):
        self.ask("Page.navigate", {"url": url})
        self.wait("document.readyState === 'complete'")

    def run(self, expression):
        """What an expression is worth in the page."""
        done = self.ask("Runtime.evaluate", {
            "expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, condition, seconds=TIMEOUT):
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise AssertionError(f"{condition} in {self.run('document.body.innerText')}")

    def press(self, key, code, number):
        for kind in ["keyDown", "keyUp"]:
            self.ask("Input.dispatchKeyEvent", {
                "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number,
                "text": " " if key == " " and kind == "keyDown" else ""})

    def screenshot(self, path):
        size = self.run("[document.documentElement.scrollWidth, document.body.scrollHeight]")
        data = self.ask("Page.captureScreenshot", {
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def tree(self):
        """The accessibility tree as (role, name) pairs, as a screen reader meets them."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", ""))
                for node in nodes if not node.get("ignored")]
