"""Other frontiers, measured beside ours, each in an environment of its own."""
