"""Plays the life of a pull request between `ebb dev` and a server that follows GitHub's OpenAPI description.

The events are GitHub's example payloads, signed as GitHub signs them. Description and payloads come from npm; the
repository has no copy.
"""

import argparse
import hashlib
import hmac
import json
import pathlib
import subprocess
import sys
import tempfile
import time

# The imports would otherwise write a folder into the repository.
sys.dont_write_bytecode = True
from conformance import PATIENCE, Receiver, Server, write_secrets
from github_server import DESCRIPTION, EXAMPLES, TOKEN, Github, packaged

WEBHOOK_SECRET = "secret-of-the-webhook"

PLUGIN = """
apiVersion: ebb.dev/v1
kind: Plugin
name: preview@1.0.0
params: {number: {type: integer}, commit: {type: string}}
defaults: {retry: {attempts: ATTEMPTS}}
preStart:
  make:
    webhook: {url: "URL/units/make", body: {unit: make, number: "${params.number}", commit: "${params.commit}"}}
postStop:
  drop: {undoes: make, webhook: {url: "URL/units/drop", body: {unit: drop, number: "${params.number}"}}}
"""
CONNECTION = """
apiVersion: ebb.dev/v1
kind: Connection
name: github
origin: %s
auth: {bearer: {secret: GITHUB_TOKEN}}
%s
"""
# The end of the source. The param makes units run for each commit.
RESOURCES = """
  labels: {repo: "${body.repository.full_name}", sha: "${body.pull_request.head.sha}", number: "${body.number}"}
  resources: {page: {plugin: preview, params: {number: "${body.number}", commit: "${body.pull_request.head.sha}"}}}
"""
SUBSCRIPTION = """
apiVersion: ebb.dev/v1
kind: Subscription
name: %s
on: %s
to: {%s: {connection: github, repository: "${target.labels.repo}", %s}}
"""
# An event has an action, a commit, the status of the unit's server, and the statuses and comments that follow. Each of
# them has a state or phase, and the status of GitHub's response: 0 is a closed connection, 201 is a creation.
EVENTS = [
    ("opened", "a", 200, ["pending 201", "success 201"], ["ready 201"]),
    ("synchronize", "b", 200, ["pending 503", "pending 0", "pending 201", "success 201"], ["ready 503", "ready 200"]),
    ("synchronize", "c", 422, ["pending 201", "failure 201"], ["failed 200"]),
    ("synchronize", "d", 200, ["pending 201", "success 201"], ["ready 200"]),
    ("closed", "d", 200, [], ["gone 200"]),
]


def rejections(github):
    """Checks that the server notices each kind of difference from the description."""
    good = {"authorization": f"Bearer {TOKEN}", "user-agent": "x", "content-type": "application/json"}
    repository, success = "/repos/Codertocat/Hello-World", {"state": "success"}
    status, comments = f"{repository}/statuses/abc", f"{repository}/issues/2/comments"
    for expected, method, path, body, headers in [
        (401, "POST", status, success, {"authorization": "Bearer other"}),
        (404, "PUT", status, success, {}),
        (404, "POST", f"{repository}/status/abc", success, {}),
        (404, "POST", f"{repository}/issues/3/comments", {"body": "x"}, {}),
        (422, "POST", status, {"state": "done"}, {}),
        (422, "POST", status, {**success, "targetUrl": "https://example.com"}, {}),
        (422, "POST", status, success, {"content-type": "text/plain"}),
        (422, "POST", status, success, {"accept": "text/html"}),
        (422, "POST", status, success, {"user-agent": ""}),
        (422, "POST", comments, {}, {}),
        (422, "GET", f"{comments}?per_page=many", None, {}),
        (422, "GET", f"{comments}?size=1", None, {}),
    ]:
        content = b"" if body is None else json.dumps(body).encode()
        found, _, _, problems = github.answer(method, path, good | headers, content)
        assert found == expected and len(problems) == 1, (found, problems, expected, method, path, body)


def payload(github, examples, action, commit, time, number=2):
    """Returns an example of an event. All examples are of one pull request, with one commit."""
    event = [example for example in examples if example["action"] == action][-1]
    # A life has several commits and needs increasing times. Some examples lack a key that the description requires.
    event["pull_request"]["updated_at"] = time
    event["pull_request"]["head"]["sha"] = commit
    event["number"] = event["pull_request"]["number"] = number
    for side in ["head", "base"]:
        event["pull_request"][side]["repo"].setdefault("has_discussions", False)
    content = github.description["x-webhooks"][f"pull-request-{action}"]["post"]["requestBody"]["content"]
    errors = github.errors(content["application/json"]["schema"], event)
    assert not errors, errors
    # GitHub sends no spaces, and no escapes of letters.
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


