"""Builds Orion's container image on this machine without docker: with buildah, on bases made of Debian's packages.

`build` returns an archive that a container runtime can import. It rebuilds the image only if its inputs have changed.
"""

from tools.image.editions import NEWER, OLDER, THIS, Edition
from tools.image.making import NAME, build

__all__ = ["NAME", "NEWER", "OLDER", "THIS", "Edition", "build"]
