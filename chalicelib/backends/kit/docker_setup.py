"""Docker, and what lets its containers use NVIDIA's GPUs, for machines whose image lacks them.

The script runs before the agent looks for Docker. Whatever fails in it, the agent starts, and reports what there is.
"""

PLACE = "/var/lib/dstack-prepare"
SCRIPT = """\
#!/bin/sh
(
set -eu
export DEBIAN_FRONTEND=noninteractive
if ! command -v docker; then
  apt-get update
  apt-get install -y docker.io
fi
if command -v nvidia-smi && ! command -v nvidia-ctk; then
  packages=https://nvidia.github.io/libnvidia-container
  key=/usr/share/keyrings/nvidia-container-toolkit.gpg
  curl -fsSL --connect-timeout 10 --retry 10 "$packages/gpgkey" | gpg --dearmor --yes -o "$key"
  echo "deb [signed-by=$key] $packages/stable/deb/\\$(ARCH) /" > /etc/apt/sources.list.d/nvidia-container-toolkit.list
  apt-get update
  apt-get install -y nvidia-container-toolkit
  nvidia-ctk runtime configure --runtime=docker
  systemctl restart docker
fi
) > /var/log/dstack-prepare.log 2>&1
[ $? -eq 0 ] || echo "dstack: see /var/log/dstack-prepare.log" >&2
"""
