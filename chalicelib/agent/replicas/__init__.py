"""The services' replicas on this machine: whether they listen, their probes and queues, their router."""
