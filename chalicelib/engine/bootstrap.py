"""The first words between a new machine and the control plane.

A created machine gets its credential through user data, which the cloud keeps and shows to whoever may read it. So what
travels there is good for one exchange only, and it is computed, not drawn: a repeated `create` must be byte-identical,
or the provider's own idempotency would refuse it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import shlex

_FIELD = re.compile(r"^DSTACK_(SERVER|INSTANCE|TOKEN)=(.*)$", re.MULTILINE)


def bootstrap_token(install_key: bytes, instance_id: str, epoch: int) -> str:
    """The single-use token of one purchase. Whoever holds the install key can check it; nothing is stored."""
    return hmac.new(install_key, f"bootstrap/{instance_id}/{epoch}".encode(), hashlib.sha256).hexdigest()


def user_data(server_url: str, instance_id: str, token: str) -> str:
    """A boot script: three settings, then fetch the agent and start it. The token goes to a file only root can read."""
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
