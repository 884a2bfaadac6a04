"""A fake cluster, held to a real server's OpenAPI document and to two real clients.

`cluster`      all of it, in one process, by the test's clock: start here.
`schema`       kinds and their fields, of the document `kubernetes.json` (README.md says where that is from);
               `quantities` are amounts, `selectors` those of labels and fields.
`store`        objects, versions and their history; `operations` is what verbs do to them (`patches`, `applying`).
`defaults`, `validation`, `admission`   what the server adds to an object and what it refuses: `quotas`, `security`.
`api`          requests to answers: `discovery`, `rbac`, `watching`, `streams` (logs, exec, ports; `websocket`),
               `errors`; `faults` is how it misbehaves, `transport` its socket.
`scheduler`    where pods go; `requests` is what they ask for. `controllers` are those of nodes, claims and owners.
               `stateful` is that of stateful sets.
`kubelet`      what becomes of pods on a node, by a runtime: `scripted` by a test, or an `engine` with real containers;
               `probes` are how it asks whether they are well.

What it doesn't have is answered with 404, 405, 422 or 501, never accepted and ignored: controllers of other workloads
(Deployments, Jobs), custom resources, volumes but those that it makes for claims, SPDY (so kubectl's port-forward),
protobuf but what `protobuf` names, `attach`, disruption budgets, scopes of quotas, hard topology spread, deletion in
the foreground, native gangs, DRA. Hooks of scripted pods always succeed, and so do their probes unless a test says
otherwise; an engine's pods can't have hooks, and probes by HTTP only.
Preferences among pods (soft affinity and spread) have no effect, as in a cluster that can't heed them.
"""
