"""nginx as this program's child: its files, its start, and its end.

It outlives the program, as tasks outlive the agent: whoever starts next finds it by its pid file and goes on with it.
All that it needs is in one folder: `control/` is for the program alone, `asks/` for it and nginx's workers.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pkgutil
import re
import shutil
import signal
import ssl
import subprocess
import time
from typing import List, NamedTuple, Sequence

MODULES = "/usr/lib/nginx/modules"
LUA = (
    "access", "callers", "certificates", "control", "counting", "dead_hosts", "door", "headers", "heads",
    "holding", "limits", "models", "problems", "questions", "replicas", "services", "states",
)  # fmt: skip
OURS = (  # what says who asked, and how: the server's door has the same (chalicelib/serving/headers.py)
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Port",
    "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-By", "X-Forwarded-Protocol",
    "X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups", "X-Real-IP",
    "X-Request-Id",
)  # fmt: skip
SET = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "X-Request-Id")  # by nginx.conf
HOP = (
    "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer",
    "Transfer-Encoding", "Upgrade", "HTTP2-Settings", "Expect",
)  # fmt: skip
HANDLED = ("Connection", "Keep-Alive", "TE", "Transfer-Encoding", "Upgrade", "Expect")  # by nginx itself
LARGEST = 13  # the largest body that may come in chunks is 2^13 MB
START_SECONDS = 10.0
NOBODY = "nobody.pem"  # the certificate for handshakes that name no host of ours, agents' among them, and its key
LOG_BYTES = 16 * 1024 * 1024


class NginxError(Exception):
    """nginx can't be started; the words say why, and what to do."""


class Listens(NamedTuple):
    http: Sequence[str]  # as nginx has them: a port, or an address and a port
    https: Sequence[str] = ()


