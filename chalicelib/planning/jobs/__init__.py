"""From the spec of a run to the specs of its jobs: what each runs, mounts and learns of the others."""
