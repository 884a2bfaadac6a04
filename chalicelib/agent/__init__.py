"""The program on every instance: standard library only, Python 3.8 and newer, shipped as one file.

`program`    the agent's process: `main` (the command line), `program` (the loop), `session` (the protocol with the
             server: pure; simulation and load bench run this very code) with `commands`, `message_sender` and
             `chunks`; the `roster` of tasks and a `supervisor` for each, which outlives the agent; a container's
             `first_process`; the machine's facts and health (`inventory`, `gpu_tools`, `tpu_chips`, `metrics`,
             `health`, `notices`) and the choice of a task's GPUs (`task_gpus`); `build`, which makes the one file
`gateway`    a machine with a gateway: the agent's part (`role`), and the gateway's program
`streams`    WebSockets to a job's ports, logs and sessions
`replicas`   the services' replicas on this machine: ports, probes, queues and routers
`sessions`   a job's SSH server (`logins`), and the sessions that it starts
`volumes`    a task's disks (`disks`, with `devices`, `signatures`, `holds`) and folders
`runtimes`   how tasks run: `process` (plain processes), `docker` (through `docker_client`) and `inside` (in the agent's
             own container), with users, control groups, files, repositories and GPUs
`kernel`     the base of all rooms: `tasks` (a folder for each; the disk has the truth, so an agent may be
             killed at any moment), `spool`, `link`, `process_tree`, `namespaces`, and `task_runtime`, the port of the
             runtimes

A room imports from those below it only. Imports are relative, because the package has another name in the shipped file.
A start does with half of the modules: the rest are imported when they are first used (`kernel/lazy.py`).
"""

VERSION = "0.1.0"
