"""Jobs on a real NVIDIA card: `make e2e-gpu`, on a machine that has one. No part of `make test`, which needs no GPU."""
