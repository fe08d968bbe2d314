"""Strategies side by side: each runs for itself, in real turns of lbd, over the same scenario or the same recording.

``candidates.py`` says what is compared, ``recorded.py`` what a recorded cluster would have reported under other owners,
``rerun.py`` runs lbd on that, and ``side_by_side.py`` makes a scorecard of each.
"""
