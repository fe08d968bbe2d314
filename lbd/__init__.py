"""lbd keeps an Apache Pulsar cluster balanced from outside the brokers. The loop, and where to read it:

1. observe each broker's load report              ``observe/observer.py``
2. permit: which samples count                    ``permit/evidence.py``
   and which bundles may move                     ``permit/rules.py``, by ``permit/settings.py``
3. decide which bundles should move where         ``decide/strategies.py``, first ``decide/avg_shedder.py``
4. permit: how many may move now, and where to    ``permit/limits.py``
5. act: unload to a named broker, and verify it   ``act/executor.py``, ``act/unload.py``
   only while this lbd leads                      ``act/fence.py``
6. store what happened, before and after          ``store/journal.py``, and for later ``store/history.py``
   what a kill left open is closed by             ``act/executor.py``

``turn/turn.py`` runs these steps once, ``turn/verdict.py`` says what it came to, and ``turn/record.py`` has the
figures of all screens, such as the gap.
``daemon/service.py`` is the process, ``daemon/engine.py`` one turn after the other, ``daemon/wiring.py`` the one place
where real parts are put together, and ``daemon/election.py`` decides which of several lbds moves. ``operations/``
holds what people order (``drain.py``, ``split.py``, ``place.py``), ``store/orders.py`` the orders in force; ``api/``
and ``cli/`` take their orders.
``config.py`` reads the settings, and each section's class stands beside its user; ``doctor/`` checks the cluster,
and ``notify/`` sends events to a webhook.
``simulate/``, ``compare/``, ``replay.py`` and ``learn/`` try lbd without a cluster; ``learn/choose.py`` is where
``lbd calibrate`` chooses, and ``charts/`` draws their reports.
``docs/architecture.md`` follows one turn.
"""

__version__ = "0.1.0"
