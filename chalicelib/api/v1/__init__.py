"""What the resources under `/api/v1` have in common: problems, pages, tags of versions, keys of requests. Their routes
are in `routes/v1`, their JSON in `wire/v1`."""

PREFIX = "/api/v1/"
FLEETS = "fleets"  # as the changes of all fleets and instances are announced: an instance doesn't say whose it is
CHANGES = "changes"  # a listener's name for what every follower must know


def changes_in(project_id: str) -> str:
    """As a change is announced that a follower of the project may want to know."""
    return f"{CHANGES}/{project_id}"
