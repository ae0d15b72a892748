#!/usr/bin/env python3
"""Signs a lifecycle webhook and sends it until Ebb accepts or rejects it.

    send.py created|updated|deleted NAME UID [--generation N] [--file DOCUMENT] [--kind KIND]

EBB_URL is the server, such as https://ebb.example.com. EBB_WEBHOOK_SECRET is one of the webhook secrets of the
deployment, whsec_... Needs the standard library only.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import pathlib
import random
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

ATTEMPTS = 8
# Statuses after which the same webhook can succeed later. 0 stands for a request without a response.
RETRYABLE = {0, 408, 425, 429} | set(range(500, 600))


def event(action, target, document):
    """Returns the id and the body of a webhook. The id is the same for every repetition."""
    identity = "/".join([action, target["kind"], target["name"], target["uid"], str(target["generation"])])
    # A webhook-id must not contain a full stop.
    message_id = hashlib.sha256(identity.encode()).hexdigest()[:32]
    data = dict(target)
    if document is not None:
        data["document"] = document
    body = {
        "specversion": "1.0",
        "id": message_id,
        "source": "https://platform.example.com",
        "type": f"dev.ebb.target.{action}.v1",
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "datacontenttype": "application/json",
        "data": data,
    }
    return message_id, json.dumps(body).encode()


def sign(secret, message_id, timestamp, body):
    """Returns the value of `webhook-signature`: HMAC-SHA256 over `ID.TIMESTAMP.BODY`, as Standard Webhooks defines it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def post(url, secret, message_id, body):
    """Sends the webhook once. Returns the status, the seconds of `Retry-After` and the response."""
    # Each repetition has a signature of its own, because the time is signed too.
    timestamp = int(time.time())
    headers = {
        "content-type": "application/cloudevents+json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(secret, message_id, timestamp, body),
    }
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=35) as response:
            return response.status, 0, response.read().decode()
    except urllib.error.HTTPError as error:
        wait = error.headers.get("retry-after", "")
        return error.code, int(wait) if wait.isdigit() else 0, error.read().decode()
    except OSError as error:
        return 0, 0, str(error)


def main():
    parser = argparse.ArgumentParser(description="Sends a lifecycle webhook to Ebb.")
    parser.add_argument("action", choices=["created", "updated", "deleted"])
    parser.add_argument("name")
    parser.add_argument("uid")
    parser.add_argument("--kind", default="sandbox")
    parser.add_argument("--generation", type=int, default=1)
    parser.add_argument("--file", type=pathlib.Path, help="the sandbox document; not needed with `deleted`")
    options = parser.parse_args()

    target = {key: getattr(options, key) for key in ("kind", "name", "uid", "generation")}
    document = options.file.read_text() if options.file else None
    message_id, body = event(options.action, target, document)
    url = os.environ["EBB_URL"].rstrip("/") + "/v1/events"
    for attempt in range(1, ATTEMPTS + 1):
        status, wait, text = post(url, os.environ["EBB_WEBHOOK_SECRET"], message_id, body)
        if status == 202:
            print(text)
            return 0
        if status not in RETRYABLE:
            print(f"status {status}: the webhook is rejected\n{text}", file=sys.stderr)
            return 1
        print(f"status {status}, attempt {attempt}: {text}", file=sys.stderr)
        time.sleep(max(wait, random.uniform(0, 2**attempt)))
    print(f"no answer after {ATTEMPTS} attempts", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
