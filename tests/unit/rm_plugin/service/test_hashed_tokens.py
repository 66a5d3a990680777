"""The store holds hashes of tokens, also where an earlier version stored the token itself."""

from themis.attempt_proof import as_hashed, hashed, proves


def test_token_of_an_earlier_store_is_hashed_once():
    stored = as_hashed("secret")
    assert "secret" not in stored
    assert as_hashed(stored) == stored == hashed("secret")
    assert proves("secret", stored)
    assert not proves(stored, stored)


def test_app_without_a_token_has_none_that_proves_anything():
    assert as_hashed("") == ""
    assert not proves("", "")
