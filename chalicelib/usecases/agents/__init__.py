"""The calls of the programs on machines: credentials, one call for everything, tasks, logs, gateways."""
