"""A task's disks and folders: found, checked, mounted and let go."""
