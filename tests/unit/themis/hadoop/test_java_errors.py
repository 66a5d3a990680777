"""What an exception of Java's means, without a JVM: `java_exception` has the methods that the translation calls."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from themis.errors import UnreachableError
from themis.hadoop.errors import ContainerStateError, LoginError, YarnError
from themis.hadoop.java_errors import NODE_REFUSES_TOKEN, as_typed


def java_exception(name: str, message: str | None, cause: SimpleNamespace | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getName=lambda: name), getMessage=lambda: message, getCause=lambda: cause
    )


def in_a_call(cause: SimpleNamespace) -> SimpleNamespace:
    """As Hadoop's client wraps what breaks its connection."""
    message = f"DestHost:destPort node-1:45454. Failed on local exception: {cause.getMessage()}"
    return java_exception("java.io.IOException", message, cause)


@pytest.mark.parametrize("text", ["Broken pipe", "Connection reset by peer", "Connection reset"])
def test_a_server_that_dies_during_a_call_is_unreachable(text):
    error = as_typed(in_a_call(java_exception("java.io.IOException", text)), "stopping a process", "container_1")
    assert type(error) is UnreachableError
    assert text in str(error)


def test_a_channel_that_was_closed_is_unreachable():
    closed = java_exception("java.nio.channels.ClosedChannelException", None)
    assert type(as_typed(in_a_call(closed), "stopping a process")) is UnreachableError


def test_an_answer_that_mentions_a_broken_pipe_is_a_refusal():
    answer = java_exception("org.apache.hadoop.ipc.RemoteException", "Broken pipe")
    assert type(as_typed(answer, "stopping a process")) is YarnError


def test_what_a_refused_token_means_depends_on_whose_it_is():
    refused = java_exception("org.apache.hadoop.security.token.SecretManager$InvalidToken", "not known")
    assert type(as_typed(refused, "submitting")) is LoginError
    assert type(as_typed(refused, "starting", bad_token=NODE_REFUSES_TOKEN)) is ContainerStateError
