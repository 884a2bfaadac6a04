"""The `*.dstack.yml` language: text to spec, with errors that say where, what and how to mend it. Pure."""

from chalicelib.configuration.problems import problems_of as problems_of
