"""Fakes of providers that are made from their published schemas.

`extract`    a published document to a fake's data file: only the operations that it answers, without any prose.
`forms`      OpenAPI 3, Swagger 2.0, Google's discovery documents and descriptors of protobuf, read into one form.
`schema`     that form: routes, and what in a request or an answer breaks it.
`server`     the fake: authenticate, validate, throttle, fail by the script, act, answer.
`books`      what exists at the provider, by the test's clock: states, lag, stock and quotas.
`script`     how it misbehaves: errors, cut connections and lies, before or after the effect.
`transport`  HTTP on loopback, and a session of `requests` without it; `procedures` is the same for gRPC.
`provider`   the fake as the conformance suite arranges it.

The others are providers. A new one is a data file, a class of 200 to 500 lines, and tests of the traps that it shows.
"""
