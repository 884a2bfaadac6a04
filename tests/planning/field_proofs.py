"""Which test proves each field of a run, a fleet and a gateway: `FILE::TEST`, or `FILE::TEST[CASE]`.

Together with the product's tables of what isn't built, every field is decided once. A path covers everything below it.
"""

from __future__ import annotations

EFFECTS = "tests/planning/test_effects.py"
COLOCATION = "tests/planning/matching/test_colocation.py"
DEV_ENVIRONMENTS = "tests/planning/jobs/test_dev_environments.py"
DOORS = "tests/usecases/services/test_doors.py"
GANGS = "tests/engine/test_gangs.py"
GATEWAY_MACHINES = "tests/planning/gateways/test_gateway_machines.py"
GATEWAY_PLANS = "tests/api/test_gateways.py"
HOSTS = "tests/planning/machines/test_hosts.py"
NEIGHBOURS = "tests/planning/jobs/test_neighbours.py"
SCHEDULE = "tests/planning/runs/test_schedule.py"
SERVICES = "tests/planning/runs/test_service_run.py"
SERVICE_GATEWAYS = "tests/usecases/services/test_service_gateways.py"
UPLOADED = "tests/usecases/services/test_uploaded_certificates.py"
UTILIZATION = "tests/planning/runs/test_utilization.py"

RESOURCES = [
    *("cpu.arch", "cpu.count.min", "cpu.count.max", "memory.min", "memory.max", "shm_size"),
    *("gpu.vendor", "gpu.name", "gpu.count.min", "gpu.count.max", "gpu.memory.min", "gpu.memory.max"),
    *("gpu.total_memory.min", "gpu.total_memory.max", "gpu.compute_capability", "disk.size.min", "disk.size.max"),
]
# Shared by runs, profiles and, in part, fleets.
PLACING = [
    *("backends", "regions", "availability_zones", "instance_types", "spot_policy", "max_price", "idle_duration"),
    *("tags", "reservation", "backend_options"),
]
RUN_PARAMS = ["retry", "max_duration", "stop_duration", "creation_policy"]
RUNS_OWN = (*RUN_PARAMS, "fleets", "utilization_policy", "startup_order", "stop_criteria", "schedule", "instances")

LOGIN = ("user", "port", "identity_file", "ssh_key.public", "ssh_key.private")
JUMP = tuple(f"proxy_jump.{name}" for name in ("hostname", *LOGIN))
HOST = ("hostname", *LOGIN, *JUMP, "internal_ip", "blocks")
SSH = (*LOGIN, *JUMP, "network", *(f"hosts.{name}" for name in HOST))


def _each(test: str, prefix: str, *names: str) -> dict[str, str]:
    """Fields that one test proves."""
    return {f"{prefix}{name}": test for name in names}


def _cases(test: str, prefix: str, *names: str) -> dict[str, str]:
    """Fields that a test proves in a case named after each."""
    return {f"{prefix}{name}": f"{test}[{prefix}{name}]" for name in names}


def _effects(prefix: str, *names: str) -> dict[str, str]:
    return _cases(f"{EFFECTS}::test_effect", prefix, *names)


def _scaling(prefix: str) -> dict[str, str]:
    names = ("metric", "target", "window", "scale_up_delay", "scale_down_delay")
    return _cases(f"{SERVICES}::test_setting", prefix, *names)


def _params(prefix: str) -> dict[str, str]:
    return {
        **_effects(prefix, *PLACING, *RUN_PARAMS, "fleets.name", "fleets.project"),
        **_effects(f"{prefix}instances.", "name", "hostname", "fleet.project", "fleet.name", "instance"),
        f"{prefix}schedule.cron": f"{SCHEDULE}::test_a_run_waits_for_its_next_start_and_again_once_that_has_ended",
        f"{prefix}schedule.timezone": f"{SCHEDULE}::test_times_are_those_of_the_zone",
        f"{prefix}startup_order": f"{GANGS}::test_nodes_start_in_order_and_the_later_hold_their_hosts_meanwhile",
        f"{prefix}stop_criteria": f"{GANGS}::test_with_master_done_the_first_node_decides",
        f"{prefix}utilization_policy": f"{UTILIZATION}::test_a_gpu_below_for_the_whole_window_ends_the_job",
    }


