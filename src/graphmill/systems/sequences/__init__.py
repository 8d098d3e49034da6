"""SASRec and TiSASRec, next-item models over users' sequences, both with hyper-connections (mHC) as a setting."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "sasrec": Entry(
        __name__, "SasrecSettings", "SequenceSystem", "SASRec: next items from a user's sequence", ranks="items"
    ),
    "tisasrec": Entry(
        __name__, "TisasrecSettings", "SequenceSystem", "TiSASRec: next items, with time intervals", ranks="items"
    ),
}
