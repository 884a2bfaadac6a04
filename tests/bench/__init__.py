"""Figures, never assertions: nothing here fails because of a time.

`make bench` runs them all in some six minutes and shows them beside their budgets and beside `docs/bench.json`;
`make bench RECORD=1` writes that file anew.

`single`    a task of one second, 7 times on one server: from its submission until it reads done
`burst`     one-second jobs on 150 simulated hosts, which run the agent's own session code over real HTTP: from the
            first submission to the last end that the server tells; CPU of the server's process, by the job
`api`       5 rounds of 100 calls of one client: CPU of the server's process, by the call
`plans`     one plan through the API, in this process, where 50,000 offers are on sale
`offers`    one question to 50,000 offers
`listing`   a page of 100 out of 10,000 runs, measured as `api`
`placement` decisions of the pure core about 1,000 waiting jobs
`language`  1,000 files of a usual kind; the slowest of a dozen nasty files of a megabyte
`cold`      whole processes, less a bare Python: `import app`, and until a first answer is given
`cli`       whole processes: `dstack --help`, and `dstack ps` with an empty list
`install`   a client, by pip from the wheel and the package index; nothing is taken from a cache
`idle`      an embedded server with its own agent: 40 s in which nobody asks anything
`crowd`     an embedded server with 1,000 simulated hosts on which nothing happens, for a minute
`load`      300 slow clients, 60 large bodies without a token, a flood of searches and a huge fleet at once: what
            another tenant waits meanwhile for its health check and its tasks, and the most memory that the server took
`kubernetes` pods on the tests' cluster, in a process of its own: from a submission to the first line, in an engine's
            containers; 200 that run at once: CPU of the server's process, by the pod; the watch of 1,000 for a minute

To compare two trees, run both on one machine, one right after the other, and look at CPU rather than at wall time: a
neighbour's work stretches the second and hardly the first.
"""