class Nginx:
    def __init__(self, folder: str, listens: Listens, workers: str = "auto", user: str = "") -> None:
        """`user`: whom root's workers run as."""
        self._folder, self._listens, self._workers, self._user = os.path.abspath(folder), listens, workers, user
        self.pin = ""  # of the certificate that agents know it by; empty without https
        self.group = grp.getgrnam(user).gr_gid if user else -1
        self.control = os.path.join(self._folder, "control", "control.sock")
        self.relays = os.path.join(self._folder, "relays")
        self.asks = os.path.join(self._folder, "asks", "asks.sock")

    def start(self) -> bool:
        """Have it running, with these files. False if it was running with them already. Raises NginxError."""
        changed = self._write()
        pid = self.pid()
        if pid and changed:
            self._stop_now(pid)  # modules and listening addresses change only with a new process
            pid = 0
        if pid:
            return False
        found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if not found or not os.path.exists(os.path.join(MODULES, "ngx_http_lua_module.so")):
            raise NginxError(
                "nginx with its Lua module is needed: `apt-get install nginx libnginx-mod-http-lua lua-cjson`"
            )
        for worker in self.orphans():  # they have the ports; what they serve, they end first
            os.kill(worker, signal.SIGQUIT)
        with contextlib.suppress(FileNotFoundError):  # of one that was killed; it would be in the way
            os.unlink(self.control)
        command = [found, "-c", self._path("nginx.conf"), "-e", self._path("error.log")]
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ended.returncode:
            raise NginxError("nginx doesn't start: " + why(ended.stdout.decode("utf-8", "replace")))
        return True

    def pid(self) -> int:
        """The master's; 0 if it isn't running."""
        try:
            with open(self._path("nginx.pid")) as file:
                pid = int(file.read())
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                command = file.read()
        except (OSError, ValueError):
            return 0
        return pid if self._path("nginx.conf").encode() in command else 0

    def pids(self) -> List[int]:
        """The master's and its workers'."""
        pid = self.pid()
        if not pid:
            return []
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [pid] + [int(word) for word in file.read().split()]

    def orphans(self) -> List[int]:
        """Workers whose master was killed: they go on, and nobody tells them anything. Known by the log they write."""
        found = []
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()] if not self.pid() else []:
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                with open("/proc/%d/comm" % pid) as file:
                    ours = file.read().strip() == "nginx" and self._path("error.log") in _open_files(pid)
                if ours:
                    found.append(pid)
        return found

    def cut_log(self) -> None:
        """What clients and replicas do wrong is written there, so it mustn't grow for ever."""
        log, pid = self._path("error.log"), self.pid()
        if pid and os.stat(log).st_size > LOG_BYTES:
            os.rename(log, log + ".1")
            os.kill(pid, signal.SIGUSR1)  # opens it anew

    def stop(self) -> None:
        pid = self.pid()
        if pid:
            self._stop_now(pid)
        for worker in self.orphans():
            os.kill(worker, signal.SIGTERM)

    def _stop_now(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + START_SECONDS
        while self.pid():
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    # Its files ----------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _write(self) -> bool:
        """Has anything changed?"""
        for name in ("", "lua", "temporary", "control", "asks"):
            os.makedirs(self._path(name), exist_ok=True)
        self._admit_workers()
        files = {"nginx.conf": self._rendered().encode("utf-8")}
        files.update({"lua/%s.lua" % name: _shipped("lua/%s.lua" % name) for name in LUA})
        changed = [name for name, data in files.items() if _read(self._path(name)) != data]
        for name in changed:
            with open(self._path(name), "wb") as file:
                file.write(files[name])
        renewed = bool(self._listens.https) and self._have_certificate()
        return bool(changed) or renewed

    def _admit_workers(self) -> None:
        os.chmod(self._path("control"), 0o700)
        if not self._user:
            return
        for name in ("", "lua", "temporary", "asks"):
            os.chown(self._path(name), -1, self.group)
            os.chmod(self._path(name), 0o750)

    def _rendered(self) -> str:
        values = {
            "user": "user %s;" % self._user if self._user else "",
            "workers": self._workers,
            "folder": self._folder,
            "modules": MODULES,
            "secure": self._listens.https[0].rpartition(":")[2] if self._listens.https else "false",
            "listen": "\n        ".join(self._listening()),
            "masked": "\n    ".join('proxy_set_header %s "";' % name for name in masked()),
            "streamed": "\n        ".join(STREAMED % (step, 1 << step) for step in range(LARGEST + 1)),
        }
        text = _shipped("nginx.conf").decode("utf-8")
        for name, value in values.items():
            text = text.replace("{{%s}}" % name, value)
        return text

    def _listening(self) -> List[str]:
        lines = ["listen %s backlog=4096;" % place for place in self._listens.http]
        if self._listens.https:
            lines += ["listen %s ssl http2 backlog=4096;" % place for place in self._listens.https]
            lines += [
                "ssl_certificate %s;" % self._path(NOBODY),
                "ssl_certificate_key %s;" % self._path(NOBODY),
            ]
            lines += ["ssl_protocols TLSv1.2 TLSv1.3;", "ssl_session_cache shared:tls:4m;"]
            lines += ["ssl_certificate_by_lua_block { certificates.show() }"]
        return lines

    def _have_certificate(self) -> bool:
        """Nobody's, without which nginx doesn't start. Was it made just now?"""
        try:
            self.pin = pin_of(_read(self._path(NOBODY)).decode("ascii"))
        except ValueError:  # it isn't there, or is broken
            self._make_certificate()
            self.pin = pin_of(_read(self._path(NOBODY)).decode("ascii"))
            return True
        return False

    def _make_certificate(self) -> None:
        made = self._path(NOBODY + ".new")
        os.close(
            os.open(made, os.O_CREAT | os.O_WRONLY, 0o600)
        )  # nobody else's from the first byte, whatever openssl does
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-subj", "/CN=nobody", "-days", "36500", "-keyout", made, "-out", made + ".crt"]
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ended.returncode:
            raise NginxError("openssl makes no certificate: " + ended.stdout.decode("utf-8", "replace")[-500:])
        with open(made, "ab") as file:
            file.write(_read(made + ".crt"))
        os.unlink(made + ".crt")
        os.replace(made, self._path(NOBODY))


def pin_of(pem: str) -> str:
    """The SHA-256 of the first certificate in it. Raises ValueError if there is none."""
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) :].strip())
    return hashlib.sha256(der).hexdigest()


def why(said: str) -> str:
    """nginx's last words; it tries a port that somebody else has five times."""
    taken = re.search(r"bind\(\) to (\S+) failed \(98:", said)
    if taken:
        return "something else on this machine listens at %s; stop that, or choose another port" % taken.group(1)
    return said.strip()[-2000:]


STREAMED = """location @streamed_%d {
            client_max_body_size %dm;
            proxy_request_buffering off;
            access_by_lua_block { door.admit() }
            proxy_pass http://replicas_afresh;
        }"""


def masked() -> List[str]:
    """What isn't passed on of a request: what clients say in a proxy's place, what is of one hop, and these two, or a
    length, with a `_` for some `-`, as many applications read them."""
    spelt = [each for name in (*OURS, *HOP, "Content-Length") for each in spellings(name)]
    return [name for name in spelt if name not in (*SET, *HANDLED, "Content-Length")]


def spellings(name: str) -> List[str]:
    words = name.split("-")
    found = [words[0]]
    for word in words[1:]:
        found = [before + sign + word for before in found for sign in "-_"]
    return found


def _open_files(pid: int) -> List[str]:
    folder = "/proc/%d/fd" % pid
    return [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)]


def _shipped(name: str) -> bytes:
    data = pkgutil.get_data(__package__, name)
    assert data is not None, "it is in the same package"
    return data


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
