"""Two lbds, a fake cluster, everything that can go wrong, and an observer that takes no word of lbd for it."""
