"""The kit's parts, one test file each; and a small cloud with a JSON API, to see that they make a whole backend.

`cirrus` is the cloud, `backend` is what a provider's package would have, `provider` is how the suite arranges it.
"""
