"""What can't go together, and what must: rules between fields, each with the field that is reported."""

from typing import Any

import pytest

from chalicelib.configuration.parse import parse
from chalicelib.errors import Invalid
from tests.harness.rows import each

TASK = "type: task\ncommands: [a]\n"
SERVICE = "type: service\nport: 80\ncommands: [a]\n"
GROUPS = "type: service\nport: 80\ngroups:\n"
DEV = "type: dev-environment\n"
SSH = "type: fleet\nssh_config:\n  user: u\n  hosts: [h]\n"
GATEWAY = "type: gateway\nbackend: aws\nregion: r\n"
EDGE = "type: gateway\nfleet: edge\n"
PRESET = "type: preset\n"

WRONG = [
    ("type: task\n", "", "missing"),
    ("type: service\nport: 80\n", "", "missing"),
    (TASK + "image: x\npython: '3.12'\n", "python", "exclusive"),
    (TASK + "image: x\ndocker: true\n", "docker", "exclusive"),
    (TASK + "python: '3.12'\ndocker: true\n", "docker", "exclusive"),
    (TASK + "nvcc: true\ndocker: true\n", "docker", "exclusive"),
    (TASK + "working_dir: app\n", "working_dir", "invalid-path"),
    (TASK + "shell: fish\n", "shell", "invalid-value"),
    (TASK + "user: a:b:c\n", "user", "invalid-value"),
    (TASK + "user: -1\n", "user", "invalid-value"),
    (TASK + f"user: {2**32 - 1}\n", "user", "invalid-value"),
    (TASK + f"user: 'a:{10**22}'\n", "user", "invalid-value"),
    (TASK + f"user: '{'9' * 5000}'\n", "user", "invalid-value"),
    (TASK + f"user: {'9' * 5000}\n", "user", "ambiguous-number"),
    (TASK + 'entrypoint: "\'"\n', "entrypoint", "invalid-value"),
    (TASK + "entrypoint: a\\\n", "entrypoint", "invalid-value"),
    (TASK + "max_price: .inf\n", "max_price", "ambiguous-number"),
    (TASK + "max_price: .nan\n", "max_price", "ambiguous-number"),
    (TASK + "repos: [., .]\n", "repos", "too-many"),
    (
        TASK + "utilization_policy: {min_gpu_utilization: 5, time_window: 4m}\n",
        "utilization_policy.time_window",
        "too-small",
    ),
    (TASK + "backend_options: [{type: vastai}, {type: vastai}]\n", "backend_options", "duplicate"),
    (TASK + "instances: []\n", "instances", "too-small"),
    (TASK + "retry: {on_events: []}\n", "retry.on_events", "too-small"),
    ("type: task\nnodes: 2\ngroups: [{commands: [a]}]\n", "nodes", "exclusive"),
    ("type: task\ncommands: [a]\ngroups: [{commands: [a]}]\n", "commands", "exclusive"),
    ("type: task\nports: [80]\ngroups: [{commands: [a]}]\n", "ports", "exclusive"),
    ("type: task\nentrypoint: a\ngroups: [{commands: [a]}]\n", "entrypoint", "exclusive"),
    ("type: task\ngroups: [{nodes: 1}]\n", "groups.0", "missing"),
    ("type: task\ngroups: [{name: a, commands: [a]}, {name: a, commands: [a]}]\n", "groups", "duplicate"),
    ("type: task\ngroups: [{name: A, commands: [a]}]\n", "groups.0.name", "invalid-name"),
    ("type: task\ngroups: []\n", "groups", "too-small"),
    (DEV + "version: '1'\n", "version", "missing"),
    (DEV + "ide: windsurf\nversion: '1'\n", "version", "invalid-value"),
    (DEV + "entrypoint: a\n", "entrypoint", "exclusive"),
    (DEV + "inactivity_duration: 1h\ndstack: true\n", "inactivity_duration", "exclusive"),
    (SERVICE + "replicas: 2\nscaling: {metric: rps, target: 1}\n", "scaling", "exclusive"),
    (SERVICE + "replicas: 1..2\n", "replicas", "missing"),
    (SERVICE + "replicas: 1..\nscaling: {metric: rps, target: 1}\n", "replicas", "invalid-range"),
    (SERVICE + "replicas: 1..2\nscaling: {metric: rps, target: 1, window: 2m}\n", "scaling.window", "invalid-value"),
    (SERVICE + "probes: [{type: http, method: get, body: x}]\n", "probes.0.body", "exclusive"),
    (SERVICE + "probes: [{type: http}, {type: http}]\n", "probes.1", "duplicate"),
    (SERVICE + "probes: [" + ", ".join(f"{{type: http, url: /{n}}}" for n in range(11)) + "]\n", "probes", "too-large"),
    (SERVICE + "rate_limits: [{rps: 1}, {rps: 2}]\n", "rate_limits.1", "duplicate"),
    (GROUPS + "- {replicas: 1}\n", "groups.0", "missing"),
    (GROUPS + "- {replicas: 1..2, commands: [a]}\n", "groups.0.replicas", "missing"),
    (GROUPS + "- {replicas: 2, commands: [a], router: {}}\n", "groups.0.replicas", "invalid-value"),
    (
        GROUPS + "- {replicas: 1, commands: [a], router: {}}\n- {replicas: 1, commands: [a], router: {}}\n",
        "groups",
        "too-many",
    ),
    (GROUPS + "- {replicas: 1, commands: [a], router: {type: dynamo}}\nretry: true\n", "retry", "exclusive"),
    (GROUPS + "- {replicas: 1, commands: [a], docker: true, privileged: false}\n", "groups.0.privileged", "exclusive"),
    (
        GROUPS + "- {replicas: 1, commands: [a], spot_policy: spot}\nspot_policy: auto\n",
        "groups.0.spot_policy",
        "exclusive",
    ),
    (GROUPS + "- {replicas: 1, image: x, python: '3.12'}\n", "groups.0", "exclusive"),
    (GROUPS + "- {replicas: 1, commands: [a]}\nreplicas: 2\n", "replicas", "exclusive"),
    ("type: fleet\n", "", "missing"),
    ("type: fleet\nnodes: 1\nenv: [A=1]\n", "env", "exclusive"),
    (SSH + "nodes: 1\n", "nodes", "exclusive"),
    (SSH + "idle_duration: 1h\n", "idle_duration", "exclusive"),
    (SSH + "  network: 8.8.8.0/24\n", "ssh_config.network", "invalid-address"),
    (SSH + "  network: house\n", "ssh_config.network", "invalid-address"),
    (
        "type: fleet\nssh_config: {hosts: [{hostname: h, internal_ip: 8.8.8.8}]}\n",
        "ssh_config.hosts.0.internal_ip",
        "invalid-address",
    ),
    ("type: fleet\nssh_config: {hosts: [{hostname: h, internal_ip: 10.0.0.1}, g]}\n", "ssh_config.hosts", "missing"),
    (
        "type: fleet\nssh_config: {network: 10.0.0.0/8, hosts: [{hostname: h, internal_ip: 10.0.0.1}]}\n",
        "ssh_config.network",
        "exclusive",
    ),
    ("type: fleet\nnodes: {min: 1, target: 3, max: 2}\n", "nodes.target", "invalid-range"),
    ("type: fleet\nnodes: 1\nblocks: 0\n", "blocks", "invalid-value"),
    ("type: volume\nbackend: aws\nregion: r\n", "", "missing"),
    ("type: volume\nbackend: kubernetes\n", "", "missing"),
    ("type: volume\nbackend: lium\nvolume_id: v\nauto_cleanup_duration: 1h\n", "auto_cleanup_duration", "exclusive"),
    ("type: volume\nbackend: lium\nvolume_id: v\nauto_cleanup_duration: 0\n", "auto_cleanup_duration", "exclusive"),
    ("type: volume\nbackend: lium\nvolume_id: v\ntags: {a: b}\n", "tags", "exclusive"),
    ("type: volume\nbackend: lium\ntags: {dstack-volume: b}\n", "tags.dstack-volume", "invalid-tag"),
    (TASK + "tags: {Dstack-name: b}\n", "tags.Dstack-name", "invalid-tag"),
    ("type: fleet\nnodes: 1\ntags: {dstack-name: b}\n", "tags.dstack-name", "invalid-tag"),
    ("type: volume\nbackend: daytona\nsize: 1GB\n", "size", "unknown-key"),
    (GATEWAY + "public_ip: false\n", "public_ip", "exclusive"),
    ("type: gateway\n", "", "missing"),
    ("type: gateway\nbackend: aws\n", "region", "missing"),
    ("type: gateway\nregion: r\n", "backend", "missing"),
    (EDGE + "backend: aws\n", "backend", "exclusive"),
    (EDGE + "region: other\n", "region", "exclusive"),
    (GATEWAY + "http_port: 8080\n", "http_port", "exclusive"),
    (EDGE + "https_port: 80\n", "https_port", "exclusive"),
    (EDGE + "http_port: 443\n", "https_port", "exclusive"),
    (EDGE + "http_port: 70000\n", "http_port", "too-large"),
    (EDGE + "certificate: null\nhttps_port: 8443\n", "https_port", "exclusive"),
    (EDGE + "instance_type: t\n", "instance_type", "exclusive"),
    (EDGE + "tags: {a: b}\n", "tags", "exclusive"),
    (EDGE + "load_balancer: {type: alb}\n", "load_balancer", "exclusive"),
    (EDGE + "public_ip: false\ncertificate: null\n", "public_ip", "exclusive"),
    ("type: gateway\nbackend: remote\nregion: edge\ntags: {a: b}\n", "tags", "exclusive"),
    (GATEWAY + "replicas: 10\ncertificate: null\n", "replicas", "too-large"),
    (GATEWAY + "certificate: {type: gcp-cm, name: n}\n", "certificate", "exclusive"),
    (GATEWAY + "certificate: lets-encrypt\n", "certificate", "wrong-type"),
    (GATEWAY + "load_balancer: {}\n", "load_balancer.type", "missing"),
    (GATEWAY + "certificate: {type: own}\n", "certificate.type", "unknown-value"),
    (PRESET, "", "missing"),
    (PRESET + "model: a\nrepo: b\n", "repo", "exclusive"),
    (PRESET + "model: {repo: a, base: b}\n", "model", "exclusive"),
    (PRESET + "model: a\ndataset: d\ninput_tokens: 5\n", "dataset", "exclusive"),
    (PRESET + "model: a\ndataset: random\n", "dataset", "invalid-value"),
    (PRESET + "model: a\ninput_tokens: 5\nshared_prefix_tokens: 5\n", "shared_prefix_tokens", "invalid-value"),
    (PRESET + "model: a\nagent: {provider: codex, effort: max}\n", "agent.effort", "invalid-value"),
]

