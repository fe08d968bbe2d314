"""Learning: from history to thresholds with evidence. The only package that imports pyspark.

``rounds.py`` cleans history, ``window.py`` packs it into stretches of time, ``replay.py`` runs the real strategy over
such a stretch with other settings, ``choose.py`` selects the best settings, and ``calibrate.py`` connects them. All of
these are pure functions of plain values. ``job.py`` runs them on Spark, and nothing else needs it. Nothing here
contacts a cluster.
"""
