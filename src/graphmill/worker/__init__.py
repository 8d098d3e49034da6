"""``python -m graphmill.worker``: the process that trains or uses a run, started by Dagster, torchrun or a command."""
