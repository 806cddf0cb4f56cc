"""A front that gives a plain Kafka broker TLS and SASL/PLAIN, as brokers in the field have them.

It listens on the broker's port at another loopback address and sends what clients say on, once they
have proven who they are. The broker's answers name its own address; both are equally long, so that
it is replaced in place.
"""

import socket
import ssl
import struct
import subprocess
import threading

HOST, BROKER_HOST = "127.0.0.2", "127.0.0.1"
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, AUTHENTICATION_FAILED = 33, 34, 58


def certificate(folder):
    """A certificate for the front, and the file of the authority that vouches for it."""
    key, file = folder / "broker-key.pem", folder / "broker.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "365", "-subj", "/CN=broker", "-addext", f"subjectAltName=IP:{HOST}",
         "-keyout", str(key), "-out", str(file)], check=True, capture_output=True)
    return key, file


def exactly(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


def frame(connection):
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def send(connection, body):
    connection.sendall(struct.pack(">i", len(body)) + body)


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


class SecureFront:
    """Serves until it is stopped. `user` and `password` are the only ones that are let in."""

    def __init__(self, port, key, certificate, user, password):
        self.port, self.address = port, f"{HOST}:{port}"
        self.proof = b"\0".join([b"", user.encode(), password.encode()])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server((HOST, port))
        self.admitted = 0
        self.refused = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, plain):
        try:
            client = self.context.wrap_socket(plain, server_side=True)
        except (ssl.SSLError, OSError):
            plain.close()
            return
        broker = socket.create_connection((BROKER_HOST, self.port))
        try:
            if not self.authenticate(client, broker):
                self.refused += 1
                return
            self.admitted += 1
            back = threading.Thread(target=self.answers, args=(broker, client), daemon=True)
            back.start()
            while True:
                send(broker, frame(client))
        except OSError:
            pass
        finally:
            for end in (client, broker):
                end.close()

    def answers(self, broker, client):
        try:
            while True:
                send(client, frame(broker).replace(BROKER_HOST.encode(), HOST.encode()))
        except OSError:
            client.close()

    def authenticate(self, client, broker):
        """Until the client has proven itself, nothing but SASL and ApiVersions is answered."""
        while True:
            request = frame(client)
            key, version, number = struct.unpack(">hhi", request[:8])
            if key == API_VERSIONS:
                send(broker, request)
                send(client, with_sasl(frame(broker), version))
            elif key == SASL_HANDSHAKE:
                (length,) = struct.unpack(">h", request[8:10])
                rest = request[10 + length:]
                (size,) = struct.unpack(">h", rest[:2])
                code = 0 if rest[2:2 + size] == b"PLAIN" else UNSUPPORTED_MECHANISM
                send(client, struct.pack(">ihih", number, code, 1, 5) + b"PLAIN")
            elif key == SASL_AUTHENTICATE:
                (length,) = struct.unpack(">h", request[8:10])
                rest = request[10 + length:]
                (size,) = struct.unpack(">i", rest[:4])
                is_right = rest[4:4 + size] == self.proof
                code = 0 if is_right else AUTHENTICATION_FAILED
                text = b"" if is_right else b"Authentication failed"
                send(client, struct.pack(">ihh", number, code, len(text)) + text
                     + struct.pack(">i", 0))
                if not is_right:
                    return False
                return True
            else:
                send(client, struct.pack(">ih", number, ILLEGAL_STATE))
                return False
