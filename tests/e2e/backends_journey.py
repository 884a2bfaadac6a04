"""Runs in the genuine client's own Python: its calls about backends against our server. Prints what it saw as one JSON
line."""

import json
import sys

from dstack._internal.core.backends.models import AWSBackendConfigWithCreds
from dstack.api.server import APIClient

url, token = sys.argv[1:3]
api = APIClient(url, token)
backends = api.backends


def config(key, **more):
    creds = {"type": "access_key", "access_key": key, "secret_key": "hush"}
    return AWSBackendConfigWithCreds(**{"type": "aws", "creds": creds, **more})


def plain(found):
    return json.loads(found.model_dump_json())


[aws] = backends.list_backend_types()
seen = {"types": [aws.value]}
seen["made"] = plain(backends.create("main", config("good", regions=["eu-west-1"], tags={"team": "ml"})))
seen["listed"] = [plain(one) for one in api.projects.get("main").backends]
found = backends.config_info("main", aws)
seen["found"] = plain(found)
try:
    backends.update("main", config("bad"))
except Exception as error:  # what a person would read
    seen["refused"] = [type(error).__name__, str(error)]
backends.update("main", AWSBackendConfigWithCreds(**{**plain(found), "regions": ["us-east-1"]}))
seen["changed"] = plain(backends.config_info("main", aws))
backends.delete("main", [aws])
seen["left"] = [plain(one) for one in api.projects.get("main").backends]
print(json.dumps(seen))
