#!/usr/bin/env python3
"""Plays 40 mishaps with the examples on one machine, and counts what exists without Ebb.

    infra/api/mishaps.py --ebb target/debug/ebb            plays all
    infra/api/mishaps.py --ebb target/debug/ebb --only 7   plays one

Starts `ebb dev` with a state, ports and a PostgreSQL of its own. The examples are `neon` and `own-service` at a stand-in of
their APIs, `postgres`, `s3` and `wired`. Each mishap has a sandbox, and asserts that it happened. What the stand-in, the
server, the S3 and the folder have is then compared with `ebb inventory` and the keys of targets: while the sandboxes live,
and when all are deleted. Needs the standard library, curl and PostgreSQL. Takes about two minutes.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests/examples"
# The maximum seconds that anything takes.
PATIENCE = 120
# The number of mishaps of setups that are played at the same time.
WORKERS = 6
# What others have at the stand-in and at the server of databases.
FOREIGN = "ebb-of-another"
FOREIGN_DATABASE = "ebb_of_another"
USER = "ebb"
UNPRIVILEGED = 65534
PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in</body></html>"
# Holds a script of a target while a file exists.
GATE = """
if [ -e "FOLDER/hold-$EBB_TARGET_NAME" ]; then
    : >"FOLDER/at-$EBB_TARGET_NAME"
    while [ -e "FOLDER/hold-$EBB_TARGET_NAME" ]; do sleep 0.1; done
