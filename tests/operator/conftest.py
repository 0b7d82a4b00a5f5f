"""What tests of the operator share: an API server that does what a test asks for."""

from tests.operator.scripted_api import script

__all__ = ["script"]
