"""Everything on disk: the journal of moves, the state between turns, kept turns, history and recordings."""
