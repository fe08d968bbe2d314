"""What a broker's score would be with other bundles. Pure.

Rates of bundles are given, who owns them is the plan's, and a broker uses of each resource its background plus a slope
times the traffic that it owns: ``linear.py``. ``samples.py`` gathers what reports tell of that, ``fit.py`` makes a
model of it, and ``error.py`` measures the model on moves that really happened.
"""
