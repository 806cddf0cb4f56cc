// TokenIndex.
