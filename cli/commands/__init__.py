"""One file a command group; each holds `app`, imported only when the group is called for."""
