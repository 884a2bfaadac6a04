"""This machine as a gateway's: if the server wants that, nginx and the gateway's program run here; if not, neither
does.

The program is a process of its own, as supervisors are: it outlives the agent, and the next agent finds it by its lock
and keeps it if it runs what it should. What is wanted is on disk, so that after a reboot the gateway serves without the
server. Installing takes a minute and stopping seconds, so a thread does them, one step at each look.

The gateway's folder isn't inside the agent's, which is closed to everybody else: nginx's workers must be able to enter.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Protocol

from ..kernel.lazy import LazyModule
from ..kernel.limits import TEXT_MOST
from ..kernel.tasks import delete_tree, read_json, read_text, take_lock, write_atomic

if TYPE_CHECKING:
    import hashlib
    import shutil
    import subprocess

    from .packages import Packages
else:
    hashlib = LazyModule("hashlib")
    shutil = LazyModule("shutil")
    subprocess = LazyModule("subprocess")

LOOK = 1.0  # seconds between looks at the program
AGAIN, SELDOM = 5.0, 300.0  # seconds until the next try of what failed: at first, at last
TO_END = 15.0  # seconds for the program to end before it is killed
MOST_LOG = 4 * 1024 * 1024  # bytes of the program's own log
ORDER = "gateway.json"  # in the agent's folder: what is wanted
STATE = "state.json"  # in the gateway's: what its program says of itself
PARTS = ("id", "num", "http", "https")  # of what the server wants

Body = Dict[str, Any]


class Changed(Protocol):
    def __call__(self, report: Optional[Body]) -> None: ...


def folder_of(data: str) -> str:
    """Root's is where others may pass, whatever the agent's own folder."""
    if os.geteuid():
        return data.rstrip("/") + "-gateway"
    return "/var/lib/dstack-gateway-" + hashlib.sha256(os.path.abspath(data).encode()).hexdigest()[:8]


def carries(data: str) -> bool:
    """Is this machine to carry a gateway?"""
    return os.path.exists(os.path.join(data, ORDER))


def remove(data: str, folder: Optional[str] = None, patience: float = TO_END) -> None:
    """End the program and its nginx, and delete all that is theirs. What is wanted is forgotten last, so that this is
    done again if it is cut off."""
    folder = folder or folder_of(data)
    if os.path.isdir(folder):
        from .nginx import Listens, Nginx

        _end(folder, patience)
        Nginx(folder, Listens([])).stop()
        delete_tree(folder)
    if carries(data):
        os.unlink(os.path.join(data, ORDER))


class GatewayRole:
    def __init__(
        self,
        data: str,
        program: Callable[[], str],
        changed: Changed,
        log: Callable[[str], None],
        folder: Optional[str] = None,
        packages: "Optional[Packages]" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`program`: writes the agent's modules and says where. `changed`: told of every change; None when nothing is
        left of a gateway here."""
        self._data, self._program, self._changed, self._log = data, program, changed, log
        self._given_folder, self._packages = folder, packages
        self._clock = clock
        self._wanted: Optional[Body] = read_json(os.path.join(data, ORDER))
        self._reported: Optional[Body] = None
        self._lock = threading.Lock()  # around what is wanted and told
        self._news, self._over = threading.Event(), threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._child: "Optional[subprocess.Popen[bytes]]" = None
        self._failures, self._again_at = 0, float("-inf")

    @property
    def _folder(self) -> str:
        return self._given_folder or folder_of(self._data)

    # On the agent's own thread ------------------------------------------------------------------------------------

    def begin(self) -> Optional[Body]:
        """Go on with what an earlier agent of this machine was told. Returns what to tell of it: in the first message,
        because one that says nothing of a gateway says that nothing is left of it."""
        if self._wanted is not None:
            said = self._said() if running(self._folder) else None
            self._reported = _report_of(self._wanted, said or {"state": "starting"})
            self._work()
        return self._reported

    def want(self, order: Optional[Body]) -> None:
        """None: no gateway. What is wanted already changes nothing."""
        wanted = None if order is None else {name: order.get(name) for name in PARTS}
        with self._lock:
            if wanted == self._wanted:
                return
            self._wanted, self._failures, self._again_at = wanted, 0, float("-inf")
        if wanted is not None:
            write_atomic(os.path.join(self._data, ORDER), json.dumps(wanted), durable=True)
            self._tell("starting")
        self._work()

    def gone(self) -> bool:
        """Is nothing wanted, and nothing left?"""
        with self._lock:
            return self._wanted is None and self._reported is None

    def close(self) -> None:
        """The program and nginx go on."""
        self._over.set()
        self._news.set()

    def _work(self) -> None:
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gateway-role", daemon=True)
            self._thread.start()

    # On its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.clear()
            try:
                self.look()
            except Exception as problem:  # a thread that died silently would leave the gateway as it is for ever
                self._failed("the agent: %r" % problem)
            self._news.wait(LOOK)

    def look(self) -> None:
        """Take one step towards what is wanted."""
        with self._lock:
            wanted, reported = self._wanted, self._reported
        if wanted is None:
            if reported is not None:
                remove(self._data, self._folder)
                self._child = None
                self._settle(None, wanted)
        elif self._clock() >= self._again_at:
            self._have(wanted)

    def _have(self, wanted: Body) -> None:
        from .packages import InstallError

        command = self._command(wanted)
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        pid = running(self._folder)
        if pid and _command_of(pid) == command:
            self._report_state()
            return
        if pid:
            self._log("the gateway's program is of another version, or listens elsewhere: it is started again")
            _end(self._folder, TO_END)
        elif self._reported is not None and self._reported["state"] == "running":
            self._log("the gateway's program has ended: it is started again")
        packages = self._needed()
        if packages.missing():
            self._tell("installing")
            try:
                packages.install()
            except InstallError as problem:
                self._failed(str(problem))
                return
        self._tell("starting")
        self._start(command)

    def _needed(self) -> "Packages":
        if self._packages is None:
            from .packages import Packages

            self._packages = Packages(os.path.join(self._data, "gateway-packages"), root=os.geteuid() == 0)
        return self._packages

    def _command(self, wanted: Body) -> List[str]:
        command = [sys.executable, "-I", "-S", self._program(), "gateway", "--data", self._data]
        command += ["--folder", self._folder, "--http", str(wanted["http"])]
        return command + (["--https", str(wanted["https"])] if wanted.get("https") else [])

    def _start(self, command: List[str]) -> None:
        """If it ends at once, or never gets to serving, its last words are the reason, and it is tried again later."""
        os.makedirs(self._folder, exist_ok=True)
        said = os.path.join(self._folder, "program.log")
        if os.path.exists(os.path.join(self._folder, STATE)):
            os.unlink(os.path.join(self._folder, STATE))
        with open(said, "ab") as out:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
            )
        until = time.monotonic() + TO_END
        while time.monotonic() < until and not self._over.is_set():
            if self._child.poll() is not None:
                words = (read_text(said) or "").strip().splitlines()
                self._failed("its program ends: " + (words or ["it says nothing"])[-1])
                return
            if self._report_state():
                return
            time.sleep(0.05)

    def _report_state(self) -> bool:
        """Tell what the program says of itself. False if it hasn't said anything yet."""
        _cut(os.path.join(self._folder, "program.log"))
        said = self._said()
        if said is None:
            return False
        self._failures = 0
        self._tell(said["state"], said.get("message", ""))
        return True

    def _said(self) -> Optional[Body]:
        return read_json(os.path.join(self._folder, STATE))

    def _failed(self, message: str) -> None:
        self._log("the gateway: " + message)
        pause = min(SELDOM, AGAIN * 2.0 ** min(self._failures, 16))
        self._failures, self._again_at = self._failures + 1, self._clock() + pause
        self._tell("failed", message)

    def _tell(self, state: str, message: str = "") -> None:
        with self._lock:
            wanted = self._wanted
        if wanted is not None:
            self._settle(_report_of(wanted, {"state": state, "message": message}), wanted)

    def _settle(self, report: Optional[Body], wanted: Optional[Body]) -> None:
        """What is true now, unless something else is wanted meanwhile."""
        with self._lock:
            if self._wanted != wanted or report == self._reported:
                return
            self._reported = report
        self._changed(report)


def _report_of(wanted: Body, said: Body) -> Body:
    """What the server is told of it."""
    return dict(wanted, state=said["state"], message=said.get("message", "")[: TEXT_MOST["message"]])


def _cut(log: str) -> None:
    """The program has it open, and goes on at its beginning."""
    if os.path.exists(log) and os.path.getsize(log) > MOST_LOG:
        shutil.copyfile(log, log + ".1")
        os.truncate(log, 0)


def running(folder: str) -> int:
    """The process of the program that has this folder; 0 if there is none."""
    path = os.path.join(folder, "lock")
    if not os.path.exists(path):
        return 0
    lock = take_lock(path)
    if lock is not None:
        os.close(lock)
        return 0
    text = (read_text(path) or "").strip()
    return int(text) if text.isdigit() else 0


def _command_of(pid: int) -> List[str]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode("utf-8", "surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def _end(folder: str, patience: float) -> None:
    """The program alone; nginx goes on."""
    deadline, asked = time.monotonic() + patience, signal.SIGTERM
    while True:
        pid = running(folder)
        if not pid:
            return
        try:
            os.kill(pid, asked)
        except ProcessLookupError:
            return
        if time.monotonic() > deadline:
            asked = signal.SIGKILL
        time.sleep(0.05)
