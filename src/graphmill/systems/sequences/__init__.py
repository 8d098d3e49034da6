"""SASRec and TiSASRec, next-item models over users' sequences, both with hyper-connections (mHC) as a setting."""
