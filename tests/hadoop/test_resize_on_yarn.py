"""`themis bench resize` on real YARN and HDFS."""

from themis_lab.bench.resize_apps import Program
from themis_lab.bench.resize_output import result
from themis_lab.bench.resize_run import EngineName, ResizeBenchPlan, Round, run_rounds


def test_a_resize_on_yarn_reports_every_phase(hadoop_programs, monkeypatch):
    monkeypatch.setenv("THEMIS_HADOOP_JARS", str(hadoop_programs[1]))
    plan = ResizeBenchPlan(engine=EngineName.YARN, program=Program.REPLAY, repeat=1, heartbeat_s=0.2)
    (one,) = [item for item in run_rounds(plan) if isinstance(item, Round)]
    kinds = [change.kind for change in one.changes]
    assert "free" in kinds and "step" in kinds
    (step,) = [change for change in one.changes if change.kind == "step"][-1:]
    assert step.tasks == 2
    # One of its containers is that of the former task, the other was there before that one stopped.
    assert all(step.seconds[name] > 0.0 for name in ("stop", "connect", "restore"))
    assert 0.0 < sum(one.bare.seconds.values()) <= one.bare.total_s + 0.05
    assert result(plan, [one]).startup_ratio > 0.0
