"""OpenSSH's reading of our configuration, from `ssh -G`, beside users' own settings."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.ssh.config import Attached, Hop, JobHops, SshFolder, include_in
from cli.ssh.tunnel import OpenSsh
from tests.agent.ssh_client import key_pair
from tests.cli.fake_ssh import HOST_KEY
from tests.harness.debian import ssh_server

TRAPS = """Host *
    User ann
    Port 2200
    IdentityFile ~/.ssh/mine
    ControlMaster auto
    ControlPath ~/.ssh/shared-%r@%h:%p
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    ProxyJump bastion
"""


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.book = SshFolder(folder / ".dstack" / "ssh")
        (folder / ".ssh").mkdir(parents=True)
        self.own = folder / ".ssh" / "config"
        self.own.write_text(TRAPS)
        self.attached: list[Attached] = []

    def attach(self, layout: JobHops) -> None:
        self.attached.append(self.book.attach(layout.alias))
        self.book.write(self.attached[-1], layout, options=OpenSsh(os.environ).options())
        include_in(self.own, self.folder / ".dstack")

    def settings_of(self, host: str) -> dict[str, str]:
        """Every setting of a host, as SSH would use it."""
        command = ["ssh", "-F", str(self.own), "-G", host]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        pairs = [line.partition(" ") for line in completed.stdout.splitlines()]
        return {name: " ".join(value for key, _, value in pairs if key == name) for name, _, _ in pairs}


@pytest.fixture(params=["home", "a home with 100% blanks"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(tmp_path / request.param)


def test_every_hop_is_as_written_whatever_the_user_has_for_all_hosts(home: Home) -> None:
    key = str(home.folder / ".dstack" / "ssh" / "0a1b2c3d")
    jump = Hop("login.lab", 2222, "bob", "", ("/keys/lab", key), identities_only=False)
    host = Hop("10.0.0.7", 22, "ubuntu", HOST_KEY, (key,))
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY, (key,)), (jump, host)))
    folder = home.folder / ".dstack" / "ssh"
    job = home.settings_of("train")
    assert (job["hostname"], job["port"], job["user"]) == ("localhost", "40022", "root")
    assert (job["proxyjump"], job["hostkeyalias"]) == ("train_host", "train")
    assert job["userknownhostsfile"] == str(folder / "runs" / "train" / "known_hosts").replace("%%", "%")
    assert (job["stricthostkeychecking"], job["controlmaster"]) == ("true", "false")
    assert "controlpath" not in job or job["controlpath"] == "none"
    assert job["identityfile"].replace("%%", "%").startswith(key) and job["identitiesonly"] == "yes"
    there = home.settings_of("train-host")
    assert there == home.settings_of("train_host") | {"host": "train-host"}
    assert (there["hostname"], there["port"], there["user"]) == ("10.0.0.7", "22", "ubuntu")
    assert (there["proxyjump"], there["hostkeyalias"]) == ("train_jump_host", "train_host")
    first = home.settings_of("train-jump-host")
    assert (first["hostname"], first["port"], first["user"]) == ("login.lab", "2222", "bob")
    assert first["stricthostkeychecking"] == "accept-new" and first["hostkeyalias"] == "[login.lab]:2222"
    assert first["userknownhostsfile"] == str(folder / "known_hosts") and first["identitiesonly"] == "no"
    assert first["identityfile"].startswith("/keys/lab"), "the user's key for that host is tried first"


def test_a_run_that_is_called_like_anothers_hop_is_no_hop(home: Home) -> None:
    host = Hop("10.0.0.7", 22, "ubuntu", HOST_KEY)
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY), (host,)))
    home.attach(JobHops("train-host", Hop("localhost", 40023, "root", HOST_KEY), (Hop("10.0.0.8", 22, "ubuntu"),)))
    hop = home.settings_of(home.settings_of("train")["proxyjump"])
    assert (hop["hostname"], hop["port"], hop["user"]) == ("10.0.0.7", "22", "ubuntu")
    run = home.settings_of("train-host")
    assert (run["hostname"], run["port"], run["user"]) == ("localhost", "40023", "root")
    assert home.settings_of(run["proxyjump"])["hostname"] == "10.0.0.8"


def test_two_jobs_of_one_machine_are_told_apart_by_their_keys(home: Home) -> None:
    other = HOST_KEY.replace("IB1y", "IB2y")
    for name, port, key in (("one", 40022, HOST_KEY), ("two", 40023, other)):
        home.attach(JobHops(name, Hop("localhost", port, "root", key), (Hop("10.0.0.7", 22, "ubuntu"),)))
    one, two = home.settings_of("one"), home.settings_of("two")
    assert (one["hostkeyalias"], two["hostkeyalias"]) == ("one", "two")
    assert one["userknownhostsfile"] != two["userknownhostsfile"]
    runs = home.book.folder / "runs"
    assert (runs / "two" / "known_hosts").read_text() == f"two {other}\n"


def test_the_command_that_carries_the_bytes_survives_the_shell(home: Home) -> None:
    proxy = ("/opt/my python", "-P", "-m", "cli.ssh.proxy", "/home/me/100%/it's $HOME")
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY), proxy=proxy))
    (folder,) = (home.book.folder / "runs").iterdir()
    command = next(line for line in (folder / "config").read_text().splitlines() if "ProxyCommand" in line)
    shell = command.split(None, 1)[1].replace("%%", "%")  # what SSH does before it hands it to a shell
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {shell}"], capture_output=True, text=True, timeout=120, check=True
    )
    assert tuple(printed.stdout.splitlines()) == proxy
    assert "proxyjump" not in home.settings_of("train"), "the user's own proxy doesn't come first"


def test_hosts_that_arent_ours_are_the_users(home: Home) -> None:
    home.attach(JobHops("train", Hop("localhost", 40022, "root")))
    elsewhere = home.settings_of("example")
    assert (elsewhere["user"], elsewhere["port"], elsewhere["proxyjump"]) == ("ann", "2200", "bastion")


# One line of a `Host *` each: what would keep SSH from the job, or from what was asked of it there.
TRAPS_OF_ONE_LINE = """
AddKeysToAgent ask
AddressFamily inet6
BindAddress 192.0.2.1
CanonicalizeHostname always
CheckHostIP yes
Ciphers aes256-cbc
ClearAllForwardings yes
ConnectTimeout 1
ControlMaster auto
ControlPath /tmp/shared
ControlPersist yes
ExitOnForwardFailure yes
ForkAfterAuthentication yes
GlobalKnownHostsFile /etc/none
HostKeyAlgorithms ssh-dss
HostKeyAlias same
HostName elsewhere
HostbasedAcceptedAlgorithms ssh-dss
IdentitiesOnly yes
KexAlgorithms diffie-hellman-group1-sha1
MACs hmac-md5
NoHostAuthenticationForLocalhost yes
PKCS11Provider /nowhere/pkcs11.so
PermitLocalCommand yes
Port 2200
PreferredAuthentications password
ProxyCommand nc bastion %h %p
ProxyJump bastion
ProxyUseFdpass yes
PubkeyAcceptedAlgorithms ssh-dss
PubkeyAcceptedKeyTypes ssh-dss
PubkeyAuthentication no
RemoteCommand tmux attach
RequestTTY force
RequiredRSASize 16384
RevokedHostKeys /nowhere/revoked
ServerAliveCountMax 0
ServerAliveInterval 0
SessionType none
StdinNull yes
StrictHostKeyChecking ask
Tunnel yes
UpdateHostKeys ask
User ann
UserKnownHostsFile /dev/null
VerifyHostKeyDNS yes
""".strip().splitlines()
# Those whose effect others hide.
ALONE = ("ForkAfterAuthentication yes", "ProxyJump bastion", "Tunnel yes")
TOGETHER = [line for line in TRAPS_OF_ONE_LINE if line not in ALONE]
DEFAULTS = {"serveraliveinterval", "stricthostkeychecking"}  # which some systems have otherwise for all users
OTHER_NAMES = {"pubkeyacceptedkeytypes"}
OF_NO_USE = {"controlpersist", "hostbasedacceptedalgorithms"}  # without what they are about
SOCKETS, PROXIES = {"bindaddress"}, {"proxyjump", "proxycommand"}  # SSH opens none where a proxy does
ALLOWED = {"train_jump_host": {"identitiesonly"}}  # whose users may have other keys for it
KEY = "/keys/mine"
LAYOUTS = {
    "through the server": JobHops("train", Hop("localhost", 40022, "root", HOST_KEY, (KEY,)), proxy=("carry", "x")),
    "directly": JobHops("train", Hop("10.0.0.7", 22, "root", HOST_KEY, (KEY,))),
    "over hosts": JobHops(
        "train",
        Hop("localhost", 40022, "root", HOST_KEY, (KEY,)),
        (Hop("::1", 2222, "bob", "", (KEY,), identities_only=False), Hop("node", 22, "ubuntu", HOST_KEY, (KEY,))),
    ),
}


def changed(right: dict[str, str], found: dict[str, str]) -> set[str]:
    return {key for key in {*found, *right} if found.get(key) != right.get(key)}


def test_what_one_of_these_lines_changes_all_together_change_too(home: Home) -> None:
    """So that they need no try of their own against ours: none hides what another does."""

    def read(*lines: str) -> set[str]:
        home.own.write_text("\n".join(lines))
        return changed(without, home.settings_of("example"))

    home.own.write_text("")
    without = home.settings_of("example")
    together = read(*TOGETHER)
    assert {line: hidden for line in TOGETHER if (hidden := read(line) - together)} == {}
    assert {line.partition(" ")[0].lower() for line in TOGETHER} - together == DEFAULTS | OTHER_NAMES


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["Host *\n    {}\n", "Match all\n    {}\n", "{}\n", "Match final all\n    {}\n"])
def test_no_line_of_the_users_changes_the_way_to_a_job(tmp_path: Path, form: str, layout: str) -> None:
    home = Home(tmp_path)
    home.own.write_text("")
    home.attach(LAYOUTS[layout])
    config, names = home.own.read_text(), ("train", *LAYOUTS[layout].names)
    right = {name: home.settings_of(name) for name in names}
    wrong = {}
    for lines in ("\n    ".join(TOGETHER), *ALONE):
        home.own.write_text(config + form.format(lines))
        for name in names:
            found = changed(right[name], home.settings_of(name)) - OF_NO_USE - ALLOWED.get(name, set())
            if found - (SOCKETS if right[name].keys() & PROXIES else set()):
                wrong[name, lines] = found
    assert wrong == {}


def test_what_is_a_matter_of_taste_stays_the_users(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.own.write_text("Host *\n  LogLevel VERBOSE\n  Compression yes\n  ForwardAgent yes\n  SendEnv MY_*\n")
    home.attach(LAYOUTS["directly"])
    settings = home.settings_of("train")
    assert (settings["loglevel"], settings["compression"], settings["forwardagent"]) == ("VERBOSE", "yes", "yes")
    assert settings["sendenv"] == "MY_*"


SSHD = """
HostKey {folder}/keys/host
AuthorizedKeysFile {folder}/keys/user.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
"""
MORE_TRAPS = """
LocalForward {port} localhost:80
RemoteForward /nowhere/socket localhost:80
DynamicForward {port}
IdentityFile /nowhere/key
IdentityFile none
CertificateFile /nowhere/key-cert.pub
KnownHostsCommand /bin/false
BindInterface nowhere
BatchMode yes
SetEnv A=b
""".strip().splitlines()


@pytest.fixture(scope="module")
def reached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home that is attached to an SSH server, started for each connection."""
    ssh_server()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    home = Home(tmp_path_factory.mktemp("reached"))
    key, _ = key_pair(home.folder / "keys", "user")
    _, host_key = key_pair(home.folder / "keys", "host")
    (home.folder / "sshd").write_text(SSHD.format(folder=home.folder))
    job = Hop("localhost", 22, getpass.getuser(), " ".join(host_key.split()[:2]), (str(key),))
    home.own.write_text("")
    home.attach(JobHops("train", job, proxy=("/usr/sbin/sshd", "-i", "-f", str(home.folder / "sshd"))))
    yield home


def talk(home: Home, block: str) -> str:
    config = home.own.read_text().partition("Host *")[0]
    home.own.write_text(f"{config}Host *\n{block}\n")
    command = ["ssh", "-F", str(home.own), "train", "cat; echo and back"]
    completed = subprocess.run(command, input="there ", capture_output=True, text=True, timeout=120, check=False)
    return completed.stdout or completed.stderr


def test_ssh_gets_there_with_all_of_these_lines_and_runs_what_was_asked_for(reached: Home) -> None:
    assert talk(reached, "\n".join(TRAPS_OF_ONE_LINE)) == "there and back\n"


def test_ssh_gets_there_whatever_is_added_to_it(reached: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = {}
        for line in MORE_TRAPS:
            output = talk(reached, f"{line.format(port=port)}\nExitOnForwardFailure yes")
            if output != "there and back\n":
                failed[line] = output
    assert failed == {}
