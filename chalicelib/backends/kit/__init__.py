"""What providers share, so that a new one needs little code. Nothing here depends on a provider.

`rest.py`        a client for a JSON API: one attempt and one deadline per call; signing and transport are inputs.
`delegation.py`  calls that a backend's class passes on to its parts.
`paging.py`      listings in pages.
`errors.py`      what a provider's failures mean: a table by code, text and status; texts without secrets.
`tables.py`      a provider's tables as data files.
`bodies.py`      bodies of requests as data, filled in.
`rpc.py`         connections for gRPC: one attempt and one deadline per call; Google's codes of failures.
`limits.py`      a token bucket for all calls of an account.
`regions.py`     calls to every region at once.
`zones.py`       tries one zone after another, with a token for each.
`checking.py`    checks of an account: all problems at once.
`hints.py`       what is good to know and not needed.
`tokens.py`      an account's access token.
`oauth.py`       exchanges for access tokens.
`offers.py`      offers of machines, with disks made to order.
`operators_prices.py`  prices of a provider whose API says none.
`groups.py`      placement groups that some types don't need.
`volumes.py`     what happens to volumes at every provider.
`cache.py`       keeps looked-up values for a while.
`clock.py`       the time, from outside.
`handles.py`     handles, with where and since when their resources are.
`visibility.py`  resources that were created and may not be listed yet.
`owners.py`      a resource's owner, by its tags or name; owner tags as labels that the provider accepts.
`dated_names.py`  names with the time of creation, for providers without tags and times.
`scripts.py`     a machine's start script, in the form that the provider accepts.
`ssh_key.py`     a key that nobody has, where one must be named.
`data_disk.py`   puts jobs and images on a data disk, or on a machine's own disks.
`docker_setup.py`  installs Docker on machines whose image lacks it.
`gpus.py`        translates a provider's GPU names into ours.
"""
