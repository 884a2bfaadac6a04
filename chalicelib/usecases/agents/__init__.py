"""What the programs on machines ask and report: credentials, one call for everything, tasks, logs, gateways."""
