"""Metrics, noise floor, verdict, identity."""
