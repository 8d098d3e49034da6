"""SASRec and TiSASRec, next-item models over users' sequences, both with hyper-connections (mHC) as a setting."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "sasrec": Entry(
        __name__, "SasrecSettings", "SequenceRecipe", "SASRec: next items from a user's sequence", ranks="items"
    ),
    "tisasrec": Entry(
        __name__, "TisasrecSettings", "SequenceRecipe", "TiSASRec: next items, with time intervals", ranks="items"
    ),
}
