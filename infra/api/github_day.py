"""Plays a day of 500 pull requests between `ebb dev` and a server that follows GitHub's OpenAPI description.

Of the deliveries, 30 % fail, others are late, come twice or in another order, and some events have none. The API is
down, lists a part, and refuses requests. `ebb dev` is killed, also in the middle of a reconciliation.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import sys
import tempfile
import time

# The imports would otherwise write a folder into the repository.
sys.dont_write_bytecode = True
from conformance import Receiver, Server, write_secrets
from github_life import CONNECTION, PLUGIN, RESOURCES, WEBHOOK_SECRET, payload, put, send, signed
from github_limits import LimitedGithub
from github_server import DESCRIPTION, EXAMPLES, REPOSITORY, TOKEN, failure, packaged
from skipped_time import SkippedTime, text

LIST, ONE, ATTEMPTS, ATTEMPT = "pulls/list", "pulls/get", "repos/list-webhook-deliveries", "repos/get-webhook-delivery"
# The hours of the day in which the API has a fault, those in which `ebb dev` is killed at the next request, and one in
# which it does not run.
FAULTS = {8: "half a list", 10: "secondary limit", 12: "down", 14: "short list", 15: "spent limit"}
KILLS = {1: LIST, 3: "drop", 4: ONE, 5: ATTEMPTS, 6: ATTEMPT, 18: "make", 20: LIST, 21: ATTEMPT, 22: ONE}
STOPPED, HOUR, DAY = 19, 3600, 24 * 3600
# Requests to the API in an hour, pull requests, and the seconds that are skipped at a time.
LIMIT, PULLS, STEP = 120, 500, 900

# The own unit runs only when the target ends.
SOURCE = """
apiVersion: ebb.dev/v1
kind: Source
name: previews
preset: github
verify: {github: {secret: GITHUB_WEBHOOK}}
with: {repositories: ["186853002"]}
exists: {connection: github, every: 5m, grace: 5m, create: true}
replay: {connection: github, path: /repos/Codertocat/Hello-World/hooks/1}
document:
  postStop: {end: {webhook: {url: "URL/units/end", body: {unit: end, number: "${target.labels.number}"}}}}"""


class Day(LimitedGithub):
    """GitHub, the server of the units, and what both see."""

    def __init__(self, clock, seed):
        super().__init__(packaged(*DESCRIPTION), clock.now, LIMIT)
        self.examples = next(event["examples"] for event in packaged(*EXAMPLES) if event["name"] == "pull_request")
        self.clock, self.random, self.faults = clock, random.Random(seed), collections.Counter()
        # A limit ends with an hour.
        self.begin = (self.now() // HOUR + 1) * HOUR
        # The program, the requests at which it is killed, and the fault of the API.
        self.ebb, self.kills, self.fault = None, [], None
        # What the units of a pull request have made, the time of its newest event, and the targets that ended early.
        self.living, self.newest, self.wrong = {}, {}, []
        self.pool = concurrent.futures.ThreadPoolExecutor(4)

    def plan_pulls(self):
        for number in range(1, PULLS + 1):
            opened = self.random.uniform(self.begin, self.begin + 23 * HOUR)
            closed = self.random.uniform(opened + 60, opened + 5 * HOUR)
            changes = [("synchronize", self.random.uniform(opened, closed)) for _ in range(self.random.randrange(3))]
            for action, moment in [("opened", opened), *changes, ("closed", closed)]:
                if moment < self.begin + DAY:
                    self.clock.at(moment, self.change, moment, action, number)

    def change(self, moment, action, number):
        """Changes a pull request, and plans the deliveries of the event."""
        commit = self.pulls[number]["head"]["sha"] if action == "closed" else self.random.randbytes(20).hex()
        body = payload(self, self.examples, action, commit, text(moment), number)
        guid, self.pulls[number] = self.random.randbytes(16).hex(), json.loads(body)["pull_request"]
        if self.random.random() < {"opened": 0.05, "closed": 0.1}.get(action, 0):
            self.faults[f"no delivery of {action}"] += 1
            return
        outcome = self.random.choice([502, 502, 502, 504]) if self.random.random() < 0.3 else None
        if outcome:
            self.faults[f"delivery with {outcome}"] += 1
        if self.random.random() < 0.2:
            self.faults["late delivery"] += 1
            moment = self.random.uniform(moment, moment + HOUR / 2)
        self.clock.at(moment, self.deliver, guid, body, outcome)
        if self.random.random() < 0.15:
            self.faults["delivery again"] += 1
            moment = self.random.uniform(moment, moment + HOUR / 2)
            self.clock.at(moment, self.deliver, guid, body, None)

    def deliver(self, guid, body, outcome):
        """Delivers an event. With the outcome 502 it does not arrive, with 504 its answer does not."""
        event, status = json.loads(body), 502
        with self.lock:
            number, moment = event["number"], event["pull_request"]["updated_at"]
            self.faults["delivery in another order"] += self.newest.get(number, "") > moment
            self.newest[number] = max(self.newest.get(number, ""), moment)
        if outcome != 502:
            try:
                sent, _ = send(self.ebb, guid, body)
                status = outcome or sent
            except (OSError, http.client.HTTPException):
                self.faults["delivery not connected"] += 1
        with self.lock:
            self.note_attempt(guid, signed(guid, body), body, status, text(self.now()))

    def is_killed(self, kind):
        """Kills `ebb dev` in the middle of a request, if this is planned."""
        is_killed = self.kills[:1] == [kind] and self.ebb.process.poll() is None
        if is_killed:
            self.ebb.process.kill()
            self.faults[f"killed at {self.kills.pop(0)}"] += 1
        return is_killed

    def put(self, request):
        """Receives the request of a unit."""
        body = json.loads(request[1])
        unit, number = body["unit"], int(body["number"])
        with self.lock:
            self.requests[unit] += 1
            self.is_killed(unit)
            if unit == "make":
                self.living[number] = body["commit"]
            elif unit == "drop":
                self.living.pop(number, None)
            elif self.pulls[number]["state"] == "open":
                self.wrong.append(number)

    def act(self, operation, values, body):
        with self.lock:
            name, fault = operation["operationId"], self.fault
            if self.is_killed(name):
                return 0, failure("killed"), {}
            if fault == "down":
                self.faults[fault] += 1
                self.requests[f"{name} {fault}"] += 1
                return self.faults[fault] % 2 * 503, failure("Service unavailable"), {}
            if fault == "secondary limit" and not self.faults[fault]:
                self.slow_down(name, HOUR / 2)
            if fault == "spent limit" and name == ONE and not self.faults["limit"]:
                # Another program has the same token.
                self.used = LIMIT
            status, answer, headers = super().act(operation, values, body)
            if status in [403, 429]:
                self.faults["limit" if status == 403 else fault] += 1
            elif name == LIST and fault in ["half a list", "short list", "spent limit"]:
                self.faults[fault] += 1
                answer = answer[: len(answer) // 2] if fault == "half a list" else answer[:-3]
                headers = {} if fault == "half a list" else headers
            return status, answer, headers

    def is_observed(self, moment):
        """Returns true if an observation is complete that began after a moment."""
        try:
            listing = self.ebb.request("GET", "/v1/sources/previews")[1]["listing"]
        except (OSError, http.client.HTTPException):
            return False
        return listing.get("complete", "") >= text(moment)[:-1]

    def step(self, moment):
        """Skips the time until a moment, does what is planned until then, and waits for an observation."""
        self.clock.skip_to(moment)
        self.fault = FAULTS.get((moment - self.begin) // HOUR)
        deliveries = []
        for action, arguments in self.clock.due(moment):
            if action == self.deliver:
                deliveries.append(arguments)
            else:
                action(*arguments)
        list(self.pool.map(lambda arguments: self.deliver(*arguments), deliveries))
        # With a fault, none may be complete.
        end = time.monotonic() + (2 if self.fault or moment < self.refused[0] else 8)
        while self.ebb.process.poll() is None and time.monotonic() < end and not self.is_observed(moment):
            time.sleep(0.1)

    def drift(self):
        """Yields the differences between the pull requests and the targets."""
        found = self.ebb.targets()
        for number, pull in self.pulls.items():
            known = found.get(f"pr-{number}-{REPOSITORY}"), self.living.get(number)
            # Without a delivery, a pull request can end before a list.
            ends = [("gone", None), (None, None)]
            expected = [("ready", pull["head"]["sha"])] if pull["state"] == "open" else ends
            if known not in expected:
                yield f"pull request {number} has {known}, expected {expected[0]}"


def play(day, start):
    """Plays the day, and then until each target is as its pull request. Returns the number of steps."""
    for step in range(1, DAY // STEP + 5):
        hour, rest = divmod(step * STEP, HOUR)
        if not rest and hour in KILLS:
            day.kills.append(KILLS[hour])
        if hour == STOPPED:
            day.ebb.process.kill()
        elif day.ebb.process.poll() is not None:
            day.ebb = start()
        day.step(day.begin + step * STEP)
        if step * STEP > DAY and day.ebb.process.poll() is None and not list(day.drift()):
            return step
    sys.exit("\n".join(day.drift()))


def check(day, steps):
    """Checks what the day has seen."""
    assert not day.problems and not day.wrong and not day.early, (day.problems, day.wrong, day.early)
    faults = [*FAULTS.values(), *(f"killed at {kind}" for kind in KILLS.values()), "limit", "late delivery"]
    faults += ["no delivery of opened", "no delivery of closed", "delivery with 502", "delivery with 504"]
    faults += ["delivery again", "delivery in another order", "delivery not connected"]
    assert all(day.faults[fault] for fault in faults), [fault for fault in faults if not day.faults[fault]]
    failed = sum(attempt["status_code"] >= 400 for attempt in day.attempts) + len(KILLS)
    for kind, most in {LIST: 4 * steps, ONE: 2 * steps, ATTEMPTS: 2 * steps, ATTEMPT: failed}.items():
        count = sum(count for name, count in day.requests.items() if name.startswith(f"{kind} "))
        assert count <= most, f"{count} requests {kind}, expected at most {most}"
    _, source = day.ebb.request("GET", "/v1/sources/previews")
    assert not source["rejected"] and "problem" not in source["listing"], source


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ebb", required=True, help="the program")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state, receiver = pathlib.Path(folder) / "state", Receiver()
        day = Day(SkippedTime(pathlib.Path(folder)), arguments.seed)
        receiver.requests |= dict.fromkeys(["/units/make", "/units/drop", "/units/end"], day)
        receiver.handle_error = day.handle_error
        write_secrets(state, {"GITHUB_TOKEN": TOKEN, "GITHUB_WEBHOOK": WEBHOOK_SECRET})
        start = lambda: Server(arguments.ebb, state, f"{receiver.url}/platform")
        day.ebb = start()
        try:
            put(day.ebb, "POST", "plugins", PLUGIN.replace("URL", receiver.url).replace("ATTEMPTS", "3"))
            put(day.ebb, "PUT", "connections/github", CONNECTION % (day.url, "sources: [previews]"))
            put(day.ebb, "PUT", "sources/previews", SOURCE.replace("URL", receiver.url) + RESOURCES)
            day.plan_pulls()
            steps = play(day, start)
            check(day, steps)
        finally:
            day.ebb.stop()
            counts = sorted([*day.faults.items(), *day.requests.items()])
            print("\n".join(f"{count:6} {kind}" for kind, count in counts))
    after = steps * STEP // 60 - DAY // 60
    print(f"{PULLS} pull requests: each target is as its pull request {after} minutes after the day")


if __name__ == "__main__":
    main()
