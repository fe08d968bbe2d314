"""Recording: the journal of moves, the memory between turns, and rounds of load reports."""
