"""Inspects a host before anything is installed: a script for any POSIX shell, and the list of what the host lacks.

Everything missing is reported at once, each with the command that fixes it. The machine's resources (CPUs, memory,
GPUs) are measured later by the agent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chalicelib.hosts.reachability import VERSION, probe_command

HOME = "/var/lib/dstack"  # of the agent, on every host
OWNER = f"{HOME}/owner"  # the installation and the instance that the host belongs to
LEAVES = f"remove it from its fleet there first; if that is gone: sudo rm {OWNER}"
LEAST_DISK_MIB = 1024
MOST_OFF = 300  # seconds between the host's clock and ours
_MOST = 200  # characters of one value: they are shown to users, and a host may send anything

# A machine may run hundreds of inspections at once when a fleet is added, and starting processes is most of their cost.
# So everything that needs root is one call of sudo, and the shell itself turns each value into one line.
_SAY = r"""
breaks=$(printf '\n\r')
say() {
  name=$1; set -f; IFS=$breaks; set -- $2; IFS=' '
  printf '%s=%s\n' "$name" "$*"
  set +f; unset IFS
}
"""
_END = "say end yes\n"


def _script(as_root: str, else_: str = "", rest: str = "") -> str:
    """A script that prints `name=value` lines. They are independent: if something is missing on a host, the other lines
    still appear. `else_`: commands to run in place of `as_root` where root isn't available."""
    return f"""{_SAY}
have() {{ command -v "$1" >/dev/null 2>&1; }}
uid=$(id -u)
say uid "$uid"
root={shlex.quote(_SAY + as_root)}
if [ "$uid" = 0 ]; then say sudo root; sh -c "$root"
else
  if have sudo; then without=password; found=$(sudo -n sh -c "echo sudo=yes; $root" 2>/dev/null)
  else without=missing; found=; fi
  case $found in
  sudo=yes*) printf '%s\\n' "$found" ;;
  *) say sudo $without
    {else_}
  ;;
  esac
fi
{rest}{_END}"""


_OWNER = f"""say owner "$(cat {OWNER} 2>/dev/null)"
"""
# Querying sshd takes as long as everything else here, so it is done only if some setting may differ from the default.
_FORWARDING = r"""
if grep -rhis '^[[:space:]]*\(AllowTcpForwarding\|Include\)[[:space:]]' /etc/ssh | grep -qv '[[:space:]]/etc/ssh/'; then
  sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd)
  say forwarding "$("$sshd" -T 2>/dev/null | awk '$1=="allowtcpforwarding" {print $2}')"
elif [ -d /etc/ssh ]; then say forwarding yes
fi
"""
_SYSTEMD = r"""
[ -d /run/systemd/system ] && say systemd yes
"""


def inspection_script(server_url: str = "", mark: str = "") -> str:
    """The inspection script. With a server's URL, the host also tries to reach it."""
    return _script(
        f"{_OWNER}{_FORWARDING}{probe_command(server_url, mark)}\n",
        VERSION,
        r"""
set -- $(uname -sm)
say kernel "${1:-}"
say arch "${2:-}"
say os "$(. /etc/os-release 2>/dev/null; printf %s "$PRETTY_NAME")"
say clock "$(date +%s)"
seen_at=${SSH_CONNECTION:-}
say seen_at "${seen_at%% *}"
have docker && say docker_client yes
say disk_kib "$(df -Pk /var/lib 2>/dev/null | awk 'NR==2 {print $4}')"
"""
        + _SYSTEMD,
    )


# The lines that every later step needs: how to become root, and who owns the host.
SHORT = _script(_OWNER)

# An inspection of a head node, for relaying the calls of the hosts behind it.
RELAYING = _script(
    _OWNER,
    rest=_SYSTEMD
    + VERSION
    + r"""
for folder in /lib/systemd /usr/lib/systemd; do
  [ -x $folder/systemd-socket-proxyd ] && say proxyd $folder/systemd-socket-proxyd
done
""",
)


@dataclass(frozen=True)
class HostReport:
    """The result of an inspection. An empty value couldn't be determined."""

    sudo: str = ""  # root, yes, password, missing
    kernel: str = ""
    arch: str = ""
    os: str = ""
    clock: int | None = None  # seconds since 1970
    python: str = ""
    systemd: bool = False
    docker_client: bool = False
    docker: bool = False  # the engine answers
    docker_error: str = ""  # why it doesn't
    disk_mib: int | None = None
    owner: str = ""
    forwarding: str = ""  # what sshd allows: yes, no, local, remote, all
    login_address: str = ""  # the address from which the login came: the server's, or the jump host's
    reaches: bool = False  # it reaches the server, if that was tried
    proxyd: str = ""  # the path of systemd-socket-proxyd
    complete: bool = False  # the script ran to its end

    @property
    def as_root(self) -> str:
        """The prefix of a command that must run as root."""
        return "" if self.sudo == "root" else "sudo -n"


