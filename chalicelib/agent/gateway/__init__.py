"""A gateway: nginx, and the program that configures it.

`role`           the agent's part: installs nginx, and keeps the gateway's program running
`nginx.conf`, `lua/`  the data plane: static files; everything that changes is in nginx's shared memory
`packages`       installs nginx, without Debian's default page
`nginx`          writes these files and starts nginx
`control`        calls into that memory, over a unix socket
`entries`        the gateway's configuration → the entries of that memory: pure
`direct`         replicas that nginx reaches directly, without their agents
`worker_requests`  requests of nginx's workers: to check a token, to wake a service
`buckets`        nginx's counts → the traffic reports for the control plane: pure
`relays`         the route to replicas off the gateway's network: streams that their agents dial
`plane`          calls to the control plane
`program`        the loop around all of these
`command`        its command line
"""
