"""The services' replicas on this machine: their ports, probes, queues and routers."""
