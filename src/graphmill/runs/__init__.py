"""Settings and a graph become a run directory: the process that torchrun, Dagster or the command line starts."""
