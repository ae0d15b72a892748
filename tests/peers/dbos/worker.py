"""The DBOS program of `cargo xtask bench peers`: a unit is a step that posts to the receiver, and a message with the result.

POST /chain or /fan with a number of units runs a workflow and answers when it has ended. A result comes as
POST /results/WORKFLOW/UNIT.
"""

import asyncio
import http.client
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from dbos import DBOS

RECEIVER = urlsplit(os.environ["RECEIVER"])
DBOS(config={"name": "peers", "system_database_url": os.environ["DATABASE"], "log_level": "WARNING"})
connections = threading.local()


def sent(unit, read, url):
    """Posts a unit to the receiver, with one connection per thread."""
    if not hasattr(connections, "receiver"):
        connections.receiver = http.client.HTTPConnection(RECEIVER.netloc)
    headers = {"content-type": "application/json", "ebb-callback-url": url}
    try:
        connections.receiver.request("POST", RECEIVER.path, json.dumps({"unit": unit, "read": read}), headers)
        response = connections.receiver.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        connections.receiver.close()
        raise
    if response.status != 202:
        raise RuntimeError(f"the receiver answered {response.status}")


def callback(workflow, unit):
    return f"http://127.0.0.1:{server.server_port}/results/{workflow}/{unit}"


@DBOS.step(retries_allowed=True)
def send(unit, read, workflow):
    sent(unit, read, callback(workflow, unit))


@DBOS.step(retries_allowed=True)
async def send_async(unit, read, workflow):
    await asyncio.to_thread(sent, unit, read, callback(workflow, unit))


async def units(names, read):
    """Runs units at the same time and returns their results."""
    sent = [send_async(name, read, DBOS.workflow_id) for name in names]
    results = await asyncio.gather(*sent, *[DBOS.recv_async(topic=name) for name in names])
    return [result["outputs"]["value"] for result in results[len(names) :]]


def names(count):
    return [f"u{index}" for index in range(count)]


@DBOS.workflow()
def chain(count):
    # Without asyncio, a unit takes two thirds of the CPU.
    read = []
    for name in names(count):
        send(name, read, DBOS.workflow_id)
        read = [DBOS.recv(topic=name)["outputs"]["value"]]


@DBOS.workflow()
async def fan(count):
    read = await units(["first"], [])
    await units(["last"], await units(names(count), read))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match self.path.split("/"):
            case ["", "results", workflow, unit]:
                DBOS.send(workflow, body, topic=unit)
            case ["", shape]:
                DBOS.start_workflow({"chain": chain, "fan": fan}[shape], body).get_result()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


DBOS.launch()
server = Server(("127.0.0.1", 0), Handler)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
