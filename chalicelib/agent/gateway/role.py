"""The agent's part of a gateway: installing nginx and keeping the gateway's program running, if the server orders one.

The program is a process of its own, as supervisors are: it outlives the agent, and the next agent finds it by its lock
and goes on with it if its command line is right. The order is on disk, so that after a reboot the gateway serves
without the server. Installing takes a minute and stopping seconds, so a thread does them, one step at a time.

The gateway's folder isn't inside the agent's, which only the agent's user may enter: nginx's workers must get there.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Protocol, cast

from ..kernel import interpreter
from ..kernel.lazy import LazyModule
from ..kernel.limits import TEXT_MOST
from ..kernel.tasks import delete_tree, read_json, read_text, take_lock, write_atomic

if TYPE_CHECKING:
    import hashlib
    import shutil
    import subprocess

    from ...contract.agent import GatewayOrder, GatewayReport
    from .packages import Packages
else:
    hashlib = LazyModule("hashlib")
    shutil = LazyModule("shutil")
    subprocess = LazyModule("subprocess")

CHECK_EVERY = 1.0  # seconds between checks of the program
RETRY_FIRST, RETRY_MOST = 5.0, 300.0  # seconds until a failed step is retried: at first, at most
TO_END = 15.0  # seconds for the program to end before it is killed
MOST_LOG = 4 * 1024 * 1024  # bytes of the program's own log
ORDER = "gateway.json"  # in the agent's folder: the server's order
STATE = "state.json"  # in the gateway's folder: the program's own report
PARTS = ("id", "num", "http", "https")  # the fields of an order


class Changed(Protocol):
    def __call__(self, report: Optional[GatewayReport]) -> None: ...


def folder_of(data: str) -> str:
    """The gateway's folder; if root runs the agent, it is where other users may enter, unlike the agent's folder."""
    if os.geteuid():
        return data.rstrip("/") + "-gateway"
    return "/var/lib/dstack-gateway-" + hashlib.sha256(os.path.abspath(data).encode()).hexdigest()[:8]


def carries(data: str) -> bool:
    """Has the server ordered a gateway on this machine?"""
    return os.path.exists(os.path.join(data, ORDER))


def remove(data: str, folder: Optional[str] = None, patience: float = TO_END) -> None:
    """End the program and its nginx, and delete their files; the order last, so that an interrupted removal is
    repeated."""
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
        """`program` returns the path of the agent's program. `changed` is called with every new report, and with None
        when the gateway has been removed."""
        self._data, self._program, self._changed, self._log = data, program, changed, log
        self._folder_option, self._packages = folder, packages
        self._clock = clock
        self._order = cast("Optional[GatewayOrder]", read_json(os.path.join(data, ORDER)))
        self._reported: Optional[GatewayReport] = None
        self._lock = threading.Lock()  # around the order and the report
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._child: "Optional[subprocess.Popen[bytes]]" = None
        self._failures, self._retry_at = 0, float("-inf")

    @property
    def _folder(self) -> str:
        return self._folder_option or folder_of(self._data)

    # On the agent's own thread ------------------------------------------------------------------------------------

    def begin(self) -> Optional[GatewayReport]:
        """Go on with the order that an earlier agent stored. Returns the report for the first message, in which a
        missing gateway would mean that it has been removed."""
        if self._order is not None:
            state = self._program_state() if running(self._folder) else None
            self._reported = _report_of(self._order, state or {"state": "starting"})
            self._work()
        return self._reported

    def want(self, order: Optional[GatewayOrder]) -> None:
        """Take the server's order; None removes the gateway. A repeated order changes nothing."""
        wanted = None if order is None else cast("GatewayOrder", {name: order.get(name) for name in PARTS})
        with self._lock:
            if wanted == self._order:
                return
            self._order, self._failures, self._retry_at = wanted, 0, float("-inf")
        if wanted is not None:
            write_atomic(os.path.join(self._data, ORDER), json.dumps(wanted), durable=True)
            self._report("starting")
        self._work()

    def removed(self) -> bool:
        """Has the gateway been removed entirely, or was there none?"""
        with self._lock:
            return self._order is None and self._reported is None

    def close(self) -> None:
        """End the thread; the program and nginx go on."""
        self._over.set()
        self._wake.set()

    def _work(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gateway-role", daemon=True)
            self._thread.start()

    # On its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            try:
                self.step()
            except Exception as problem:  # a thread that died silently would leave the gateway as it is for ever
                self._failed("the agent: %r" % problem)
            self._wake.wait(CHECK_EVERY)

    def step(self) -> None:
        """Take one step towards what the server ordered."""
        with self._lock:
            wanted, reported = self._order, self._reported
        if wanted is None:
            if reported is not None:
                remove(self._data, self._folder)
                self._child = None
                self._publish(None, wanted)
        elif self._clock() >= self._retry_at:
            self._ensure_running(wanted)

    def _ensure_running(self, wanted: GatewayOrder) -> None:
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
        packages = self._make_packages()
        if packages.missing():
            self._report("installing")
            try:
                packages.install()
            except InstallError as problem:
                self._failed(str(problem))
                return
        self._report("starting")
        self._start(command)

    def _make_packages(self) -> "Packages":
        if self._packages is None:
            from .packages import Packages

            self._packages = Packages(os.path.join(self._data, "gateway-packages"), root=os.geteuid() == 0)
        return self._packages

    def _command(self, wanted: GatewayOrder) -> List[str]:
        command = [*interpreter.command(), self._program(), "gateway", "--data", self._data]
        command += ["--folder", self._folder, "--http", str(wanted["http"])]
        return command + (["--https", str(wanted["https"])] if wanted.get("https") else [])

    def _start(self, command: List[str]) -> None:
        """Start the program. If it ends before it has reported its state, the last line of its log is the reason."""
        os.makedirs(self._folder, exist_ok=True)
        log = os.path.join(self._folder, "program.log")
        if os.path.exists(os.path.join(self._folder, STATE)):
            os.unlink(os.path.join(self._folder, STATE))
        with open(log, "ab") as out:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
            )
        until = time.monotonic() + TO_END
        while time.monotonic() < until and not self._over.is_set():
            if self._child.poll() is not None:
                lines = (read_text(log) or "").strip().splitlines()
                self._failed("its program ends: " + (lines or ["it has printed nothing"])[-1])
                return
            if self._report_state():
                return
            time.sleep(0.05)

    def _report_state(self) -> bool:
        """Pass on the program's own report. False if there is none yet."""
        _cut(os.path.join(self._folder, "program.log"))
        state = self._program_state()
        if state is None:
            return False
        self._failures = 0
        self._report(state["state"], state.get("message", ""))
        return True

    def _program_state(self) -> Optional[Dict[str, Any]]:
        return read_json(os.path.join(self._folder, STATE))

    def _failed(self, message: str) -> None:
        self._log("the gateway: " + message)
        pause = min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(self._failures, 16))
        self._failures, self._retry_at = self._failures + 1, self._clock() + pause
        self._report("failed", message)

    def _report(self, state: str, message: str = "") -> None:
        with self._lock:
            wanted = self._order
        if wanted is not None:
            self._publish(_report_of(wanted, {"state": state, "message": message}), wanted)

    def _publish(self, report: Optional[GatewayReport], wanted: Optional[GatewayOrder]) -> None:
        """Report a change, unless the order is another one by now."""
        with self._lock:
            if self._order != wanted or report == self._reported:
                return
            self._reported = report
        self._changed(report)


def _report_of(order: GatewayOrder, state: Dict[str, Any]) -> GatewayReport:
    """The report for the server: the order, and the program's state."""
    return {**order, "state": state["state"], "message": state.get("message", "")[: TEXT_MOST["message"]]}


def _cut(log: str) -> None:
    """Rotate the log that the program has open."""
    if os.path.exists(log) and os.path.getsize(log) > MOST_LOG:
        shutil.copyfile(log, log + ".1")
        os.truncate(log, 0)


def running(folder: str) -> int:
    """The pid of the program that runs in this folder; 0 if there is none."""
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
    """End the program; nginx goes on."""
    deadline, number = time.monotonic() + patience, signal.SIGTERM
    while True:
        pid = running(folder)
        if not pid:
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        time.sleep(0.05)
