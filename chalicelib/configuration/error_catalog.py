"""The error catalog: the meaning of each code, a file with that error, and the same file corrected.

The page in the docs shows the reader's real message for the wrong file; a test reads both files of every entry.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorEntry:
    meaning: str
    wrong: str
    right: str
    found_by_server: str = ""  # the message for the wrong file, if only a server can know


def _task(lines: str) -> str:
    return f"type: task\ncommands: [python train.py]\n{lines}"


def _fleet(lines: str) -> str:
    return f"type: fleet\n{lines}"


def _hosts(lines: str) -> str:
    return _fleet(f"ssh_config:\n  user: ubuntu\n  hosts: [192.168.1.10]\n  {lines}")


ENTRIES: dict[str, ErrorEntry] = {
    "ambiguous-number": ErrorEntry(
        "YAML would read the text as a number that looks different: in base 60, 16 or 8, or without its last zero.",
        _task("ports: [8000:22]"),
        _task('ports: ["8000:22"]'),
    ),
    "duplicate": ErrorEntry(
        "Something that may appear only once appears twice: a variable, a name, a path, a port.",
        _task("env:\n  - BATCH=32\n  - BATCH=64"),
        _task("env:\n  - BATCH=32"),
    ),
    "duplicate-key": ErrorEntry(
        "A key appears twice in a mapping. One of the two would be lost, so neither is used.",
        "type: task\nname: train\nname: test\ncommands: [make]",
        "type: task\nname: test\ncommands: [make]",
    ),
    "exclusive": ErrorEntry(
        "Two keys, or a key and a value, that can't go together.",
        _task('image: ubuntu\npython: "3.12"'),
        _task('python: "3.12"'),
    ),
    "invalid-address": ErrorEntry(
        "Not an IP address or network, or a public one where a private one is needed.",
        _hosts("network: 8.8.8.0/24"),
        _hosts("network: 192.168.1.0/24"),
    ),
    "invalid-cpu": ErrorEntry(
        "A requirement on CPUs that can't be read.",
        _task("resources:\n  cpu: four"),
        _task("resources:\n  cpu: 4.."),
    ),
    "invalid-cron": ErrorEntry(
        "A schedule that isn't five fields, has a value out of range, or means no day at all. Days of the week count "
        "from Monday, 0 to 6.",
        _task('schedule:\n  cron: "0 9 * * 7"'),
        _task('schedule:\n  cron: "0 9 * * sun"'),
    ),
    "invalid-duration": ErrorEntry(
        "A duration that can't be read. It is one whole number and one unit.",
        _task("max_duration: 1h30m"),
        _task("max_duration: 90m"),
    ),
    "invalid-env": ErrorEntry(
        "An entry of `env` that is neither `NAME=value` nor `NAME`.",
        _task("env:\n  - 1ST=x"),
        _task("env:\n  - FIRST=x"),
    ),
    "invalid-gpu": ErrorEntry(
        "A requirement on GPUs that can't be read. Its parts are told apart by their shape.",
        _task('resources:\n  gpu: "A100::2"'),
        _task('resources:\n  gpu: "A100:2"'),
    ),
    "invalid-interpolation": ErrorEntry(
        "A `${{ ... }}` that is never closed, names something unknown, or stands where nothing is filled in. "
        "Found when a configuration is applied.",
        "type: task\ncommands: ['python train.py ${{ args }}']",
        "type: task\ncommands: ['python train.py ${{ run.args }}']",
    ),
    "invalid-memory": ErrorEntry(
        "An amount of memory that can't be read. Units are MB, GB and TB.",
        _task("resources:\n  memory: 16G"),
        _task("resources:\n  memory: 16GB"),
    ),
    "invalid-mount": ErrorEntry(
        "A volume that isn't `name:/path` or `/host/path:/path`.",
        _task("volumes:\n  - data:/data:ro"),
        _task("volumes:\n  - data:/data"),
    ),
    "invalid-name": ErrorEntry(
        "A name with characters that names can't have, or one that is too long.",
        "type: task\ngroups:\n  - name: Workers\n    commands: [make]",
        "type: task\ngroups:\n  - name: workers\n    commands: [make]",
    ),
    "invalid-path": ErrorEntry(
        "A path that isn't absolute where it must be, or leads upwards.",
        _task("volumes:\n  - data:cache"),
        _task("volumes:\n  - data:/cache"),
    ),
    "invalid-port": ErrorEntry(
        "A port that can't be read.",
        _task('ports: ["8080:"]'),
        _task('ports: ["8080:80"]'),
    ),
    "invalid-range": ErrorEntry(
        "A range without bounds, with bounds the wrong way round, or without the upper bound it needs.",
        _task("resources:\n  memory: 32GB..16GB"),
        _task("resources:\n  memory: 16GB..32GB"),
    ),
    "invalid-reference": ErrorEntry(
        "Not `name` or `project/name`.",
        _task("fleets: [team/gpu/fleet]"),
        _task("fleets: [team/gpu-fleet]"),
    ),
    "invalid-tag": ErrorEntry(
        "A tag with characters that clouds don't allow.",
        _task("tags: {cost center: research}"),
        _task("tags: {cost-center: research}"),
    ),
    "invalid-timezone": ErrorEntry(
        "A time zone that doesn't exist. Zones have the names of the IANA database.",
        _task('schedule:\n  cron: "0 9 * * *"\n  timezone: CET/Berlin'),
        _task('schedule:\n  cron: "0 9 * * *"\n  timezone: Europe/Berlin'),
    ),
    "invalid-value": ErrorEntry(
        "A value that its type allows, but that isn't allowed here.",
        _task("shell: zsh"),
        _task("shell: /bin/zsh"),
    ),
    "missing": ErrorEntry(
        "A required key is missing.",
        "type: service\ncommands: [python -m http.server]",
        "type: service\nport: 8000\ncommands: [python -m http.server]",
    ),
    "not-utf8": ErrorEntry("The file isn't text in UTF-8.", "", ""),
    "too-large": ErrorEntry(
        "A number above what is possible, or a text or list that is too long.",
        _task("priority: 200"),
        _task("priority: 100"),
    ),
    "too-many": ErrorEntry(
        "More entries than are possible.",
        _task("repos:\n  - https://example.com/a.git\n  - https://example.com/b.git"),
        _task("repos:\n  - https://example.com/a.git"),
    ),
    "too-much": ErrorEntry(
        "A file over a megabyte, nested too deep, or whose aliases stand for more than a configuration can be.",
        "x: &x [*x]\n",
        _task("name: train"),
    ),
    "not-permitted": ErrorEntry(
        "A field that your role in the project doesn't allow here. The project's admins may use it, and "
        "`server/config.yml` may allow it to all members.",
        _task("privileged: true"),
        "type: task\ncommands: [python train.py]",
        ".dstack.yml:3:1: privileged: `privileged` is for the project's admins here: the container could take over its "
        "host (remove it, or ask the server's operator for `allow_non_admins_run_privileged`)",
    ),
    "too-small": ErrorEntry(
        "A number below what is possible, or something empty.", _task("max_price: 0"), _task("max_price: 0.5")
    ),
    "unknown-key": ErrorEntry("A key that isn't known there.", _task("gpu: 1"), _task("resources:\n  gpu: 1")),
    "unknown-value": ErrorEntry(
        "A word that isn't one of those allowed, or a name that nothing has.",
        _task("spot_policy: spots"),
        _task("spot_policy: spot"),
    ),
    "unset-variable": ErrorEntry(
        "A variable listed by name alone isn't set where the configuration is applied from. Found when it is applied.",
        _task("env:\n  - TOKEN"),
        _task("env:\n  - TOKEN=abc"),
    ),
    "unsupported": ErrorEntry(
        "Part of the language, but what it asks for can't be done yet. The server that would have to do it refuses it "
        "by name, so that nothing is accepted and ignored.",
        _task("setup: [make]"),
        "type: task\ncommands: [make, python train.py]",
        ".dstack.yml:3:1: setup: `setup` isn't supported yet: there is no stage before the commands "
        "(put them first in `commands` or `init`)",
    ),
    "wrong-type": ErrorEntry(
        "Text where a number should be, one value where a list should be, and so on.",
        "type: task\ncommands: python train.py",
        "type: task\ncommands:\n  - python train.py",
    ),
    "yaml-key": ErrorEntry(
        "A key that is a list or a mapping, or a `<<` that merges something else than a mapping.",
        _task("? [a]\n: b"),
        _task("name: b"),
    ),
    "yaml-syntax": ErrorEntry("The text can't be read as YAML.", _task("name: 'train"), _task("name: 'train'")),
    "yaml-tag": ErrorEntry(
        "A tag of YAML, which configurations don't use.", _task("name: !secret train"), _task("name: train")
    ),
}