fi
"""


def wait(what, probe):
    """Waits until `probe` returns a true value, and returns it."""
    end = time.monotonic() + PATIENCE
    while not (found := probe()):
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
        time.sleep(0.1)
    return found


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def replaced(text, *pairs):
    for before, after in pairs:
        assert before in text, f"there is no {before} in:\n{text}"
        text = text.replace(before, after)
    return text


@dataclasses.dataclass
class Fault:
    """What goes wrong with the next `times` requests of a kind."""

    kind: str
    # True if the request is answered and does nothing.
    before: bool = False
    status: int | None = None
    # `lost`, `cut`, `page` or `slow`: the form of the answer; with callbacks `lost`, `thrice`, `stranger` or `failed`.
    form: str = ""
    # Changes the body of the answer.
    change: object = None
    times: int = 1
    # Holds the answer until it is released.
    gate: bool = False
    met: int = 0
    reached: threading.Event = dataclasses.field(default_factory=threading.Event)
    released: threading.Event = dataclasses.field(default_factory=threading.Event)

    def hold(self):
        self.reached.set()
        assert self.released.wait(PATIENCE), "the gate was never opened"


class Provider:
    """A stand-in for the APIs of Neon and of a service of one's own. A mishap is a name that begins with its resource."""

    def __init__(self):
        self.lock = threading.RLock()
        self.branches = {"br-0": FOREIGN}
        self.tenants = {FOREIGN.replace("-", "")}
        self.removed = set()
        self.made = []
        self.faults = {}
        self.never_ready = set()
        self.callbacks = {}
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do(self):
                with contextlib.suppress(ConnectionError):
                    provider.serve(self)

            do_GET = do_POST = do_DELETE = do

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                # The other side can be killed at any moment.
                if not isinstance(sys.exception(), OSError):
                    super().handle_error(*_)

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, mishap, *faults):
        with self.lock:
            self.faults.setdefault(mishap, []).extend(faults)
        return faults[0]

    def heal(self, mishap):
        with self.lock:
            for fault in self.faults.get(mishap, []):
                fault.times = 0

    def assert_met(self, mishap):
        for fault in self.faults.get(mishap, []):
            assert fault.met, f"no request met {fault.kind} {fault.form or fault.status or ''}"

    def take(self, mishap, kind):
        with self.lock:
            found = [one for one in self.faults.get(mishap, []) if one.kind == kind and one.times]
            for fault in found[:1]:
                fault.times -= 1
                fault.met += 1
                return fault
        return None

    def serve(self, request):
        size = int(request.headers.get("content-length") or 0)
        body = json.loads(request.rfile.read(size) or b"null")
        url = urllib.parse.urlsplit(request.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = url.path.strip("/").split("/")
        if parts[0] == "regions":
            name, kind, act = self.tenant_request(request, parts[3:], body)
        else:
            name, kind, act = self.branch_request(request.command, parts[4:], query, body)
        mishap = name.removeprefix("ebb-")[:3] or "inventory"
        fault = self.take(mishap, kind)
        if fault and fault.before:
            status, answer = fault.status or 200, {"message": "a mishap"}
        else:
            with self.lock:
                status, answer = act()
            status = fault.status or status if fault else status
        if fault and fault.gate:
            fault.hold()
        if fault and fault.change:
            answer = fault.change(answer)
        self.answer(request, status, answer, fault.form if fault else "")
        if status == 202:
            self.report(request, name, kind)

    def answer(self, request, status, answer, form):
        content = (PAGE if form == "page" else json.dumps(answer) if answer is not None else "").encode()
        if form == "slow":
            # Longer than Ebb waits for an answer.
            time.sleep(22)
        if form == "lost":
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        request.send_response(status)
        request.send_header("content-type", "text/html" if form == "page" else "application/json")
        if status == 429:
            request.send_header("retry-after", "1")
        if status != 204:
            request.send_header("content-length", str(len(content) + (100 if form == "cut" else 0)))
        request.end_headers()
        if status != 204:
            request.wfile.write(content)
        request.wfile.flush()
        if form == "cut":
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)

    def branch_request(self, method, parts, query, body):
        match method, parts:
            case "POST", ["branches"]:
                name = body["branch"]["name"]
                return name, "create", lambda: self.make_branch(name)
            case "GET", ["branches"]:
                search = query.get("search", "")
                return search, "page" if "cursor" in query else "list", lambda: self.list_branches(search, query)
            case "GET", ["connection_uri"]:
                name = self.branches.get(query["branch_id"], "")
                return name, "access", lambda: (200, {"uri": f"postgresql://app:secret@{query['branch_id']}/neondb"})
            case "DELETE", ["branches", identity]:
                name = self.branches.get(identity, "")
                return name, "delete", lambda: self.remove_branch(identity)
        raise AssertionError(f"the API has no {method} {parts}")

    def make_branch(self, name):
        if name in self.branches.values():
            return 409, {"message": "the branch exists"}
        self.made.append(name)
        identity = f"br-{len(self.made)}"
        self.branches[identity] = name
        return 201, {"branch": {"id": identity, "name": name, "current_state": "init"}}

    def list_branches(self, search, query):
        """The first half is on the first page. One branch is on the second page."""
        names = [(identity, name) for identity, name in self.branches.items() if search in name]
        half = len(names) // 2
        shown = names[half:] if "cursor" in query else names[:half]
        state = "init" if search[4:7] in self.never_ready else "ready"
        found = [{"id": identity, "name": name, "current_state": state} for identity, name in shown]
        return 200, {"branches": found, "pagination": {} if "cursor" in query else {"next": "second"}}

    def remove_branch(self, identity):
        if self.branches.pop(identity, None) is None:
            return 404, {"message": "not found"}
        return 200, {"message": "ok"}

    def tenant_request(self, request, parts, body):
        match request.command, parts:
            case "POST", []:
                return body["key"], "create", lambda: self.make_tenant(body["key"])
            case "GET", []:
                return "", "tenants", lambda: (200, [{"key": key} for key in sorted(self.tenants)])
            case "DELETE", [key]:
                return key, "delete", lambda: self.remove_tenant(key)
        raise AssertionError(f"the service has no {request.command} {parts}")

    def make_tenant(self, key):
        if key not in self.tenants:
            self.made.append(key)
            self.tenants.add(key)
        return 202, None

    def remove_tenant(self, key):
        if key in self.tenants:
            self.tenants.remove(key)
            self.removed.add(key)
            return 202, None
        return (204, None) if key in self.removed else (404, {"message": "not found"})

    def report(self, request, key, kind):
        """Calls back, until an answer says that nothing else can be reported."""
        fault = self.take(key[:3], f"callback of {kind}")
        form = fault.form if fault else ""
        if fault and fault.gate:
            fault.hold()
        if form == "lost":
            return
        outputs = {"url": f"https://{key}.example.net", "token": f"token-{key}"}
        body = {"status": "succeeded"} | ({"outputs": outputs} if kind == "create" else {})
        if form == "failed":
            body = {"status": "failed", "reason": {"code": "no-capacity", "message": "no host has room"}}
        token = request.headers["ebb-callback-token"]
        tokens = ["of-a-stranger", token] if form == "stranger" else [token] * (3 if form == "thrice" else 1)
        answers = [self.call(request.headers["ebb-callback-url"], token, body) for token in tokens]
        self.callbacks.setdefault(key[:3], []).extend(answers)

    @staticmethod
    def call(url, token, body):
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            call = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
            try:
                with urllib.request.urlopen(call, timeout=10) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    return error.code
            except OSError:
                pass
            time.sleep(0.2)
        return 0


