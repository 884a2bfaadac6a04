"""The program on every instance: standard library only, Python 3.8 and newer, shipped as one file.

`session`        what to send to the server and when: pure; simulation and load bench run this very code
`commands`       what the server's responses have the program do
`program`        the loop around it: tasks, the link to the server, facts, metrics
`courier`, `link`   a thread that talks to the server, and one request over a kept connection
`tasks`          a folder for each task; what is on disk is the truth, so an agent may be killed at any moment
`supervisor`     a small process for each task that outlives the agent: owns its output and its exit status
`steps`          in which of its commands a job ended
`task_runtime`   what `process` (plain processes) and `docker` (through `docker_client`) implement for a supervisor
`process_tree`   the processes of a task, found through /proc
`spool`          a task's output on disk, framed, by byte offset
`listening`      whether a job's ports are free where it shares its host's network
`volumes`        a task's disks and folders: `disks` (with `devices`, `signatures`, `holds`, `mountinfo`) and `folders`
`visibility`     which of the machine's GPUs a task sees, by vendor
`logins`, `session_command`, `container_session`, `sftp`   a job's SSH server, and what its sessions are
`node_ssh`, `fabric`   what one of several nodes needs: logging in to the others, their fast network
`inventory`, `gpus`, `metrics`, `files`, `cgroups`   what a machine has, what its tasks get, what they use
`gateway_role`, `gateway`   a machine that carries a gateway: keeping its program running, and that program
`health`, `kernel_log`   what is wrong with a machine
`records`, `slow_work`   a lighter `dataclass`, and a lighter pool of threads
`later`          modules that are imported when they are first used: a start does with half of them
`build`          the one file

Imports inside the package are relative, because it has another name in the shipped file.
"""

VERSION = "0.1.0"
