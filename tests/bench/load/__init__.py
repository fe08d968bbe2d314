"""The API and the dashboard of a real daemon at 100 brokers x 65,000 bundles, beside its turns: figures, not tests.

Three processes on one machine: a simulated cluster behind Pulsar's REST API (``cluster.py``), ``lbd run`` with a stop
watch (``daemon.py``), and this one, which asks (``asking.py``) and looks at the page (``page.py``).
"""
