"""Promotes finished runs to live versions: immutable folders, comparison with the live version, policy."""
