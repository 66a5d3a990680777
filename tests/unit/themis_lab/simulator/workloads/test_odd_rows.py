"""One odd row of a trace never spoils the others: with `skip_bad_rows` only that row is left out."""

import pytest

from themis.errors import InputError
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.workloads.registry import workload_named

PHILLY = b"timestamp,duration,num_gpus,cluster\n"
PHILLY_ROW = b"2017-10-09 07:01:55,66.0,1,vc%d\n"
TABLE = (
    b"model,batch_size,num_gpus,gpu_type,steps_per_s_consolidated,steps_per_s_unconsolidated\nLM,10,1,v100,10.0,9.0\n"
)
GAVEL_ROW = b"LM (batch size 10)\tpython3\tdata\t--steps\t1\t1000\t1\tgns\t1\t-1\t1418\t%d\n"


@pytest.fixture
def read(tmp_path):
    def read(name, content, table=TABLE, **options):
        (tmp_path / "throughputs.csv").write_bytes(table)
        (tmp_path / name).write_bytes(content)
        return workload_named(str(tmp_path / name), 1, cluster_named("testbed-64"), **options)

    return read


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (b"2017-10-09 07:01:55,66.0,1,\xff\n", "line 3: not text in UTF-8"),
        (b'2017-10-09 07:01:55,66.0,1,"vc\n', "line 3: cannot be parted into fields"),
        (b"x" * 200_000 + b"\n", "line 3: cannot be parted into fields"),
    ],
    ids=["encoding", "open-quote", "long"],
)
def test_odd_row_of_philly_is_left_out_alone(read, row, what):
    content = PHILLY + PHILLY_ROW % 1 + row + PHILLY_ROW % 2 + PHILLY_ROW % 3
    with pytest.raises(InputError, match=what):
        read("p.csv", content)
    workload = read("p.csv", content, skip_bad_rows=True)
    assert len(workload.apps) == 3
    assert workload.gaps.startswith("1 row cannot be read") and what in workload.gaps
    assert len(workload.gaps) < 1_000


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ((GAVEL_ROW % 5).replace(b"LM", b"L\xff"), "line 2: not text in UTF-8"),
        ((GAVEL_ROW % 5).replace(b"1000", b"999999999999"), "arrives at 5 s, app-0, cannot be"),
        ((GAVEL_ROW % 5).replace(b"LM", b"Other").replace(b"1418", b"1e20"), "arrives at 5 s, app-0, cannot be"),
    ],
    ids=["encoding", "century", "century-by-duration"],
)
def test_odd_row_of_gavel_is_left_out_alone(read, row, what):
    content = b"\n" + row + GAVEL_ROW % 20 + GAVEL_ROW % 30
    with pytest.raises(InputError, match=f"{what}.*--skip-bad-rows"):
        read("g.trace", content)
    workload = read("g.trace", content, skip_bad_rows=True)
    assert [app.arrival_s for app in workload.apps] == [0.0, 10.0]
    assert workload.gaps.startswith("1 row cannot be read") and what in workload.gaps


def test_odd_row_of_throughputs_is_left_out_alone(read):
    table = TABLE + b'LM,"20,1,v100,10.0,9.0\nLM,30,1,v100,20.0,9.0\n'
    content = (GAVEL_ROW % 0).replace(b"10)", b"30)")
    with pytest.raises(InputError, match=r"throughputs\.csv, line 3: cannot be parted into fields"):
        read("g.trace", content, table)
    workload = read("g.trace", content, table, skip_bad_rows=True)
    assert workload.apps[0].jobs[0].serial_iteration_s == pytest.approx(1 / 20)
    assert "line 3" in workload.gaps and "throughput of" not in workload.gaps


def test_trace_of_odd_rows_only_says_which(read):
    with pytest.raises(InputError, match=r"holds no job; 1 row cannot be read.*line 1"):
        read("g.trace", b"LM\t1\n", skip_bad_rows=True)
