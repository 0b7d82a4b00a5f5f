"""Shared by tests of the image: the image, built once for each state of its sources, and its files."""

from collections.abc import Iterator

import pytest

from tests.image.containers import Container
from tools import image as making
from tools.image.archive import Archive


@pytest.fixture(scope="session")
def image() -> Archive:
    """The image of this checkout. The first build on a machine takes minutes, later ones seconds."""
    return Archive(making.build(print))


@pytest.fixture(scope="session")
def container(image: Archive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of the image, with a read-only root file system."""
    folder = tmp_path_factory.mktemp("image")
    with Container(image, folder / "root") as container:
        yield container
