"""What the resources under `/api/v1` have in common: problems, pages, tags of versions, keys of requests. Their routes
are in `routes/v1`, their JSON in `wire/v1`."""

PREFIX = "/api/v1/"
FLEETS = "fleets"  # as the changes of all fleets and instances are announced: an instance doesn't say whose it is
CHANGES = "changes"  # as any change is announced that somebody may follow
