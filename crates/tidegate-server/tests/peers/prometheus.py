"""Prometheus: promtool reads the alerts, and the metrics of a server that has decided something."""

from processes import ROOT, done, expect, get, output, tidegate

output("promtool", "check", "rules", ROOT / "deploy/prometheus/alerts.yml")
with tidegate('[limits.pages]\nrule = "1/day"\n') as server:
    expect("asked", [get(server.http, "/v1/authorize")[0] for _ in "12"], [204, 429])
    for accept, kind in ("*/*", "text/plain"), ("application/openmetrics-text", "application/openmetrics-text"):
        status, headers, metrics = get(server.admin, "/metrics", accept=accept)
        expect("metrics", (status, headers["content-type"].split(";")[0]), (200, kind))
        expect("a denial", b'tidegate_decisions_total{limit="pages",decision="deny"} 1\n' in metrics, True)
        # It reads the text format only.
        if kind == "text/plain":
            output("promtool", "check", "metrics", input=metrics)
done("promtool")
