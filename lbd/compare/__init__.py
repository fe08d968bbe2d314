"""Strategies side by side: each runs separately, in real turns of lbd, over the same scenario or the same recording.

``side_by_side.py`` runs lbd on what a recorded cluster would have reported under other owners, and makes a scorecard of
each run; ``summary.py`` recommends one.
"""
