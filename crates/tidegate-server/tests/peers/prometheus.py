"""Prometheus: promtool checks the alerts, tests when some of them fire, and checks the scrape configuration in the guide and
the metrics of a server that has made decisions."""

import pathlib

from processes import ROOT, directory, done, expect, get, guide, output, replaced, tidegate

output("promtool", "check", "rules", ROOT / "deploy/prometheus/alerts.yml")
output("promtool", "test", "rules", pathlib.Path(__file__).with_name("alerts.yml"))
with directory() as path:
    token, config = path / "token", path / "prometheus.yml"
    token.write_text("secret")
    config.write_text(replaced(guide("operations.md", "yaml", "scrape_configs"), {"/etc/prometheus/tidegate.token": str(token)}))
    output("promtool", "check", "config", config)
with tidegate('[limits.pages]\nrule = "1/day"\n') as server:
    expect("an allowed and a denied request", [get(server.http, "/v1/authorize")[0] for _ in "12"], [204, 429])
    for accept, kind in ("*/*", "text/plain"), ("application/openmetrics-text", "application/openmetrics-text"):
        status, headers, metrics = get(server.admin, "/metrics", accept=accept)
        expect("metrics", (status, headers["content-type"].split(";")[0]), (200, kind))
        expect("a denial", b'tidegate_decisions_total{limit="pages",decision="deny"} 1\n' in metrics, True)
        # promtool reads the text format only.
        if kind == "text/plain":
            output("promtool", "check", "metrics", input=metrics)
done("promtool")
