"""Drives the fake with Google's client of discovery documents, in a virtual environment of its own.

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

PROJECT, ZONE, REGION = "my-project", "us-central1-a", "us-central1"
NAME = "a-machine"


def body(name, **more):
    image = "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
    params = {"sourceImage": image, "diskSizeGb": "60", "diskType": f"zones/{ZONE}/diskTypes/pd-balanced"}
    return {
        "name": name,
        "machineType": f"zones/{ZONE}/machineTypes/n2-standard-2",
        "labels": {"team": "research"},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": params}],
        "networkInterfaces": [
            {
                "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/training",
                "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
            }
        ],
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        **more,
    }


def refused(call):
    try:
        call.execute()
    except HttpError as error:
        return [error.status_code, error.error_details[0]["reason"]]
    return "accepted"


def ended(compute, operation):
    while operation["status"] != "DONE":
        time.sleep(0.05)
        operation = compute.zoneOperations().wait(project=PROJECT, zone=ZONE, operation=operation["name"]).execute()
    return operation.get("error", {}).get("errors", [{}])[0].get("code", "")


def main(address, token):
    made = {"credentials": Credentials(token), "static_discovery": True, "client_options": {"api_endpoint": address}}
    compute = build("compute", "v1", **{**made, "client_options": {"api_endpoint": address + "/compute/v1/"}})
    billing = build("cloudbilling", "v1", **made)
    projects = build("cloudresourcemanager", "v3", **made)
    machines = compute.instances()
    place = {"project": PROJECT, "zone": ZONE}
    identity = str(uuid.uuid4())
    seen = {}

    first = machines.insert(body=body(NAME), requestId=identity, **place).execute()
    again = machines.insert(body=body(NAME), requestId=identity, **place).execute()
    seen["replayed"] = first["name"] == again["name"]
    seen["another body"] = refused(machines.insert(body=body("other"), requestId=identity, **place))
    seen["the name again"] = refused(machines.insert(body=body(NAME), **place))
    seen["insert"] = ended(compute, first)
    machine = machines.get(instance=NAME, **place).execute()
    seen["machine"] = [machine["status"], machine["networkInterfaces"][0]["accessConfigs"][0]["natIP"][:6]]
    seen["labels"] = refused(machines.insert(body=body("b", labels={"A B": "x"}), **place))
    seen["type"] = refused(machines.insert(body=body("b", machineType=f"zones/{ZONE}/machineTypes/x"), **place))
    seen["unknown field"] = refused(machines.insert(body=body("b", colour="red"), **place))
    seen["read-only field"] = refused(machines.insert(body=body("b", status="RUNNING"), **place))

    found = machines.aggregatedList(project=PROJECT, filter='labels.team = "research"').execute()["items"]
    seen["scopes"] = sorted(scope for scope, each in found.items() if "instances" in each)
    seen["empty scopes"] = sorted({each["warning"]["code"] for each in found.values() if "warning" in each})
    types, pages = compute.machineTypes(), 0
    request = types.aggregatedList(project=PROJECT, maxResults=5)
    while request is not None:
        request, pages = types.aggregatedList_next(request, request.execute()), pages + 1
    seen["pages"] = pages > 2

    disk = {"name": "data", "sizeGb": "20", "type": f"zones/{ZONE}/diskTypes/pd-balanced"}
    ended(compute, compute.disks().insert(body=disk, **place).execute())
    source = f"projects/{PROJECT}/zones/{ZONE}/disks/data"
    attached = {"source": source, "deviceName": "data", "mode": "READ_WRITE", "autoDelete": False}
    seen["attach"] = ended(compute, machines.attachDisk(instance=NAME, body=attached, **place).execute())
    seen["delete what is attached"] = refused(compute.disks().delete(disk="data", **place))
    seen["detach"] = ended(compute, machines.detachDisk(instance=NAME, deviceName="data", **place).execute())
    ended(compute, compute.disks().delete(disk="data", **place).execute())

    seen["delete"] = ended(compute, machines.delete(instance=NAME, **place).execute())
    seen["gone"] = refused(machines.get(instance=NAME, **place))
    listed = billing.services().skus().list(parent="services/6F81-5844-456A", currencyCode="USD").execute()
    seen["prices"] = len(listed["skus"]) > 100
    asked = {"permissions": ["compute.instances.create", "compute.instances.delete"]}
    allowed = projects.projects().testIamPermissions(resource="projects/" + PROJECT, body=asked).execute()
    seen["permissions"] = len(allowed["permissions"])
    print(json.dumps(seen))


main(*sys.argv[1:])
