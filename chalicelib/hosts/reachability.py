"""Probes that run in a host's own Python: whether its container engine responds, and whether it reaches the server.

Starting a process is most of a probe's cost, and an engine's command line starts several. So one short program does
both. It prints its results like the inspection script, one line each.
"""

from __future__ import annotations

import shlex
from urllib.parse import urlsplit

ENGINE = "/var/run/docker.sock"  # the agent uses the same

# Importing `socket` would take as long as Python's own start, and encoding a plain name by IDNA half of that.
_REACH = """
import _socket, sys
def connected(host, port):
    name = host.encode() if host.isascii() else host
    for family, kind, _, _, address in _socket.getaddrinfo(name, port, 0, _socket.SOCK_STREAM):
        made = _socket.socket(family, kind)
        made.settimeout(5)
        try:
            made.connect(address)
            return made
        except OSError as problem:
            why = problem
    raise why
def line(made):
    said = b""
    while b"\\n" not in said and len(said) < 1000:
        more = made.recv(1000)
        if not more: break
        said += more
    return said.partition(b"\\n")[0].strip()
def reach(host, port, name, call, mark):
    if name:
        import socket, ssl
        made = socket.create_connection((host, int(port)), 5)
        made = ssl.create_default_context().wrap_socket(made, server_hostname=name)
    else:
        made = connected(host, int(port))
    made.sendall(call.encode())
    said = b""
    while mark.encode() not in said and len(said) < 20000:
        more = made.recv(4000)
        if not more: break
        said += more
    if not said.startswith(b"HTTP/"):
        sys.exit("no HTTP server answers there")
    if mark.encode() not in said and said[9:10] != b"5" and said[9:12] != b"429":
        sys.exit("another server answers there")
"""

_PROBE = f"""
import sys
print("python=%d.%d" % sys.version_info[:2], flush=True)
{_REACH}
engine = _socket.socket(_socket.AF_UNIX)
engine.settimeout(20)
try:
    engine.connect("{ENGINE}")
    engine.sendall(b"GET /_ping HTTP/1.0\\r\\n\\r\\n")
    answer = line(engine).decode("ascii", "replace")
except OSError as problem:
    answer = "{ENGINE}: %s" % (problem.strerror or problem)
print("docker=yes" if answer.endswith(" 200 OK") else "docker_says=" + answer, flush=True)
if sys.argv[1:]:
    try:
        reach(*sys.argv[1:])
    except (Exception, SystemExit):
        sys.exit()
    print("reaches=yes")
"""

VERSION = """python3 -I -S -c 'import sys; print("python=%d.%d" % sys.version_info[:2])' 2>/dev/null"""


def probe_command(server_url: str = "", mark: str = "") -> str:
    """A command that runs all probes; the one for the server, which shows this mark, only with a URL."""
    return (
        shlex.join(["python3", "-I", "-S", "-c", _PROBE, *(_call(server_url, mark) if server_url else ())])
        + " 2>/dev/null"
    )


def reach(server_url: str, mark: str, relay: str = "") -> str:
    """A command that succeeds if the server with this mark responds over the route that the agent uses; the end of the
    error output says why it doesn't. `relay`: the address at which a head node relays calls.

    At an address that means another place on each machine, such as 127.0.0.1:3000, a host may well have a server of its
    own. A response that says that the server is busy or failing shows no mark, and is taken for the server's."""
    program = f"{_REACH}reach(*sys.argv[1:])"
    return "exec " + shlex.join(["python3", "-I", "-S", "-c", program, *_call(server_url, mark, relay)])


def _call(server_url: str, mark: str, relay: str = "") -> tuple[str, str, str, str, str]:
    """Host and port to connect to, the name in the server's certificate, the request to send, and the mark."""
    url = urlsplit(server_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    host, _, via = relay.rpartition(":") if relay else (url.hostname or "", "", str(port))
    call = f"GET {url.path.rstrip('/')}/healthcheck HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n"
    return host.strip("[]"), via, url.hostname or "" if url.scheme == "https" else "", call, mark
