"""Services and gateways: who may call which service, where it is, its certificates, and its traffic."""
