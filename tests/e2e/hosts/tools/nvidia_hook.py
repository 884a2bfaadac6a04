#!/usr/bin/python3 -S
"""Stands for nvidia-container-runtime-hook: an engine calls it for `--gpus`, with the container's state on its input.

The real one puts devices and libraries into the container. This one notes that it was called; the container has the
variable that says which GPUs it was given, and no device.
"""

import sys
from pathlib import Path

with Path("/run/nvidia-hook.log").open("a") as log:
    log.write(f"{' '.join(sys.argv[1:])} {sys.stdin.read().strip()}\n")
