"""How good a run was: a scorecard, and the fewest moves that any plan would have needed. Pure."""
