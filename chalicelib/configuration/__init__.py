"""The `*.dstack.yml` language: text to spec, with errors that say where, what and how to mend it. Pure.

`parse` reads a file, `problems_of` puts what a model refused in words, whichever way it came in. YAML is imported when
the first file is read, so that an API that only checks bodies doesn't pay for it.
"""

from chalicelib.configuration.parse import Configuration as Configuration
from chalicelib.configuration.parse import parse as parse
from chalicelib.configuration.parse import parse_bytes as parse_bytes
from chalicelib.configuration.parse import parse_profiles as parse_profiles
from chalicelib.configuration.problems import problems_of as problems_of
