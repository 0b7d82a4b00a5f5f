"""Which slots the plugin prefers: properties that hold for any node, and examples."""

from hypothesis import given, settings
from hypothesis import strategies as st

from orion.device_plugin.preferring import prefer
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU

GIB = 1 << 30


def uuid(index: int) -> str:
    return f"GPU-{index}"


def gpu(index: int, **changes: object) -> AdvertisedGPU:
    slots = (Slot(uuid(index), "hp", 0), Slot(uuid(index), "hp", 1), *(Slot(uuid(index), "be", n) for n in range(4)))
    plain: dict[str, object] = {"index": index, "slots": slots, "memory_bytes": 80 * GIB}
    return AdvertisedGPU(uuid(index), **{**plain, **changes})  # type: ignore[arg-type]


def node(*gpus: AdvertisedGPU) -> dict[str, AdvertisedGPU]:
    return {each.uuid: each for each in gpus}


def free(gpus: dict[str, AdvertisedGPU], role: str, *taken: str) -> list[Slot]:
    return [
        slot
        for each in gpus.values()
        for slot in each.slots
        if slot.role == role and f"{each.index}/{slot.name}" not in taken
    ]


def chosen(gpus: dict[str, AdvertisedGPU], role: str, size: int, *taken: str, must: tuple[Slot, ...] = ()) -> list[int]:
    """Return the indices of the preferred GPUs."""
    return [gpus[slot.gpu].index for slot in prefer(free(gpus, role, *taken), must, size, gpus)]


def test_be_goes_where_hp_leaves_most_time() -> None:
    assert chosen(node(gpu(0, hp_busy_ratio=0.8), gpu(1, hp_busy_ratio=0.2), gpu(2, hp_busy_ratio=0.5)), "be", 1) == [1]


def test_be_goes_where_most_memory_is_unreserved() -> None:
    assert chosen(node(gpu(0, memory_reserved_bytes=GIB), gpu(1), gpu(2, memory_reserved_bytes=GIB)), "be", 1) == [1]


def test_be_avoids_a_gpu_whose_memory_is_all_reserved() -> None:
    gpus = node(gpu(0, memory_reserved_bytes=80 * GIB), gpu(1, hp_busy_ratio=0.9))
    assert chosen(gpus, "be", 1) == [1]


def test_be_tenants_of_one_gpu_share_the_time_that_hp_leaves() -> None:
    gpus = node(gpu(0), gpu(1, hp_busy_ratio=0.6))
    assert chosen(gpus, "be", 1) == [0]
    assert chosen(gpus, "be", 1, "0/be-0", "0/be-1") == [1]


def test_a_slot_that_the_agent_sees_held_is_preferred_last() -> None:
    """Up to 1.34, a kubelet can forget who holds a slot, if a pod ends while another one is admitted."""
    gpus = node(gpu(0, held=frozenset({Slot(uuid(0), "be", 0)})))
    assert [slot.number for slot in prefer(free(gpus, "be"), (), 1, gpus)] == [1]
    assert len(prefer(free(gpus, "be"), (), 4, gpus)) == 4


def test_a_burst_of_pods_is_spread_before_the_snapshot_shows_it() -> None:
    gpus = node(*(gpu(index, memory_bytes=(80 + index) * GIB) for index in range(4)))
    taken: list[str] = []
    for _ in range(8):
        slot = prefer(free(gpus, "be", *taken), (), 1, gpus)[0]
        taken.append(f"{gpus[slot.gpu].index}/{slot.name}")
    assert sorted(each.partition("/")[0] for each in taken) == ["0", "0", "1", "1", "2", "2", "3", "3"]


def test_hp_tenants_get_different_gpus() -> None:
    gpus = node(gpu(0), gpu(1), gpu(2))
    assert chosen(gpus, "hp", 1, "0/hp-0", "1/hp-1") == [2]


def test_hp_goes_where_fewest_be_tenants_are() -> None:
    gpus = node(gpu(0, held=frozenset({Slot(uuid(0), "be", 0)})), gpu(1))
    assert chosen(gpus, "hp", 1) == [1]


def test_several_gpus_are_joined_by_nvlink_then_by_numa() -> None:
    links = {0: {3}, 1: {2}, 2: {1}, 3: {0}}
    linked = [gpu(n, linked=frozenset(map(uuid, links[n]))) for n in range(4)]
    assert chosen(node(*linked), "be", 2) == [0, 3]
    nodes = [gpu(n, numa_node=n % 2) for n in range(4)]
    assert chosen(node(*nodes), "be", 2) == [0, 2]
    assert sorted(chosen(node(*nodes), "hp", 2, must=(Slot(uuid(1), "hp", 0),))) == [1, 3]


def test_several_hp_slots_avoid_other_hp_rather_than_use_nvlink() -> None:
    links = {0: {1}, 1: {0}, 2: set(), 3: set()}
    gpus = node(*(gpu(n, linked=frozenset(map(uuid, links[n]))) for n in range(4)))
    assert sorted(chosen(gpus, "hp", 2, "0/hp-0")) == [1, 2]


@st.composite
def nodes(draw: st.DrawFn) -> dict[str, AdvertisedGPU]:
    count = draw(st.integers(1, 8))
    return node(
        *(
            gpu(
                index,
                hp_busy_ratio=draw(st.integers(0, 20)) / 20,
                memory_reserved_bytes=draw(st.integers(0, 90)) * GIB,
                numa_node=draw(st.none() | st.integers(0, 1)),
                linked=frozenset(map(uuid, draw(st.sets(st.integers(0, count - 1), max_size=3)))),
                cordoned=draw(st.booleans()),
                held=frozenset(Slot(uuid(index), "be", n) for n in draw(st.sets(st.integers(0, 3)))),
            )
            for index in range(count)
        )
    )


@settings(deadline=None)
@given(nodes(), st.sampled_from(["hp", "be"]), st.data())
def test_preferred_slots_are_available(gpus: dict[str, AdvertisedGPU], role: str, data: st.DataObject) -> None:
    available = data.draw(st.lists(st.sampled_from(free(gpus, role)), min_size=1, unique=True))
    size = data.draw(st.integers(1, len(available)))
    must = data.draw(st.lists(st.sampled_from(available), max_size=size, unique=True))

    preferred = prefer(available, must, size, gpus)

    assert len(preferred) == len(set(preferred)) == size
    assert set(preferred) <= set(available)
    assert preferred[: len(must)] == must
    # Apart from the slots in `must`, no GPU gives a second slot before every GPU has given one.
    of_gpus, of_must = {slot.gpu for slot in preferred}, {slot.gpu for slot in must}
    assert len(of_gpus) == min(len({slot.gpu for slot in available}), len(of_must) + size - len(must))
    # The order of the kubelet's list does not matter.
    assert prefer(data.draw(st.permutations(available)), must, size, gpus) == preferred


@settings(deadline=None)
@given(nodes(), st.data())
def test_slots_of_unknown_gpus_are_chosen_too(gpus: dict[str, AdvertisedGPU], data: st.DataObject) -> None:
    available = data.draw(st.lists(st.sampled_from(free(gpus, "be")), min_size=1, unique=True))
    assert len(prefer(available, (), len(available), {})) == len(available)
