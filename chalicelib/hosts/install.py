"""Scripts that install the agent on a host, and remove it again. Every script can be repeated, even after one that was
interrupted, and removal works on a host that is only half set up. Scripts read nothing from the connection: if it
broke, truncated input would look complete.

| path | what |
|---|---|
| /var/lib/dstack | the agent's folder: its program, its credential, its tasks; `owner` names the owner of the host |
| /etc/systemd/system/dstack-agent.service | the unit that starts and restarts it |
"""

from __future__ import annotations

import posixpath
import shlex

from chalicelib.hosts.inspection import HOME, OWNER

UNIT = "dstack-agent.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
PROGRAM = f"{HOME}/agent.pyz"
TOKEN = f"{HOME}/bootstrap"

SERVER = f"{HOME}/server"  # the address that the agent calls, reread when it can't be reached
VIA = f"{HOME}/via"  # the address at which its head node relays its calls, if it does

# The link that `systemctl enable` makes. Having systemd make it costs a host ten times as much.
WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"

# A reload makes systemd run all its generators, which costs a host more than everything else here, and a new unit
# doesn't need one. But systemd may have loaded an earlier attempt's unit, and old versions of systemd don't notice a
# new unit.
START = f"""
if [ -L {WANTED} ]; then
  systemctl daemon-reload || exit
else
  mkdir -p -m 755 {posixpath.dirname(WANTED)} && ln -s {UNIT_FILE} {WANTED} || exit
fi
systemctl restart {UNIT} || {{ systemctl daemon-reload && systemctl restart {UNIT}; }}
"""

STOP = f"""
set -u
systemctl disable --quiet --no-reload {UNIT} 2>/dev/null
systemctl stop {UNIT} 2>/dev/null
systemctl reset-failed {UNIT} 2>/dev/null
rm -f {UNIT_FILE} {UNIT_FILE}.new
systemctl daemon-reload
true
"""

LOG_END = f"journalctl -u {UNIT} -n 5 -o cat --no-pager 2>/dev/null | tail -n 1"


def claim(owner: str) -> str:
    """Claims the host for the owner. If two servers try at once, only one of them succeeds in creating the link."""
    return claim_as(shlex.quote(owner))


def claim_as(name: str) -> str:
    """The same, with the owner as an expression of the shell."""
    return f"""
set -eu
umask 077
mkdir -p {HOME}
chmod 0711 {HOME}
printf %s {name} > {OWNER}.$$
ln {OWNER}.$$ {OWNER} 2>/dev/null || cmp -s {OWNER}.$$ {OWNER} || {{
  rm -f {OWNER}.$$; echo "another agent was installed meanwhile" >&2; exit 1; }}
rm -f {OWNER}.$$
"""


def unit(server_url: str, instance_id: str, *, leaves: bool = False) -> str:
    """The unit file. Tasks have supervisors of their own, so a restart of the agent must not end them. Without a URL,
    the agent reads it from its folder. Exit status 4 means that its instance has ended. `leaves`: the agent then clears
    the host itself."""
    command = [
        "/usr/bin/env",
        "python3",
        *("-I", "-S"),  # without the host's own packages, whose search takes time
        PROGRAM,
        *(("--server", server_url) if server_url else ()),
        *("--data", HOME),
        *("--instance", instance_id),
        *("--token-file", TOKEN),
        *(("--unit", UNIT) if leaves else ()),
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


def stop(owner: str) -> str:
    """Ends the agent for good. Does nothing on a host that isn't ours."""
    return _unless_anothers(owner) + STOP


def clear(owner: str) -> str:
    """Ends every task and deletes everything that the agent and its tasks left. Does nothing on a host that isn't
    ours."""
    return f"""
set -eu
[ -e {HOME} ] || exit 0
{_unless_anothers(owner)}
if [ -e {PROGRAM} ]; then cd / && python3 {PROGRAM} clear --data {HOME}; fi
rm -rf {HOME}
"""


def evict(owner: str) -> str:
    """Stops and clears what an ended owner left behind, unless the host has another owner by now."""
    return f"""
[ "$(cat {OWNER} 2>/dev/null)" = {shlex.quote(owner)} ] || exit 0
({stop(owner)})
({clear(owner)})
"""


def _unless_anothers(owner: str) -> str:
    """Ends the script if the host belongs to another owner: it may have been cleared and claimed since the
    inspection."""
    return f'if [ -e {OWNER} ] && [ "$(cat {OWNER})" != {shlex.quote(owner)} ]; then exit 0; fi'


def _escaped(argument: str) -> str:
    """A word of ExecStart (systemd.service(5), command lines), where `%` and `$` must be escaped."""
    plain = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"' if any(c in plain for c in " \t;'\"") else plain
