"""From a finished run to a version that is live: immutable folders, the comparison of candidate and champion, the policy."""
