"""Links between two processes that can be cut, hung and slowed down: small TCP proxies, all in one
thread of their own."""

import asyncio
import struct
import threading

CHUNK = 65536  # bytes


class Link:
    """One way from a process to a server. `state` is up, cut, hung or slow."""

    def __init__(self, target, rewrite=None):
        self.target = target
        self.rewrite = rewrite
        self.state = "up"
        self.delay = 0.0
        self.changed = asyncio.Event()
        self.writers = set()

    def set(self, state, delay=0.0):
        self.state, self.delay = state, delay
        self.changed.set()
        self.changed = asyncio.Event()
        if state == "cut":
            self.abort()

    def abort(self):
        for writer in list(self.writers):
            writer.transport.abort()

    async def serve(self, reader, writer):
        """A connection of the process to its server."""
        if self.state == "cut":
            writer.transport.abort()
            return
        self.writers.add(writer)
        other = None
        try:
            await self.pass_on()
            back, other = await asyncio.open_connection("127.0.0.1", self.target)
            self.writers.add(other)
            await asyncio.gather(
                self.pump(reader, other, None),
                self.pump(back, writer, self.rewrite() if self.rewrite else None))
        except OSError:
            pass
        finally:
            for end in (writer, other):
                if end:
                    self.writers.discard(end)
                    end.transport.abort()

    async def pass_on(self):
        """Waits while the link hangs. What was sent meanwhile is lost with its connection, so that
        nothing arrives long after it was written."""
        if self.state != "hung":
            return
        while self.state == "hung":
            await self.changed.wait()
        raise ConnectionError("hung up")

    async def pump(self, source, sink, rewrite):
        while data := await source.read(CHUNK):
            await self.pass_on()
            if self.delay:
                await asyncio.sleep(self.delay)
            if rewrite:
                data = rewrite(data)
            sink.write(data)
            await sink.drain()
        raise ConnectionError("closed")


def address_rewriter(port, instead):
    """Puts one port in the place of another where a broker tells its address: a client then stays
    on its link. An address may stand at the border of two chunks; what only looks like its first
    letters is not kept back, for an answer may end so."""
    ours = b"127.0.0.1" + struct.pack(">i", port)
    other = b"127.0.0.1" + struct.pack(">i", instead)

    def make():
        kept = b""

        def rewrite(data):
            nonlocal kept
            data = (kept + data).replace(ours, other)
            length = next(
                (n for n in range(len(ours) - 1, 3, -1) if data.endswith(ours[:n])), 0)
            kept = data[len(data) - length:]
            return data[:len(data) - length]

        return rewrite

    return make


class Links:
    """All links of a world, by name."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.links, self.servers = {}, []
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def call(self, body):
        return asyncio.run_coroutine_threadsafe(body, self.loop).result(30)

    def open(self, name, target, is_broker=False):
        """Opens a link to a local port; returns the port in its place."""
        return self.call(self.listen(name, target, is_broker))

    async def listen(self, name, target, is_broker):
        link = self.links[name] = Link(target)
        server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
        self.servers.append(server)
        port = server.sockets[0].getsockname()[1]
        if is_broker:
            link.rewrite = address_rewriter(target, port)
        return port

    def set(self, name, state, delay=0.0):
        async def change():
            self.links[name].set(state, delay)
        self.call(change())

    def stop(self):
        async def close():
            for server in self.servers:
                server.close()
            for link in self.links.values():
                link.set("cut")
            await asyncio.sleep(0)
        self.call(close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()
