"""Containers in place of machines: the simulated cloud, whose containers a real engine runs from their images.

    cloud     the product's server, whose cloud sells them

The server is in the engine's own network namespace, where its containers are too.
"""
