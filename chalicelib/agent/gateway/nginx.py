"""nginx as this program's child: its files, its start, and its end.

nginx outlives the program, as tasks outlive the agent: the next program finds it by its pid file. All its files are in
one folder: `control/` is for the program alone, `asks/` for the program and nginx's workers.
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
    "access", "callers", "certificates", "control", "counting", "dead_hosts", "door", "durations", "headers", "heads",
    "holding", "limits", "models", "problems", "questions", "replicas", "services", "states",
)  # fmt: skip
FORWARDED = (  # headers that describe the client and its request; chalicelib/serving/headers.py has the same
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Port",
    "X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-By", "X-Forwarded-Protocol",
    "X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups", "X-Real-IP",
    "X-Request-Id",
)  # fmt: skip
SET = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "X-Request-Id")  # in nginx.conf
HOP = (
    "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer",
    "Transfer-Encoding", "Upgrade", "HTTP2-Settings", "Expect",
)  # fmt: skip
HANDLED = ("Connection", "Keep-Alive", "TE", "Transfer-Encoding", "Upgrade", "Expect")  # by nginx itself
LARGEST = 13  # the largest chunked body is 2^13 MB
START_SECONDS = 10.0
NOBODY = "nobody.pem"  # certificate and key for handshakes without a known host name, such as agents'
LOG_BYTES = 16 * 1024 * 1024


class NginxError(Exception):
    """nginx can't be started; the message says why, and what to do."""


class Listens(NamedTuple):
    http: Sequence[str]  # in nginx's form: a port, or an address and a port
    https: Sequence[str] = ()


class Nginx:
    def __init__(self, folder: str, listens: Listens, workers: str = "auto", user: str = "") -> None:
        """`user`: the workers' user if root starts nginx."""
        self._folder, self._listens, self._workers, self._user = os.path.abspath(folder), listens, workers, user
        self.pin = ""  # SHA-256 of the certificate by which agents identify it; empty without https
        self.group = grp.getgrnam(user).gr_gid if user else -1
        self.control = os.path.join(self._folder, "control", "control.sock")
        self.relays = os.path.join(self._folder, "relays")
        self.worker_socket = os.path.join(self._folder, "asks", "asks.sock")

    def start(self) -> bool:
        """Start nginx with the current files. False if it was running with them already. Raises NginxError."""
        changed = self._write()
        pid = self.pid()
        if pid and changed:
            self._stop_master(pid)  # modules and listening addresses change only with a new process
            pid = 0
        if pid:
            return False
        found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if not found or not os.path.exists(os.path.join(MODULES, "ngx_http_lua_module.so")):
            raise NginxError(
                "nginx with its Lua module is needed: `apt-get install nginx libnginx-mod-http-lua lua-cjson`"
            )
        for worker in self.orphans():  # they hold the ports, and finish their requests before they end
            os.kill(worker, signal.SIGQUIT)
        with contextlib.suppress(FileNotFoundError):  # left by an nginx that was killed
            os.unlink(self.control)
        command = [found, "-c", self._path("nginx.conf"), "-e", self._path("error.log")]
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ended.returncode:
            raise NginxError("nginx doesn't start: " + start_problem(ended.stdout.decode("utf-8", "replace")))
        return True

    def pid(self) -> int:
        """The master's pid; 0 if nginx isn't running."""
        try:
            with open(self._path("nginx.pid")) as file:
                pid = int(file.read())
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                command = file.read()
        except (OSError, ValueError):
            return 0
        return pid if self._path("nginx.conf").encode() in command else 0

    def pids(self) -> List[int]:
        """The pids of the master and its workers."""
        pid = self.pid()
        if not pid:
            return []
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return [pid] + [int(child) for child in file.read().split()]

    def orphans(self) -> List[int]:
        """Workers whose master was killed. They go on without control, and are identified by the log they write."""
        found = []
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()] if not self.pid() else []:
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                with open("/proc/%d/comm" % pid) as file:
                    is_worker = file.read().strip() == "nginx" and self._path("error.log") in _open_files(pid)
                if is_worker:
                    found.append(pid)
        return found

    def cut_log(self) -> None:
        """Rotate the error log, which grows with errors of clients and replicas."""
        log, pid = self._path("error.log"), self.pid()
        if pid and os.stat(log).st_size > LOG_BYTES:
            os.rename(log, log + ".1")
            os.kill(pid, signal.SIGUSR1)  # nginx reopens it

    def stop(self) -> None:
        pid = self.pid()
        if pid:
            self._stop_master(pid)
        for worker in self.orphans():
            os.kill(worker, signal.SIGTERM)

    def _stop_master(self, pid: int) -> None:
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
        """Write the files; returns whether one has changed."""
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
        """Make the certificate without a name if it is missing; returns whether it was made now."""
        try:
            self.pin = pin_of(_read(self._path(NOBODY)).decode("ascii"))
        except ValueError:  # it is missing or broken
            self._make_certificate()
            self.pin = pin_of(_read(self._path(NOBODY)).decode("ascii"))
            return True
        return False

    def _make_certificate(self) -> None:
        path = self._path(NOBODY + ".new")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))  # private before openssl writes the key
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-subj", "/CN=nobody", "-days", "36500", "-keyout", path, "-out", path + ".crt"]
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ended.returncode:
            raise NginxError("openssl makes no certificate: " + ended.stdout.decode("utf-8", "replace")[-500:])
        with open(path, "ab") as file:
            file.write(_read(path + ".crt"))
        os.unlink(path + ".crt")
        os.replace(path, self._path(NOBODY))


def pin_of(pem: str) -> str:
    """The SHA-256 of the first certificate in it. Raises ValueError if there is none."""
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) :].strip())
    return hashlib.sha256(der).hexdigest()


def start_problem(output: str) -> str:
    """The reason in nginx's output, which reports a taken port once for each of five attempts."""
    taken = re.search(r"bind\(\) to (\S+) failed \(98:", output)
    if taken:
        return "something else on this machine listens at %s; stop that, or choose another port" % taken.group(1)
    return output.strip()[-2000:]


STREAMED = """location @streamed_%d {
            client_max_body_size %dm;
            proxy_request_buffering off;
            access_by_lua_block { door.admit() }
            proxy_pass http://replicas_afresh;
        }"""


def masked() -> List[str]:
    """The headers that aren't passed on: those of proxies and of one hop, and their spellings (and Content-Length's)
    with a `_` for some `-`, which many applications read as the same header."""
    spelt = [each for name in (*FORWARDED, *HOP, "Content-Length") for each in spellings(name)]
    return [name for name in spelt if name not in (*SET, *HANDLED, "Content-Length")]


def spellings(name: str) -> List[str]:
    first, *parts = name.split("-")
    found = [first]
    for part in parts:
        found = [before + sign + part for before in found for sign in "-_"]
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
