"""The image is made again if what it is made of has changed, and only then."""

import pytest

from tools import image as making
from tools.image import editions, sources
from tools.image.archive import Archive
from tools.image.editions import Edition, Sources
from tools.image.making import state

# A build is half a minute, on two cores that others may be using.
pytestmark = [pytest.mark.node, pytest.mark.timeout(400)]


def test_the_same_sources_are_not_built_again(image: Archive) -> None:
    heard: list[str] = []
    path = making.build(heard.append)
    assert heard == [] or path != image.path  # somebody has changed a source meanwhile


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
    """The same Orion from other sources: what is built of sources is built again, and nothing in it differs."""

    def of(self, sources: Sources) -> dict[str, bytes]:
        return {**super().of(sources), "AGAIN": b""}


@pytest.mark.thorough
def test_what_is_built_again_is_the_same_to_the_byte(image: Archive) -> None:
    again = Archive(making.build(print, Again("again")))
    if _revision(image) != state():
        pytest.skip("somebody has changed a source meanwhile")
    assert _revision(again) != _revision(image)
    assert again.configuration["rootfs"]["diff_ids"] == image.configuration["rootfs"]["diff_ids"]
    assert [layer.digest for layer in again.layers()] == [layer.digest for layer in image.layers()]


def test_sources_say_their_version() -> None:
    assert editions.version(editions.OLDER.of(sources.read())) == editions.OLDER.version


def _revision(image: Archive) -> str:
    return str(image.configuration["config"]["Labels"]["org.opencontainers.image.revision"])
