"""Hostile calls by several tenants at once: `make fuzz CALLS=200000 SEED=1`.

`calls.py` draws a call from its number: a caller, a route, and a body by the route's schema, then changed in a few
places. `documents.py` draws what isn't a call: archives for the agent, configuration files. `tenants.py` builds three
projects full of canaries, texts that only their own may read. `watch.py` judges each call: no failure of ours, no
canary in a stranger's answer, no record of a stranger written. `play.py` runs them in batches, each on a new control
plane, so that one number plays again what led to a find, with `pool.py` on every core; `wire.py` sends a share of
them to a server over sockets.

`pairs.py` draws what a client sends to a door, and judges what a replica gets of it and what comes back; `doors.py`
plays that with both doors. `python -m tests.fuzz.doors` does only this.

`requests.json` is what the genuine server says of its requests (its `/openapi.json`, without titles, defaults, and
the routes that this one refuses by name).

Why our own: schemathesis makes as good a request, but knows neither who asks nor what somebody else may not see, and
that is what most of this is about; it would replace the hundred lines of `shapes.py` by a heavy dependency. Hypothesis
shrinks and remembers what failed, and takes milliseconds for each example of these sizes: `tests/api/test_nonsense.py`
uses it where a thousand examples do. Here there are 200,000.
"""
