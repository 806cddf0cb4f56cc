"""A front that gives a plain Kafka broker TLS and SASL, as brokers in the field have them.

It listens on the broker's port at a loopback address of its own and sends what clients say on, once
they have proven who they are: by a password (PLAIN, SCRAM), by a certificate, or both. What the
broker says of where brokers are names the front instead; both addresses are equally long, so that
one is replaced in place.
"""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import subprocess
import threading

import scramp

HOST, BROKER_HOST = "127.0.0.2", "127.0.0.1"
# Metadata, FindCoordinator and DescribeCluster, whose answers say where brokers are.
PLACES = {3, 10, 60}
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 33, 58


class Authority:
    """An authority of certificates of its own."""

    def __init__(self, folder, name):
        folder.mkdir(exist_ok=True)
        self.folder, self.name = folder, name
        self.file = folder / f"{name}.pem"
        self.key = folder / f"{name}-key.pem"
        openssl("req", "-x509", *NEW_KEY, "-nodes", "-days", "365", "-subj", f"/CN={name}",
                "-keyout", self.key, "-out", self.file)

    def issue(self, name, extension, password=None):
        """A key and a certificate for somebody."""
        key, file = (self.folder / f"{self.name}-{name}{end}.pem" for end in ("-key", ""))
        request, extensions = file.with_suffix(".csr"), file.with_suffix(".ext")
        lock = ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
        openssl("req", *NEW_KEY, *lock, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions.write_text(extension + "\n")
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key,
                "-CAcreateserial", "-days", "365", "-extfile", extensions, "-out", file)
        return key, file

    def broker(self, name="broker", host=HOST):
        return self.issue(name, f"subjectAltName=IP:{host}")

    def client(self, name, password=None):
        return self.issue(name, "extendedKeyUsage=clientAuth", password)


NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


async def frame(reader):
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def send(writer, body):
    writer.write(struct.pack(">i", len(body)) + body)
    await writer.drain()


def with_sasl(answer, version):
    """An ApiVersions answer that also names the two requests of SASL."""
    entries = [(SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 0)]
    flexible = version >= 3
    packed = b"".join(
        struct.pack(">hhh", *entry) + (b"\0" if flexible else b"") for entry in entries)
    if flexible:
        # One byte holds the count plus one, as long as there are fewer than 127 requests.
        count = answer[6] + len(entries)
        assert count < 128
        return answer[:6] + bytes([count]) + packed + answer[7:]
    (count,) = struct.unpack(">i", answer[6:10])
    return answer[:6] + struct.pack(">i", count + len(entries)) + packed + answer[10:]


