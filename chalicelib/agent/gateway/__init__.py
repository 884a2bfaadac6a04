"""A gateway: nginx, and the program that configures it.

`role`           a machine that carries a gateway: keeping its program running
`nginx.conf`, `lua/`  the data plane: static files; everything that changes is in nginx's shared memory
`packages`       installs nginx, without Debian's default page
`nginx`          writes them, starts nginx and keeps it running
`control`        the calls into that memory, over a unix socket
`entries`        the gateway's configuration → what is in that memory: pure
`direct`         which replicas the gateway reaches by itself
`worker_requests`  what nginx's workers ask: whether a token is good, and to wake a service
`buckets`        what nginx has counted → what the control plane wants to know: pure
`relays`         the way to replicas off the gateway's network: streams that their agents dial
`plane`          the calls to the control plane
`program`        the loop around it
`command`        its command line
"""
