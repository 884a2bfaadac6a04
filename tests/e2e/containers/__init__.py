"""Containers in place of machines, which a real engine runs from their images.

    cloud        the product's server, whose simulated cloud sells them
    markets      the same with Runpod and Vast.ai as backends, which are the tests' own
    root         what these servers share
    under_load   a service in several of them, and its callers

Each container has a network of its own, and reaches the server at the engine's end of the bridge.
"""
