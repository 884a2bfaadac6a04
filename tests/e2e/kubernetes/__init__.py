"""Pods, through the whole plane: a cluster's API server, scheduler and kubelet are the tests' fake, and a real engine
runs the pods' containers.

    cluster   the cluster, its process, and how a server gets it
    plane     the product's server, with carriers of packages that apt fetches

The server and the cluster are in the engine's own network namespace, where its containers are too.
"""
