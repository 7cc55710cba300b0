"""Everything that knows Redis; nothing else does."""