def _plans(*names: str) -> dict[str, str]:
    return {f"configuration.{name}": f"{GATEWAY_PLANS}::test_field[{name}]" for name in names}


RUN_PROOFS: dict[str, str] = {
    **_effects("", "run_name", "repo_id", "file_archives.id", "file_archives.path", "ssh_key_pub"),
    **_effects("", "configuration_path", "repo_code_hash", "repo_dir"),
    **_effects("repo_data.", "repo_type", "repo_name", "repo_branch", "repo_hash", "repo_config_name"),
    **_effects("repo_data.", "repo_config_email", "repo_dir"),
    **_effects("configuration.", "type", "name", "image", "user", "privileged", "docker", "home_dir", "ports"),
    **_effects("configuration.", "entrypoint", "working_dir", "registry_auth", "python", "nvcc", "env", "shell"),
    **_effects("configuration.", "single_branch", "priority", "commands", "files.local_path", "files.path", "ide"),
    **_effects("configuration.", "version", "init", "nodes", "port", "probes", "replicas"),
    **_effects("configuration.", "model.type", "model.name", "model.prefix"),
    **_effects("configuration.resources.", *RESOURCES),
    **_effects("configuration.groups.", "name", "nodes", "resources", "commands", "ports", "replicas", "image"),
    **_effects("configuration.groups.", "python", "nvcc", "docker", "privileged", "spot_policy", "reservation"),
    **_effects("configuration.repos.", "local_path", "url", "branch", "hash", "path", "if_exists"),
    **_effects("configuration.volumes.", "name", "instance_path", "optional", "path"),
    **_each(
        f"{SERVICE_GATEWAYS}::test_a_service_is_where_its_configuration_says", "configuration.", "gateway", "https"
    ),
    **_each(
        f"{DOORS}::test_doors_are_told_what_the_configuration_says",
        "configuration.",
        *("auth", "strip_prefix", "rate_limits"),
    ),
    **_scaling("configuration.scaling."),
    **_scaling("configuration.groups.scaling."),
    "configuration.groups.router.type": (
        f"{NEIGHBOURS}::test_workers_of_dynamo_are_told_their_routers_address_and_nobody_tells_it_of_them"
    ),
    "configuration.dstack": "tests/api/test_job_access.py::test_it_is_good_as_long_as_its_run_lasts",
    "configuration.inactivity_duration": f"{DEV_ENVIRONMENTS}::test_one_that_nobody_uses_ends",
    **_params("configuration."),
    **_params("profile."),
    **_effects("profile.", "name", "default"),
}

# Here and in the cases of these tests, the paths of a fleet's spec begin with `fleet.`, so that none is also a run's.
FLEET_PROOFS: dict[str, str] = {
    **_effects("fleet.", "configuration_path", "autocreated"),
    **_effects("fleet.configuration.", "type", "name", "blocks", "nodes.min", "nodes.target", "nodes.max", "env"),
    **_effects("fleet.configuration.resources.", *(name for name in RESOURCES if name != "shm_size")),
    **_effects("fleet.configuration.", *PLACING),
    "fleet.configuration.placement": f"{COLOCATION}::test_the_first_machine_says_where_the_others_are_bought",
    **_cases(f"{HOSTS}::test_setting", "fleet.configuration.ssh_config.", *SSH),
    **_effects("fleet.profile.", "name", "default", *PLACING),
    **_each(f"{EFFECTS}::test_a_fleet_leaves_to_runs_what_is_theirs", "fleet.profile.", *RUNS_OWN),
}

GATEWAY_PROOFS: dict[str, str] = {
    "configuration_path": f"{GATEWAY_PLANS}::test_the_path_of_its_file_comes_back_with_the_plan",
    **_plans("type", "name", "default", "fleet", "backend", "region", "domain", "http_port", "https_port", "replicas"),
    **_plans("certificate.type"),
    **_each(f"{UPLOADED}::test_its_hosts_are_shown_it", "configuration.certificate.", "certificate", "key"),
    **_each(
        f"{GATEWAY_MACHINES}::test_a_named_type_is_bought_whatever_it_is", "configuration.", "instance_type", "tags"
    ),
}
