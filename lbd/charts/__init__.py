"""Charts in pages that open without a network.

``chart.py`` has a chart as a value, ``page.py`` the page with charts and tables, and ``charts.js`` draws. ``uplot/`` is
uPlot 1.6.32 (MIT), with ``uPlot.iife.min.js`` and ``uPlot.min.css`` unchanged from its npm package.
"""
