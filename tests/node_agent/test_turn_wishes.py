"""How often the clients of a slot may hand back its turn and ask for one."""

from collections import Counter

from orion.hook import join
from orion.node_agent.clients.credit import Credit
from orion.node_agent.clients.requests import Requests
from orion.node_agent.pacing.token_bucket import TokenBucket
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu

MS = 1_000_000
PAUSE_MS = 3


async def test_a_slot_that_hands_back_very_often_is_heard_whenever_it_asks() -> None:
    """Else it would wait until it asks again. A turn that it cannot hand back costs only a part of that turn."""
    heard: Counter[int] = Counter()
    now = 0
    with agent_of_one_gpu() as agent:
        shared_gpu = agent.gpu(GPU).shared_gpu
        slot = shared_gpu.slot("be-0")
        for bucket in vars(slot).values():
            if isinstance(bucket, TokenBucket):
                bucket._clock = lambda: now / 1e9
                bucket.fill()
        requests = Requests(
            shared_gpu,
            Credit(shared_gpu),
            lambda _, wish: heard.update([wish]),
            lambda *_: join.CreditAnswer.NO,
        )
        has_turn = True
        for now in range(0, 10_000 * MS, PAUSE_MS * MS // 2):
            if has_turn:
                requests.note(slot, join.Turn(wish=join.TurnWish.HANDED_BACK))
                has_turn = heard[join.TurnWish.HANDED_BACK] == heard[join.TurnWish.WANTED]
            else:
                requests.note(slot, join.Turn(wish=join.TurnWish.WANTED))
                has_turn = True
                assert heard[join.TurnWish.WANTED] == heard[join.TurnWish.HANDED_BACK], f"after {now / 1e9} s"
        assert heard[join.TurnWish.HANDED_BACK] > 800
        for _ in range(10_000):
            requests.note(slot, join.Turn(wish=join.TurnWish.WANTED))
        assert heard.total() < 2_000 + 200
