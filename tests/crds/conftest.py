"""Tests of the API types share a checker of schemas, imported from the root like the tables of other rooms' tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
