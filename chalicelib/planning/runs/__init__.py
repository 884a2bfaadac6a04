"""Decisions about runs: their replicas, retries, time-outs, schedules and ends; services with their rollouts and scaling."""
