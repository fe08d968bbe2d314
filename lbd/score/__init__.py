"""How good a run was: a scorecard, and what no plan could have beaten. Pure."""