RIGHT = [
    TASK + "image: x\nnvcc: true\n",
    "type: task\nimage: x\n",
    TASK + "image: ''\npython: '3.12'\n",
    TASK + "privileged: false\ndocker: true\n",
    TASK + "working_dir: ~/app\n",
    "type: task\nimage: x\ngroups: [{nodes: 1}, {nodes: 2}]\n",
    DEV + "ide: windsurf\nversion: 1.106.0@8951cd3a\n",
    DEV + "inactivity_duration: off\ndstack: true\n",
    SERVICE + "scaling: {metric: rps, target: 1}\n",
    SERVICE + "replicas: 0..2\nscaling: {metric: queue, target: 1, window: 5m}\n",
    SERVICE + "probes: []\n",
    GROUPS + "- {replicas: 1, commands: [a]}\nprivileged: false\n",
    "type: fleet\nnodes: {}\n",
    SSH + "env: [A=1]\nblocks: auto\n",
    "type: volume\nbackend: lium\nauto_cleanup_duration: off\nvolume_id: v\n",
    GATEWAY + "public_ip: false\ncertificate: null\n",
    GATEWAY + "replicas: 2\n",
    EDGE + "http_port: 8080\nhttps_port: 8443\nreplicas: 2\n",
    EDGE + "http_port: 443\ncertificate: null\n",
    "type: gateway\nbackend: remote\nregion: edge\nhttp_port: 8080\n",
    EDGE + "backend: remote\nregion: edge\n",
    GATEWAY + "certificate: {type: acm, arn: a}\nload_balancer: {type: alb}\nreplicas: 3\n",
    PRESET + "base: a\nenv: [A]\nprompt: be quick\n",
]


