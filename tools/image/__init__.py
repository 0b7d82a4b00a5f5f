"""Orion's container image, built on this machine without docker: by buildah, on bases made of Debian's packages.

`build` gives an archive that a container runtime imports; it is made again only if what it is made of has changed.
"""

from tools.image.editions import NEWER, OLDER, THIS, Edition
from tools.image.making import NAME, build

__all__ = ["NAME", "NEWER", "OLDER", "THIS", "Edition", "build"]
