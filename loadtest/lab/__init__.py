"""The policies and experiments of the papers, run against the same synthetic webs."""
