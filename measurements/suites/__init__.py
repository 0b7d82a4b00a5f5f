"""Runs test suites of other projects without the hook, as hp and as be, and compares them test by test.

    python -m measurements.suites --suite cupy --sources ~/cupy/tests --tests v14.2.0 --output cupy.json.gz
    python -m measurements.suites.page cupy.json.gz ... --write docs/compatibility.md

The suites' sources are not part of this repository: `--sources` names a folder with them.
"""
