"""Why a test of others ends differently by role: patterns of node ids for each suite, each with the reason.

The page names each such test. A test without a reason makes measurements.suites.page fail.
"""

REASONS: dict[str, dict[str, str]] = {}
