"""Learning: from history to thresholds with evidence. The only package that imports pyspark.

``features.py`` cleans history, ``window.py`` packs it into stretches of time, ``replay.py`` runs the real strategy over
such a stretch with other settings, ``choose.py`` selects the best settings, and ``calibrate.py`` connects them over a
Spark session. Nothing here contacts a cluster.
"""
