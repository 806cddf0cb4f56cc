"""The few requests of the Kafka protocol that kcat has no option for: what a group has committed
and where a topic ends. Written against the protocol, so that the judge shares no code with the
program under test."""

import socket
import struct

LIST_OFFSETS, OFFSET_FETCH = 2, 9
LATEST = -1


def text(value):
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, shape):
        (value,) = struct.unpack_from(">" + shape, self.data, self.at)
        self.at += struct.calcsize(">" + shape)
        return value

    def text(self):
        length = self.take("h")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at].decode()


def ask(address, key, version, body, attempts=5):
    """The answer to a request. Under load the broker resets a connection now and then."""
    for attempt in range(attempts):
        try:
            return ask_once(address, key, version, body)
        except ConnectionError:
            if attempt == attempts - 1:
                raise


def ask_once(address, key, version, body):
    host, port = address.rsplit(":", 1)
    request = struct.pack(">hhi", key, version, 1) + text("judge") + body
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", stream.read(4))
            answer = Reader(stream.read(length))
    answer.take("i")  # correlation id
    return answer


def end_offsets(address, topic, partitions):
    """The offset behind the last record of each partition."""
    body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, LATEST) for partition in range(partitions))
    answer = ask(address, LIST_OFFSETS, 1, body)
    ends = {}
    for _ in range(answer.take("i")):
        answer.text()
        for _ in range(answer.take("i")):
            partition, error = answer.take("i"), answer.take("h")
            answer.take("q")  # timestamp
            offset = answer.take("q")
            if error:
                raise AssertionError(f"{topic}-{partition}: ListOffsets error {error}")
            ends[partition] = offset
    return ends


def committed_offsets(address, group, topic, partitions):
    """What the group would read next in each partition; -1 where it has committed nothing."""
    body = text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">i", partition) for partition in range(partitions))
    answer = ask(address, OFFSET_FETCH, 1, body)
    committed = {}
    for _ in range(answer.take("i")):
        answer.text()
        for _ in range(answer.take("i")):
            partition, offset = answer.take("i"), answer.take("q")
            answer.text()  # metadata
            error = answer.take("h")
            if error:
                raise AssertionError(f"{topic}-{partition}: OffsetFetch error {error}")
            committed[partition] = offset
    return committed


def murmur2(key):
    """Kafka's default hash of a key, as a signed 32-bit number made positive."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for (k,) in struct.iter_unpack("<I", key[:whole]):
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = (h * m & mask) ^ k
    rest = key[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h & 0x7FFFFFFF


def partition_of(key, partitions):
    return murmur2(key.encode()) % partitions
