"""What tests of the chart share: the repository's root on the path. They need Helm, which is built where it is not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