def signed(delivery, body):
    """Returns the headers with which GitHub sends an event."""
    signature = hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-GitHub-Event": "pull_request", "X-GitHub-Delivery": delivery, "content-type": "application/json"}
    return headers | {"User-Agent": "GitHub-Hookshot/1", "X-Hub-Signature-256": f"sha256={signature}"}


def send(server, delivery, body):
    """Sends an event as GitHub does. Returns the status and the response."""
    return server.request("POST", "/v1/sources/previews", body, signed(delivery, body))


def put(server, method, path, document):
    """Publishes a document."""
    status, answer = server.request(method, f"/v1/{path}", json.dumps({"document": document}).encode())
    assert status in [200, 201], (path, answer)


def publish(program, server, github, receiver):
    """Publishes the documents."""
    source = [program, "source", "new", "previews", "--preset", "github"]
    source = subprocess.run(source, check=True, capture_output=True, text=True).stdout
    statuses = ("statuses", "[starting, ready, updating, failed, stuck]", "github", 'sha: "${target.labels.sha}"')
    comments = ("comments", "[ready, failed, stuck, gone]", "comment", 'number: "${target.labels.number}"')
    for method, path, document in [
        ("POST", "plugins", PLUGIN.replace("URL", receiver.url).replace("ATTEMPTS", "1")),
        ("PUT", "connections/github", CONNECTION % (github.url, "subscriptions: [statuses, comments]")),
        ("PUT", "sources/previews", source.replace("\n  resources: {}\n", RESOURCES)),
        ("PUT", "subscriptions/statuses", SUBSCRIPTION % statuses),
        ("PUT", "subscriptions/comments", SUBSCRIPTION % comments),
    ]:
        put(server, method, path, document)


def compare(github, expected):
    """Waits until GitHub has got the expected calls, and no other ones."""
    deadline = time.monotonic() + PATIENCE
    while github.calls != expected and time.monotonic() < deadline:
        if github.problems or any(calls != expected[kind][: len(calls)] for kind, calls in github.calls.items()):
            break
        time.sleep(0.05)
    if github.problems:
        sys.exit("\n".join(["differences from GitHub's description:", *github.problems]))
    if github.calls != expected:
        sys.exit(f"GitHub got {json.dumps(github.calls, indent=1)}\nexpected {json.dumps(expected, indent=1)}")


def life(server, github, receiver, examples):
    """Sends each event and its redelivery. Returns the expected calls."""
    expected = {"statuses": [], "comments": []}
    for number, (action, letter, unit, statuses, comments) in enumerate(EVENTS):
        outcomes = {"statuses": statuses, "comments": comments}
        outcomes = {kind: [int(call.split()[1]) for call in calls] for kind, calls in outcomes.items()}
        github.outages = {kind: [it for it in found if not 200 <= it < 300] for kind, found in outcomes.items()}
        receiver.statuses["/units/make"] = unit
        expected["statuses"] += [f"{letter * 40} ebb/previews/pr-2-186853002 {call}" for call in statuses]
        expected["comments"] += comments
        body = payload(github, examples, action, letter * 40, f"2019-05-15T16:{number:02}:00Z")
        for results in [["starting", "updating", "stopping"], ["repeated"]]:
            _, answer = send(server, f"delivery-{number}", body)
            assert answer.get("result") in results, answer
            compare(github, expected)
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ebb", required=True, help="the program")
    program = parser.parse_args().ebb
    examples = next(event["examples"] for event in packaged(*EXAMPLES) if event["name"] == "pull_request")
    github, receiver = Github(packaged(*DESCRIPTION)), Receiver()
    rejections(github)
    with tempfile.TemporaryDirectory() as folder:
        state = pathlib.Path(folder) / "state"
        write_secrets(state, {"GITHUB_TOKEN": TOKEN, "GITHUB_WEBHOOK": WEBHOOK_SECRET})
        server = Server(program, state, f"{receiver.url}/platform")
        try:
            publish(program, server, github, receiver)
            expected = life(server, github, receiver, examples)
        finally:
            server.stop()
    # After the end of the server, no call can arrive.
    compare(github, expected)
    bodies = [comment["body"] for comment in github.comments]
    assert bodies[:130] == ["looks good to me"] * 130 and len(bodies) == 131, bodies
    assert "**gone**" in bodies[130], bodies[130]
    counts = {kind: len(calls) for kind, calls in github.calls.items()}
    print(f"the life of a pull request agrees with GitHub's description: {counts}")


if __name__ == "__main__":
    main()
