"""The kubelet refuses the driver, or the file system rejects its files: it says why, and goes on once it can."""

import shutil

import pytest

from tests.dra_driver.conftest import DriverNode, claim, result
from tests.dra_driver.stand_in_kubelet import Failed
from tests.dra_driver.test_driver_faults import prepare
from tests.waiting import eventually


def test_a_full_folder_is_said_and_loses_no_slot(node: DriverNode) -> None:
    shutil.rmtree(node.cdi, ignore_errors=True)
    node.cdi.write_text("not a folder")
    node.server.put(claim("one", result(node.gpus()[0])))
    with pytest.raises(Failed, match=r"the CDI file .* cannot be written"):
        node.kubelet.prepared("one")
    node.cdi.unlink()
    node.kubelet.prepared("one")
    assert len(node.slots()) == 1
    node.kubelet.unprepare("one")
    assert node.slots() == {}


def test_a_driver_that_the_kubelet_refuses_says_why_and_is_accepted_at_a_later_look(bare_node: DriverNode) -> None:
    node = bare_node
    node.metrics_address = "127.0.0.1:0"
    node.begin_agent()
    node.kubelet.refuses = "a driver with this name is known"
    node.begin_unfound_driver()
    assert eventually(lambda: node.kubelet.look() or node.kubelet.refused) == 1
    eventually(lambda: "kubelet: it refuses the driver: a driver with this name is known" in node.log("driver"))
    assert node.ask("driver", "/readyz") == (503, "the kubelet has not accepted the driver\n")
    assert "orion_dra_driver_registered 0.0" in node.ask("driver", "/metrics")[1]
    node.kubelet.refuses = ""
    eventually(node.kubelet.look)
    prepare(node, "one")
    assert "orion_dra_driver_registered 1.0" in node.ask("driver", "/metrics")[1]


def test_a_disk_that_is_full_by_a_limit_on_the_size_of_files_loses_no_slot(node: DriverNode) -> None:
    prepare(node, "one")
    files, slots = node.cdi_files(), node.slots()
    node.server.put(claim("two", result(node.gpus()[0])))
    node.limit_files("driver", 100)
    with pytest.raises(Failed, match=r"the record of claim n/claim-two cannot be saved: .*File too large"):
        node.kubelet.prepared("two")
    with pytest.raises(Failed, match=r"the record of claim n/claim-one cannot be saved"):
        node.kubelet.prepared("one")
    assert node.cdi_files() == files
    assert [path.name for path in node.records.iterdir()] == ["one.json"]
    node.limit_files("driver")
    node.kubelet.prepared("two")
    assert slots.items() <= node.slots().items()
    assert len(node.slots()) == 2
    node.limit_files("driver", 100)
    node.kubelet.unprepare("one")  # needs no space
    node.end("agent")
    with pytest.raises(Failed, match=r"the record of claim n/claim-two cannot be saved"):
        node.kubelet.unprepare("two")
    node.limit_files("driver")
    node.begin_agent()
    node.kubelet.unprepare("two")
    assert (node.slots(), node.cdi_files(), list(node.records.iterdir())) == ({}, {}, [])


def test_run_that_is_full_by_a_limit_on_the_size_of_files_is_said_and_loses_no_slot(node: DriverNode) -> None:
    """The limit lets records and CDI files pass, but not the hook, which somebody has removed."""
    prepare(node, "one")
    shutil.rmtree(node.folder / "hook")
    node.limit_files("driver", 32 << 10)
    with pytest.raises(Failed, match=r"the hook cannot be put into .*: .*File too large"):
        node.kubelet.prepared("one")
    node.server.put(claim("two", result(node.gpus()[0])))
    with pytest.raises(Failed, match=r"the hook cannot be put into .*: .*File too large"):
        node.kubelet.prepared("two")
    assert list(node.cdi_files()) == ["orion.gpu/claim=one_c0"]
    node.limit_files("driver")
    node.kubelet.prepared("two")
    node.kubelet.unprepare("one", "two")
    assert node.slots() == {}
    assert list(node.records.iterdir()) == []


def test_a_driver_that_starts_while_the_disk_is_full_by_a_limit_on_the_size_of_files_serves(node: DriverNode) -> None:
    prepare(node, "one")
    files, before = node.cdi_files(), node.kubelet.endpoint
    node.end("driver")
    shutil.rmtree(node.cdi)
    node.begin_unfound_driver()
    node.limit_files("driver", 100)
    eventually(lambda: node.kubelet.look() not in ("", before), "the kubelet finds the driver")
    node.limit_files("driver")
    node.kubelet.prepared("one")
    assert node.cdi_files() == files
