"""Runs in the genuine client's own Python: its Python API against our server. Prints what it saw as one JSON line."""

import json
import sys
import time

from dstack.api import Client, Resources, Task

url, token = sys.argv[1:3]
client = Client.from_config(project_name="main", server_url=url, user_token=token)
small = (
    Resources.model_validate({"cpu": "1..", "memory": "0.1GB..", "disk": "1GB.."})
    if hasattr(Resources, "model_validate")
    else Resources(cpu="1..", memory="0.1GB..", disk="1GB..")
)
task = Task(name="byapi", commands=["echo by the api", "sleep 600"], resources=small, fleets=["local"])
seen = {}
plan = client.runs.get_run_plan(task)
seen["plan"] = {"name": plan.run_spec.run_name, "offers": len(plan.job_plans[0].offers)}
run = client.runs.apply_plan(plan)
deadline = time.time() + 600
while run.status.value != "running" and time.time() < deadline:
    time.sleep(0.2)
    run.refresh()
seen["status"] = run.status.value
seen["listed"] = [one.name for one in client.runs.list()]
seen["got"] = client.runs.get("byapi").name
seen["missing"] = client.runs.get("nothing") is None
logs = b""
while b"by the api" not in logs and time.time() < deadline:
    logs = b"".join(run.logs())
    time.sleep(0.2)
seen["logs"] = logs.decode()
seen["hostname"], seen["backend"] = run.hostname, getattr(run.backend, "value", run.backend)
run.stop()
while run.status.value not in ("terminated", "failed", "done") and time.time() < deadline:
    time.sleep(0.2)
    run.refresh()
seen["ended"] = run.status.value
seen["backends"] = [backend.name for backend in client.backends.list()]
print(json.dumps(seen))
