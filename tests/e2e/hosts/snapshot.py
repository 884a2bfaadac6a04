"""What is on a host, and what has changed since: for promises such as "removal leaves no trace".

Files are those of the host's own layer, so the whole disk is watched for the price of what differs from the image, and
those in its memory (/run, /tmp, /dev/shm). The rest is what an administrator would look at. Each is a line of text; two
snapshots differ by the lines of one and not the other. NOISE lists what changes while nobody does anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.hosts.host import Host

MARK = "-- section"
IN_MEMORY = ("/run", "/tmp", "/dev/shm")
COMMANDS = {
    "process": "ps -eo user:32,args --no-headers",
    "unit": "systemctl list-units --plain --no-legend --no-pager --type service,socket,timer,path,target",
    "user": "getent passwd",
    "group": "getent group",
    "key": "cat /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys 2>/dev/null",
    "interface": "ip -o link | sed 's/^[0-9]*: //; s/[:@].*//'",
    "address": "ip -o addr | sed 's/ valid_lft.*//; s/^[0-9]*: //'",
    "firewall rule": "iptables-save | grep ^-A",
    "mount": "findmnt -rn -o TARGET,FSTYPE",
    "crontab": "cat /var/spool/cron/crontabs/* 2>/dev/null",
}
ENGINE = {
    "container": ("/containers/json?all=1", lambda found: f"{found['Names'][0]} of {found['Image']}, {found['State']}"),
    "image": ("/images/json?all=1", lambda found: f"{' '.join(found['RepoTags'] or ())} {found['Id']}"),
    "network": ("/networks", lambda found: f"{found['Name']} by {found['Driver']}"),
    "volume": ("/volumes", lambda found: f"{found['Name']} by {found['Driver']}"),
}
NOISE = {
    "file": r"""
        /var/log/ | /var/lib/systemd/ | /tmp/systemd-private- | /var/tmp/systemd-private-
        | /var/lib/containerd | /opt/containerd | /etc/cni(/|$)           # the engine's; its own commands tell of it
        | /run/(systemd|docker|containerd|user|host|lock|log|sudo|credentials|udev|dbus|mount|initctl|sshd)(/|$)
        | /run/(utmp|motd\.dynamic|docker\.(sock|pid)|sshd\.pid|xtables\.lock|nvidia-hook\.log|agetty\.reload)$
        | /etc/(passwd|group|shadow|gshadow|subuid|subgid)-$ | /etc/\.pwd\.lock$     # kept by the tools for accounts
        | /etc/docker/key\.json$ | /var/lib/sudo/                         # and by first uses
        | /home/\w+/\.(cache(/motd.*)?|sudo_as_admin_successful)$
    """,
    "process": r".* (ps -eo .* | sh\ -c\ ps.* | \(sd-pam\) | \S*/systemd\ --user | \(sd-\w+\))$",
    "unit": r"user@ | user-runtime-dir@ | systemd-tmpfiles-clean | systemd-update-utmp",
    "address": r"\S+\ inet6\ fe80::",
    "mount": r"/run/user/ | /run/credentials/",
}


@dataclass(frozen=True)
class Snapshot:
    host: str
    seen: Mapping[str, Counter[str]]  # lines by what they are of

    def changes(self, newer: Snapshot) -> list[str]:
        """`- file /a 0644 ...` for what is gone later, `+ ...` for what is new; a change is both."""
        found = []
        for kind in self.seen | newer.seen:
            before, after = self.seen.get(kind, Counter()), newer.seen.get(kind, Counter())
            lines = [(line, "-") for line in (before - after).elements()]
            lines += [(line, "+") for line in (after - before).elements()]
            found += [f"{sign} {kind} {line}" for line, sign in sorted(lines)]
        return found


def take(host: Host, roots: Sequence[str] = ("/",)) -> Snapshot:
    """Of a host that is on. `roots`: where files are looked at."""
    seen = {"file": Counter(_files(host, roots))}
    commands = {kind: command for kind, command in COMMANDS.items() if host.spec.boots or kind != "unit"}
    script = "".join(f"echo {MARK} {kind}; {command}\n" for kind, command in commands.items())
    for part in host.run("sh", input=f"{script}true\n").stdout.split(f"{MARK} ")[1:]:
        kind, *lines = (" ".join(line.split()) for line in part.splitlines())
        seen[kind] = Counter(line for line in lines if not _noise(kind, line))
    assert seen.keys() >= commands.keys() and seen["process"] and seen["mount"], f"{host.name} told nothing: {seen}"
    if host.spec.boots and host.spec.docker:
        for kind, (path, line_of) in ENGINE.items():
            answer = host.engine.call("GET", path)
            found = answer["Volumes"] or [] if kind == "volume" else answer
            seen[kind] = Counter(line_of(one) for one in found)
    return Snapshot(host.name, seen)


def _noise(kind: str, line: str) -> bool:
    return kind in NOISE and re.match(f"(?:{NOISE[kind]})", line, re.VERBOSE) is not None


def _files(host: Host, roots: Sequence[str]) -> Iterator[str]:
    for path, place in _places(host):
        wanted = any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots)
        if wanted and not _noise("file", path):
            what = describe(place)
            if what != describe(host.disk.image / path.lstrip("/")):  # as it was, only copied
                yield f"{path} {what}"


def _places(host: Host) -> Iterator[tuple[str, Path]]:
    """Paths as the host names them, and where they are from here."""
    for start, top in (("", host.disk.own), *((folder, host.root / folder[1:]) for folder in IN_MEMORY)):
        for folder, folders, files in os.walk(top):
            for name in sorted([*folders, *files]):
                place = Path(folder) / name
                yield f"{start}/{place.relative_to(top)}", place


def describe(place: Path) -> str:
    """Mode, owner and content in short; "gone" if it isn't there, or a host's layer says so."""
    try:
        found = place.lstat()
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            return "gone"
        content = ""
        if stat.S_ISLNK(found.st_mode):
            content = f" -> {place.readlink()}"
        elif stat.S_ISREG(found.st_mode):
            with place.open("rb") as file:
                content = f" {found.st_size} bytes {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
    except FileNotFoundError:
        return "gone"
    return f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid}{content}"
