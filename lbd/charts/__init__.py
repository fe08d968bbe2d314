"""Charts in pages that open without a network.

``chart.py`` has a chart as a value, ``page.py`` the page with charts and tables. ``static/`` is what draws them in a
browser, here and on the dashboard; ``static/uplot/`` is uPlot 1.6.32 (MIT), unchanged from its npm package.
"""
