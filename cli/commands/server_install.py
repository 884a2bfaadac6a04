"""`dstack server install` and `uninstall`: the server as a service of systemd, with a user and a sandbox of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from chalicelib.errors import Refused
from cli.screen.parameters import command, new_group
from cli.screen.terminal import terminal

SERVICE, USER = "dstack-server", "dstack-server"
UNIT, ENVIRONMENT = Path(f"etc/systemd/system/{SERVICE}.service"), Path("etc/dstack/server.env")
ACCOUNT = Path(f"etc/sysusers.d/{SERVICE}.conf")
DATA = f"/var/lib/{SERVICE}"
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - from the service: ProtectHome and PrivateTmp

# What the service can't do, its jobs couldn't do either, and what it starts ends with it. So it starts no agent: this
# machine runs jobs as a host of an SSH fleet, whose agent is a service of its own.
UNIT_TEXT = """\
# Written by `dstack server install`, which replaces it. Changes of your own: systemctl edit dstack-server
[Unit]
Description=The control plane of dstack-serverless
Wants=network-online.target
After=network-online.target

[Service]
User={user}
Group={user}
ExecStart={program} server --no-local-fleet --data-dir {data}
Environment=HOME={data} DSTACK_SERVER_ENTER_PROJECT=off
EnvironmentFile=-/{environment}
StateDirectory={service}
StateDirectoryMode=0700
LogsDirectory={service}
LogsDirectoryMode=0750
UMask=0077
Restart=always
RestartSec=2
TimeoutStopSec=90
LimitNOFILE=16384

# It may listen on ports below 1024, and no more.
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

# It writes to its own folders, and sees neither people's files nor other processes.
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RemoveIPC=yes

[Install]
WantedBy=multi-user.target
"""
ENVIRONMENT_TEXT = """\
# Settings of the server: each variable that `dstack server --help` names. Then: systemctl restart dstack-server
DSTACK_SERVER_LOG_FORMAT=json
#DSTACK_SERVER_URL=https://dstack.example.com
#DSTACK_SERVER_TRUSTED_PROXIES=127.0.0.1
"""

app = new_group("Install the server as a service of systemd.")

RootOption = Annotated[
    Path, typer.Option("--root", metavar="DIR", help="Prepare the system below this folder, without starting anything.")
]


@dataclass(frozen=True)
class Machine:
    """The system that is changed. Below another root its files are, and no service of it runs."""

    root: Path
    run: Callable[[Sequence[str]], None]

    @property
    def live(self) -> bool:
        return self.root == Path("/")

    def write(self, path: Path, text: str, mode: int) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(mode=mode)
        place.chmod(mode)  # before there is anything to read
        place.write_text(text, encoding="utf-8")


def install_on(machine: Machine, program: Path, python: Path) -> None:
    """Repeatable; the settings of a former installation stay. `python`: what runs the program."""
    if not re.fullmatch(r"[\w/.,:@+-]+", str(program)):
        raise Refused(
            f"{program} has characters that mean something else to systemd.",
            hint="Install it in a folder without them, such as /opt/dstack.",
        )
    for needed in (program, python.resolve()):
        if hidden := next((folder for folder in _HIDDEN if needed.is_relative_to(folder)), None):
            raise Refused(
                f"{needed} is below {hidden}, which the service doesn't see.",
                hint="Install it where all users can read it, with a Python of the system: python3 -m venv /opt/dstack",
            )
    machine.write(ACCOUNT, f'u {USER} - "dstack-serverless" {DATA} /usr/sbin/nologin\n', 0o644)
    machine.run(["systemd-sysusers", f"--root={machine.root}", ACCOUNT.name])
    if not (machine.root / ENVIRONMENT).exists():
        machine.write(ENVIRONMENT, ENVIRONMENT_TEXT, 0o600)
    text = UNIT_TEXT.format(user=USER, program=program, data=DATA, environment=ENVIRONMENT, service=SERVICE)
    machine.write(UNIT, text, 0o644)
    machine.run(["systemctl", f"--root={machine.root}", "enable", SERVICE])
    if machine.live:
        machine.run(["systemctl", "daemon-reload"])
        machine.run(["systemctl", "restart", SERVICE])


def remove_from(machine: Machine) -> None:
    if not (machine.root / UNIT).exists():
        raise Refused(f"{machine.root / UNIT} isn't there: no server is installed as a service.")
    if machine.live:
        machine.run(["systemctl", "stop", SERVICE])
    machine.run(["systemctl", f"--root={machine.root}", "disable", SERVICE])
    for path in (UNIT, ACCOUNT):
        (machine.root / path).unlink(missing_ok=True)
    if machine.live:
        machine.run(["systemctl", "daemon-reload"])


def run(argv: Sequence[str]) -> None:
    """Raises Refused, with what the command said, if it failed."""
    if shutil.which(argv[0]) is None:
        raise Refused(f"There is no {argv[0]} here: a service needs Linux with systemd.", hint="See docs/operate.")
    done = subprocess.run(list(argv), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")


def _machine(root: Path) -> Machine:
    machine = Machine(root.absolute(), run)
    if machine.live and os.geteuid() != 0:
        raise Refused("Only root may change the services of this machine.", hint="Repeat it with sudo.")
    return machine


@command(app, "install", "dstack server install", "dstack server install --root /mnt/image")
def install(ctx: typer.Context, *, root: RootOption = Path("/")) -> None:
    """Install the server as a service of systemd, and start it.

    It gets the user dstack-server, a sandbox, its data in /var/lib/dstack-server and its settings from
    /etc/dstack/server.env, which stays as it is if it is there. Again: after an upgrade. This machine runs no jobs for
    it, unless it is a host of an SSH fleet. Only root may do this.
    No --json: it prints lines for whoever installs.
    """
    program = Path(sys.executable).with_name("dstack-serverless")
    if not program.exists():
        raise Refused(f"{program} isn't there: a service needs the installed package.", hint="See docs/install.md.")
    machine = _machine(root)
    install_on(machine, program, Path(sys.executable))
    here = terminal(ctx)
    here.print(f"Installed the service {SERVICE}; its settings are in {machine.root / ENVIRONMENT}.")
    if machine.live:
        here.print(f"The admin's token: sudo cat {DATA}/admin.token\nIts log: journalctl -fu {SERVICE}")


@command(app, "uninstall", "dstack server uninstall", "dstack server uninstall --root /mnt/image")
def uninstall(ctx: typer.Context, *, root: RootOption = Path("/")) -> None:
    """Stop the service that `install` made, and remove it.

    Its data, its settings, its log and its user stay, for another installation. Machines that it has bought go on and
    cost money: delete the fleets first. Only root may do this.
    No --json: it prints one line.
    """
    machine = _machine(root)
    remove_from(machine)
    terminal(ctx).print(f"Removed the service. {DATA} and {machine.root / ENVIRONMENT} stay; delete them yourself.")
