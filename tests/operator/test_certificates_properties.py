"""For every order of events, each API server accepts the certificate of each replica."""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.operator.certificate_world import SECRET, Rotator, installed

ROTATORS, SERVERS, REPLICAS = st.integers(0, 1), st.integers(0, 1), st.integers(0, 2)
LONGEST_WITHOUT_A_PASS = 20  # seconds; without passes, every certificate expires


class Rotations(RuleBasedStateMachine):
    """Two processes at the same time, killed and restarted between any two requests; the Secret is deleted once."""

    @initialize()
    def install(self) -> None:
        self.world, first = installed()
        self.rotators = [first, Rotator(self.world)]
        self.passed = 0
        self.deleted = False

    @rule(which=ROTATORS, turns=st.integers(1, 12))
    def go_on(self, which: int, turns: int) -> None:
        for _ in range(turns):
            self.rotators[which].step()

    @rule(which=ROTATORS)
    def finish(self, which: int) -> None:
        self.rotators[which].look()
        self.passed = self.world.now

    @rule(which=ROTATORS)
    def kill(self, which: int) -> None:
        self.rotators[which].start()

    @rule(which=ROTATORS)
    def rotate(self, which: int) -> None:
        self.rotators[which].rotate()

    @precondition(lambda self: not self.deleted and SECRET in self.world.objects)
    @rule()
    def delete_the_secret(self) -> None:
        self.world.delete(SECRET)
        self.deleted = True

    @rule(server=SERVERS)
    def observe(self, server: int) -> None:
        self.world.observe(server)

    @rule(replica=REPLICAS)
    def deliver(self, replica: int) -> None:
        self.world.deliver(replica)

    @rule(replica=REPLICAS)
    def replace(self, replica: int) -> None:
        self.world.replace(replica)

    @rule(seconds=st.integers(1, 15), which=ROTATORS)
    def wait(self, seconds: int, which: int) -> None:
        for _ in range(seconds):
            self.world.advance(1)
            if self.world.now - self.passed >= LONGEST_WITHOUT_A_PASS:
                self.finish(which)
            self.every_replica_is_accepted()

    @invariant()
    def every_replica_is_accepted(self) -> None:
        assert self.world.refused() == []

    def teardown(self) -> None:
        """Assert that the rotation ends at rest with one trusted authority if nothing else happens."""
        if not hasattr(self, "rotators"):
            return
        self.rotators[1].start()
        for _ in range(60):
            self.rotators[0].look()
            if self.world.state.is_signed and not self.world.state.retired:
                break
            self.world.advance(4)
            self.every_replica_is_accepted()
        authority = self.world.state.authority
        assert authority is not None
        assert set(self.world.bundles()) == {frozenset({authority.fingerprint})}


TestRotations = Rotations.TestCase
TestRotations.settings = hypothesis_settings(
    max_examples=25, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
