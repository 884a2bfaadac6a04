"""One file per command group; each has `app`, imported only when the group is used."""
