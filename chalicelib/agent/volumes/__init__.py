"""A task's disks and folders: found, checked, mounted and unmounted."""
