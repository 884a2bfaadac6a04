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
    # the skill
    "dev-environment": Shown(
        """
type: dev-environment
python: "3.11"
ide: vscode
resources:
  gpu: 80GB
  disk: 500GB
""",
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
    ),
    "task that uses Docker": Shown("type: task\ndocker: true\ncommands: [docker ps]\n"),
    "task in an image": Shown("type: task\nimage: ubuntu\ncommands: [ls]\nworking_dir: /srv\n"),
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
"""
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
"""
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
    "fleet over SSH": Shown(
        """
type: fleet
name: on-prem-fleet
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  hosts:
    - 192.168.1.10
    - 192.168.1.11
""",
    ),
    "volume": Shown(
        """
type: volume
name: my-volume
backend: aws
region: us-east-1
resources:
  disk: 500GB
"""
    ),
    "task with a network volume": Shown(
        """
type: task
commands: [ls]
volumes:
  - name: my-volume
    path: /volume_data
""",
        "Volume ['my-volume'] not found",
    ),
    "dev-environment with an instance volume": Shown(
        """
type: dev-environment
ide: vscode
volumes:
  - name: my-instance-volume
    path: /cache_data
""",
        "Volume ['my-instance-volume'] not found",
    ),
    "task with a repository": Shown(
        """
type: task
commands: [ls]
repo: http://127.0.0.1:9/example/example
""",
        "repos",
    ),
    # fleets
    "fleet of up to 8 GPUs": Shown(
        """
type: fleet
name: my-fleet
nodes: 0..2
idle_duration: 1h
resources:
  gpu: 0..8
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
"""
    ),
    "cluster over SSH": Shown(
        """
type: fleet
name: my-fleet
placement: cluster
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  hosts:
    - 3.255.177.51
    - 3.255.177.52
""",
    ),
    "fleet made in advance": Shown(
        """
type: fleet
name: my-fleet
nodes: 2..10
resources:
  gpu: H100:8
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
    "fleet of spot and other machines": Shown(
        """
type: fleet
name: my-fleet
nodes: 0..2
spot_policy: auto
idle_duration: 1h
resources:
  gpu: 0..8
"""
    ),
    "fleet of machines that go after an hour": Shown(
        """
type: fleet
name: my-fleet
nodes: 2
idle_duration: 1h
resources:
  gpu: 24GB
"""
    ),
    "fleet of machines that go at once": Shown("type: fleet\nname: my-fleet\nnodes: 2\nidle_duration: 0s\n"),
    "fleet of machines that stay": Shown("type: fleet\nname: my-fleet\nnodes: 2\nidle_duration: off\n"),
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
    "hosts in blocks": Shown(
        """
type: fleet
name: my-fleet
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  hosts:
    - hostname: 3.255.177.51
      blocks: 4
    - hostname: 3.255.177.52
      blocks: auto
    - hostname: 3.255.177.53
      blocks: 1
""",
    ),
    "hosts behind another": Shown(
        """
type: fleet
name: my-fleet
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  hosts:
    - 3.255.177.51
    - 3.255.177.52
  proxy_jump:
    hostname: 3.255.177.50
    user: ubuntu
    identity_file: ~/.ssh/id_rsa
""",
    ),
    "hosts with variables and a network": Shown(
        """
type: fleet
name: my-fleet
env:
  - HTTP_PROXY=http://proxy.example.com:80
  - HTTPS_PROXY=http://proxy.example.com:80
  - NO_PROXY=localhost,127.0.0.1
ssh_config:
  user: ubuntu
  identity_file: ~/.ssh/id_rsa
  network: 10.0.0.0/16
  hosts:
    - 10.0.0.51
    - 10.0.0.52
""",
    ),
    "fleet by instance types, prices and regions": Shown(
        "type: fleet\nname: my-fleet\nnodes: 0..2\ninstance_types: [sim.l4]\nmax_price: 3\nregions: [sim-west]\n"
    ),
    # clusters
    "task of several nodes": Shown("type: task\nnodes: 2\ncommands: [ls]\nretry: true\n"),
    "task of several nodes, each with its volume": Shown(
        """
type: task
nodes: 2
commands: [ls]
volumes:
  - name: data-${{ dstack.node_rank }}
    path: /data
""",
        "Volume ['data-0'] not found",
    ),
    "task with a folder of the machine": Shown("type: task\ncommands: [ls]\nvolumes: ['/mnt/nfs-storage:/storage']\n"),
}

# In their order: a task called `my-run` has run, and a fleet `my-fleet` has one machine. Questions are answered with n.
COMMANDS = {
    # the skill
    "dstack apply": "",
    "dstack apply -y -d": "",
    "dstack apply --force -y -d": "",
    "dstack apply --max-price 2.5 -y -d --force": "",
    "dstack fleet": "",
    "dstack fleet get my-fleet": "",
    "dstack fleet get my-fleet --json": "",
    "dstack ps": "",
    "dstack ps --json": "",
    "dstack ps -v": "",
    "dstack run get my-run --json": "",
    "dstack attach my-run --logs": "",
    "dstack attach my-run": "",
    "dstack logs my-run": "",
    "dstack logs my-run -d": "",
    "dstack logs my-run --replica 1": "replica 1",
    "dstack logs my-run --job 0": "",
    "dstack stop my-run": "",  # it has ended, so there is nothing to ask
    "dstack stop my-run -y": "",
    "dstack stop my-run --abort": "",
    "dstack offer": "",
    "dstack offer --backend aws": "",
    "dstack offer --gpu A100": "",
    "dstack offer --backend aws --gpu A100": "",
    "dstack volume": "",
    "dstack gateway": "",
    # pools
    "dstack run .": "",
    "dstack run . --reuse -y -d": "",
    "dstack run . --idle-duration 10m -y -d --force": "",
    "dstack run . --pool my-fleet -y -d --force": "",
    "dstack pool ps": "",
    "dstack pool list": "",
    "dstack pool add --gpu 80GB": "",
    "dstack pool add --cpu 2 --spot-auto --idle-duration 72h --max-price 5 --retry -y": "",
    "dstack pool remove default-pool-0 -y": "",
    "dstack pool add-ssh ubuntu@54.73.155.119 -i ~/.ssh/id_rsa -y": "ssh_config",
    "dstack pool add-ssh 54.73.155.119 -l ubuntu -p 2222 -i ~/.ssh/id_rsa -J jump@10.0.0.1:2022 -y": "ssh_config",
    "dstack pool add-ssh ubuntu@54.73.155.119 -i ~/.ssh/id_rsa -o StrictHostKeyChecking=no": "-o",
    # fleets
    "dstack fleet delete-instance my-fleet 0 -y": "",
    "dstack fleet delete my-fleet -i 7 -y": "instance 7",
    "dstack fleet delete my-fleet -y": "",
    "dstack delete -f my-fleet.dstack.yaml": "",
    "dstack delete -f my-fleet.dstack.yaml -y": "",
}
