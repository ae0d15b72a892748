"""A server that follows GitHub's OpenAPI description, for the operations that subscriptions and sources use.

It validates each request and each of its responses against the description, which npm has.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import pathlib
import re
import sys
import tarfile
import threading
import urllib.parse
import urllib.request

from openapi_schema_validator import OAS30Validator

# Package, version, SHA-512 of `npm view PACKAGE dist.integrity`, and file.
DESCRIPTION = (
    "openapi",
    "23.0.2",
    "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
    "package/generated/api.github.com.json",
)
EXAMPLES = (
    "webhooks-examples",
    "7.6.1",
    "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ==",
    "package/api.github.com/index.json",
)
CACHE = pathlib.Path(__file__).resolve().parents[2] / "target/npm"
TOKEN = "token-of-the-connection"
# The repository and pull request of GitHub's example events.
REPOSITORY = 186853002
PULL_REQUEST = {"owner": "Codertocat", "repo": "Hello-World", "issue_number": "2"}


def packaged(package, version, digest, file):
    """Returns a JSON file of a package, which is fetched once."""
    kept = CACHE / f"{package}-{version}.tgz"
    if not kept.exists():
        registry = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(f"{registry}/@octokit/{package}/-/{kept.name}", timeout=60) as response:
            kept.write_bytes(response.read())
    content = kept.read_bytes()
    found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != digest:
        # The next run fetches an incomplete file again.
        kept.unlink()
        raise ValueError(f"{kept.name} has the SHA-512 {found}, expected {digest}")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        # The other 300 MB of the archive stay compressed.
        return next(json.load(archive.extractfile(entry)) for entry in archive if entry.name == file)


class Github(http.server.ThreadingHTTPServer):
    def __init__(self, description):
        super().__init__(("127.0.0.1", 0), Handler)
        self.description, self.url = description, f"http://127.0.0.1:{self.server_port}"
        # A new comment is not on the first page.
        self.comments = [{"id": number, "body": "looks good to me"} for number in range(1, 131)]
        # The calls, the outcomes of the next ones that fail, and the differences from the description.
        self.calls, self.outages, self.problems = {"statuses": [], "comments": []}, {}, []
        # The pull requests by their numbers, and the attempts to deliver events, with the headers and body of each.
        self.pulls, self.attempts = {}, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, address):
        # A program that was killed reads no answer.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, address)

    def resolved(self, value):
        """Follows a reference."""
        found = self.description if "$ref" in value else value
        for key in value.get("$ref", "").split("/")[1:]:
            found = found[key]
        return found

    def errors(self, schema, value):
        """Returns the differences between a value and a schema of the description."""
        # References begin at the root of the schema that is validated.
        document = {"allOf": [schema], "components": self.description["components"]}
        validator = OAS30Validator(document, format_checker=OAS30Validator.FORMAT_CHECKER)
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]

    def operation(self, method, path):
        """Returns the operation of a request, and the values in its path."""
        found = {}
        for template, operations in self.description["paths"].items():
            pairs = list(zip(template.split("/"), path.split("/")))
            is_same = all(name[:1] == "{" or name == segment for name, segment in pairs)
            if is_same and template.count("/") == path.count("/"):
                values = {name[1:-1]: urllib.parse.unquote(segment) for name, segment in pairs if name[:1] == "{"}
                found[template] = operations.get(method.lower()), values
        # A literal segment precedes a parameter.
        return found[min(found, key=lambda template: template.count("{"))] if found else (None, {})

    def differences(self, operation, values, headers, body):
        """Yields the differences between a request and its operation. `values` are those of the path and the query."""
        known = {parameter["name"]: parameter for parameter in map(self.resolved, operation["parameters"])}
        yield from (f"{name} is missing" for name in known if known[name].get("required") and name not in values)
        for name, value in values.items():
            # An unknown parameter has no valid value.
            schema = known[name]["schema"] if name in known else {"not": {}}
            value = int(value) if schema.get("type") == "integer" and value.isdecimal() else value
            yield from (f"parameter {name}: {error}" for error in self.errors(schema, value))
        content, media = operation.get("requestBody", {}).get("content", {}), headers.get("content-type")
        if media in content:
            # GitHub would ignore a property with a wrong name.
            schema = {**content[media]["schema"], "additionalProperties": False}
            yield from (f"body: {error}" for error in self.errors(schema, json.loads(body)))
        elif content or body:
            yield f"the content type is {media}, expected {' or '.join(content) or 'none'}"
        # The description has responses in JSON only. GitHub demands an agent, which the description does not state.
        if "application/json" not in headers.get("accept", "application/json"):
            yield "the header Accept excludes JSON"
        if not headers.get("user-agent"):
            yield "the header User-Agent is missing"

    def answer(self, method, target, headers, body):
        """Returns the status, the JSON and the headers of a response, and the problems of the exchange."""
        # The description has no paths with the ID of a repository, which GitHub has.
        name = f"/repos/{PULL_REQUEST['owner']}/{PULL_REQUEST['repo']}/"
        url = urllib.parse.urlsplit(target.replace(f"/repositories/{REPOSITORY}/", name, 1))
        operation, path = self.operation(method, url.path)
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, failure("Bad credentials"), {}, ["the token is missing or wrong"]
        if operation is None or any(path.get(name, value) != value for name, value in PULL_REQUEST.items()):
            return 404, failure("Not Found"), {}, ["the description or the repository lacks the path"]
        values = path | dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        problems = list(self.differences(operation, values, headers, body))
        if problems:
            return 422, failure("Validation Failed"), {}, problems
        status, answer, sent = self.act(operation, values, json.loads(body or b"null"))
        schema = {"$ref": "#/components/schemas/basic-error"}
        if str(status) in operation["responses"]:
            schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        return status, answer, sent, [f"the response is wrong: {error}" for error in self.errors(schema, answer)]

    def example(self, operation):
        """Returns the example of a response to an operation."""
        content = operation["responses"][min(operation["responses"])]["content"]["application/json"]
        return self.resolved(content["examples"]["default"])["value"]

    def act(self, operation, values, body):
        """Performs a valid request. The response is the example of the description with the values of the request."""
        name, success = operation["operationId"], min(operation["responses"])
        example = self.example(operation)
        if name == "issues/list-comments":
            size = min(int(values.get("per_page", 30)), 100)
            begin = (int(values.get("page", 1)) - 1) * size
            return 200, [{**example[0], **comment} for comment in self.comments[begin : begin + size]], {}
        if name in READERS:
            return READERS[name](self, values, example)
        kind = "statuses" if name == "repos/create-commit-status" else "comments"
        outcome = self.outages[kind].pop(0) if self.outages.get(kind) else int(success)
        if kind == "statuses":
            self.calls[kind].append(f"{values['sha']} {body['context']} {body['state']} {outcome}")
        else:
            self.calls[kind].append(f"{re.search(r'[*]{2}(.+?)[*]{2}', body['body'])[1]} {outcome}")
        if outcome != int(success):
            return outcome, failure("Service unavailable"), {}
        if name == "issues/create-comment":
            self.comments.append({"id": len(self.comments) + 1})
        changed = {} if kind == "statuses" else self.comments[int(values.get("comment_id", 0)) - 1]
        changed.update(body)
        return outcome, example | changed, {}

    def list_pulls(self, values, example):
        size, page = int(values.get("per_page", 30)), int(values.get("page", 1))
        found = [pull for _, pull in sorted(self.pulls.items()) if pull["state"] == values.get("state", "open")]
        found = [{**example[0], **pull} for pull in found[(page - 1) * size :][: size + 1]]
        return self.page("pulls", found, size, values | {"page": page + 1})

    def get_pull(self, values, example):
        pull = self.pulls.get(int(values["pull_number"]))
        return (200, example | pull, {}) if pull else (404, failure("Not Found"), {})

    def list_attempts(self, values, example):
        """Returns the attempts to deliver events, the newest first. A cursor has the ID of one, which is its place."""
        size = int(values.get("per_page", 30))
        newest = int(values.get("cursor", f"v1_{len(self.attempts)}").removeprefix("v1_"))
        found = reversed(self.attempts[max(newest - size - 1, 0) : newest])
        found = [{key: attempt[key] for key in example[0]} for attempt in found]
        values, path = values | {"cursor": f"v1_{newest - size}"}, f"hooks/{values['hook_id']}/deliveries"
        return self.page(path, found, size, values)

    def get_attempt(self, values, example):
        attempt = self.attempts[int(values["delivery_id"]) - 1]
        request = {"headers": attempt["headers"], "payload": json.loads(attempt["body"])}
        return 200, example | {key: attempt[key] for key in example if key in attempt} | {"request": request}, {}

    def note_attempt(self, guid, headers, body, status, at):
        """Adds an attempt to deliver an event."""
        is_again = any(attempt["guid"] == guid for attempt in self.attempts)
        attempt = {"id": len(self.attempts) + 1, "guid": guid, "delivered_at": at, "redelivery": is_again}
        attempt |= {"status": "OK" if status < 400 else "failed", "status_code": status, "duration": 0.1}
        attempt |= {"event": headers["X-GitHub-Event"], "action": json.loads(body)["action"], "throttled_at": None}
        attempt |= {"installation_id": None, "repository_id": REPOSITORY, "headers": headers, "body": body}
        self.attempts.append(attempt)

    def page(self, path, found, size, values):
        """Returns a page with the URL of the next one, if more is found."""
        query = {key: value for key, value in values.items() if key not in ["owner", "repo", "hook_id"]}
        link = f"{self.url}/repositories/{REPOSITORY}/{path}?{urllib.parse.urlencode(query)}"
        return 200, found[:size], {"link": f'<{link}>; rel="next"'} if len(found) > size else {}


READERS = {
    "pulls/list": Github.list_pulls,
    "pulls/get": Github.get_pull,
    "repos/list-webhook-deliveries": Github.list_attempts,
    "repos/get-webhook-delivery": Github.get_attempt,
}


def failure(message):
    """Returns the body of an error."""
    return {"message": message, "documentation_url": "https://docs.github.com/rest"}


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            status, answer, headers, problems = self.server.answer(self.command, self.path, self.headers, body)
        except Exception as error:
            status, answer, headers, problems = 500, failure("Server Error"), {}, [f"{error!r}"]
        self.server.problems += [f"{self.command} {self.path}: {problem}" for problem in problems]
        # Without a status, the connection is closed.
        if status:
            self.send_response(status)
            for name, value in {"content-type": "application/json; charset=utf-8", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass
