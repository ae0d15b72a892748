"""Writes SAM's template in JSON without the resources that MiniStack does not support, and prints their names.

staged.py TEMPLATE TO
"""

import json
import sys

import yaml

with open(sys.argv[1]) as file:
    template = yaml.safe_load(file)
resources = template["Resources"]
# These are alarms over several metrics.
alarms = [(name, it["Properties"]) for name, it in resources.items() if it["Type"] == "AWS::CloudWatch::Alarm"]
unsupported = [name for name, properties in alarms if isinstance(properties.get("Metrics"), list)]
print("not supported by the emulator:", ", ".join(unsupported), flush=True)
dashboard = resources["Dashboard"]["Properties"]["DashboardBody"]
for name in unsupported:
    del resources[name]
    dashboard["Fn::Sub"] = dashboard["Fn::Sub"].replace(f',"${{{name}.Arn}}"', "")
with open(sys.argv[2], "w") as file:
    # YAML has dates, which are texts in a template.
    json.dump(template, file, indent=2, default=str)