class Databases:
    """A PostgreSQL server."""

    def __init__(self, folder):
        found = [*pathlib.Path("/usr/lib/postgresql").glob("*/bin"), *map(pathlib.Path, os.environ["PATH"].split(":"))]
        found = [path for path in found if (path / "initdb").exists() and (path / "postgres").exists()]
        assert found, "PostgreSQL is missing: `apt-get install postgresql` has it"
        self.port = free_port()
        other = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if os.getuid() == 0 else {}
        folder.mkdir()
        if other:
            os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        initdb = [found[0] / "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]
        subprocess.run([*initdb, "--pgdata", folder / "data"], check=True, stdout=subprocess.DEVNULL, cwd="/", **other)
        start = [found[0] / "postgres", "-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", str(self.port)]
        start += ["-c", "fsync=off", "-c", "max_connections=50"]
        self.log = open(folder.parent / "postgres.log", "w")
        self.process = subprocess.Popen(start, stdout=self.log, stderr=self.log, cwd="/", **other)
        wait("PostgreSQL", lambda: self.psql("postgres", "SELECT 1", check=False) == ["1"])
        self.psql("postgres", f"CREATE DATABASE {FOREIGN_DATABASE}")

    def psql(self, database, query, check=True):
        command = ["psql", "-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        done = subprocess.run([*command, "-c", query], capture_output=True, text=True, check=check)
        return done.stdout.split()

    def names(self):
        return self.psql("postgres", r"SELECT datname FROM pg_database WHERE datname LIKE 'ebb\_%' ORDER BY 1")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)


class Ebb:
    """`ebb dev` with a state and ports of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        state = folder / ".ebb"
        state.mkdir(mode=0o700)
        secrets = state / "secrets.json"
        secrets.touch(mode=0o600)
        secrets.write_text(json.dumps({"NEON_TOKEN": "token-of-neon-for-mishaps"}))
        self.ports = [str(free_port()), str(free_port())]
        self.log = open(folder / "ebb.log", "a")
        kept = ("HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        try:
            self.start()
        except BaseException:
            self.process.kill()
            raise

    def start(self):
        command = [self.program, "dev", "--port", self.ports[0], "--s3-port", self.ports[1]]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.url, self.s3 = (f"http://127.0.0.1:{port}" for port in self.ports)
        file = self.folder / ".ebb/server.json"
        wait("ebb dev", lambda: file.exists() and self.request("GET", "/healthz", plain=True)[0] == 200)
        self.settings = json.loads(file.read_text())

    def kill(self):
        """Kills the server with SIGKILL. It is running, so the kill ends something."""
        assert self.process.poll() is None
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)

    def request(self, method, path, body=None, plain=False):
        """Returns status and JSON. The status of a server that does not answer is 0."""
        headers = {} if plain else {"authorization": f"Bearer {self.settings['token']}"}
        sent = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, None if plain else json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, None

    def run(self, *words, codes=(0,)):
        command = [self.program, *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode in codes, f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def apply(self, text, *words):
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".yaml") as file:
            file.write(text)
            file.flush()
            return self.run("apply", "-f", file.name, *words)

    def target(self, name):
        status, found = self.request("GET", f"/v1/targets/sandbox/{name}")
        return found if status == 200 else {}

    def phase(self, name, *phases):
        target = wait(f"{phases} of {name}", lambda: (it := self.target(name)).get("phase") in ENDS | {*phases} and it)
        if target["phase"] not in phases and target["phase"] in ("failed", "stuck"):
            why = self.request("GET", f"/v1/targets/sandbox/{name}/why")[1]
            raise AssertionError(f"{name} is {target['phase']}: {json.dumps(why)[:2000]}")
        return wait(f"{phases} of {name}", lambda: (it := self.target(name)).get("phase") in phases and it)

    def targets(self, flags=""):
        found, token = [], ""
        while True:
            status, page = self.request("GET", f"/v1/targets?{flags}{token}")
            assert status == 200 and not page.get("damaged"), page
            found += page["targets"]
            if not page.get("nextToken"):
                return found
            token = "&nextToken=" + urllib.parse.quote(page["nextToken"])

    def inventory(self, plugin, params, codes=(0, 1)):
        words = [word for param in params for word in ("--param", param)]
        done = self.run("inventory", plugin, *words, "-o", "json", codes=codes)
        assert done.stdout, f"no inventory of {plugin}: {done.stderr}"
        return json.loads(done.stdout)

    def buckets(self):
        with urllib.request.urlopen(self.s3, timeout=20) as answer:
            text = answer.read().decode()
        return sorted(part.split("</Name>")[0] for part in text.split("<Name>")[1:])


ENDS = {"ready", "failed", "stuck", "gone"}


@dataclasses.dataclass
class Mishap:
    number: int
    title: str
    example: str
    stage: str
    # What goes wrong at the stand-in.
    faults: tuple = ()
    # What goes wrong elsewhere: a function of the world and the mishap.
    act: object = None
    # The phase after the setup, and the number of things then.
    phase: str = "ready"
    things: int = 1
    # A teardown is stuck until it is healed: the function does it, True heals the stand-in.
    heal: object = None
    # The end of the version of its plugin.
    patch: int = 0
    # It cannot be played beside others.
    alone: bool = False
    problem: str = ""

    @property
    def name(self):
        return f"m{self.number:02}"


class World:
    def __init__(self, program):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ebb-mishaps-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.stores = self.folder / "stores"
        self.stores.mkdir()
        self.seen = set()
        self.provider = Provider()
        self.databases = Databases(self.folder / "postgres")
        try:
            self.ebb = Ebb(program, self.folder)
            self.publish()
        except BaseException:
            self.databases.stop()
            raise

    def close(self):
        self.ebb.stop()
        self.databases.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def example(self, path):
        return (EXAMPLES / path).read_text()

    def publish(self):
        """Applies the plugins of the examples with short waits, for the stand-in, and with gates in scripts."""
        retry = "retry: {attempts: 5, backoff: 100ms, maxBackoff: 1s"
        connection = replaced(self.example("neon/connection.yaml"), ("https://console.neon.tech", self.provider.url))
        self.ebb.apply(connection)
        waits = (("maxProcessingTime: 1m", "maxProcessingTime: 2s"), ("retry: {on: ", f"{retry}, on: "))
        neon = replaced(self.example("neon/plugin.yaml"), *waits, ("every: 5s", "every: 1s"))
        self.ebb.apply(neon)
        self.ebb.apply(replaced(neon, ("neon-branch@2.0.0", "neon-branch@2.0.1"), ("timeout: 30m", "timeout: 8s")))
        tenants = replaced(
            self.example("own-service/plugin.yaml"), *waits, ("https://tenants.example.org", self.provider.url)
        )
        self.ebb.apply(tenants)
        tenants = replaced(tenants, ("service-tenant@1.0.0", "service-tenant@1.0.1"), ("timeout: 30m", "timeout: 3s"))
        self.ebb.apply(replaced(tenants, ("timeout: 20m", "timeout: 3s")))
        gate = GATE.replace("FOLDER", str(self.folder))
        gates = {
            "postgres/provision.sh": "case \"$PGHOST\" in",
            "postgres/customers.sh": "psql -X -q -v ON_ERROR_STOP=1 -v customers",
            "postgres/drop.sh": 'echo "dropped',
            "s3/provision.sh": 'printf %s "$bucket" >/tmp/bucket-name',
        }
        for file in ["app-db.yaml", "provision.sh", "schema.sh", "customers.sh", "drop.sh", "list.sh"]:
            self.copy(f"postgres/{file}", gates, gate)
        for file in ["plugin.yaml", "provision.sh", "seed.sh", "deprovision.sh"]:
            self.copy(f"s3/{file}", gates, gate)
        path = self.folder / "postgres-example/app-db.yaml"
        path.write_text(replaced(path.read_text(), ("preStart:\n", f"defaults: {{{retry}}}}}\npreStart:\n")))
        self.ebb.run("apply", "-f", str(path))
        self.ebb.run("apply", "-f", str(self.folder / "s3-example/plugin.yaml"))
        self.ebb.apply(self.example("wired/store.yaml"))
        join = '        mkdir -p "$STORE/$EBB_TARGET_NAME"\n'
        indented = "".join(f"        {line}\n" for line in gate.strip().splitlines())
        self.ebb.apply(replaced(self.example("wired/tenant.yaml"), (join, indented + join)))

    def copy(self, path, gates, gate):
        folder, file = path.split("/")
        text = self.example(path)
        if path in gates:
            text = replaced(text, (gates[path], gate.lstrip() + gates[path]))
        target = self.folder / f"{folder}-example" / file
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)

    # Gates of scripts.

    def hold(self, name):
        (self.folder / f"hold-{name}").touch()

    def reached(self, name):
        wait(f"the script of {name}", (self.folder / f"at-{name}").exists)

    def release(self, name):
        (self.folder / f"hold-{name}").unlink()

    # Sandboxes.

    def document(self, mishap, **params):
        name = mishap.name
        match mishap.example:
            case "neon":
                plugin, own, output = f"neon-branch@2.0.{mishap.patch}", {"project": "p"}, "dsn"
            case "own-service":
                plugin, own, output = f"service-tenant@1.0.{mishap.patch}", {"region": "eu"}, "url"
            case "postgres":
                own = {"host": "127.0.0.1", "port": str(self.databases.port), "user": USER}
                plugin, output = "app-db@1.0.0", "url"
            case "s3":
                plugin, own, output = "s3-bucket@1.0.0", {"region": "eu-west-1"}, '"provision.bucket-name"'
            case "wired":
                plugin, own, output = "shared-store@1.4.0", {"root": str(self.stores)}, "path"
        resources = {name: {"plugin": plugin, "params": own | params}}
        if mishap.example == "wired":
            store = f"${{resources.{name}.outputs.path}}"
            resources["users"] = {"plugin": "tenant@2.1.0", "params": {"store": store}}
        output = f"[{output}]" if output.startswith('"') else f".{output}"
        env = {"VALUE": f"${{resources.{name}.outputs{output}}}"}
        return json.dumps({"apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": name, "resources": resources, "env": env})

    def apply(self, mishap, **params):
        self.ebb.apply(self.document(mishap, **params), "--wait=false")

    def delete(self, mishap):
        self.ebb.run("delete", "sandbox", mishap.name, "--wait=false", "--yes")

    def begin(self, mishap):
        """Begins the setup or the teardown of a sandbox."""
        (self.apply if mishap.stage == "setup" else self.delete)(mishap)

    def restart(self, mishap, fault=None):
        """Kills the server while the mishap holds something, and starts it again."""
        if fault:
            assert fault.reached.wait(PATIENCE), "nothing was held"
        else:
            self.reached(mishap.name)
        self.ebb.kill()
        if fault:
            fault.released.set()
        self.ebb.start()
        if not fault:
            self.release(mishap.name)

    def set_up(self, mishap):
        if mishap.stage == "setup":
            self.provider.add(mishap.name, *mishap.faults) if mishap.faults else None
            (mishap.act or World.apply)(self, mishap)
        else:
            self.apply(mishap)
        self.ebb.phase(mishap.name, mishap.phase)
        if mishap.stage == "setup":
            self.provider.assert_met(mishap.name)

    def tear_down(self, mishap):
        if mishap.stage != "teardown":
            if mishap.phase != "gone":
                self.delete(mishap)
            self.ebb.phase(mishap.name, "gone")
            return
        self.provider.add(mishap.name, *mishap.faults) if mishap.faults else None
        (mishap.act or World.delete)(self, mishap)
        if mishap.heal:
            self.ebb.phase(mishap.name, "stuck")
            left = [name for names in self.things().values() for name in names if mishap_of(name) == mishap.name]
            assert left, "it is stuck, and nothing is left"
            if mishap.heal is True:
                self.provider.heal(mishap.name)
            else:
                mishap.heal(self, mishap)
            status, answer = self.ebb.request("POST", f"/v1/targets/sandbox/{mishap.name}/retry", {})
            assert status == 202, answer
            wait("the retry", lambda: self.ebb.target(mishap.name).get("phase") != "stuck")
        self.ebb.phase(mishap.name, "gone")
        self.provider.assert_met(mishap.name)

    def database(self, mishap):
        [name] = [name for name in self.databases.names() if mishap_of(name) == mishap.name]
        return name

    # The two inventories.

    def things(self):
        """Returns what exists, read without Ebb."""
        with self.provider.lock:
            found = {
                "neon": sorted(self.provider.branches.values()),
                "own-service": sorted(self.provider.tenants),
            }
        found["postgres"] = self.databases.names()
        found["s3"] = self.ebb.buckets()
        found["wired"] = sorted(os.listdir(self.stores))
        self.seen.update(name for names in found.values() for name in names if mishap_of(name))
        return found

    def params(self, example):
        match example:
            case "neon":
                return "neon-branch", ["project=p"]
            case "own-service":
                return "service-tenant", ["region=eu"]
            case "postgres":
                return "app-db", ["host=127.0.0.1", f"port={self.databases.port}", f"user={USER}"]
        return None

    def known(self):
        """Returns what Ebb says: for each thing its state and target."""
        found = {}
        for example in ("neon", "own-service", "postgres"):
            entries = self.ebb.inventory(*self.params(example))
            found[example] = {entry["thing"]: (entry["state"], entry.get("target")) for entry in entries}
        # These plugins have no inventory: one is in the format of Signadot, and the other names its folders by targets.
        living = [target for target in self.ebb.targets("keys=true") if target["kind"] == "sandbox"]
        keys = {key: target["name"] for target in living for key in target["keys"]}
        names = {name: keys.get(name.removeprefix("ebb-")) for name in self.ebb.buckets()}
        found["s3"] = {name: ("alive" if of else "unknown", of and f"sandbox/{of}") for name, of in names.items()}
        stores = {f"{target['name']}-{target['name']}": f"sandbox/{target['name']}" for target in living}
        names = os.listdir(self.stores)
        found["wired"] = {name: ("alive" if name in stores else "unknown", stores.get(name)) for name in names}
        return found

    def compare(self, living):
        """Checks that each thing is that of a living target, and that each target has its things."""
        exists, known = self.things(), self.known()
        for example, names in exists.items():
            assert sorted(known[example]) == names, f"{example}: {names} exist, and Ebb lists {sorted(known[example])}"
            for name in names:
                wanted = mishap_of(name)
                wanted = ("alive", f"sandbox/{wanted}") if wanted else ("unknown", None)
                assert known[example][name] == wanted, f"{name} is {wanted}, and Ebb says {known[example][name]}"
        for mishap in living:
            own = [name for name in exists[mishap.example] if mishap_of(name) == mishap.name]
            assert len(own) == mishap.things, f"{mishap.name} {mishap.title}: {own} exist, not {mishap.things}"
        active = sorted(target["name"] for target in self.ebb.targets() if target["kind"] == "sandbox")
        assert active == sorted(it.name for it in living if it.phase != "gone"), f"these targets live: {active}"
        return sum(map(len, exists.values()))

    def planted(self):
        """Makes things with the keys of gone targets again, and checks that the inventory names the last instance of each."""
        last = {mishap_of(name): name for name in self.provider.made}
        for name in last.values():
            if name.startswith("ebb-"):
                self.provider.branches[f"br-of-{name}"] = name
            else:
                self.provider.tenants.add(name)
        known = self.known()
        known = known["neon"] | known["own-service"]
        for mishap, name in last.items():
            assert known[name] == ("gone", f"sandbox/{mishap}"), f"the planted {name} is {known[name]}"
        return len(last)


def mishap_of(name):
    """Returns the mishap of a thing by the resource in its name, or nothing for a thing of others."""
    name = name.removeprefix("ebb-").removeprefix("ebb_")
    return name[:3] if name[:1] == "m" and name[1:3].isdigit() else None


# What goes wrong outside of the stand-in.


def kill_at_gate(world, mishap):
    world.begin(mishap)
    world.restart(mishap, *mishap.faults)


def kill_at_script(world, mishap):
    world.hold(mishap.name)
    world.begin(mishap)
    world.restart(mishap)


def kill_script(world, mishap):
    world.hold(mishap.name)
    world.apply(mishap)
    world.reached(mishap.name)
    wanted, killed = f"EBB_TARGET_NAME={mishap.name}".encode(), 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_script = (process / "comm").read_text().strip() in ("sh", "dash", "provision.sh")
            if is_script and wanted in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
    assert killed, "no script was killed"
    world.release(mishap.name)


def delete_meanwhile(world, mishap):
    [fault] = mishap.faults
    world.apply(mishap)
    assert fault.reached.wait(PATIENCE), "nothing was held"
    world.delete(mishap)
    assert any(mishap_of(name) == mishap.name for name in world.things()["neon"]), "nothing was made"
    fault.released.set()


def update_meanwhile(world, mishap):
    world.hold(mishap.name)
    world.apply(mishap)
    world.reached(mishap.name)
    world.apply(mishap, customers=7)
    world.release(mishap.name)
    count = "SELECT count(*) FROM customers"
    database = world.database(mishap)
    wait("the update", lambda: world.databases.psql(database, count, check=False) == ["7"])


def begin_again(world, mishap):
    """The next instance of the name is requested while the first one is removed."""
    [fault] = mishap.faults
    first = world.ebb.target(mishap.name)["uid"]
    world.delete(mishap)
    assert fault.reached.wait(PATIENCE), "nothing was held"
    world.apply(mishap)
    fault.released.set()
    wait("the next instance", lambda: world.ebb.target(mishap.name).get("uid") not in (None, first))
    world.ebb.phase(mishap.name, "ready")
    made = [name for name in world.provider.made if mishap_of(name) == mishap.name]
    assert len(set(made)) == 2, f"{made} was made"
    assert [name for name in world.things()["neon"] if mishap_of(name) == mishap.name] == made[1:]
    world.delete(mishap)


def send(world, action, mishap, generation=1):
    file = world.folder / f"{mishap.name}.json"
    file.write_text(world.document(mishap))
    words = [action, mishap.name, f"uid-{mishap.name}", "--generation", str(generation)]
    words += ["--file", file] if action == "created" else []
    environment = os.environ | {"EBB_URL": world.ebb.url, "EBB_WEBHOOK_SECRET": world.ebb.settings["webhookSecret"]}
    script = ROOT / "docs/examples/send.py"
    return subprocess.run([sys.executable, script, *words], env=environment, capture_output=True, text=True, check=False)


def repeated_events(world, mishap):
    """A platform repeats its events, and the first one arrives once more at the end."""
    world.ebb.phase(mishap.name, "ready")
    old = world.ebb.target(mishap.name)["uid"]
    world.delete(mishap)
    world.ebb.phase(mishap.name, "gone")
    sent = [send(world, "created", mishap) for _ in range(3)]
    assert all(it.returncode == 0 for it in sent), sent
    target = wait("the repeated creation", lambda: (it := world.ebb.target(mishap.name)).get("uid") != old and it)
    assert target["uid"] == f"uid-{mishap.name}", target
    world.ebb.phase(mishap.name, "ready")
    made = {name for name in world.provider.made if mishap_of(name) == mishap.name}
    assert len(made) == 2, f"{made} was made by one request and three events"
    assert all(send(world, "deleted", mishap).returncode == 0 for _ in range(3))
    world.ebb.phase(mishap.name, "gone")
    send(world, "created", mishap)
    assert {name for name in world.provider.made if mishap_of(name) == mishap.name} == made


def keep_template(world, mishap):
    world.databases.psql("postgres", f"ALTER DATABASE {world.database(mishap)} IS_TEMPLATE true")
    world.delete(mishap)


def end_template(world, mishap):
    world.databases.psql("postgres", f"ALTER DATABASE {world.database(mishap)} IS_TEMPLATE false")


def add_file(world, mishap):
    (world.stores / f"{mishap.name}-{mishap.name}" / "of-another").touch()
    world.delete(mishap)


def remove_file(world, mishap):
    (world.stores / f"{mishap.name}-{mishap.name}" / "of-another").unlink()


# Mishaps of the inventory itself.


def incomplete(world, mishap):
    """A list that is not whole is an error and shows nothing."""
    plugin, params = world.params("neon")
    words = [word for param in params for word in ("--param", param)]
    done = world.ebb.run("inventory", plugin, *words, "-o", "json", codes=(1,))
    assert "incomplete" in done.stderr and json.loads(done.stdout).keys() == {"error"}, done


def interrupted(world, mishap, end):
    """Ends the command or the server while the list is read. The next inventory is right."""
    [fault] = mishap.faults
    plugin, params = world.params("neon")
    words = [word for param in params for word in ("--param", param)]
    command = [world.ebb.program, "inventory", plugin, *words, "-o", "json"]
    listing = subprocess.Popen(
        command, cwd=world.folder, env=world.ebb.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert fault.reached.wait(PATIENCE), "nothing was held"
    end(listing)
    fault.released.set()
    shown, said = listing.communicate(timeout=PATIENCE)
    if shown.strip():
        entries = {entry["thing"] for entry in json.loads(shown)}
        assert entries == set(world.things()["neon"]), shown
    else:
        assert listing.returncode != 0, said
    is_free = lambda: not [it for it in world.ebb.targets() if it["kind"] == "inventory"]  # noqa: E731
    wait("the end of the target that lists", is_free)


def interrupt(world, mishap):
    interrupted(world, mishap, lambda listing: listing.send_signal(signal.SIGINT))


def kill_listing(world, mishap):
    def end(_):
        world.ebb.kill()
        world.ebb.start()

    interrupted(world, mishap, end)


def no_field(answer):
    return {"branch": {"current_state": "init"}}


def without_things(answer):
    return answer | {"branches": []}


def more(answer):
    return answer | {"has_more": True, "pagination": {}}


def mishaps():
    number = iter(range(1, 99))
    setup = [
        ("a creation is answered 500, and nothing was made", "neon", (Fault("create", before=True, status=500),), {}),
        ("a creation is answered 500, and the branch was made", "neon", (Fault("create", status=500),), {}),
        ("a creation gets no answer", "neon", (Fault("create", form="lost"),), {}),
        ("a creation is answered after Ebb has left", "neon", (Fault("create", form="slow"),), {}),
        ("the answer to a creation is cut", "neon", (Fault("create", form="cut"),), {}),
        ("the answer to a creation is a page for people", "neon", (Fault("create", form="page"),), {}),
        ("the answer to a creation has no ID", "neon", (Fault("create", change=no_field),), {"phase": "failed"}),
        (
            "a creation gets no answer, and the list is late",
            "neon",
            (Fault("create", form="lost"), Fault("page", change=without_things)),
            {},
        ),
        (
            "a creation gets no answer, and half of the list is an error",
            "neon",
            (Fault("create", form="lost"), Fault("page", before=True, status=500)),
            {},
        ),
        ("a branch is never ready", "neon", (), {"phase": "failed", "patch": 1, "act": never_ready}),
        (
            "the account is full",
            "neon",
            (Fault("create", before=True, status=422, times=99),),
            {"phase": "failed", "things": 0},
        ),
        (
            "a sandbox is deleted while its branch is made",
            "neon",
            (Fault("create", gate=True),),
            {"act": delete_meanwhile, "phase": "gone", "things": 0},
        ),
        ("a callback is lost", "own-service", (Fault("callback of create", form="lost"),), {"patch": 1}),
        ("a callback comes three times", "own-service", (Fault("callback of create", form="thrice"),), {}),
        ("a stranger calls back first", "own-service", (Fault("callback of create", form="stranger"),), {}),
        (
            "the service says that a tenant failed which it has made",
            "own-service",
            (Fault("callback of create", form="failed", times=99),),
            {"phase": "failed"},
        ),
        ("a script is killed after it has made a database", "postgres", (), {"act": kill_script}),
        ("an update comes while the setup runs", "postgres", (), {"act": update_meanwhile}),
        ("kill -9 of the server while a branch is made", "neon", (Fault("create", gate=True),), {"act": kill_at_gate}),
        ("kill -9 of the server while it asks for a state", "neon", (Fault("list", gate=True),), {"act": kill_at_gate}),
        (
            "kill -9 of the server before a callback",
            "own-service",
            (Fault("callback of create", gate=True),),
            {"act": kill_at_gate},
        ),
        ("kill -9 of the server after a script has made a database", "postgres", (), {"act": kill_at_script}),
        ("kill -9 of the server and its S3 after a bucket was made", "s3", (), {"act": kill_at_script}),
        ("kill -9 of the server between a store and its user", "wired", (), {"act": kill_at_script}),
    ]
    teardown = [
        ("a deletion is answered 500, and the branch was removed", "neon", (Fault("delete", status=500),), {}),
        ("a deletion gets no answer", "neon", (Fault("delete", form="lost"),), {}),
        (
            "a deletion is answered 200, and nothing was removed",
            "neon",
            (Fault("delete", before=True, times=999),),
            {"heal": True},
        ),
        (
            "the credential is invalid",
            "neon",
            (Fault("delete", before=True, status=401, times=999),),
            {"heal": True},
        ),
        ("half of the list that shows the removal is an error", "neon", (Fault("page", before=True, status=500),), {}),
        ("the callback of a removal is lost", "own-service", (Fault("callback of delete", form="lost"),), {"patch": 1}),
        ("the next instance is requested during a removal", "neon", (Fault("delete", gate=True),), {"act": begin_again}),
        ("a platform repeats its events", "own-service", (), {"act": repeated_events}),
        ("a database cannot be dropped", "postgres", (), {"act": keep_template, "heal": end_template}),
        ("a store has a file of another", "wired", (), {"act": add_file, "heal": remove_file}),
        ("kill -9 of the server while a branch is removed", "neon", (Fault("delete", gate=True),), {"act": kill_at_gate}),
        ("kill -9 of the server while a script drops a database", "postgres", (), {"act": kill_at_script}),
    ]
    lists = [
        ("the second page of an inventory is an error", (Fault("page", before=True, status=500, times=99),), incomplete),
        ("the second page of an inventory has a further one", (Fault("page", change=more, times=99),), incomplete),
        ("Ctrl-C during an inventory", (Fault("list", gate=True),), interrupt),
        ("kill -9 of the server during an inventory", (Fault("list", gate=True),), kill_listing),
    ]
    for stage, table in (("setup", setup), ("teardown", teardown)):
        for title, example, faults, more_of_it in table:
            alone = more_of_it.get("act") in (kill_at_gate, kill_at_script)
            yield Mishap(next(number), title, example, stage, faults, alone=alone, **more_of_it)
    for title, faults, act in lists:
        yield Mishap(next(number), title, "neon", "inventory", faults, act)


def never_ready(world, mishap):
    world.provider.never_ready.add(mishap.name)
    world.apply(mishap)


def play(mishap, step):
    """Plays a step of a mishap. A failure is printed at the end of the mishap, and the others go on."""
    try:
        step(mishap)
    except Exception as error:  # Any problem is one of the mishap.
        mishap.problem = mishap.problem or f"{type(error).__name__}: {error}"


def play_all(mishaps, step):
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
        list(workers.map(lambda mishap: play(mishap, step), [it for it in mishaps if not it.alone]))
    for mishap in mishaps:
        if mishap.alone:
            play(mishap, step)


def list_once(world, mishap):
    world.provider.add("inventory", *mishap.faults)
    try:
        mishap.act(world, mishap)
        world.provider.assert_met("inventory")
    finally:
        for fault in mishap.faults:
            fault.released.set()
        world.provider.faults.pop("inventory")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ebb", type=pathlib.Path, required=True)
    arguments.add_argument("--only", type=int, help="number of a mishap")
    given = arguments.parse_args()
    world = World(given.ebb.resolve())
    chosen = [mishap for mishap in mishaps() if given.only in (None, mishap.number)]
    targets = [mishap for mishap in chosen if mishap.stage != "inventory"]
    problems = []

    def check(what, step):
        try:
            return step()
        except Exception as error:  # A comparison must not hide the next one.
            problems.append(f"{what}: {error}")
            return 0

    try:
        play_all(targets, world.set_up)
        living = [mishap for mishap in targets if not mishap.problem]
        count = check("while the sandboxes live", lambda: world.compare(living))
        for mishap in chosen:
            if mishap.stage == "inventory":
                play(mishap, lambda mishap: list_once(world, mishap))
        play_all(targets, world.tear_down)
        for mishap in chosen:
            print(f"{mishap.number:2}  {'FAILED' if mishap.problem else 'ok'}  {mishap.title}")
            if mishap.problem:
                problems.append(f"{mishap.number} {mishap.title}: {mishap.problem}")
        print(f"    {count} things existed together")
        check("after the end", lambda: world.compare([]))
        left = [it["name"] for it in world.ebb.targets("gone=true&unconfirmed=true")]
        if left:
            problems.append(f"these removals are unconfirmed: {left}")
        planted = check("planted things", world.planted)
        print(f"    {planted} planted things of gone sandboxes were found")
        things = len(world.seen | set(world.provider.made))
    finally:
        world.close()
    for problem in problems:
        print(f"\n{problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(chosen)} mishaps: {things} things, all accounted for")


if __name__ == "__main__":
    main()
