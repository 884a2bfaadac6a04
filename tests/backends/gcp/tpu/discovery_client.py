"""Drives the fake of Cloud TPU with Google's client of discovery documents, in a virtual environment of its own.

    python discovery_client.py ADDRESS TOKEN

prints what it saw, as JSON. It shares no code with anything here, and no schema: its documents are Google's own copies.
"""

import json
import sys
import time
import uuid

from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

PLACE = "projects/my-project/locations/us-central1-a"
NAME = "a-slice"


def body(**more):
    node = {
        "acceleratorType": "v5litepod-4",
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "networkConfig": {
            "network": "projects/my-project/global/networks/training",
            "subnetwork": "projects/my-project/regions/us-central1/subnetworks/training",
            "enableExternalIps": True,
        },
        "labels": {"team": "research"},
        **more,
    }
    return {"tpu": {"nodeSpec": [{"parent": PLACE, "nodeId": NAME, "node": node}]}, "spot": {}}


def refused(call):
    try:
        call.execute()
    except HttpError as error:
        return [error.status_code, json.loads(error.content)["error"]["status"]]
    return "accepted"


def until(call, wanted):
    for _ in range(400):
        found = call.execute()
        if wanted(found):
            return found
        time.sleep(0.05)
    raise SystemExit(f"it never came: {found}")


def main(address, token):
    made = {"credentials": Credentials(token), "static_discovery": True, "client_options": {"api_endpoint": address}}
    places = build("tpu", "v2", **made).projects().locations()
    queued, nodes = places.queuedResources(), places.nodes()
    named, seen, identity = f"{PLACE}/queuedResources/{NAME}", {}, str(uuid.uuid4())

    def request(name=NAME, request_id=identity, **more):
        return queued.create(parent=PLACE, queuedResourceId=name, requestId=request_id, body=body(**more))

    zones = [each["locationId"] for each in places.list(name="projects/my-project").execute()["locations"]]
    types = places.acceleratorTypes().list(parent=PLACE).execute()["acceleratorTypes"]
    seen["sold"] = ["us-central1-a" in zones, "v5litepod-4" in [each["type"] for each in types]]
    first = request().execute()
    seen["replayed"] = first["name"] == request().execute()["name"]
    seen["another body"] = refused(request(labels={}))
    seen["the name again"] = refused(request(request_id=str(uuid.uuid4())))
    seen["labels"] = refused(request("b", str(uuid.uuid4()), labels={"A B": "x"}))
    seen["type"] = refused(request("b", str(uuid.uuid4()), acceleratorType="v9-1"))
    seen["unknown field"] = refused(request("b", str(uuid.uuid4()), zone="here"))
    seen["read-only field"] = refused(request("b", str(uuid.uuid4()), state="READY"))
    found = until(queued.get(name=named), lambda each: each["state"]["state"] == "ACTIVE")
    node = nodes.get(name=f"{PLACE}/nodes/{NAME}").execute()
    seen["node"] = [node["state"], node["networkEndpoints"][0]["accessConfig"]["externalIp"][:6]]
    seen["labels of its node"] = found["tpu"]["nodeSpec"][0]["node"]["labels"]
    verbs = [each["metadata"]["verb"] for each in places.operations().list(name=PLACE).execute()["operations"]]
    seen["operations"] = verbs
    listed = [
        len(each.list(parent=PLACE).execute()[key]) for each, key in ((queued, "queuedResources"), (nodes, "nodes"))
    ]
    seen["listed"] = listed
    seen["delete"] = refused(queued.delete(name=named))
    queued.delete(name=named, force=True).execute()
    seen["state"] = queued.get(name=named).execute()["state"]["state"]
    seen["closed"] = refused(nodes.list(parent="projects/my-project/locations/us-central1-f"))
    found = {each["type"]: each for each in places.acceleratorTypes().list(parent=PLACE).execute()["acceleratorTypes"]}
    seen["topology"] = [each["topology"] for each in found["v5litepod-16"]["acceleratorConfigs"]]
    request("several", str(uuid.uuid4()), acceleratorType="v5litepod-16").execute()
    until(queued.get(name=f"{PLACE}/queuedResources/several"), lambda each: each["state"]["state"] == "ACTIVE")
    endpoints = nodes.get(name=f"{PLACE}/nodes/several").execute()["networkEndpoints"]
    seen["hosts"] = [len(endpoints), len({each["ipAddress"] for each in endpoints})]
    print(json.dumps(seen))


main(*sys.argv[1:])
