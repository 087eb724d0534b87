"""The benchmark suite: `make bench`, `make bench-peers`; `__main__.py` says what it runs."""
