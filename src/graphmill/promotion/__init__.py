"""How a finished run becomes the live version: immutable folders, comparison of candidate and champion, the policy."""
