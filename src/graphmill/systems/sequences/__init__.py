"""The recipes sasrec and tisasrec: next-item models over users' sequences. mHC is a setting of both."""
