"""Decisions about runs: their replicas, retries, time-outs, schedules, ends, and services with rollouts and scaling."""
