"""Synthetic webs and load: measures the scheduler through its own API."""
