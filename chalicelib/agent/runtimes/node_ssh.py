"""SSH from one node of a job to the others: the client's files, with which `ssh ADDRESS` and `ssh NAME` just work.

All nodes of an attempt share one key pair, which only their own SSH servers accept (`logins`), and which is deleted
with the job. The servers share one host key, which jobs don't get, so clients can verify the servers from the start.

The files are in `.ssh` of the job's home. OpenSSH reads that folder only in the home that the list of users names, so a
plain process also has an `ssh`, `scp` and `sftp` at the front of its PATH, which name the configuration. Their user
must have a name (`name_service`), because ssh doesn't run without one.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from typing import TYPE_CHECKING, BinaryIO, Dict, List, NamedTuple

from ..kernel import namespaces
from ..kernel.tasks import write_atomic
from .accounts import TaskAccount

if TYPE_CHECKING:
    from ...contract.agent import NodeSsh
    from ..kernel.tasks import LaunchedTask
    from .docker_client import DockerClient

KEY, KNOWN_HOSTS, CONFIGURATION = "dstack_job", "dstack_known_hosts", "config"
ALIAS = "dstack-nodes"  # the name of all nodes in the list of known hosts
PROGRAMS = ("ssh", "scp", "sftp")
PLACES = "/usr/bin:/usr/local/bin:/bin"
UNREACHED = "ssh and mpirun don't reach the other nodes from here: "


def configuration(node_ssh: NodeSsh, folder: str, user: str) -> str:
    """The client's configuration. `folder`: that of the files; `user`: the user of the nodes' SSH servers. If several
    nodes have one address, the address stands for the first of them."""
    lines: List[str] = []
    addresses = set()
    for node in node_ssh["nodes"]:  # a full block each: older clients don't read lines that name hundreds of hosts
        names = [node["name"]] if node["address"] in addresses else [node["name"], node["address"]]
        addresses.add(node["address"])
        lines += [
            "Host " + " ".join(names),
            "  HostName " + node["address"],
            "  Port %d" % node["port"],
            "  User " + user,
            '  IdentityFile "%s/%s"' % (folder, KEY),
            "  IdentitiesOnly yes",
            '  UserKnownHostsFile "%s/%s"' % (folder, KNOWN_HOSTS),
            "  GlobalKnownHostsFile /dev/null",
            "  HostKeyAlias " + ALIAS,
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
        ]
    return "".join(line + "\n" for line in [*lines, "Host *"])


def client_files(node_ssh: NodeSsh, folder: str, user: str) -> Dict[str, str]:
    """The client's files by name. All of them are for the job's user only."""
    return {
        KEY: node_ssh["private_key"],
        KNOWN_HOSTS: "%s %s\n" % (ALIAS, node_ssh["host_public_key"]),
        CONFIGURATION: configuration(node_ssh, folder, user),
    }


# Beside a plain process -----------------------------------------------------------------------------------------------


class ProcessSetup(NamedTuple):
    """A plain process's means to reach the other nodes, or the reason why it can't."""

    path: str = ""  # the folder to put first on its PATH
    problem: str = ""


def equip_process(spec: LaunchedTask, account: TaskAccount, home: str, server: str) -> ProcessSetup:
    """Write the client's files to the task's `home`. `server`: the user of the nodes' SSH servers."""
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
        return ProcessSetup(programs, UNREACHED + "this host has no ssh client; install the package openssh-client")
    problem = "" if account.listed else namespaces.bind_over_problem()
    if problem:
        problem = UNREACHED + "ssh runs for users of the host's list only, and giving the job another fails: " + problem
    return ProcessSetup(programs, problem)


# In a container -------------------------------------------------------------------------------------------------------


def equip_container(docker: DockerClient, name: str, spec: LaunchedTask, user: str, server: str, out: BinaryIO) -> str:
    """Write a tar stream with the client's files, for a container that hasn't started. Returns what prevents reaching
    the other nodes; then the stream is empty. `user`: the container's; `server`: that of the nodes' SSH servers."""
    from .docker_repositories import find_entry, owner_of, text_of  # here, because plain processes do without Docker

    image = spec["image"]
    if not any(docker.holds(name, "%s/ssh" % place) for place in PLACES.split(":")):
        return UNREACHED + "image %s has no ssh client; install OpenSSH's in it" % image
    name_or_id = user.partition(":")[0]
    entry = find_entry(docker, name, "/etc/passwd", "0" if name_or_id in ("", "root") else name_or_id)
    if entry is None or len(entry) < 6:
        return UNREACHED + "image %s has no user %s in its list, and ssh runs for nobody else" % (image, name_or_id)
    place = os.path.join(entry[5] or "/", ".ssh")
    files = client_files(spec["node_ssh"], place, server)
    files[CONFIGURATION] += text_of(docker, name, "%s/%s" % (place, CONFIGURATION))  # followed by the image's own
    uid, gid = owner_of(docker, name, user)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as packed:
        for path, text in [(place, None), *((os.path.join(place, each), text) for each, text in files.items())]:
            member = tarfile.TarInfo(path.strip("/"))
            member.uid, member.gid, member.mode = uid, gid, 0o700 if text is None else 0o600
            data = b"" if text is None else text.encode("utf-8")
            member.type, member.size = tarfile.DIRTYPE if text is None else tarfile.REGTYPE, len(data)
            packed.addfile(member, io.BytesIO(data))
    return ""
