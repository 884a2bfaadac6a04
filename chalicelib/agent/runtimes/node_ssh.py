"""SSH from one node of a job to the others: what a client needs, so that `ssh ADDRESS` and `ssh NAME` ask nothing.

All nodes of an attempt have one key pair, which only their own SSH servers let in (`logins`), and which goes with the
job. The servers have one host key, too, which jobs don't get; so clients know whom they talk to from the start.

The files are in `.ssh` of the job's home. OpenSSH looks there only in the home that the list of users names, so a plain
process also has an `ssh`, `scp` and `sftp` ahead of those on its PATH, which name the configuration. For them its user
must have a name (`name_service`), because ssh runs for nobody else.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import Any, BinaryIO, Dict, List, NamedTuple

from ..kernel import namespaces
from ..kernel.tasks import write_atomic
from .accounts import TaskAccount
from .docker_client import DockerClient
from .docker_repositories import listed, owner_of, text_of

KEY, KNOWN, CONFIGURATION = "dstack_job", "dstack_known_hosts", "config"
ALIAS = "dstack-nodes"  # the name under which the one host key of all nodes is known
PROGRAMS = ("ssh", "scp", "sftp")
PLACES = "/usr/bin:/usr/local/bin:/bin"
UNREACHED = "ssh and mpirun don't reach the other nodes from here: "


def configuration(node_ssh: Dict[str, Any], folder: str, user: str) -> str:
    """`folder`: where the files will be. `user`: whom the nodes' SSH servers let in. Of several nodes with one address,
    the address means the first; each has its name."""
    lines: List[str] = []
    known = set()
    for node in node_ssh["nodes"]:  # all of it for each: older clients don't read lines that name hundreds of hosts
        names = [node["name"]] if node["address"] in known else [node["name"], node["address"]]
        known.add(node["address"])
        lines += [
            "Host " + " ".join(names),
            "  HostName " + node["address"],
            "  Port %d" % node["port"],
            "  User " + user,
            '  IdentityFile "%s/%s"' % (folder, KEY),
            "  IdentitiesOnly yes",
            '  UserKnownHostsFile "%s/%s"' % (folder, KNOWN),
            "  GlobalKnownHostsFile /dev/null",
            "  HostKeyAlias " + ALIAS,
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
        ]
    return "".join(line + "\n" for line in [*lines, "Host *"])


def client_files(node_ssh: Dict[str, Any], folder: str, user: str) -> Dict[str, str]:
    """By name; all are for the job's user only."""
    return {
        KEY: node_ssh["private_key"],
        KNOWN: "%s %s\n" % (ALIAS, node_ssh["host_public_key"]),
        CONFIGURATION: configuration(node_ssh, folder, user),
    }


# Beside a plain process -----------------------------------------------------------------------------------------------


class Equipped(NamedTuple):
    """For a plain process: what it needs to reach the other nodes, or why it doesn't."""

    path: str = ""  # the folder to put first on its PATH
    problem: str = ""


def equip_process(spec: Dict[str, Any], account: TaskAccount, home: str, server: str) -> Equipped:
    """`home`: the task's own. `server`: whom the nodes' SSH servers let in."""
    node_ssh = spec["node_ssh"]
    place = os.path.join(home, ".ssh")
    programs = os.path.join(place, "bin")
    found = {name: shutil.which(name, path=PLACES) for name in PROGRAMS}
    with account.acting():
        os.makedirs(programs, mode=0o700, exist_ok=True)
        os.chmod(place, 0o700)
        for name, text in client_files(node_ssh, place, server).items():
            write_atomic(os.path.join(place, name), text)
        for name, program in found.items():
            if program:
                text = "#!/bin/sh\nexec %s -F '%s/%s' \"$@\"\n" % (program, place, CONFIGURATION)
                write_atomic(os.path.join(programs, name), text, 0o700)
    if not found["ssh"]:
        return Equipped(programs, UNREACHED + "this host has no ssh client; install the package openssh-client")
    nameless = "" if account.listed else namespaces.bind_over_problem()
    if nameless:
        nameless = (
            UNREACHED + "ssh runs for users of the host's list only, and giving the job another fails: " + nameless
        )
    return Equipped(programs, nameless)


# In a container -------------------------------------------------------------------------------------------------------


def equip_container(
    docker: DockerClient, name: str, spec: Dict[str, Any], user: str, server: str, out: BinaryIO
) -> str:
    """A tar stream with the files, for a container that hasn't started; returns what is in the way of reaching the
    other nodes, if anything, and then the stream is empty. `user`: the container's; `server`: whom the nodes let in."""
    image = spec["image"]
    if not any(docker.holds(name, "%s/ssh" % place) for place in PLACES.split(":")):
        return UNREACHED + "image %s has no ssh client; install OpenSSH's in it" % image
    wanted = user.partition(":")[0]
    entry = listed(docker, name, "/etc/passwd", "0" if wanted in ("", "root") else wanted)
    if entry is None or len(entry) < 6:
        return UNREACHED + "image %s has no user %s in its list, and ssh runs for nobody else" % (image, wanted)
    place = os.path.join(entry[5] or "/", ".ssh")
    files = client_files(spec["node_ssh"], place, server)
    files[CONFIGURATION] += text_of(docker, name, "%s/%s" % (place, CONFIGURATION))  # the image's own counts as well
    uid, gid = owner_of(docker, name, user)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
        for path, text in [(place, None), *((os.path.join(place, each), text) for each, text in files.items())]:
            member = tarfile.TarInfo(path.strip("/"))
            member.uid, member.gid, member.mode = uid, gid, 0o700 if text is None else 0o600
            data = b"" if text is None else text.encode("utf-8")
            member.type, member.size = tarfile.DIRTYPE if text is None else tarfile.REGTYPE, len(data)
            packed.addfile(member, io.BytesIO(data))
    return ""
