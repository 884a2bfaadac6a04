"""What is installed on a host, and how it is removed again. Every script can be repeated, even after one that was cut
off, and removal works on a host that is only half set up. Scripts read nothing from the connection: if it breaks, half
of what was sent would look like all of it.

| path | what |
|---|---|
| /var/lib/dstack | the agent's folder: its program, its credential, its tasks; `owner` says whose host it is |
| /etc/systemd/system/dstack-agent.service | the unit that starts it, and starts it again |
"""

from __future__ import annotations

import shlex

from chalicelib.hosts.look import HOME, OWNER

UNIT = "dstack-agent.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
PROGRAM = f"{HOME}/agent.pyz"
TOKEN = f"{HOME}/bootstrap"

SERVER = f"{HOME}/server"  # the address that the agent calls, reread when it can't be reached

START = f"systemctl daemon-reload && systemctl enable --quiet {UNIT} && systemctl restart {UNIT}"

STOP = f"""
set -u
systemctl disable --quiet --now {UNIT} 2>/dev/null
systemctl stop {UNIT} 2>/dev/null
systemctl reset-failed {UNIT} 2>/dev/null
rm -f {UNIT_FILE} {UNIT_FILE}.new
systemctl daemon-reload
true
"""

LOG_END = f"journalctl -u {UNIT} -n 5 -o cat --no-pager 2>/dev/null | tail -n 1"


def reach(server_url: str) -> str:
    """Does the server answer from here? Any HTTP response will do."""
    return f"""
exec python3 -c '
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1] + "/healthcheck", timeout=5)
except urllib.error.HTTPError:
    pass
except Exception:
    sys.exit(1)
' {shlex.quote(server_url)}
"""


def claim(owner: str) -> str:
    """Claims the host for the owner. If two servers try at once, only one of them creates the link."""
    name = shlex.quote(owner)
    return f"""
set -eu
umask 077
mkdir -p {HOME}
chmod 0711 {HOME}
printf %s {name} > {OWNER}.$$
ln {OWNER}.$$ {OWNER} 2>/dev/null || cmp -s {OWNER}.$$ {OWNER} || {{
  rm -f {OWNER}.$$; echo "it belongs to $(cat {OWNER})" >&2; exit 1; }}
rm -f {OWNER}.$$
"""


def unit(server_url: str, instance_id: str) -> str:
    """The unit file. Tasks have supervisors of their own, so a restart of the agent must not end them. Without a URL
    the agent reads it from its folder. Its exit status 4 says that its instance has ended."""
    command = [
        "/usr/bin/env",
        "python3",
        PROGRAM,
        *(("--server", server_url) if server_url else ()),
        *("--data", HOME),
        *("--instance", instance_id),
        *("--token-file", TOKEN),
    ]
    return f"""[Unit]
Description=dstack agent: runs the jobs that a dstack server gives to this host
After=network-online.target docker.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={" ".join(_escaped(word) for word in command)}
Restart=always
RestartSec=2
RestartPreventExitStatus=4
KillMode=process
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def follow(owner: str, server_url: str) -> str:
    """Writes the server's address for this owner's agent. Fails if the host belongs to another."""
    return f"""
set -eu
[ "$(cat {OWNER} 2>/dev/null)" = {shlex.quote(owner)} ]
umask 077
echo {shlex.quote(server_url)} > {SERVER}.new
mv -f {SERVER}.new {SERVER}
"""


def clear(owner: str) -> str:
    """Ends every task and deletes all that the agent and its tasks left. Does nothing on a host that isn't ours."""
    return f"""
set -eu
[ -e {HOME} ] || exit 0
if [ -e {OWNER} ] && [ "$(cat {OWNER})" != {shlex.quote(owner)} ]; then exit 0; fi
if [ -e {PROGRAM} ]; then cd / && python3 {PROGRAM} clear --data {HOME}; fi
rm -rf {HOME}
"""


def _escaped(word: str) -> str:
    """A word of ExecStart (systemd.service(5), command lines), where `%` and `$` must be escaped."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(c in plain for c in " \t;'\"") else plain
