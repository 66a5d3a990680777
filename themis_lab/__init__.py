"""The laboratory: simulator, paper experiments, auditor, benchmarks, testbed and development cluster."""
