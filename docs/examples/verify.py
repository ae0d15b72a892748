#!/usr/bin/env python3
"""Receives the notifications of Ebb, verifies them, and prints each once as a line of JSON.

    verify.py [PORT]

EBB_PLATFORM_SECRET is the secret that signs notifications, whsec_...; several are separated by commas. Without a port,
or with port 0, the program listens on a free one. Needs the standard library only.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Seconds that the time of a notification may differ from the clock of this machine.
TOLERANCE = 300
# Notifications can contain outputs of up to 4 MiB.
LARGEST = 8 << 20


class NotVerified(Exception):
    """The signature does not fit, or the notification is too old."""


def verify(secrets, headers, body, now):
    """Returns the id of a notification that one of `secrets` has signed.

    `body` are the bytes as they were received: parse them only after this function has returned.
    """
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not timestamp.isascii() or not timestamp.isdigit():
        raise NotVerified("the headers of Standard Webhooks are missing or malformed")
    if abs(now - int(timestamp)) > TOLERANCE:
        raise NotVerified(f"the time differs by more than {TOLERANCE} s")
    signed = f"{message_id}.{timestamp}.".encode() + body
    given = [text.split(",", 1)[1] for text in headers.get("webhook-signature", "").split(" ") if text.startswith("v1,")]
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        # While a secret is replaced, a notification has one signature for each.
        for signature in given:
            if hmac.compare_digest(expected.encode(), signature.encode()):
                return message_id
    raise NotVerified("no signature fits")


class Handler(BaseHTTPRequestHandler):
    secrets = []
    seen = set()
    lock = threading.Lock()

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > LARGEST:
            return self.answer(413)
        body = self.rfile.read(length)
        try:
            message_id = verify(self.secrets, self.headers, body, time.time())
        except NotVerified as error:
            print(f"rejected: {error}", file=sys.stderr, flush=True)
            return self.answer(401)
        event = json.loads(body)
        with self.lock:
            # A notification can arrive more than once. A real receiver stores the id together with its effect.
            if message_id not in self.seen:
                print(json.dumps({"id": message_id, "type": event["type"], **event["data"]}), flush=True)
                self.seen.add(message_id)
        # Answer after the notification is stored: Ebb does not repeat an accepted one.
        return self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    Handler.secrets = [secret for secret in os.environ["EBB_PLATFORM_SECRET"].split(",") if secret]
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
