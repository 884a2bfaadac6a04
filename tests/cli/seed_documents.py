"""Configurations and commands as the documents show them that people know the language from.

Each configuration is applied, and each command run, by `test_server_real`: it works, or what isn't built yet is refused
by its name. `refused` is what the refusal must name; empty where it must work.
"""

from __future__ import annotations

from typing import NamedTuple


class Shown(NamedTuple):
    text: str
    refused: str = ""


CONFIGURATIONS = {
    "dev-environment": Shown(
        """
type: dev-environment
python: "3.11"
ide: vscode
resources:
  gpu: 80GB
  disk: 500GB
""",
        "dev-environment",
    ),
    "task with ports": Shown(
        """
type: task
python: "3.11"
env:
  - HUGGING_FACE_HUB_TOKEN
commands:
  - pip install -r requirements.txt
  - python train.py
ports:
  - 8501
resources:
  gpu: A100:40GB:2
  disk: 200GB
""",
        "ports",
    ),
    "service": Shown(
        """
type: service
python: "3.11"
env:
  - HF_TOKEN
commands:
  - pip install vllm
  - vllm serve meta-llama/Meta-Llama-3.1-8B-Instruct
port: 8000
model: meta-llama/Meta-Llama-3.1-8B-Instruct
resources:
  gpu: 80GB
  disk: 200GB
scaling:
  metric: rps
  target: 10
""",
        "service",
    ),
    "service scaled by its queue": Shown(
        """
type: service
commands: [serve]
port: 8000
replicas: 1..3
scaling:
  metric: queue
  target: 10
""",
        "service",
    ),
    "fleet template": Shown(
        """
type: fleet
name: my-fleet
nodes: 0..2
resources:
  gpu: 24GB..
  disk: 100GB
spot_policy: auto
idle_duration: 5m
"""
    ),
    "fleet with a target": Shown(
        """
type: fleet
name: my-fleet
nodes:
  min: 2
  max: 10
  target: 6
idle_duration: 1h
"""
    ),
    "fleet in blocks": Shown(
        """
type: fleet
name: my-fleet
nodes: 0..2
resources:
  gpu: H100:8
blocks: 4
"""
    ),
    "fleet that is a cluster": Shown(
        """
type: fleet
name: my-fleet
nodes: 2
placement: cluster
resources:
  gpu: H100:8
""",
        "placement",
    ),
    "fleet over SSH": Shown(
        """
type: fleet
name: on-prem-fleet
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  hosts:
    - 192.168.1.10
    - hostname: 192.168.1.11
      blocks: auto
""",
        "ssh_config",
    ),
    "volume": Shown(
        """
type: volume
name: my-volume
backend: aws
region: us-east-1
resources:
  disk: 500GB
""",
        "volume",
    ),
    "task with a network volume": Shown(
        """
type: task
commands: [ls]
volumes:
  - name: my-volume
    path: /volume_data
""",
        "volumes",
    ),
    "task with a repository": Shown(
        """
type: task
commands: [ls]
repo: https://127.0.0.1:9/example/example
""",
        "repos",
    ),
}

# In their order: a task called `my-run` has run, and a fleet `my-fleet` has one machine.
COMMANDS = {
    "dstack ps": "",
    "dstack ps --json": "",
    "dstack ps -v": "",
    "dstack run get my-run --json": "",
    "dstack attach my-run --logs": "",
    "dstack attach my-run": "SSH",
    "dstack logs my-run": "",
    "dstack logs my-run -d": "",
    "dstack logs my-run --replica 1": "replica 1",
    "dstack logs my-run --job 0": "",
    "dstack stop my-run": "",  # it has ended: said, nothing to ask
    "dstack stop my-run -y": "",
    "dstack stop my-run --abort": "",
    "dstack offer": "",
    "dstack offer --backend aws": "",
    "dstack offer --gpu A100": "",
    "dstack fleet": "",
    "dstack fleet get my-fleet": "",
    "dstack fleet get my-fleet --json": "",
    "dstack fleet delete-instance my-fleet 0 -y": "",
    "dstack fleet delete my-fleet -y": "",
    "dstack volume": "volumes",
    "dstack gateway": "Gateways",
    "dstack pool ps": "",
    "dstack pool list": "",
    "dstack pool add --cpu 2 -y": "",
    "dstack pool remove default-pool-0 -y": "",
    "dstack pool add-ssh ubuntu@54.73.155.119 -i ~/.ssh/id_rsa -y": "ssh_config",
    "dstack run . --reuse -y -d": "",
    "dstack run . --idle-duration 10m -y -d": "",
    "dstack delete -f my-fleet.dstack.yml -y": "",
}
