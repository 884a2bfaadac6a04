"""Packing of bodies in DynamoDB. Writes are billed by the kilobyte, and our JSON shrinks to a third, so a body that
exceeds a kilobyte with its keys is packed; smaller ones cost the same unpacked, and stay readable in the console.

A body is too short for zlib to learn our field names, so it gets a dictionary: the fields of a run's spec, most of them
without a value. With it, a plain run's spec takes one kilobyte and not two. Stored bodies can only be read with this
same dictionary, so it never changes; bodies that were packed without it can be read as well.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

READABLE = 700  # bytes; with its keys and its place in the indexes it is a kilobyte

_EMPTY = """replica_group user requirements reservation multinode ssh_key service_port probes runtime isolated
job_name commands image_name max_duration stop_duration utilization_policy registry_auth volumes repo_exists_action
node_group_index node_group_name node_group_job_index run_name repo_code_hash repo_dir file_archives working_dir
configuration_path backends regions availability_zones instance_types spot_policy retry max_price creation_policy
idle_duration startup_order stop_criteria schedule fleets instances tags backend_options name image privileged
entrypoint home_dir python nvcc single_branch env shell arch shm_size vendor total_memory compute_capability docker
repos files dstack setup ports priority"""
_USUAL = (
    r"{\"replica_num\":0,\"job_num\":0,\"jobs_per_replica\":1,\"app_specs\":[],\"repo_id\":\"none\",\"repo_data\":"
    r"{\"repo_type\":\"virtual\"},\"home_dir\":\"/root\",\"type\":\"task\",\"commands\":[\"/bin/bash\",\"-i\",\"-c\",\""
    r"\"configuration\":{\"profile\":{\"default\":false},\"ssh_key_pub\":\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"
    r"\"resources\":{\"cpu\":{\"arch\":null,\"count\":{\"min\":2,\"max\":null}},\"memory\":{\"min\":8.0,\"max\":null},"
    r"\"shm_size\":null,\"gpu\":{\"vendor\":null,\"name\":null,\"count\":{\"min\":0,\"max\":null},\"memory\":null,"
    r"\"total_memory\":null,\"compute_capability\":null},\"disk\":{\"size\":{\"min\":100.0,\"max\":null}}},"
)
WORDS = ("".join(rf"\"{name}\":null," for name in _EMPTY.split()) + _USUAL).encode()


@lru_cache(maxsize=256)
def packed(body: bytes) -> bytes | None:
    """The packed body; None if it is small enough as it is."""
    if len(body) <= READABLE:
        return None
    packer = zlib.compressobj(9, zdict=WORDS)
    return packer.compress(body) + packer.flush()


def unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(zdict=WORDS)
    body = unpacker.decompress(data)
    if not unpacker.eof:
        raise zlib.error("a packed body ends too early")
    return body
