"""Signs the generated requests of schemathesis, as a platform and the senders of sources do.

`conformance.py` names this file in SCHEMATHESIS_HOOKS, and gives the secrets in the environment.
"""

import base64
import hashlib
import hmac
import json
import os
import time
import urllib.parse

import requests
import schemathesis

WEBHOOK_SECRET = os.environ.get("EBB_WEBHOOK_SECRET", "")
# The secret of all sources. Standard Webhooks needs this form; the other schemes take any text.
SECRET = "whsec_" + base64.b64encode(b"secret of the senders, 32 bytes.").decode()
# Each scheme with the rest of its document. A source has the name of its scheme.
SCHEMES = {
    "github": "",
    "gitlab": "",
    "gitea": "",
    "vercel": "",
    "standard": "",
    "hmac": ", header: x-signature, algorithm: sha512, encoding: base64",
    "e2b": "",
    "bearer": "",
    "basic": ", user: sender",
    "url": "",
}
SOURCE = """
apiVersion: ebb.dev/v1
kind: Source
name: {name}
verify: {{{name}: {{secret: SENDER{rest}}}}}
target: {{kind: sandbox, name: of-{name}}}
document: {{resources: {{}}}}
events: [{{when: "${{true}}", apply: {{}}}}]
"""
# The errors of a request whose form is wrong. A valid one can name an unknown object, or have a document with errors.
OF_FORM = {
    "invalid-callback", "invalid-event", "invalid-field", "invalid-header", "invalid-json", "invalid-path",
    "invalid-query", "invalid-signature", "missing-field",
}  # fmt: skip


def mac(key, body, algorithm="sha256"):
    return hmac.new(key, body, algorithm)


def standard(secret, identity, timestamp, body):
    """Returns the signature of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(mac(key, f"{identity}.{timestamp}.".encode() + body).digest()).decode()


def proof(scheme, body):
    """Returns the headers that prove the sender of a source."""
    key, now = SECRET.encode(), str(int(time.time()))
    match scheme:
        case "github":
            return {"x-hub-signature-256": "sha256=" + mac(key, body).hexdigest()}
        case "gitea":
            return {"x-gitea-signature": mac(key, body).hexdigest()}
        case "vercel":
            return {"x-vercel-signature": mac(key, body, "sha1").hexdigest()}
        case "hmac":
            return {"x-signature": base64.b64encode(mac(key, body, "sha512").digest()).decode()}
        case "e2b":
            digest = base64.urlsafe_b64encode(hashlib.sha256(key + body).digest()).decode()
            return {"e2b-signature": digest.rstrip("=")}
        case "standard":
            return {
                "webhook-id": "generated",
                "webhook-timestamp": now,
                "webhook-signature": standard(SECRET, "generated", now, body),
            }
        case "gitlab":
            return {"x-gitlab-token": SECRET}
        case "bearer":
            return {"authorization": f"Bearer {SECRET}"}
        case "basic":
            return {"authorization": "Basic " + base64.b64encode(f"sender:{SECRET}".encode()).decode()}
        case _:
            return {}


def text(value):
    return value.decode() if isinstance(value, bytes) else value


class Platform(requests.auth.AuthBase):
    """Signs a request as the platform. One without the header of the signature, an id or a time in digits stays as it is."""

    def __call__(self, request):
        identity, timestamp = text(request.headers.get("webhook-id")), text(request.headers.get("webhook-timestamp"))
        is_complete = identity and timestamp and "webhook-signature" in request.headers
        if is_complete and timestamp.isascii() and timestamp.isdigit():
            now = str(int(time.time()))
            request.headers["webhook-timestamp"] = now
            body = request.body or b""
            body = body.encode() if isinstance(body, str) else body
            request.headers["webhook-signature"] = standard(WEBHOOK_SECRET, identity, now, body)
        return request


class Sender(requests.auth.AuthBase):
    """Sends a request to the source of a scheme, with the proof of that scheme only."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        schemes = list(SCHEMES)
        scheme = schemes[hashlib.sha256(body).digest()[0] % len(schemes)]
        query = "secret=" + urllib.parse.quote(SECRET) if scheme == "url" else ""
        parts = urllib.parse.urlsplit(request.url)
        request.url = parts._replace(path=f"/v1/sources/{scheme}", query=query).geturl()
        declared = ["webhook-", "svix-", "x-hub-", "x-gitea-", "x-vercel-", "x-gitlab-", "e2b-", "authorization"]
        for name in [name for name in request.headers if name.lower().startswith(tuple(declared))]:
            del request.headers[name]
        request.headers.update(proof(scheme, body))
        return request


@schemathesis.hook
def before_call(context, case, kwargs):
    match operation(case):
        case "receiveEvent":
            kwargs["auth"] = Platform()
        case "receiveSourceEvent" if is_valid(case):
            kwargs["auth"] = Sender()
        case "putSource" | "deleteSource" if case.path_parameters.get("name") in SCHEMES:
            # The sources of the schemes stay.
            case.path_parameters["name"] = "other"


def operation(case):
    return case.operation.definition.raw.get("operationId")


def is_valid(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.check
class ValidRequestsAreAccepted:
    """Finds a valid request with an error about its form, and a type or scheme of which no request is accepted."""

    def __init__(self):
        self.expected = {f"dev.ebb.target.{kind}.v1" for kind in ["created", "updated", "event", "deleted"]}
        self.expected |= set(SCHEMES)
        self.accepted = set()

    def after_response(self, ctx, response, case):
        # The signature of a relay is not generated.
        if is_valid(case) and response.status_code >= 400 and operation(case) != "pollCluster":
            try:
                code = response.json().get("code")
            except ValueError:
                code = None
            # A UID of Ebb is valid for an instance that exists, `dryRun` is valid beside `plugin`, `generation` beside `uid`,
            # `name` beside `kind`, and the place of a page is a value of an answer. Labels, images and names of clusters have grammars of their own,
            # `3.0` is an integer in JSON Schema only, and a time before 1970 is none of a run.
            of_state = [
                "which Ebb uses for its own UIDs", "`dryRun` needs `plugin`", "`generation` needs `uid`", "needs the parameter `kind`",
                "expected a DNS label", "is not the `seq` of an answer",
                "is not the `nextToken` of a page", "expected KEY=VALUE", "expected REPOSITORY:TAG", "invalid type: floating point",
                "is not a time as in RFC 3339",
            ]
            is_of_state = any(text in response.text for text in of_state)
            assert code not in OF_FORM or is_of_state, f"a valid request is refused: {response.text}"
        path = urllib.parse.urlsplit(response.request.url).path
        if path == "/v1/events" and response.status_code == 202:
            self.accepted.add(json.loads(response.request.body)["type"])
        if path.startswith("/v1/sources/") and response.request.method == "POST" and response.status_code < 300:
            self.accepted.add(path.rsplit("/", 1)[1])

    def after_run(self, ctx):
        assert self.accepted >= self.expected, f"no request is accepted of {self.expected - self.accepted}"
