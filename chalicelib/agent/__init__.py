"""The program on every instance: standard library only, Python 3.8 and newer, shipped as one file.

`program`    the agent's process: `main` (the command line), `program` (the loop), `session` (what to send to the server
             and when: pure; simulation and load bench run this very code) with `commands`, `courier` and `chunks`; the
             `roster` of tasks and a `supervisor` for each, which outlives the agent; a container's `first_process`;
             what a machine has and what is wrong with it (`inventory`, `gpus`, `metrics`, `health`, `notices`);
             `build`, which makes the one file
`gateway`    a machine that carries a gateway: keeping its program running (`role`), and that program
`streams`    WebSockets to a job's ports, logs and sessions
`replicas`   the services' replicas here: whether they listen, their probes, queues and router
`sessions`   a job's SSH server (`logins`), and what its sessions are
`volumes`    a task's disks (`disks`, with `devices`, `signatures`, `holds`) and folders
`runtimes`   how tasks run: `process` (plain processes), `docker` (through `docker_client`) and `inside` (in the agent's
             own container), with users, control groups, files, repositories and GPUs
`kernel`     what all rooms stand on: `tasks` (a folder for each; what is on disk is the truth, so an agent may be
             killed at any moment), `spool`, `link`, `process_tree`, `namespaces`, and `task_runtime`, the port of the
             runtimes

A room imports from those below it only. Imports are relative, because the package has another name in the shipped file.
A start does with half of the modules: the rest are imported when they are first used (`kernel/lazy.py`).
"""

VERSION = "0.1.0"
