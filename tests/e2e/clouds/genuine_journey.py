"""Runs in the genuine client's own Python: its calls about a cloud's account. Prints what it saw as one JSON line.

The third argument is the account's configuration as JSON.
"""

import json
import sys
import typing

from dstack._internal.core.backends import models
from dstack.api.server import APIClient

api, config = APIClient(*sys.argv[1:3]), json.loads(sys.argv[3])
kinds = [kind for kind in vars(models).values() if getattr(kind, "__name__", "").endswith("BackendConfigWithCreds")]
kinds = [kind for kind in kinds if "type" in getattr(kind, "model_fields", ())]
fitting = [kind for kind in kinds if config["type"] in typing.get_args(kind.model_fields["type"].annotation)]


def plain(found):
    return json.loads(found.model_dump_json())


(name,) = [each for each in api.backends.list_backend_types() if each.value == config["type"]]
made = api.backends.create("main", fitting[0](**config))
seen = {
    "made": plain(made),
    "listed": [one.name for one in api.projects.get("main").backends],
    "found": plain(api.backends.config_info("main", name)),
}
api.backends.update("main", fitting[0](**config))
print(json.dumps(seen))
