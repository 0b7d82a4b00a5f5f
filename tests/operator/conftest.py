"""Fixtures of the operator's tests: an API server whose faults a test can control."""

from tests.operator.scripted_api import script

__all__ = ["script"]
