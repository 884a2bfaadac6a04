"""The commands and flags that people and scripts know, from the client that they come from: names alone.

A flag of a group (`dstack fleet -v`) stands with the group. `destroy` is `delete` under another name.
"""

from __future__ import annotations

PROFILE = (
    "--profile --no-profile --max-price --max-duration -b --backend -r --region --instance-type --fleet -R --reuse "
    "--dont-destroy --idle-duration --spot --on-demand --spot-auto --spot-policy --retry --no-retry --retry-duration"
)
RESOURCES = "--cpu --gpu --memory --disk"
OFFERS = "--max-offers --full-offers --unallocated"
EVENTS = (
    "-w --watch --since --target-fleet --target-run --target-volume --target-gateway --target-secret "
    "--within-fleet --within-run --within-gateway --include-target-type"
)
PRESETS = "-v --verbose -w --watch --json -a --all -n --last --base --repo"

KNOWN: dict[str, str] = {
    "": "-v --version",
    "apply": f"--project -f --file -y --yes --force -d --detach -v --verbose --ssh-identity -n --name {OFFERS} "
    f"-e --env {RESOURCES} {PROFILE} -P --repo --repo-branch --repo-hash --no-repo -t --token --git-identity -p --port "
    "--host --keep-service --trials --previous",
    "attach": "--project --ssh-identity --logs --host -p --port --replica --job --since",
    "completion": "",
    "delete": "--project -f --file -y --yes",
    "destroy": "--project -f --file -y --yes",
    "event": f"--project {EVENTS}",
    "event list": EVENTS,
    "export": "--project",
    "export list": "",
    "export create": "--importer --fleet --gateway --global",
    "export update": "--add-importer --remove-importer --add-fleet --remove-fleet --add-gateway --remove-gateway "
    "--set-global --unset-global",
    "export delete": "-y --yes",
    "fleet": "--project -w --watch -v --verbose",
    "fleet list": "-w --watch -v --verbose",
    "fleet get": "--id --json",
    "fleet delete": "-i --instance -y --yes",
    "gateway": "--project -w --watch -v --verbose --format --json",
    "gateway list": "-w --watch -v --verbose --format --json",
    "gateway get": "--json",
    "gateway delete": "-y --yes",
    "gateway update": "--set-default --domain",
    "import": "--project",
    "import list": "",
    "import delete": "-y --yes",
    "init": "--project -P --repo -t --token --git-identity",
    "login": "--url -p --provider -y --yes -n --no",
    "logs": "--project -d --diagnose --replica --job --since",
    "metrics": "--project -w --watch --replica --job",
    "offer": f"--project --format --json --group-by {OFFERS} {RESOURCES} {PROFILE}",
    "preset": f"--project {PRESETS}",
    "preset list": PRESETS,
    "preset get": "--json",
    "preset create": f"-f --file -n --name {PROFILE} --keep-service --trials --previous -y --yes",
    "preset logs": "-f --follow --keep-service",
    "preset stop": "-y --yes",
    "preset resume": "--keep-service",
    "preset export": "-f --file -n --name --force",
    "preset push": "",
    "preset pull": "",
    "preset delete": "--base --repo -y --yes",
    "project": "-v --verbose",
    "project add": "--name --url --token -y --yes -n --no",
    "project list": "-v --verbose",
    "project delete": "--name -y --yes",
    "project set-default": "",
    "ps": "--project -a --all -v --verbose -w --watch -n --last --format --json",
    "run": "--project",
    "run get": "--id --json",
    "secret": "--project",
    "secret list": "",
    "secret get": "",
    "secret set": "",
    "secret delete": "-y --yes",
    "server": "--host -p --port -d --debug -l --log-level -y --yes -n --no --token",
    "stop": "--project -x --abort -y --yes",
    "volume": "--project -w --watch -v --verbose",
    "volume list": "-w --watch -v --verbose",
    "volume get": "--json",
    "volume delete": "-y --yes",
}
KNOWN_FLAGS = [(name, flag) for name, flags in KNOWN.items() for flag in flags.split()]
