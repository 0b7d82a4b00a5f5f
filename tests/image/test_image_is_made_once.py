"""The image is rebuilt if its sources have changed, and only then."""

import pytest

from tools import image as making
from tools.image import editions, sources
from tools.image.archive import Archive
from tools.image.editions import Edition, Sources
from tools.image.making import state

# A build takes half a minute on two cores, and other programs may be using these.
pytestmark = pytest.mark.node


def test_equal_sources_are_not_built_again(image: Archive) -> None:
    lines: list[str] = []
    path = making.build(lines.append)
    assert lines == [] or path != image.path  # a source was changed meanwhile


def test_another_name_is_another_archive_of_the_same_layers(image: Archive) -> None:
    named = Archive(making.build(print, name="localhost/orion/another:name"))
    assert (image.name, named.name) == ("localhost/orion:dev", "localhost/orion/another:name")
    if _revision(named) == _revision(image):
        assert [layer.digest for layer in named.layers()] == [layer.digest for layer in image.layers()]


def test_a_newer_edition_differs_in_orions_layer_alone(image: Archive) -> None:
    newer = Archive(making.build(print, making.NEWER))
    below, above = [layer.digest for layer in image.layers()], [layer.digest for layer in newer.layers()]
    assert below[:-1] == above[:-1]
    assert below[-1] != above[-1]
    [page] = newer.contents(lambda path: path.endswith("orion/hook/layout.py")).values()
    assert f"LAYOUT_VERSION = {making.NEWER.layout}\n" in page.decode()
    assert newer.configuration["config"]["Labels"]["org.opencontainers.image.version"] == making.NEWER.version


class Again(Edition):
    """The same Orion with one more source file, so that it is built again with the same result."""

    def of(self, sources: Sources) -> dict[str, bytes]:
        return {**super().of(sources), "AGAIN": b""}


@pytest.mark.thorough
def test_a_second_build_gives_the_same_bytes(image: Archive) -> None:
    again = Archive(making.build(print, Again("again")))
    if _revision(image) != state():
        pytest.skip("a source was changed meanwhile")
    assert _revision(again) != _revision(image)
    assert again.configuration["rootfs"]["diff_ids"] == image.configuration["rootfs"]["diff_ids"]
    assert [layer.digest for layer in again.layers()] == [layer.digest for layer in image.layers()]


def test_the_version_is_read_from_the_sources() -> None:
    assert editions.version(editions.OLDER.of(sources.read())) == editions.OLDER.version


def _revision(image: Archive) -> str:
    return str(image.configuration["config"]["Labels"]["org.opencontainers.image.revision"])
