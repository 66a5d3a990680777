"""Make the audit, the report and the page from a run's folder."""

from __future__ import annotations

from themis_lab.testbed.audit import audit
from themis_lab.testbed.report import Report, build_report, write_report
from themis_lab.testbed.run_folder import RunFolder
from themis_lab.testbed.run_record import audit_input, read_run


def make_report(folder: RunFolder) -> Report:
    """Audit the run, write `report.json` and `report.html`, and return the report."""
    record = read_run(folder)
    report = build_report(record, audit(audit_input(record)))
    write_report(folder.report, report)
    # Imported late: it needs matplotlib, and the numbers should be written even if the figures fail.
    from themis_lab.testbed.page import write_page

    write_page(folder.page, record, report)
    return report
