"""The script that a new machine is started with: its settings, then fetch the agent, check it and start it.

The agent runs as root and is downloaded over a network that may not be ours. Its digest takes another path, because the
provider delivers this script, so a program that was changed in transit isn't run. The program is also requested by that
digest, so a control plane that was upgraded meanwhile still serves the intended one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_FIELD = re.compile(r"^DSTACK_(SERVER|INSTANCE|TOKEN)=(.*)$", re.MULTILINE)


def user_data(server_url: str, instance_id: str, token: str, program: str, notices: str = "") -> str:
    """The same machine gets the same text, byte for byte. The token goes to a file that only root can read.
    `program` is the agent's SHA-256, in hexadecimal digits; `notices`: the metadata service that the agent polls for
    spot interruption notices."""
    asks = f" --notices {shlex.quote(notices)}" if notices else ""
    return (
        "#!/bin/sh\n"
        f"DSTACK_SERVER={shlex.quote(server_url)}\n"
        f"DSTACK_INSTANCE={shlex.quote(instance_id)}\n"
        f"DSTACK_TOKEN={shlex.quote(token)}\n"
        f"DSTACK_AGENT_SHA256={shlex.quote(program)}\n"
        "set -eu\n"
        "umask 077\n"
        "mkdir -p /var/lib/dstack\n"
        'printf %s "$DSTACK_TOKEN" > /var/lib/dstack/token\n'
        "cd /var/lib/dstack\n"
        'url="$DSTACK_SERVER/agent/agent.pyz?sha256=$DSTACK_AGENT_SHA256"\n'
        '(command -v curl >/dev/null && curl -fsS --connect-timeout 10 --retry 10 -o agent.pyz "$url") \\\n'
        '  || wget -q -T 10 -t 10 -O agent.pyz "$url"\n'
        'echo "$DSTACK_AGENT_SHA256  agent.pyz" | sha256sum -c -\n'
        'exec python3 agent.pyz --server "$DSTACK_SERVER" --data /var/lib/dstack --instance "$DSTACK_INSTANCE" \\\n'
        f"  --token-file /var/lib/dstack/token{asks}\n"
    )


def for_several(scripts: Sequence[str], number: str) -> str:
    """One script for machines that all get the same. `scripts`: what `user_data` wrote for each; `number`: a command
    that prints which of them is the machine's."""
    parts = [dict(_FIELD.findall(script)) for script in scripts]
    cases = "".join(
        f"{at}) DSTACK_INSTANCE={part['INSTANCE']}; DSTACK_TOKEN={part['TOKEN']} ;;\n" for at, part in enumerate(parts)
    )
    otherwise = '*) echo "no machine of this bundle has the number $number" >&2; exit 1 ;;\n'
    chosen = f'number="$({number})"\ncase "$number" in\n{cases}{otherwise}esac\n'
    first, _, rest = scripts[0].partition(f"DSTACK_INSTANCE={parts[0]['INSTANCE']}\n")
    return first + chosen + rest.partition(f"DSTACK_TOKEN={parts[0]['TOKEN']}\n")[2]


def read_user_data(script: str) -> tuple[str, str, str]:
    """Server URL, instance id and token of a script that `user_data` wrote. Raises ValueError on any other text."""
    found = {name: "".join(shlex.split(value)) for name, value in _FIELD.findall(script)}
    if found.keys() != {"SERVER", "INSTANCE", "TOKEN"}:
        raise ValueError("this isn't a boot script of ours: it lacks DSTACK_SERVER, DSTACK_INSTANCE or DSTACK_TOKEN")
    return found["SERVER"], found["INSTANCE"], found["TOKEN"]
