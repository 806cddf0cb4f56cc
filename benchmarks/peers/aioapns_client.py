"""Sends pushes with aioapns to an nghttpd that answers 200: started by rows/peers.py with the Python
of an environment that has aioapns.

    aioapns_client.py PORT CA_FILE KEY_FILE TOKENS_FILE REQUESTS CONNECTIONS IN_FLIGHT BODY_BYTES

nghttpd does not repeat the apns-id by which aioapns tells answers apart, so here the end of a
stream completes the request that was sent on it.
"""

import asyncio
import ssl
import sys
import time
import uuid

from aioapns import APNs, NotificationRequest, PushType
from aioapns.common import NotificationResult
from aioapns.connection import APNsProductionClientProtocol


class Protocol(APNsProductionClientProtocol):
    APNS_SERVER = "localhost"

    def on_response_received(self, headers):
        if headers.get(b":status") != b"200":
            raise SystemExit(f"nghttpd answered {headers}")

    def on_stream_ended(self, stream_id):
        name = self.request_streams.pop(stream_id)
        self.requests.pop(name).set_result(NotificationResult(name, "200"))
        super().on_stream_ended(stream_id)


async def main(port, ca, key, tokens, requests, connections, in_flight, body_bytes):
    Protocol.APNS_PORT = int(port)
    with open(key) as file:
        signing_key = file.read()
    with open(tokens) as file:
        addresses = file.read().split()
    context = ssl.create_default_context(cafile=ca)
    client = APNs(key=signing_key, key_id="ABCDE12345", team_id="DEF123GHIJ",
                  topic="com.example.shop", max_connections=int(connections),
                  ssl_context=context)
    client.pool.protocol_class = Protocol
    body = "x" * (int(body_bytes) - len('{"aps": {"alert": {"body": ""}}}'))
    message = {"aps": {"alert": {"body": body}}}
    expires = int(time.time()) + 86_400
    numbers = iter(range(int(requests)))

    async def work():
        for number in numbers:
            answer = await client.send_notification(NotificationRequest(
                device_token=addresses[number % len(addresses)], message=message,
                notification_id=str(uuid.uuid4()), time_to_live=expires - int(time.time()),
                priority=10, collapse_key=f"order-{number}", push_type=PushType.ALERT))
            if not answer.is_successful:
                raise SystemExit(f"a push failed: {answer.status}")

    await asyncio.gather(*(work() for _ in range(int(in_flight))))
    client.pool.close()


asyncio.run(main(*sys.argv[1:]))
