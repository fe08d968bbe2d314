"""Learning: from history to thresholds with evidence. The only package that imports pyspark.

``curated.py`` cleans what history holds, ``packing.py`` packs it into stretches of time, ``closed_loop.py`` runs the
real deciding over such a stretch under other settings, ``choosing.py`` says which settings did best, and
``calibrate.py`` strings them together over a Spark session. Nothing here touches a cluster.
"""
