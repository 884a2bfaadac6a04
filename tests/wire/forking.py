"""Runs command lines of a client fast: its modules are imported once, command lines run in copies of that process.

    python forking.py peer PATH-OF-THE-CONSOLE-SCRIPT
    python forking.py ours PATH-OF-THE-REPOSITORY

Standard input brings one job a line, `{"argv", "cwd", "env", "output", "input", "stays", "more"}`; standard output
answers each with `{"status"}`, negative for a signal. One with a `"script"` runs that file of Python instead of a
command line. A copy runs its job and, as long as these have `"more": true`, those that follow. It tells which modules
it had to import, and the parent imports them too, so that the next copy finds them there. A job with `"stays": true`
runs in the parent itself: what a command line builds once (models, parsers, patterns) is then there for every copy.
Standard library only: it runs in the environment of whichever client it drives.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback

SECONDS = 300


def entry_point(kind, path):
    """A function that runs the command line in `sys.argv` and ends the process as the client does."""
    if kind == "peer":
        sys.argv = ["dstack"]
        return runpy.run_path(path, run_name="console_script")["main"]
    sys.path.insert(0, path)
    return importlib.import_module("cli.main").main


def command(main, job):
    """Runs the command line in this process. Its status."""
    sink = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    source = os.open(job["input"] or os.devnull, os.O_RDONLY)
    for opened, descriptors in ((sink, (1, 2)), (source, (0,))):
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    script = job.get("script")
    sys.argv = [script or "dstack", *job["argv"]]
    try:
        runpy.run_path(script, run_name="__main__") if script else main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code)
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def staying(main, job):
    """Runs it in this process, which afterwards is as before but for its memory."""
    descriptors, environment = [os.dup(each) for each in (0, 1, 2)], dict(os.environ)
    status = command(main, job)
    for number, kept in enumerate(descriptors):
        os.dup2(kept, number)
        os.close(kept)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir("/")
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(SECONDS)  # a progress display's thread is stopped by then, but on a busy machine not yet gone
    assert threading.active_count() == 1, "a child would lack this thread, and wait for what it holds"
    return status


def child(main, job, write_end):
    """What the forked process does with this job and those that follow; it never comes back."""
    before, status = set(sys.modules), 1
    try:
        while job["more"]:
            signal.alarm(SECONDS)
            answer(staying(main, job))
            job = json.loads(jobs.readline())
        signal.alarm(SECONDS)
        status = command(main, job)
    finally:
        os.write(write_end, json.dumps(sorted(set(sys.modules) - before)).encode())
        os._exit(status)


def forked(main, job):
    """The status of the last job that the child was given."""
    gc.collect()
    gc.freeze()  # a collection in the child would copy all of the parent's pages
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        child(main, job, write_end)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        imported = stream.read()
    _, status = os.waitpid(pid, 0)
    for name in json.loads(imported or "[]"):
        try:
            importlib.import_module(name)
        except ImportError:  # a name that something made up in the child; no file has it
            continue
    return os.waitstatus_to_exitcode(status)


def answer(status):
    answers.write(json.dumps({"status": status}) + "\n")
    answers.flush()


if __name__ == "__main__":
    entry = entry_point(sys.argv[1], sys.argv[2])
    answers, jobs = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    while line := jobs.readline():
        job = json.loads(line)
        answer((staying if job["stays"] else forked)(entry, job))
