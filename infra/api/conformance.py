"""Tests the HTTP interface of `ebb dev` with tools that others have written.

The OpenAPI document has to be valid, a property-based tester has to find nothing, and the official SDKs of Standard
Webhooks and CloudEvents have to agree with Ebb about events in both directions.
"""

import argparse
import http.server
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from datetime import datetime, timezone

# The imports would otherwise write a folder into the repository.
sys.dont_write_bytecode = True

from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from openapi_spec_validator import validate
from senders import SCHEMES, SECRET, SOURCE
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

HERE = pathlib.Path(__file__).parent
# Timeout of a start, a request or an event on a busy machine, in seconds.
PATIENCE = 60

PLUGIN = """
apiVersion: ebb.dev/v1
kind: Plugin
name: conformance@1.0.0
preStart:
  make:
    webhook: {url: "%s/units/make", body: {name: "${target.name}"}}
    outputs: {greeting: {value: "${response.body.greeting}"}}
postStop:
  drop: {undoes: make, webhook: {url: "%s/units/drop"}}
outputs: {greeting: "${units.make.outputs.greeting}"}
"""
SANDBOX = """
apiVersion: ebb.dev/v1
kind: Sandbox
name: conformance
resources: {r: {plugin: conformance}}
"""


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps each request, and answers it as a unit's server or a platform would."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = {"/units/make": queue.Queue(), "/units/drop": queue.Queue(), "/platform": queue.Queue()}
        # The status of the responses to a path; 200 by default.
        self.statuses = {}
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def next(self, path):
        """Returns the headers and the body of the next request to a path."""
        return self.requests[path].get(timeout=PATIENCE)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests[self.path].put((dict(self.headers.items()), body))
        answer = json.dumps({"greeting": "hello"}).encode()
        self.send_response(self.server.statuses.get(self.path, 200))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def write_secrets(state, secrets):
    """Creates the folder of a state with named secrets."""
    state.mkdir(mode=0o700)
    file = state / "secrets.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(secrets))


class Server:
    """A running `ebb dev` with a state of its own."""

    def __init__(self, program, state, platform):
        arguments = ["dev", "--port", "0", "--s3-port", "0", "--state", state, "--platform-url", platform]
        self.log = open(pathlib.Path(state).parent / "ebb.log", "a+")
        self.process = subprocess.Popen([program, *arguments], stdout=self.log, stderr=self.log)
        file = pathlib.Path(state) / "server.json"
        deadline = time.monotonic() + PATIENCE
        while not (file.exists() and self._answers(json.loads(file.read_text())["url"])):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                sys.exit(f"ebb dev does not start: {self.log.read()}")
            time.sleep(0.05)
        self.secrets = json.loads(file.read_text())
        self.url = self.secrets["url"]

    @staticmethod
    def _answers(url):
        try:
            return urllib.request.urlopen(f"{url}/healthz", timeout=PATIENCE).status == 200
        except OSError:
            return False

    def request(self, method, path, body=None, headers=None):
        """Sends a request as the operator. Returns the status and the JSON body."""
        headers = headers or {"authorization": f"Bearer {self.secrets['token']}"}
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def targets(self):
        """Returns the phases of all targets by their names."""
        found, queries = {}, ["", "gone=true"]
        while queries:
            query = queries.pop()
            _, page = self.request("GET", f"/v1/targets?{query}")
            found |= {target["name"]: target["phase"] for target in page["targets"]}
            if page.get("nextToken"):
                queries.append(f"{query.split('&')[0]}&nextToken={page['nextToken']}")
        return found

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


def document(server):
    """Checks the OpenAPI document."""
    status, found = server.request("GET", "/v1/openapi.json")
    assert status == 200, status
    validate(found)
    print(f"the OpenAPI document is valid: {len(found['paths'])} paths")
    return found


def put_sources(server):
    """Creates a source for each scheme."""
    for name, rest in SCHEMES.items():
        body = json.dumps({"document": SOURCE.format(name=name, rest=rest)}).encode()
        status, answer = server.request("PUT", f"/v1/sources/{name}", body)
        assert status == 200, answer


