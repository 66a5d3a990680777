"""Weights of apps by queue and user, and who may submit."""

import pytest

from themis.errors import NotAllowedError, UnknownNameError
from themis.queues import ONE_QUEUE, ROOT, AppOwner, Queue, Queues, QueueUser

TREE = Queues(
    queues={
        ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=3.0)}),
        "research": Queue(name="research", parent=ROOT, weight=3.0),
        "vision": Queue(name="vision", parent="research", users={"anna": QueueUser(weight=1.0)}),
        "speech": Queue(name="speech", parent="research", submitters=("carl",)),
        "default": Queue(name="default", parent=ROOT),
    }
)


def test_a_lone_tenant_has_apps_of_weight_one():
    assert ONE_QUEUE.app_weights({(ROOT, "anna"): 7.0}) == {(ROOT, "anna"): 1.0}


def test_users_with_an_app_each_have_weight_one_whether_named_or_not():
    weights = ONE_QUEUE.app_weights({(ROOT, "anna"): 1.0, (ROOT, "bob"): 1.0, (ROOT, ""): 5.0})
    assert weights == {(ROOT, "anna"): 1.0, (ROOT, "bob"): 1.0, (ROOT, ""): 1.0}


def test_the_apps_of_a_user_share_the_weight_of_the_user():
    weights = ONE_QUEUE.app_weights({(ROOT, "anna"): 4.0, (ROOT, "bob"): 1.0})
    assert weights == {(ROOT, "anna"): 0.25, (ROOT, "bob"): 1.0}


def test_active_queues_share_by_weight_before_their_users():
    active = {("vision", "anna"): 1.0, ("vision", "bob"): 2.0, ("speech", "carl"): 1.0, ("default", "dora"): 1.0}
    weights = TREE.app_weights(active)
    total = sum(active[tenant] * weight for tenant, weight in weights.items())
    shares = {tenant: active[tenant] * weight / total for tenant, weight in weights.items()}
    assert shares == pytest.approx(
        {
            ("vision", "anna"): 0.75 / 4,
            ("vision", "bob"): 0.75 / 4,
            ("speech", "carl"): 0.75 / 2,
            ("default", "dora"): 0.25,
        }
    )


def test_a_queue_without_active_apps_leaves_its_part_to_the_others():
    weights = TREE.app_weights({("speech", "carl"): 1.0, ("default", "dora"): 1.0})
    assert weights["speech", "carl"] / weights["default", "dora"] == pytest.approx(3.0)


def test_the_nearest_queue_that_names_a_user_gives_the_weight():
    assert TREE.user_weight(("vision", "anna")) == 1.0
    assert TREE.user_weight(("speech", "anna")) == 3.0
    assert TREE.user_weight(("speech", "bob")) == 1.0


def test_the_tree_is_not_climbed_for_each_user_whose_weight_is_asked_for(monkeypatch):
    known = {(queue, user): TREE.user_weight((queue, user)) for queue in TREE.queues for user in ("anna", "bob")}
    assert {tenant for tenant, weight in known.items() if weight == 3.0} == {
        (queue, "anna") for queue in TREE.queues if queue != "vision"
    }
    monkeypatch.setattr(Queues, "above", None)
    assert {tenant: TREE.user_weight(tenant) for tenant in known} == known


def test_an_app_of_a_queue_that_is_gone_is_directly_in_the_root():
    assert TREE.tenant(AppOwner(user="anna", queue="gone")) == (ROOT, "anna")
    weights = TREE.app_weights({(ROOT, "anna"): 1.0, ("default", "bob"): 1.0})
    # Its user has weight 3 beside the queue of weight 1.
    assert weights[ROOT, "anna"] / weights["default", "bob"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("owner", "error"),
    [
        (AppOwner(user="anna", queue="research"), UnknownNameError),
        (AppOwner(user="anna", queue="visoin"), UnknownNameError),
        (AppOwner(user="anna", queue="speech"), NotAllowedError),
    ],
)
def test_an_app_names_a_leaf_to_which_its_user_may_submit(owner, error):
    with pytest.raises(error):
        TREE.check_submitter(owner)


def test_administrators_of_a_queue_have_the_leaves_below_it():
    tree = Queues(
        queues={
            ROOT: Queue(name=ROOT, admins=("otto",)),
            "research": Queue(name="research", parent=ROOT, admins=("vera", "otto")),
            "vision": Queue(name="vision", parent="research"),
            "speech": Queue(name="speech", parent="research", admins=("carl",)),
            "default": Queue(name="default", parent=ROOT),
        }
    )
    assert tree.administered == {
        "vera": {"vision", "speech"},
        "carl": {"speech"},
        "otto": {ROOT, "vision", "speech", "default"},
    }
    assert ONE_QUEUE.administered == {}


def test_without_other_queues_any_name_of_a_queue_is_accepted():
    ONE_QUEUE.check_submitter(AppOwner(user="anna", queue="whatever"))
    TREE.check_submitter(AppOwner(user="carl", queue="speech"))
