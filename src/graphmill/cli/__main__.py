"""``python -m graphmill.cli``: the same as ``graphmill``."""

from graphmill.cli import main

if __name__ == "__main__":
    main()
