"""A new machine's boot script: three settings, then it fetches the agent and starts it."""

from __future__ import annotations

import re
import shlex

_FIELD = re.compile(r"^DSTACK_(SERVER|INSTANCE|TOKEN)=(.*)$", re.MULTILINE)


def user_data(server_url: str, instance_id: str, token: str) -> str:
    """The same machine gets the same text, byte for byte. The script puts the token into a file only root can read."""
    return (
        "#!/bin/sh\n"
        f"DSTACK_SERVER={shlex.quote(server_url)}\n"
        f"DSTACK_INSTANCE={shlex.quote(instance_id)}\n"
        f"DSTACK_TOKEN={shlex.quote(token)}\n"
        "set -eu\n"
        "umask 077\n"
        "mkdir -p /var/lib/dstack\n"
        'printf %s "$DSTACK_TOKEN" > /var/lib/dstack/token\n'
        "cd /var/lib/dstack\n"
        '(command -v curl >/dev/null && curl -fsS --retry 10 -o agent.pyz "$DSTACK_SERVER/agent/agent.pyz") \\\n'
        '  || wget -q -t 10 -O agent.pyz "$DSTACK_SERVER/agent/agent.pyz"\n'
        'exec python3 agent.pyz --server "$DSTACK_SERVER" --data /var/lib/dstack --instance "$DSTACK_INSTANCE" \\\n'
        "  --token-file /var/lib/dstack/token\n"
    )


def read_user_data(script: str) -> tuple[str, str, str]:
    """Server URL, instance id and token of a script that `user_data` wrote. Raises ValueError on any other text."""
    found = {name: "".join(shlex.split(value)) for name, value in _FIELD.findall(script)}
    if found.keys() != {"SERVER", "INSTANCE", "TOKEN"}:
        raise ValueError("this isn't a boot script of ours: it lacks DSTACK_SERVER, DSTACK_INSTANCE or DSTACK_TOKEN")
    return found["SERVER"], found["INSTANCE"], found["TOKEN"]
