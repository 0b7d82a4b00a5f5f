"""What tests of the image share: the image, built once for each state of its sources, and its files."""

from collections.abc import Iterator

import pytest

from tests.image.containers import Container
from tools import image as making
from tools.image.archive import Archive


@pytest.fixture(scope="session")
def image() -> Archive:
    """The image of this checkout; building it is minutes on a machine that never has, else seconds or nothing."""
    return Archive(making.build(print))


@pytest.fixture(scope="session")
def container(image: Archive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of the image, whose root file system is read-only."""
    folder = tmp_path_factory.mktemp("image")
    with Container(image, folder / "root") as container:
        yield container
