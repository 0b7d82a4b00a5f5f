"""Certificates: TLS accepts them, the Secret holds them, and pure functions decide the next step."""

import asyncio
import base64
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orion.errors import Unreadable
from orion.operator.certificates import issuing
from orion.operator.certificates.deciding import check_authority, check_leaf
from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, read_state, write_state
from tests.operator.certificate_samples import HOUR, YEAR, made, serving
from tests.operator.certificate_world import EPOCH, SETTINGS, encoded


@pytest.mark.parametrize("name", ["orion-webhook.orion-system.svc", "127.0.0.1"])
async def test_strict_tls_accepts_a_leaf_if_the_bundle_holds_two_authorities(tmp_path: Path, name: str) -> None:
    (authority, leaf), (other, _) = made(), made()
    bundle = issuing.write_bundle([other, authority]).decode()
    trusting = ssl.create_default_context(cadata=bundle)
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    async with serving(leaf, tmp_path) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
        writer.transport.abort()
        suspicious = ssl.create_default_context(cadata=other.pem.decode())
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=suspicious, server_hostname=name)


def test_a_leaf_ends_no_later_than_its_authority() -> None:
    authority = new_authority(EPOCH, timedelta(days=2), HOUR)
    assert new_leaf(authority, ["a"], EPOCH, YEAR, HOUR).ends == authority.ends


def test_a_key_of_another_certificate_is_refused() -> None:
    (authority, leaf) = made()
    with pytest.raises(Unreadable, match="another certificate's"):
        issuing.read(leaf.pem, authority.key)


def test_only_an_authority_with_its_key_can_sign() -> None:
    authority, leaf = made()
    now = issuing.utc_now()
    assert authority.can_sign(now)
    assert not authority.without_key().can_sign(now)
    assert not leaf.can_sign(now)
    assert not authority.can_sign(now + 2 * YEAR)


def test_a_state_survives_writing_and_reading() -> None:
    (authority, leaf), (retired, _) = made(), made()
    state = State(leaf, authority, (retired.without_key(),))
    assert read_state(write_state(state)) == state


KEYS = ("tls.crt", "tls.key", "ca.crt", "ca.key", "ca-retired.crt")
AUTHORITY, LEAF = made(EPOCH)
SOUND = write_state(State(LEAF, AUTHORITY, (made(EPOCH)[0],)))


@hypothesis_settings(deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), st.text() | st.binary().map(encoded) | st.sampled_from(list(SOUND.values())))
)
def test_any_content_of_the_secret_can_be_fixed(data: dict[str, str]) -> None:
    fixed(read_state(data))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # `cryptography` warns of some damaged certificates
@hypothesis_settings(deadline=None, max_examples=200, derandomize=True, database=None)
@given(st.sampled_from(KEYS[::2]), st.integers(0), st.integers(1, 255))
def test_a_damaged_certificate_is_replaced(key: str, place: int, flip: int) -> None:
    pem = base64.b64decode(SOUND[key])
    der = bytearray(ssl.PEM_cert_to_DER_cert(pem.decode()))
    der[place % len(der)] ^= flip
    fixed(read_state(SOUND | {key: encoded(ssl.DER_cert_to_PEM_cert(bytes(der)).encode())}))


def fixed(state: State) -> None:
    """Assert that the next steps from a state without a valid leaf give a state with one."""
    state = check_authority(state, (), EPOCH, SETTINGS).state or state
    state = check_leaf(state, SETTINGS.spread, EPOCH, SETTINGS).state or state
    assert state.serves(EPOCH)
    assert state.is_signed


def test_an_unreadable_part_is_missing_and_reported() -> None:
    (authority, leaf), (other, _) = made(), made()
    data = write_state(State(leaf, authority)) | {"ca.key": encoded(other.key)}
    state = read_state(data)
    assert state.authority is None
    assert "ca.crt and ca.key are no certificate with its key" in state.problems[0]


def test_settings_in_which_leaves_would_outlive_their_authority_are_refused() -> None:
    with pytest.raises(ValidationError, match="outlive their authority"):
        CertificateSettings(leaf_validity=timedelta(days=400))
    with pytest.raises(ValidationError, match="the time after which a leaf is renewed"):
        CertificateSettings(drop_retired_after=timedelta(days=60))
    with pytest.raises(ValidationError, match="shorter than leaf_validity"):
        CertificateSettings(leaf_renew_before=timedelta(days=90))
    names = CertificateSettings(namespace="gpus", names=("127.0.0.1",)).leaf_names
    assert names == ("orion-webhook.gpus.svc", "orion-webhook.gpus.svc.cluster.local", "127.0.0.1")


# -- Deciding ----------------------------------------------------------------------------------------------------------


def leaf_of(authority: Certificate) -> Certificate:
    return new_leaf(authority, SETTINGS.leaf_names, EPOCH, SETTINGS.leaf_validity, SETTINGS.backdated)


def test_a_new_authority_signs_only_after_the_full_wait() -> None:
    (old, _), (new, _) = made(EPOCH), made(EPOCH)
    state = State(leaf_of(old), new, (old.without_key(),))
    for spread in (None, timedelta(0), SETTINGS.spread - timedelta(seconds=1)):
        assert check_leaf(state, spread, EPOCH, SETTINGS).state is None
    after = check_leaf(state, SETTINGS.spread, EPOCH, SETTINGS).state
    assert after is not None
    assert after.is_signed
    assert after.retired == (old.without_key(),)


def test_a_retired_authority_is_trusted_until_the_new_leaf_is_old_enough() -> None:
    (old, _), (new, _) = made(EPOCH), made(EPOCH)
    state = State(leaf_of(new), new, (old.without_key(),))
    second = timedelta(seconds=1)
    kept = check_leaf(state, SETTINGS.spread, EPOCH + SETTINGS.drop_retired_after - second, SETTINGS)
    assert kept.state is None
    dropped = check_leaf(state, None, EPOCH + SETTINGS.drop_retired_after, SETTINGS).state
    assert dropped == State(state.leaf, new)


def test_an_authority_without_its_key_is_retired() -> None:
    authority, leaf = made(EPOCH)
    after = check_authority(State(leaf, authority.without_key()), (), EPOCH, SETTINGS).state
    assert after is not None
    assert after.retired == (authority.without_key(),)
    assert after.leaf == leaf


def test_a_lost_authority_leaves_those_in_the_bundles_trusted_unless_they_have_ended() -> None:
    (known, _), (ended, _) = made(EPOCH), made(EPOCH - 2 * YEAR)
    after = check_authority(State(), (known.without_key(), ended), EPOCH, SETTINGS).state
    assert after is not None
    assert after.retired == (known.without_key(),)
    assert check_leaf(after, timedelta(0), EPOCH, SETTINGS).state is None  # replicas may serve a leaf of `known`
    assert check_leaf(State(None, after.authority), timedelta(0), EPOCH, SETTINGS).state is not None


def test_clocks_may_differ_by_the_backdated_time() -> None:
    authority = new_authority(EPOCH, YEAR, HOUR)
    assert new_leaf(authority, ["a"], EPOCH, YEAR, HOUR).holds(EPOCH - HOUR)
    assert authority.holds(EPOCH - HOUR)
