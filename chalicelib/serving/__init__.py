"""The server's own door to services: it authorises requests and passes them on to replicas, byte for byte.

It knows services only as plain values (`domain.serving`), which the embedding server looks up, so that one contract
suite can test it and the gateways alike.
"""
