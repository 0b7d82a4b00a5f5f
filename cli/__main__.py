"""`python -m orion.cli`: the same as `orion`, for when the command is not on PATH."""

import sys

from orion.cli.main import main

sys.exit(main())
