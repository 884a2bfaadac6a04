"""Runs in the genuine client's own Python: sends configurations as they are, right or wrong, and tells what came back.

Its classes check what they are given; built without those checks, they send what a client of another version would.
Prints one JSON line: for each configuration the text and the fields of the error, or how far it came.
"""

import json
import sys
import warnings
from pathlib import Path

from dstack.api import Client, DevEnvironment, Service, Task

warnings.simplefilter("ignore")  # what isn't as declared is the point
url, token, cases = sys.argv[1:4]
kinds = {"task": Task, "service": Service, "dev-environment": DevEnvironment}
client = Client.from_config(project_name="main", server_url=url, user_token=token)
refusals = []
for fields in json.loads(Path(cases).read_text(encoding="utf-8")):
    kind = kinds[fields["type"]]
    if fields.keys() - kind.model_fields.keys():
        refusals.append({"by": "itself", "text": "it sends no keys that it doesn't know", "fields": []})
        continue
    try:
        client.runs.get_run_plan(kind.model_construct(**fields))
    except Exception as error:
        named = list(getattr(error, "fields", None) or [])
        refusals.append({"by": type(error).__name__, "text": str(error), "fields": named})
    else:
        refusals.append({"by": "nobody", "text": "", "fields": []})
print(json.dumps(refusals))