@each(("text", "path", "code"), WRONG)
def test_refused(text: str, path: str, code: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (path, code)
    assert problem.line >= 1


@pytest.mark.parametrize("text", RIGHT)
def test_taken(text: str) -> None:
    parse(text)


def test_several_rules_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        parse(DEV + "version: '1'\nentrypoint: a\nimage: x\npython: '3.12'\n")
    assert {problem.path for problem in caught.value.problems} == {"version", "entrypoint", "python"}


def test_the_older_words_mean_todays() -> None:
    assert parse(TASK + "repo: .\n") == parse(TASK + "repos: [.]\n")
    volume = "type: volume\nbackend: aws\nregion: r\n"
    assert parse(volume + "resources: {disk: 500GB}\n") == parse(volume + "size: 500GB\n")
    assert parse("type: service\nport: 1\nreplicas: [{count: 1, commands: [a]}]\n") == parse(
        "type: service\nport: 1\ngroups: [{replicas: 1, commands: [a]}]\n"
    )


TASK_FILE = "type: task\ncommands: [a]\n"
SERVICE_FILE = "type: service\nport: 1\ncommands: [a]\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (TASK_FILE + "resources: {gpu: 'A 100 : 2'}", "resources.gpu.name.0", "A100"),
        (TASK_FILE + "resources: {gpu: {name: 4090}}", "resources.gpu.name.0", "4090"),
        (TASK_FILE + "resources: {memory: 1e3}", "resources.memory.min", 1000.0),
        (TASK_FILE + "volumes: ['n://a/./b//c']", "volumes.0.path", "//a/b/c"),
        (TASK_FILE + "volumes: [{name: [1, b], path: /a}]", "volumes.0.name", ["1", "b"]),
        (TASK_FILE + "repos: ['C:\\a']", "repos.0.path", "."),
        (TASK_FILE + "repos: ['a:a']", "repos.0.path", "a"),
        (SERVICE_FILE + "gateway: '0'", "gateway", False),
        (SERVICE_FILE + "gateway: t", "gateway", True),
        ("type: dev-environment\nversion: ''\n", "version", ""),
    ],
)
def test_read_as_the_genuine_client_reads_it(text: str, path: str, value: object) -> None:
    found: Any = parse(text).model_dump(mode="json")
    for part in path.split("."):
        found = found[int(part) if part.isdecimal() else part]
    assert found == value


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ports: [true]", "ports.0: expected something like `8080`, got `true` (or like `80:8080`, `*:8080`)"),
        ("fleets: [8]", "fleets.0: expected something like `name`, got `8` (or like `project/name`)"),
        (
            "resources: {cpu: {count: [1]}}",
            "resources.cpu.count: expected a number or a range, got a list (for example",
        ),
        ("resources: {memory: true}", "resources.memory: expected an amount of memory, got `true`"),
        ("resources: {disk: []}", "resources.disk: expected something like `16GB`, got a list (or like `24GB..`"),
        ("volumes: [1]", "volumes.0: expected a mount (for example `my-volume:/data`"),
        ("files: ['C:\\a']", "files.0.path: `C:\\a` isn't a path in a container (say where it goes"),
        ("repos: [{url: ''}]", "repos.0: a repo needs `local_path` or `url`"),
        ("max_price: 0.0", "max_price: `0` is too small (more than 0)"),
    ],
)
def test_what_a_short_form_should_look_like_is_said(line: str, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(TASK_FILE + line)
    (problem,) = caught.value.problems
    assert problem.text.startswith(expected)


def test_replicas_and_its_older_word_together() -> None:
    with pytest.raises(Invalid) as caught:
        parse("type: service\nport: 80\ngroups:\n- {replicas: 1, count: 3, commands: [r]}\n")
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.code) == ("groups.0.count", 4, "exclusive")
    assert "`count` is an older word for `replicas`" in problem.message
