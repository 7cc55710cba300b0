"""Background processes: each shard on its own, nothing over all pages at once."""
