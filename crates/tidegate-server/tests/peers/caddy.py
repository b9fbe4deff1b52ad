"""Caddy: `forward_auth` as docs/guide/http.md shows it, in front of an application."""

import json
import os
import re

from processes import application, directory, done, expect, expect_near, free_port, get, guide, proxy, replaced
from processes import tidegate, wait_for
from spellings import ONCE, ONCE_EACH, PAGE, expect_limited, expect_two_keys, names
from spoofs import SPOOFS

CONFIG = """
[server]
trusted_proxies = ["127.0.0.1"]
[limits.users]
rule = "3/day"
key = "header:x-user"
when = { path = "/limited*", method = "GET" }
[limits.site]
rule = "2/day"
when = { host = "127.0.0.1", path = "/site" }
[limits.shop]
rule = "2/day"
key = "header:x-user"
when = { path = "/shop" }
fallback = { content_type = "application/json", body = "[]" }
"""

TOKENS = """
[server.auth]
tokens = ["secret"]
"""

CADDY = """
{
    admin off
    auto_https off
}
"""

# The page that has many names.
LOGIN = f"""
    handle /login {{
        respond "{PAGE.decode()}"
    }}
    handle {{
        respond 404
    }}
}}
"""


def shown(port, server, app):
    """What the guide shows, with the places where they are."""
    places = {
        "app.example.org": f"http://127.0.0.1:{port}",
        "127.0.0.1:8080": f"127.0.0.1:{server.http}",
        "app:3000": f"127.0.0.1:{app.server_port}",
    }
    return replaced(guide("http.md", "text", "forward_auth"), places)


def caddy(path, port, config):
    (path / "Caddyfile").write_text(CADDY + config)
    homes = {name: str(path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    command = ("caddy", "run", "--adapter", "caddyfile", "--config", path / "Caddyfile")
    return proxy(*command, port=port, env={**os.environ, **homes})


with tidegate(CONFIG) as server, application() as app, directory() as path:
    port = free_port()
    with caddy(path, port, shown(port, server, app)):
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
        for spoof in SPOOFS:
            spoofed = [get(port, "/limited/page", x_user=str(spoof), **spoof)[0] for _ in range(4)]
            expect("nobody chooses the request that is limited", spoofed, [200] * 3 + [429])
        query = [get(port, "/limited/page?limit=users&key=somebody&from=x-original", x_user="eve")[0] for _ in range(4)]
        expect("nobody chooses the limit", query, [200] * 3 + [429])
        before = app.greeted
        shop = [get(port, "/shop", x_user="alice") for _ in range(4)]
        statuses = [status for status, _, _ in shop]
        expect("a fallback lets nobody through", (statuses, app.greeted - before), ([200] * 2 + [429] * 2, 2))
        status, headers, body = shop[-1]
        expect("its body is given", (headers["content-type"], body), ("application/json", b"[]"))
        site = [get(port, "/site", x_original_host="a", x_forwarded_host="free.example.org")[0] for _ in range(3)]
        expect("the host", site, [200, 200, 429])
        server.process.kill()
        expect("nobody to ask", get(port, "/limited/page", x_user="carol")[0], 502)

# Where tokens are needed, only who brings one is answered; what the client brings is none.
with tidegate(TOKENS + CONFIG) as server, application() as app:
    line = guide("http.md", "text", "Authorization")
    for change, statuses in ({}, [401] * 4), ({"header_up Host": line + "header_up Host"}, [200] * 3 + [429]):
        port = free_port()
        with directory() as path, caddy(path, port, replaced(shown(port, server, app), change)):
            got = [get(port, "/limited/page", x_user="alice", authorization="Bearer guess")[0] for _ in range(4)]
            expect("with a token and without", got, statuses)
# Whatever Caddy takes for a page is counted as that page.
for config, expect_of in (ONCE, expect_limited), (ONCE_EACH, expect_two_keys):
    with tidegate(config) as server, application() as app, directory() as path:
        port, open_port = free_port(), free_port()
        limited = replaced(shown(port, server, app), {f"    reverse_proxy 127.0.0.1:{app.server_port}\n}}\n": LOGIN})
        with caddy(path, port, limited + f"http://127.0.0.1:{open_port} {{" + LOGIN) as process:
            wait_for(open_port, process)
            expect_of(port, names(open_port))
done("Caddy")