def parse_report(text: str) -> HostReport:
    lines = re.findall(r"^([a-z_]+)=(.*)$", text, re.MULTILINE)
    found = {name: value.strip()[:_MOST] for name, value in lines}
    return HostReport(
        sudo=found.get("sudo", ""),
        kernel=found.get("kernel", ""),
        arch=found.get("arch", ""),
        os=found.get("os", ""),
        clock=_number(found, "clock"),
        python=found.get("python", ""),
        systemd=found.get("systemd") == "yes",
        docker_client=found.get("docker_client") == "yes",
        docker=bool(found.get("docker")),
        docker_error=found.get("docker_says", ""),
        disk_mib=None if (kib := _number(found, "disk_kib")) is None else kib >> 10,
        owner=found.get("owner", ""),
        forwarding=found.get("forwarding", ""),
        login_address=found.get("seen_at", ""),
        reaches=found.get("reaches") == "yes",
        proxyd=found.get("proxyd", ""),
        complete="end" in found,
    )


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 16 else None


@dataclass(frozen=True)
class Lack:
    what: str
    mend: str  # the command, or what to do

    def __str__(self) -> str:
        return f"{self.what} (to fix it: {self.mend})"


def lacks(
    host: HostReport, user: str, owner: str, held: Lack | None = None, now: int | None = None
) -> tuple[Lack, ...]:
    """Everything that prevents the agent of `owner` (installation/instance) from running on this host. `held`: details
    of another instance that has the host. `now`: the server's clock, in seconds."""
    return (*_lacks(host, user), *owned_by_others(host, owner, held), *_wrong_time(host, now))


def owned_by_others(host: HostReport, owner: str, held: Lack | None = None) -> Iterator[Lack]:
    """The refusal of a host that belongs to another owner."""
    if host.owner and host.owner != owner:
        installation, _, instance = host.owner.partition("/")
        same_installation = installation == owner.partition("/")[0]
        where = (
            f"instance {instance} of this server"
            if same_installation
            else f"another dstack server (installation {installation})"
        )
        yield held or Lack(f"it belongs to {where}", LEAVES)


def _lacks(host: HostReport, user: str) -> Iterator[Lack]:
    if host.kernel != "Linux":
        yield Lack(f"it runs {host.kernel or 'an unknown system'}", "use a Linux host")
    if host.arch not in ("x86_64", "amd64", "aarch64", "arm64"):
        yield Lack(f"its CPU architecture is {host.arch or 'unknown'}", "use a host with x86-64 or ARM64")
    yield from basics(host, user)
    tried = host.sudo in ("root", "yes")  # otherwise the engine couldn't be tried
    if not host.docker and (tried or not host.docker_client):
        yield _no_docker(host)
    if host.forwarding == "no":
        mend = "set `AllowTcpForwarding yes` in /etc/ssh/sshd_config, then: sudo systemctl reload ssh"
        yield Lack("its SSH server forbids forwarding, which attaching to a run needs", mend)
    if host.disk_mib is not None and host.disk_mib < LEAST_DISK_MIB:
        yield Lack(f"only {host.disk_mib} MiB are free under /var/lib", "free some space: at least 1 GiB is needed")


def basics(host: HostReport, user: str) -> Iterator[Lack]:
    """What the host lacks for any of our scripts and units."""
    if host.sudo == "missing":
        yield Lack(f"{user} isn't root and there is no sudo", "log in as root, or: apt-get install sudo")
    elif host.sudo == "password":
        rule = f"echo '{user} ALL=(ALL) NOPASSWD:ALL' | sudo tee /etc/sudoers.d/dstack"
        yield Lack(f"sudo asks {user} for a password", rule)
    if not host.systemd:
        yield Lack("it wasn't booted with systemd", "use a host with systemd")
    if _version(host.python) < (3, 8):
        has = f"its Python is {host.python}, but 3.8 or newer is needed" if host.python else "there is no Python 3"
        yield Lack(has, "sudo apt-get install -y python3")


def _wrong_time(host: HostReport, now: int | None) -> Iterator[Lack]:
    """The refusal of a host whose clock is wrong: logs and metrics carry its time."""
    off = 0 if now is None or host.clock is None else host.clock - now
    if abs(off) > MOST_OFF:
        which = "ahead of" if off > 0 else "behind"
        minutes = round(abs(off) / 60)  # some time passes between the two readings
        yield Lack(f"its clock is {minutes} minutes {which} the server's", "sudo timedatectl set-ntp true")


def _no_docker(host: HostReport) -> Lack:
    if not host.docker_client:
        return Lack("there is no Docker Engine", "curl -fsSL https://get.docker.com | sudo sh")
    says = f" ({host.docker_error})" if host.docker_error else ""
    return Lack(f"its Docker Engine doesn't answer{says}", "sudo systemctl enable --now docker")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d{1,4}\.\d{1,4}", text) else (0,)
