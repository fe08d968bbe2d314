"""lbd keeps an Apache Pulsar cluster balanced from outside the brokers. The loop, and where to read it:

1. observe every broker's load report             ``observe/observer.py``
2. decide which bundles should move where         ``decide/``, first ``decide/avg_shedder/``
3. permit: who may move before, how much after    ``permit/``
4. act: unload to a named broker, and see it land ``act/executor.py``, ``act/unloader.py``
5. record what happened, before and after         ``record/journal/``

``cycle/`` strings them together; ``daemon/assembled.py`` is the one place where the real parts are chosen.
"""

__version__ = "0.1.0"
