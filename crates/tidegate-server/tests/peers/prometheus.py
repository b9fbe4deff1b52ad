"""Prometheus: promtool reads the alerts, and the metrics of a server that has decided something."""

from processes import ROOT, done, expect, get, output, tidegate

output("promtool", "check", "rules", ROOT / "deploy/prometheus/alerts.yml")
with tidegate('[limits.pages]\nrule = "1/day"\n') as server:
    expect("asked", [get(server.http, "/v1/authorize")[0] for _ in "12"], [204, 429])
    status, headers, metrics = get(server.admin, "/metrics")
    expect("metrics", (status, headers["content-type"].split(";")[0]), (200, "application/openmetrics-text"))
    expect("a denial", b'tidegate_decisions_total{limit="pages",decision="deny"} 1\n' in metrics, True)
    output("promtool", "check", "metrics", input=metrics)
done("promtool")
