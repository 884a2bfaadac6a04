"""Pure decisions. `decide(snapshot) -> Plan` is synchronous, total, and takes its clock, ids and offers as inputs."""
