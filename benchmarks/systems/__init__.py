"""The systems that are compared, each a module that runs as a worker process."""
