"""A server that follows GitHub's OpenAPI description, with GitHub's limits of requests."""

import collections
import threading

from github_server import Github, failure


class LimitedGithub(Github):
    def __init__(self, description, now, limit):
        super().__init__(description)
        # The clock, and the requests that an hour permits.
        self.now, self.limit, self.lock = now, limit, threading.RLock()
        # The requests by operation and status, and how many of them came before the end of a limit.
        self.requests, self.early = collections.Counter(), 0
        self.hour, self.used = 0, 0
        # The end of a limit, the first operation that it has refused, and the number of refusals.
        self.refused = (0, "", 0)

    def slow_down(self, name, seconds):
        """Begins a secondary limit, which is about other things than the number of requests."""
        self.refused = self.now() + seconds, name, 0

    def act(self, operation, values, body):
        with self.lock:
            name, hour = operation["operationId"], int(self.now() // 3600)
            if self.hour != hour:
                self.hour, self.used = hour, 0
            self.used += 1
            status, answer, headers = self.refuse(name) or super().act(operation, values, body)
            self.requests[f"{name} {status}"] += 1
            left, reset = max(self.limit - self.used, 0), (hour + 1) * 3600
            limit = {"x-ratelimit-limit": self.limit, "x-ratelimit-remaining": left, "x-ratelimit-reset": reset}
            return status, answer, limit | headers

    def refuse(self, name):
        """Returns the response of a limit, or nothing."""
        now, (until, first, count) = self.now(), self.refused
        if now >= until:
            if self.used <= self.limit:
                return None
            until, first, count = (self.hour + 1) * 3600, name, 0
        # Eight confirmations are sent at once.
        self.early += count >= (8 if first == name == "pulls/get" else 1)
        self.refused = until, first, count + 1
        if self.used > self.limit:
            return 403, failure("API rate limit exceeded for user ID 1."), {}
        message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        return 429, failure(message), {"retry-after": int(until - now) + 1}
