"""The types of answers: `from dstack_serverless.types import Run`. They are dicts, so these names are for type
checkers; what they describe is in `/docs` of a server, too."""

from chalicelib.contract import *  # noqa: F403
