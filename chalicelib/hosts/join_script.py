"""Machines that join by themselves: the command that a user pastes there, and the script that it runs.

The script inspects the machine like an installation over SSH and sends the result; the server applies the same rules.
It also installs the same files, which the machine's own agent removes later. The command contains the script's digest,
and the script the agent's, so neither is run if it was changed in transit. The token is passed on standard input, so
that no process has it as an argument.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from chalicelib.domain.instants import SECOND
from chalicelib.engine.ports import Clock
from chalicelib.hosts import install
from chalicelib.hosts.inspection import HOME, inspection_script, lacks, parse_report
from chalicelib.hosts.ownership import held
from chalicelib.store.port import Store

_INSTANCE = "@INSTANCE@"  # in the unit, until the server has assigned one


@dataclass(frozen=True)
class JoinScript:
    store: Store
    clock: Clock
    install_id: str
    server_url: str
    program: Callable[[], str]  # the digest of the agent, once it is served

    def script(self) -> str:
        return _SCRIPT.format(
            server=shlex.quote(self.server_url.rstrip("/")),
            digest=self.program(),
            look=inspection_script(),
            claim=install.claim_as('"$owner"'),
            start=install.START,
            stop=install.STOP,
            log_end=install.LOG_END,
            home=HOME,
            program=install.PROGRAM,
            token=install.TOKEN,
            unit_file=install.UNIT_FILE,
            unit=install.unit(self.server_url, _INSTANCE, leaves=True),
            install_id=self.install_id,
            instance=_INSTANCE,
        ).strip()

    def command(self, token: str) -> str:
        url = shlex.quote(f"{self.server_url.rstrip('/')}/agent/join.sh")
        digest = hashlib.sha256(self.script().encode()).hexdigest()
        return (
            f's="$(curl -fsS --connect-timeout 10 {url} || wget -T 10 -qO- {url})" && '
            f'case "$(printf %s "$s" | sha256sum)" in {digest}*) '
            f"printf '%s\\n' {shlex.quote(token)} | $(command -v sudo) sh -c \"$s\";; "
            "*) echo 'This is not the script that the command is for: print a new command';; esac"
        )

    def missing(self, inspection: str, project_id: str) -> tuple[str, ...]:
        """What the machine lacks, by the same rules as over SSH, except that its SSH server isn't needed."""
        host = parse_report(inspection)
        if not host.complete:
            return ("inspecting it was cut short (to fix it: run the command again)",)
        holder = held(self.store, host.owner, self.install_id, project_id)
        found = lacks(
            replace(host, forwarding=""), "this user", f"{self.install_id}/", holder, self.clock.now() // SECOND
        )
        return tuple(map(str, found))


_SCRIPT = r"""
# Joins this machine to a fleet of the dstack server at {server}: inspects it, then installs the agent.
set -u
umask 077
server={server}
digest={digest}
read -r token
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
fetch() {{ curl -fsS --connect-timeout 10 --retry 3 -o "$2" "$1" 2>"$work/why" ||
  wget -q -T 60 -O "$2" "$1" 2>>"$work/why"; }}
send() {{ curl -fsS --connect-timeout 10 --retry 3 --data-binary "@$2" -o "$3" "$1" 2>"$work/why" ||
  wget -q -T 60 -O "$3" --header 'Content-Type: text/plain' --post-file="$2" "$1" 2>>"$work/why"; }}
fail() {{ echo "$1" >&2; exit 1; }}
look() {{ (
{look}
) }}
attempt=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
printf '%s\n%s\n%s\n' "$token" "$attempt" "$(hostname 2>/dev/null || uname -n)" > said
look >> said 2>/dev/null
send "$server/agent/join" said answer || fail "The server refused this command ($(tail -n 1 why)): print a new one."
read -r word instance token name < answer || true
case $word in
join) ;;
lacks) echo "This machine can't join yet:" >&2
  sed -e 1d -e 's/^/  /' answer >&2; echo >&2
  fail "The command is still good: run it again after that." ;;
*) fail "Refused: $(cut -d ' ' -f 2- answer)" ;;
esac
case $instance$token in *[!0-9a-f-]*|'') fail "The server answered with something else." ;; esac
owner={install_id}/$instance
undo() {{
{stop}
rm -rf {home}
fail "$1"
}}
(
{claim}
) || fail "Another agent was installed meanwhile."
trap 'undo "Interrupted: nothing is left of it."' INT TERM HUP
fetch "$server/agent/agent.pyz?sha256=$digest" {program} || undo "The agent couldn't be fetched: $(tail -n 1 why)"
echo "$digest  {program}" | sha256sum -c - >/dev/null 2>&1 || undo "The agent was changed on the way."
chmod 700 {program}
printf %s "$token" > {token}
cat > {unit_file}.new <<'UNIT'
{unit}
UNIT
sed "s/{instance}/$instance/" {unit_file}.new > {unit_file} && chmod 644 {unit_file} && rm -f {unit_file}.new
( {start} ) || undo "The agent couldn't be started."
tries=0
while [ ! -s {home}/credential ]; do
  tries=$((tries + 1))
  [ $tries -le 120 ] || undo "The agent doesn't reach the server; its log ends with: $({log_end})"
  sleep 0.5
done
trap - INT TERM HUP
echo "This machine is $name now. To take it out again: sudo python3 {program} leave"
"""
