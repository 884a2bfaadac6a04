"""`docker: true`: the job's first command starts a Docker engine of its own, for the commands that follow.

The image needs `dockerd`, `docker` and a shell. A `start-dockerd` of its own is preferred; so is `dind`, the wrapper in
Docker's official image, which prepares control groups of version 2 for nesting. The container is privileged, and
`/var/lib/docker` is a volume, since an engine's layers can't lie on a container's. The engine ends with the container,
and with it everything that ran in it.
"""

from __future__ import annotations

LOG = "/var/log/dockerd.log"
ENDED = "/run/dockerd.ended"

START = (
    "if command -v start-dockerd >/dev/null; then start-dockerd; else "
    f"( ( $(command -v dind) dockerd >{LOG} 2>&1 </dev/null; : >{ENDED} ) & ); "
    f"until docker info >/dev/null 2>&1; do if [ -e {ENDED} ]; then "
    f'echo "The Docker engine of this job does not start:"; cat {LOG}; exit 1; fi; sleep 0.1; done; fi'
)