def operations(server, document, folder, examples, seed, workers):
    """Has every operation tested with generated requests. Webhooks are signed."""
    # The example of an event needs its target.
    webhook = document["paths"]["/v1/events"]["post"]["requestBody"]["content"]["application/cloudevents+json"]
    message = lifecycle("created", webhook["examples"]["created"]["value"]["data"])
    headers = signed(message, server.secrets["webhookSecret"])
    status, answer = server.request("POST", "/v1/events", message.body, headers)
    assert status == 202, answer
    program = pathlib.Path(sys.executable).parent / "st"
    command = [program, "--config-file", HERE / "schemathesis.toml", "run", f"{server.url}/v1/openapi.json"]
    command += ["--header", f"Authorization: Bearer {server.secrets['token']}"]
    command += ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", str(examples)]
    command += ["--seed", str(seed), "--workers", str(workers), "--generation-database", "none"]
    command += ["--warnings", "off", "--request-timeout", str(PATIENCE)]
    hooks = {"SCHEMATHESIS_HOOKS": HERE / "senders.py", "EBB_WEBHOOK_SECRET": server.secrets["webhookSecret"]}
    # schemathesis writes files to its working directory.
    subprocess.run(command, check=True, cwd=folder, env=os.environ | hooks)


def lifecycle(kind, data):
    """Makes a lifecycle event with the SDK of CloudEvents, in structured mode."""
    event = CloudEvent({"type": f"dev.ebb.target.{kind}.v1", "source": "urn:conformance"}, data)
    return to_structured_event(event)


def signed(message, secret):
    """Signs a message with the SDK of Standard Webhooks."""
    now = datetime.now(tz=timezone.utc)
    identity = f"msg_{now.timestamp()}".replace(".", "_")
    return {
        **message.headers,
        "webhook-id": identity,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(identity, now, message.body.decode()),
    }


def verified(secret, request):
    """Verifies a request with the SDK of Standard Webhooks; one changed byte has to be noticed."""
    headers, body = request
    Webhook(secret).verify(body, headers, json_parse=False)
    try:
        Webhook(secret).verify(body + b" ", headers, json_parse=False)
    except WebhookVerificationError:
        return headers, body
    sys.exit("a changed body passes verification")


def events(server, receiver):
    """Has the SDKs make and read the events of one life."""
    secrets = server.secrets
    plugin = json.dumps({"document": PLUGIN % (receiver.url, receiver.url)}).encode()
    status, answer = server.request("POST", "/v1/plugins", plugin)
    assert status == 201, answer
    status, answer = server.request("GET", "/v1/plugins/conformance/signing-secret")
    assert status == 200, answer
    unit_secret = answer["secrets"][0]
    data = {"kind": "sandbox", "name": "conformance", "uid": "uid-1", "document": SANDBOX}
    for kind, unit, outcome in [("created", "/units/make", "ready"), ("deleted", "/units/drop", "gone")]:
        message = lifecycle(kind, data)
        status, answer = server.request("POST", "/v1/events", message.body, signed(message, secrets["webhookSecret"]))
        assert status == 202, answer
        verified(unit_secret, receiver.next(unit))
        headers, body = verified(secrets["platformSecret"], receiver.next("/platform"))
        event = from_http_event(HTTPMessage(headers, body))
        assert event.get_type() == f"dev.ebb.target.{outcome}.v1", event.get_type()
        assert event.get_specversion() == "1.0" and event.get_subject() == "sandbox/conformance"
        assert event.get_data()["uid"] == "uid-1", event.get_data()
        if outcome == "ready":
            assert event.get_data()["outputs"]["r"]["greeting"] == {"value": "hello"}, event.get_data()
    message = lifecycle("created", {**data, "uid": "uid-2"})
    forged = signed(message, "whsec_" + "A" * 43 + "=")
    status, answer = server.request("POST", "/v1/events", message.body, forged)
    assert status == 401, answer
    print("the SDKs of Standard Webhooks and CloudEvents agree with Ebb in both directions")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ebb", required=True, help="the program")
    parser.add_argument("--examples", type=int, default=200, help="generated requests for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    receiver = Receiver()
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        write_secrets(state, {"SENDER": SECRET})
        server = Server(arguments.ebb, state, f"{receiver.url}/platform")
        try:
            described = document(server)
            events(server, receiver)
            put_sources(server)
            operations(server, described, folder, arguments.examples, arguments.seed, arguments.workers)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
