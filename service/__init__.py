"""Freshet decides which URL a crawler fleet should fetch next."""

__version__ = "0.1.0"
