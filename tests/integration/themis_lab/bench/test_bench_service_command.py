"""`themis bench service` with a few apps, whole: real gRPC, REST, store and processes."""

import json

from themis_cli.main import main


def test_bench_service_prints_every_figure(capsys):
    assert main(["bench", "service", "--apps", "6", "--waiting", "4", "--gpus", "16", "--seconds", "8",
                 "--lease-s", "5", "--json"]) == 0  # fmt: skip
    document = json.loads(capsys.readouterr().out)
    assert document["registered"] == 10
    assert document["reports_in_time"] > 0.5
    assert all(document[name]["p50"] <= document[name]["p99"] for name in ("round_s", "rest_s", "list_s"))
    assert all(document[name] > 0.0 for name in ("submissions_per_s", "cpu_share", "rss_mb", "start_s"))
