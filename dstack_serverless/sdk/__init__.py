"""The SDK for programs in Python.

`flow`       what a method does, as a generator of requests and pauses: the same for both clients.
`core`       one request from its first attempt to its answer: retries, errors.
`client`     `Client` and `AsyncClient`: they carry out flows over httpx.
`errors`     what a refusal becomes.
`resource`   how a flow becomes a method of both clients.
`runs`, …    the nouns, a file each.

Beside it, `dstack_serverless.api` has a function for each call of the API. It is generated (`make docs`).
"""
