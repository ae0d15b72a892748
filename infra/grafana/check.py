"""Loads the Grafana dashboard with Grafana's SDK, and parses each query and the expression of each alert rule."""

import json
import pathlib
import sys

import promql_parser
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

FILE = pathlib.Path(__file__).parent / "ebb.json"
ALERTS = FILE.parent / "alerts.yaml"
# Grafana replaces this variable by a duration.
INTERVAL = "$__rate_interval"


def lost(before, after, path=""):
    """Yields the fields that the SDK does not know or reads in another way. It adds defaults."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after[key], f"{path}/{key}") if key in after else [f"{path}/{key}"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after)):
            yield from lost(one, other, f"{path}/{number}")
    elif before != after:
        yield path


register_default_plugins()
dashboard = json.loads(FILE.read_text())
loaded = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
wrong = [f"{path}: not in the schema" for path in lost(dashboard, loaded)]
queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
rules = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
for query in queries + rules:
    try:
        promql_parser.parse(query.replace(INTERVAL, "5m"))
    except ValueError as error:
        wrong.append(f"{query}: {error}")
if wrong:
    sys.exit("\n".join(wrong))
print(f"{FILE.name}: {len(dashboard['panels'])} panels, {len(queries)} queries, {len(rules)} alert rules")
