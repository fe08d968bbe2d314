"""Prediction of a broker's score with other bundles. Pure.

Rates of bundles are given, a plan decides their owners, and a broker uses of each resource its background plus a slope
times the traffic that it owns: ``estimate.py``. ``samples.py`` gathers samples from reports, ``fit.py`` fits a model to
them, and ``model_error.py`` measures the model on moves that really happened.
"""
