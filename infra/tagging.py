"""The tags of a stage, which everything has that AWS allows tags on.

They are tags of its stacks: CloudFormation puts them on what it makes, and keeps them for the next deployment. What
others make gets them from the deployment's variables: the keys in Parameter Store, and machines in AWS.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from chalicelib.errors import Invalid
from infra import command

MOST = 20  # of the 50 that AWS allows; runs, fleets and backends add theirs to machines
LONGEST = 2000  # characters in the environment of a function, which has 4 KB
OWN = ("aws:", "dstack-")  # beginnings of keys that others write
_KEY, _VALUE = re.compile(r"[\w .:/=+@-]{1,128}"), re.compile(r"[\w .:/=+@-]{0,256}")


def given(options: Sequence[str]) -> dict[str, str]:
    """Of `--tag`; an empty value takes a tag away."""
    found = command.pairs(options, "--tag", "team=ml")
    for key, value in found.items():
        if key.lower().startswith(OWN):
            raise Invalid(f"--tag {key}: such tags are AWS's or dstack's own.", hint="Choose another key.")
        if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise Invalid(
                f"--tag {key}={value} is no tag that AWS takes.",
                hint="Use letters, digits, spaces and _.:/=+-@: at most 128 in a key, and 256 in a value.",
            )
    return found


def merged(before: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The tags from now on."""
    found = {key: value for key, value in {**before, **chosen}.items() if value}
    if len(found) > MOST or len(json.dumps(found)) > LONGEST:
        raise Invalid(
            f"A stage takes {MOST} tags of {LONGEST} characters together, and it would have {len(found)}.",
            hint="Take some away, as in --tag team=.",
        )
    return found


def variables(tags: Mapping[str, str]) -> dict[str, str]:
    """The functions' environment that has machines in AWS tagged, too."""
    return {"DSTACK_BACKEND_TAGS": json.dumps({"aws": dict(sorted(tags.items()))})} if tags else {}
