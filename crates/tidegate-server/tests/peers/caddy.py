"""Caddy: `forward_auth` as docs/guide/http.md shows it, in front of an application."""

import json
import os
import re

from processes import application, directory, done, expect, expect_near, free_port, get, guide, proxy, replaced
from processes import tidegate

CONFIG = """
[server]
trusted_proxies = ["127.0.0.1"]
[limits.users]
rule = "3/day"
key = "header:x-user"
when = { path = "/limited*", method = "GET" }
"""

CADDY = """
{
    admin off
    auto_https off
}
"""

with tidegate(CONFIG) as server, application() as app, directory() as path:
    port = free_port()
    places = {
        "app.example.org": f"http://127.0.0.1:{port}",
        "127.0.0.1:8080": f"127.0.0.1:{server.http}",
        "app:3000": f"127.0.0.1:{app.server_port}",
    }
    (path / "Caddyfile").write_text(CADDY + replaced(guide("http.md", "text", "forward_auth"), places))
    homes = {name: str(path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    command = ("caddy", "run", "--adapter", "caddyfile", "--config", path / "Caddyfile")
    with proxy(*command, port=port, env={**os.environ, **homes}):
        for _ in range(3):
            status, _, body = get(port, "/limited/page", x_user="alice")
            expect("passes", (status, body), (200, b"hello"))
        status, headers, body = get(port, "/limited/page", x_user="alice")
        expect("denied", (status, headers["content-type"]), (429, "application/problem+json"))
        expect_near("Retry-After", int(headers["retry-after"]), 28_800)
        expect("RateLimit-Policy", headers["ratelimit-policy"], '"users";q=3;w=86400')
        expect("RateLimit", re.fullmatch(r'"users";r=0;t=\d+', headers["ratelimit"]) is not None, True)
        expect("the problem", json.loads(body)["violated-policies"], ["users"])
        expect("the application did not see it", app.greeted, 3)
        expect("another user", get(port, "/limited/page", x_user="bob")[0], 200)
        expect("another path", [get(port, "/free", x_user="alice")[0] for _ in range(5)], [200] * 5)
        server.process.kill()
        expect("nobody to ask", get(port, "/limited/page", x_user="carol")[0], 502)
done("Caddy")
