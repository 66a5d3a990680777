"""When tokens of a login are replaced; the fetching of real ones is tried in the Hadoop tier."""

import logging
from itertools import count

import pytest

from themis.errors import UnreachableError
from themis.hadoop.login_tokens import LoginTokens
from themis.hadoop.webhdfs_token import IssuedToken


class World:
    """A clock, and a NameNode that issues numbered tokens of 100 s unless it is unavailable."""

    def __init__(self):
        self.now_s = 5.0
        self.away = False
        self.asked = 0
        self._numbers = count(1)
        self.tokens = LoginTokens(self.fetch, now_s=lambda: self.now_s)

    def fetch(self):
        self.asked += 1
        if self.away:
            raise UnreachableError("the NameNode is unavailable")
        return IssuedToken(text=f"token {next(self._numbers)}", life_s=100.0)

    def at(self, since_start_s):
        self.now_s = 5.0 + since_start_s
        return self.tokens.current()


@pytest.fixture
def world():
    return World()


def test_nothing_is_fetched_before_it_is_wanted(world):
    assert world.asked == 0


def test_a_token_is_kept_for_most_of_its_life(world):
    assert {world.at(0.0), world.at(40.0), world.at(74.0)} == {"token 1"}
    assert world.asked == 1
    assert {world.at(75.0), world.at(149.0)} == {"token 2"}
    assert world.at(500.0) == "token 3"


def test_the_old_one_serves_while_the_name_node_is_away(world, caplog):
    world.at(0.0)
    world.away = True
    with caplog.at_level(logging.WARNING):
        assert {world.at(at_s) for at_s in range(75, 100)} == {"token 1"}
    assert 10 <= world.asked <= 21, "it is asked now and then, not with each request"
    assert "the old one is good for 25 s" in caplog.text
    with pytest.raises(UnreachableError):
        world.at(100.0)
    world.away = False
    assert world.at(101.0) == "token 2"


def test_without_any_it_is_said_each_time(world):
    world.away = True
    for _ in range(2):
        with pytest.raises(UnreachableError):
            world.at(0.0)
    assert world.asked == 2


def test_a_token_is_not_shown():
    assert "secret" not in repr(IssuedToken(text="secret", life_s=1.0))
