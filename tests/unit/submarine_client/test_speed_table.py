"""`submarine app show` on a cluster of several device types."""

from submarine_client.show import app_text, speed_table
from themis.wire import themis_pb2 as pb

SPEEDS = [pb.DeviceSpeed(device="v100", speed=3.1), pb.DeviceSpeed(device="k80", speed=1.0, measured=True)]
ON_V100 = pb.JobStatus(job_id="j0", device="v100", speeds=SPEEDS)
WAITING = pb.JobStatus(job_id="j1", speeds=SPEEDS[1:])


def test_the_table_shows_the_type_of_each_job_and_its_speed_on_every_type():
    lines = [line.split() for line in speed_table([ON_V100, WAITING]).splitlines()]
    assert lines[0] == ["JOB", "ON", "SPEED:", "V100", "SPEED:", "K80"]
    assert lines[1] == ["j0", "v100", "3.1", "(assumed)", "1"]
    assert lines[2][0] == "j1"
    assert lines[2][2:] == ["cannot", "run", "1"]


def test_an_app_on_a_cluster_of_one_type_shows_no_speeds():
    assert "SPEED" not in app_text(pb.AppStatus(app_id="a", jobs=[pb.JobStatus(job_id="j0")]))
    assert "SPEED" in app_text(pb.AppStatus(app_id="a", jobs=[ON_V100]))


def test_app_shows_the_words_of_its_policy():
    lines = [pb.ExplanationLine(label="Tenant", text="user ann"), pb.ExplanationLine(label="Owed", text="nothing")]
    shown = app_text(pb.AppStatus(explanation=lines))
    assert "Tenant:         user ann\nOwed:           nothing" in shown
    assert "Tenant" not in app_text(pb.AppStatus())
