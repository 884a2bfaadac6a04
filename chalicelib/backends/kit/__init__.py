"""What providers share, so that a further one is short. It knows no provider.

`rest.py`        a client of a JSON API: one attempt a call, one deadline; signing and transport are inputs.
`paging.py`      listings in pages.
`errors.py`      what a provider's failures mean: a table by code, text and status; texts without secrets.
`limits.py`      a token bucket for all calls of an account.
`regions.py`     every region asked at once.
`zones.py`       one zone tried after another, with a token for each.
`cache.py`       values that were looked up, for a while.
`visibility.py`  what was created and isn't listed yet.
`owners.py`      whose a resource is, by its tags or its name; owner tags as labels that a provider takes.
`scripts.py`     the start script of a machine, as the provider takes it.
`gpus.py`        a provider's name of a GPU, in ours.
"""
