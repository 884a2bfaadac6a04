"""Machines that are bought from clouds, from the order to the bill: what a cloud does with their boot scripts, a host
does here.

    cloud        what the journey needs to know of a cloud's fake
    rental       the site, the product's server in it, and a cloud that is served where the server calls it
    aws, ...     each cloud, in a few lines
    containers   clouds that sell nothing else: for the genuine clients, without a journey

A cloud's file has a class `Journey`, made from `Cloud`. The server finds the fake by `DSTACK_BACKEND_ENDPOINTS`.
"""
