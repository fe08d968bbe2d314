"""The quality of a run: a scorecard, and bounds that no plan can beat. Pure."""
