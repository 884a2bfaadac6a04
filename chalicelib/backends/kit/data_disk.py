"""Jobs, images and the agent on a data disk, or on the machine's own disks as one, and not on the system's.

The script runs at each boot, before the agent's. A machine that can't use its disks has the system's disk: the agent
reports what there is.
"""

from __future__ import annotations

import shlex

_SCRIPT = """\
#!/bin/sh
(
set -eu
disk={disk}
if [ -z "$disk" ]; then
  set -- /dev/nvme*n1
  disk=$1
  if [ $# -gt 1 ]; then
    disk=$(ls -d /dev/md/*dstack* 2>/dev/null | head -n 1)
    if [ -z "$disk" ]; then
      disk=/dev/md/dstack
      mdadm --create "$disk" --run --level=0 --raid-devices=$# "$@"
    fi
  fi
fi
n=0
while [ ! -b "$disk" ] && [ $n -lt 60 ]; do sleep 1; n=$((n + 1)); done
[ "$(blkid -s LABEL -o value "$disk")" = dstack ] || mkfs.ext4 -q -L dstack "$disk"
mkdir -p /mnt/dstack
mount "$disk" /mnt/dstack
systemctl stop docker.socket docker containerd || true
for each in docker containerd dstack; do
  mkdir -p "/mnt/dstack/$each" "/var/lib/$each"
  mount --bind "/mnt/dstack/$each" "/var/lib/$each"
done
systemctl start containerd docker
)
[ $? -eq 0 ] || echo "dstack: the data disk can't be used" >&2
"""


def prepare(device: str = "") -> str:
    """The script for a disk by its device, or for all of the machine's own (NVMe) disks."""
    return _SCRIPT.format(disk=shlex.quote(device))
