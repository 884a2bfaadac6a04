"""Containers in place of machines: the simulated cloud, whose containers a real engine runs from their images.

    cloud        the product's server, whose cloud sells them
    under_load   a service in several of them, and its callers

Each container has a network of its own, and reaches the server at the engine's end of the bridge.
"""
