"""The server's own door to services: a request comes in, is judged, and goes on to a replica, byte for byte.

It knows services only as plain values (`domain.serving`), which whoever starts it looks up, so that the suite which
holds it to its contract can hold a gateway to the same.
"""
