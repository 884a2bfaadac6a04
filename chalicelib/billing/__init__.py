"""Money: what jobs, runs and volumes cost their users, and what a control plane in AWS costs its operator. Pure."""
