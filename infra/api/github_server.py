"""A server that follows GitHub's OpenAPI description, for the operations that subscriptions use.

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
# The pull request of GitHub's example events.
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
        threading.Thread(target=self.serve_forever, daemon=True).start()

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
        """Returns the status and the JSON of a response, and the problems of the exchange."""
        url = urllib.parse.urlsplit(target)
        operation, path = self.operation(method, url.path)
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, failure("Bad credentials"), ["the token is missing or wrong"]
        if operation is None or any(path.get(name, value) != value for name, value in PULL_REQUEST.items()):
            return 404, failure("Not Found"), ["the description or the repository lacks the path"]
        values = path | dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        problems = list(self.differences(operation, values, headers, body))
        if problems:
            return 422, failure("Validation Failed"), problems
        status, answer = self.act(operation, values, json.loads(body or b"null"))
        schema = {"$ref": "#/components/schemas/basic-error"}
        if str(status) in operation["responses"]:
            schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
        return status, answer, [f"the response is wrong: {error}" for error in self.errors(schema, answer)]

    def act(self, operation, values, body):
        """Performs a valid request. The response is the example of the description with the values of the request."""
        name, success = operation["operationId"], min(operation["responses"])
        example = operation["responses"][success]["content"]["application/json"]["examples"]["default"]
        example = self.resolved(example)["value"]
        if name == "issues/list-comments":
            size = min(int(values.get("per_page", 30)), 100)
            begin = (int(values.get("page", 1)) - 1) * size
            return 200, [{**example[0], **comment} for comment in self.comments[begin : begin + size]]
        kind = "statuses" if name == "repos/create-commit-status" else "comments"
        outcome = self.outages[kind].pop(0) if self.outages.get(kind) else int(success)
        if kind == "statuses":
            self.calls[kind].append(f"{values['sha']} {body['context']} {body['state']} {outcome}")
        else:
            self.calls[kind].append(f"{re.search(r'[*]{2}(.+?)[*]{2}', body['body'])[1]} {outcome}")
        if outcome != int(success):
            return outcome, failure("Service unavailable")
        if name == "issues/create-comment":
            self.comments.append({"id": len(self.comments) + 1})
        changed = {} if kind == "statuses" else self.comments[int(values.get("comment_id", 0)) - 1]
        changed.update(body)
        return outcome, example | changed


def failure(message):
    """Returns the body of an error."""
    return {"message": message, "documentation_url": "https://docs.github.com/rest"}


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            status, answer, problems = self.server.answer(self.command, self.path, self.headers, body)
        except Exception as error:
            status, answer, problems = 500, failure("Server Error"), [f"{error!r}"]
        self.server.problems += [f"{self.command} {self.path}: {problem}" for problem in problems]
        # Without a status, the connection is closed.
        if status:
            self.send_response(status)
            self.send_header("content-type", "application/json; charset=utf-8")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass
