"""The answer of Allocate for each strategy of device injection. Allocate asks neither the agent nor the API server."""

from pathlib import Path

import pytest

from orion.crds.node_configuration import DeviceListStrategy, NodeSettings, Preload
from orion.device_plugin.allocating import Allocator
from orion.device_plugin.kubelet import api_pb2
from orion.errors import Invalid, Unavailable
from orion.injection.describing import Places
from orion.injection.installing import HookFolder
from orion.injection.slots import Resource
from orion.injection.snapshot import Snapshot, from_message
from tests.device_plugin.scripted_agent import GPUS, devices

Answer = api_pb2.ContainerAllocateResponse


class Bench:
    """An allocator with its own folders."""

    def __init__(self, folder: Path) -> None:
        self.root, self.host = folder / "root", folder / "host"
        self.snapshot: Snapshot | None = from_message(devices(2, simulated=False))
        self.settings = NodeSettings()
        self.files = HookFolder(folder / "hook")
        self.files.install()
        places = Places(self.root, self.host, self.files)
        self._allocator = Allocator(places, lambda: self.snapshot, lambda: "", lambda: self.settings)

    def allocate(self, *ids: str, resource: Resource = Resource.BE) -> Answer:
        return self._allocator.allocate(resource, ids)

    def configure(self, **settings: object) -> None:
        self.settings = NodeSettings(**settings)  # type: ignore[arg-type]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def mounts(answer: Answer) -> dict[str, str]:
    assert all(mount.read_only for mount in answer.mounts)
    return {mount.container_path: mount.host_path for mount in answer.mounts}


BE0, BE1, OTHER = f"{GPUS[0]}::be-0", f"{GPUS[0]}::be-1", f"{GPUS[1]}::be-2"


def test_slot_and_hook_are_mounted_read_only(bench: Bench) -> None:
    answer = bench.allocate(BE0)
    assert mounts(answer) == {
        "/run/orion/lib": str(bench.files.current),
        f"/run/orion/slots/{GPUS[0]}": str(bench.root / "gpus" / GPUS[0] / "be-0"),
        f"/run/orion/mps/{GPUS[0]}": str(bench.root / "mps" / GPUS[0] / "clients"),
    }
    assert dict(answer.envs) == {
        "NVIDIA_VISIBLE_DEVICES": GPUS[0],
        "CUDA_MPS_PIPE_DIRECTORY": f"/run/orion/mps/{GPUS[0]}",
        "ORION_CONNECTIONS": "32",
    }


def test_equal_requests_in_any_order_get_equal_answers(bench: Bench) -> None:
    answers = [bench.allocate(*ids).SerializeToString(deterministic=True) for ids in ((BE0, OTHER), (OTHER, BE0))]
    assert len({*answers, bench.allocate(BE0, OTHER).SerializeToString(deterministic=True)}) == 1
    assert bench.allocate(OTHER, BE0).envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(GPUS[:2])


def test_the_answer_does_not_depend_on_the_mode_of_the_gpu(bench: Bench) -> None:
    before = bench.allocate(BE0).SerializeToString(deterministic=True)
    wanted = bench.root / "mps" / GPUS[0] / "wanted"
    wanted.parent.mkdir(parents=True)
    wanted.write_text("{}")
    assert bench.allocate(BE0).SerializeToString(deterministic=True) == before


def test_a_container_with_several_gpus_needs_mode_timeslice(bench: Bench) -> None:
    answer = bench.allocate(BE0, OTHER)
    assert not [mount for mount in answer.mounts if "mps" in mount.container_path]
    assert answer.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/run/orion/mps"  # this folder is empty
    (bench.root / "mps" / GPUS[1]).mkdir(parents=True)
    (bench.root / "mps" / GPUS[1] / "wanted").write_text("{}")
    with pytest.raises(Invalid, match=f"GPU {GPUS[1]} is in mode mps, and a container with 2 GPUs"):
        bench.allocate(BE0, OTHER)


def test_cdi_by_annotation(bench: Bench) -> None:
    bench.configure(device_list_strategy=DeviceListStrategy.CDI_ANNOTATIONS)
    answer = bench.allocate(BE0, OTHER)
    assert dict(answer.annotations) == {
        "cdi.k8s.io/orion-device-plugin_be": f"nvidia.com/gpu={GPUS[0]},nvidia.com/gpu={GPUS[1]}"
    }
    assert "NVIDIA_VISIBLE_DEVICES" not in answer.envs


def test_cdi_by_the_field_of_the_cri(bench: Bench) -> None:
    bench.configure(device_list_strategy=DeviceListStrategy.CDI_CRI)
    assert [device.name for device in bench.allocate(BE0).cdi_devices] == [f"nvidia.com/gpu={GPUS[0]}"]


def driver(host: Path, root: str = "") -> None:
    """Create the files of an installed driver on a node."""
    libraries = host / root / "usr" / "lib64"
    libraries.mkdir(parents=True)
    for name in ("libcuda.so.580.65", "libnvidia-ml.so.580.65", "libnvidia-glcore.so.580.65"):
        (libraries / name).touch()
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.580.65")
    (libraries / "libcuda.so").symlink_to("libcuda.so.1")
    (host / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (host / "dev" / name).touch()


@pytest.mark.parametrize("root", ["", "run/nvidia/driver"])
def test_device_nodes_and_the_drivers_libraries(bench: Bench, root: str) -> None:
    driver(bench.host, root)
    bench.configure(device_list_strategy=DeviceListStrategy.DEVICE_NODES, driver_root=f"/{root}")
    answer = bench.allocate(OTHER)
    assert [(device.container_path, device.host_path, device.permissions) for device in answer.devices] == [
        (f"/dev/{name}", f"/dev/{name}", "rw") for name in ("nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    ]
    found = mounts(answer)
    real = str(Path("/", root, "usr/lib64/libcuda.so.580.65"))
    for name in ("libcuda.so.1", "libcuda.so.580.65"):
        assert found[f"/usr/lib64/{name}"] == real
        assert found[f"/usr/lib/x86_64-linux-gnu/{name}"] == real
    assert "/usr/lib64/libnvidia-ml.so.580.65" in found
    assert not any("glcore" in path or path.endswith("libcuda.so") for path in found)
    assert "NVIDIA_VISIBLE_DEVICES" not in answer.envs


def test_a_missing_driver_is_reported_in_a_sentence(bench: Bench) -> None:
    bench.configure(device_list_strategy=DeviceListStrategy.DEVICE_NODES)
    with pytest.raises(Unavailable, match="the node has no /dev/nvidia0"):
        bench.allocate(BE0)
    driver(bench.host)
    bench.configure(device_list_strategy=DeviceListStrategy.DEVICE_NODES, driver_root="/elsewhere")
    with pytest.raises(Unavailable, match=r"no libcuda\.so is below /elsewhere"):
        bench.allocate(BE0)


def test_preloading_by_file(bench: Bench) -> None:
    bench.configure(preload=Preload.FILE)
    source = Path(mounts(bench.allocate(BE0))["/etc/ld.so.preload"])
    assert source.read_text() == "/run/orion/lib/liborion_hook.so\n"


def test_a_container_with_a_simulated_gpu_gets_its_driver(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORION_SIM_STATE", "/dev/shm/somewhere")
    bench.snapshot = from_message(devices(2))
    answer = bench.allocate(BE0)
    found = {mount.container_path: (mount.host_path, mount.read_only) for mount in answer.mounts}
    assert found["/run/orion-sim"] == ("/dev/shm/somewhere", False)
    assert Path(found["/usr/lib64/libcuda.so.1"][0]).is_file()
    assert answer.envs["ORION_SIM_VISIBLE_GPUS"] == GPUS[0]
    assert "NVIDIA_VISIBLE_DEVICES" not in answer.envs


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (("no-such",), "is not a slot of Orion"),
        ((f"{GPUS[0]}::be-9",), "there is no slot"),
        ((f"{GPUS[5]}::be-0",), "there is no slot"),
        ((f"{GPUS[0]}::hp-0",), r"is not a slot of orion\.gpu/be"),
        ((f"{GPUS[0]}::be-0/../../..",), "is not a slot of Orion"),
        ((BE0, BE1), "two slots of one GPU"),
        ((), "without devices"),
    ],
)
def test_bad_ids_are_refused_with_a_sentence(bench: Bench, ids: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        bench.allocate(*ids)


def test_the_reason_why_a_gpu_is_not_advertised_is_reported(bench: Bench) -> None:
    snapshot = devices(1)
    snapshot.not_advertised.add(uuid=GPUS[1], reason="MIGEnabled", message="MIG is enabled on it")
    bench.snapshot = from_message(snapshot)
    with pytest.raises(Invalid, match="MIG is enabled on it"):
        bench.allocate(OTHER)


def test_allocate_before_the_first_snapshot_is_refused(bench: Bench) -> None:
    bench.snapshot = None
    with pytest.raises(Unavailable):
        bench.allocate(BE0)


def test_allocate_writes_nothing(bench: Bench) -> None:
    (bench.files.current / "liborion_hook.so").unlink()
    bench.allocate(BE0)
    assert not bench.root.exists()
    assert not (bench.files.current / "liborion_hook.so").exists()