def pack(text):
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def server_context(identity, clients):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key, certificate = identity
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class SecureFront:
    """Serves until it is stopped. Without an identity there is no TLS, without mechanisms no SASL;
    with an authority for clients only those come in that have a certificate of it."""

    def __init__(self, port, identity=None, clients=None, mechanisms=(), users=None, host=HOST):
        self.port, self.host, self.address = port, host, f"{host}:{port}"
        self.mechanisms, self.users = list(mechanisms), users or {}
        self.context = None if identity is None else server_context(identity, clients)
        # Connections that were let in, ever, and those that are open now.
        self.admitted = 0
        self.open = set()
        # One thread: what one connection reads and writes may not be touched by two at a time.
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: None)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.call(self.listen())

    def call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    async def listen(self):
        self.listener = await asyncio.start_server(
            self.serve, self.host, self.port, ssl=self.context)

    def stop(self):
        self.call(self.end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def cut(self):
        """Closes all connections; clients make new ones."""
        self.call(self.close())

    async def end(self):
        self.listener.close()
        await self.close()

    async def close(self):
        for writer in list(self.open):
            writer.transport.abort()

    async def serve(self, reader, writer):
        self.open.add(writer)
        back, behind, onward = None, None, None
        try:
            behind, onward = await asyncio.open_connection(BROKER_HOST, self.port)
            if self.mechanisms and not await self.authenticate(reader, writer, behind, onward):
                return
            self.admitted += 1
            asked = {}
            back = asyncio.ensure_future(self.answers(behind, writer, asked))
            while True:
                request = await frame(reader)
                key, _, number = struct.unpack(">hhi", request[:8])
                asked[number] = key
                await send(onward, request)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open.discard(writer)
            for part in filter(None, (back and back.cancel, onward and onward.close, writer.close)):
                part()

    async def answers(self, behind, writer, asked):
        """`asked` says what a request of that number was for: some say where brokers are."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                answer = await frame(behind)
                if asked.pop(struct.unpack(">i", answer[:4])[0]) in PLACES:
                    answer = answer.replace(BROKER_HOST.encode(), self.host.encode())
                await send(writer, answer)
        writer.close()

    async def authenticate(self, reader, writer, behind, onward):
        """Until the client has proven itself, nothing but SASL and ApiVersions is answered; what
        else it says closes the connection, as brokers do."""
        exchange = None
        while True:
            request = await frame(reader)
            key, version, number = struct.unpack(">hhi", request[:8])
            (length,) = struct.unpack(">h", request[8:10])
            rest = request[10 + max(length, 0):]
            if key == API_VERSIONS:
                await send(onward, request)
                await send(writer, with_sasl(await frame(behind), version))
            elif key == SASL_HANDSHAKE:
                mechanism = rest[2:2 + struct.unpack(">h", rest[:2])[0]].decode()
                offered = mechanism in self.mechanisms
                await send(writer, struct.pack(
                    ">ihi", number, 0 if offered else UNSUPPORTED_MECHANISM, len(self.mechanisms))
                    + b"".join(map(pack, self.mechanisms)))
                if offered:
                    exchange = Plain(self.users) if mechanism == "PLAIN" else Scram(
                        mechanism, self.users)
            elif key == SASL_AUTHENTICATE and exchange is not None:
                (size,) = struct.unpack(">i", rest[:4])
                answer = exchange.next(rest[4:4 + size])
                if answer is None:
                    await send(writer, struct.pack(">ih", number, AUTHENTICATION_FAILED) + pack(
                        "Authentication failed during authentication due to invalid credentials")
                        + struct.pack(">i", 0))
                    return False
                await send(writer, struct.pack(">ihhi", number, 0, -1, len(answer)) + answer)
                if exchange.is_over:
                    return True
            else:
                return False


class Doorkeeper:
    """TLS for clients that it refuses: it tells them why by an alert, as brokers do and asyncio
    does not."""

    def __init__(self, identity, clients, host):
        self.context = server_context(identity, clients)
        self.listener = socket.create_server((host, 0))
        self.address = f"{host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        # Wakes the thread, which closing alone does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client, contextlib.suppress(OSError):
                    client.settimeout(5)
                    self.context.wrap_socket(client, server_side=True).close()


class Plain:
    def __init__(self, users):
        self.users = users
        self.is_over = False

    def next(self, message):
        """The answer to a message; None for a refusal."""
        _, user, password = message.decode().split("\0")
        self.is_over = self.users.get(user) == password
        return b"" if self.is_over else None


class Scram:
    def __init__(self, mechanism, users):
        rules = scramp.ScramMechanism(mechanism)
        self.server = rules.make_server(lambda user: rules.make_auth_info(users[user]))
        self.is_begun = self.is_over = False

    def next(self, message):
        """The answer to a message; None for a refusal."""
        text = message.decode()
        try:
            if not self.is_begun:
                self.is_begun = True
                self.server.set_client_first(text)
                return self.server.get_server_first().encode()
            # Librdkafka before 2.6.1 repeats its own part of the nonce in front of the whole one.
            # Kafka demands no more than that it ends with what was sent.
            nonce = re.search(r",r=([^,]*)", text).group(1)
            if nonce.endswith(str(self.server.nonce)):
                self.server.nonce = type(self.server.nonce)(nonce)
            self.server.set_client_final(text)
        except (scramp.ScramException, KeyError):
            return None
        self.is_over = True
        return self.server.get_server_final().encode()
