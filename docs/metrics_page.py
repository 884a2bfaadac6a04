"""`reference/prometheus.md`: the families that `/metrics` has, from the code that writes them."""

from __future__ import annotations

from pathlib import Path

from chalicelib.usecases.operator.exposition import FAMILIES

PAGE = Path(__file__).parent / "reference" / "prometheus.md"
HEAD = """\
# Metrics for Prometheus

`GET /metrics` is what Prometheus reads, with a user's token: it shows the projects that this user may see, and to
a global admin all of them and the engine. Give Prometheus a user of its own:

```yaml
scrape_configs:
  - job_name: dstack
    scrape_interval: 30s
    authorization: {credentials_file: /etc/prometheus/dstack-token}
    static_configs: [{targets: ["gpu.example.com:3000"]}]
```

[grafana/dstack.json](../grafana/dstack.json) is a dashboard of these metrics: in Grafana choose Dashboards, New,
Import. [prometheus/alerts.yml](../prometheus/alerts.yml) has [alerts](../operate/watch.md#alerts).

Names and labels that the genuine server has are the same. Labels of instances: `dstack_project_name`,
`dstack_fleet_name`, `dstack_fleet_id`, `dstack_instance_name`, `dstack_instance_id`, `dstack_instance_type`,
`dstack_backend`, `dstack_gpu`. Of jobs: `dstack_project_name`, `dstack_user_name`, `dstack_run_name`,
`dstack_run_id`, `dstack_job_name`, `dstack_job_id`, `dstack_job_num`, `dstack_replica_num`, `dstack_run_type`,
`dstack_backend`, `dstack_gpu`, and of one GPU `dstack_gpu_num`. Runs have the project and the user, or the status;
queues have the project. Tokens have the project, the run, its model and the door that counted them; the times of
services' answers have the same but for the model, and count what
[the guide says](../guides/services.md#how-fast-it-answers). A door counts anew once a service had no request for a few
minutes. Effects have `effect` and `outcome`.

A scrape reads the records of all listed runs. In AWS that is billed, and the engine's figures aren't here but in
CloudWatch.

| metric | type | |
|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(f"| `{name}` | {kind} | {description} |\n" for name, (kind, description) in FAMILIES.items())
