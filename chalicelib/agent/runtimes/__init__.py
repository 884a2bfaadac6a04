"""How a task runs: as a plain process with a user of its own, or in a container; its files, repositories and GPUs."""
