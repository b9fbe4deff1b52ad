"""Caddy: the `forward_auth` configuration of docs/guide/http.md, in front of an application."""

import json
import os
import re

from processes import application, directory, done, expect, expect_near, free_port, get, guide, proxy, replaced
from processes import tidegate, wait_for
from spellings import ONCE, ONCE_EACH, PAGE, expect_limited, expect_two_keys, names, reaches
from spoofs import SPOOFS
from users import CONFIG as USERS, expect_each_limited, readers

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

# Request targets that Go parses as a URL without a path, and that Caddy forwards as the client wrote them.
OPAQUE = [
    b"x:http://h/", b"x:http://h/login", b"x:http://h/?page=login", b"x:http://h/openapi.json", b"x:http://h/v1/authorize",
    b"x:http://h/v1/explain", b"x:http://127.0.0.1/", b"x:x:http://h/", b"x:h:80", b"x:*", b"http:login", b"x:?/login",
]  # fmt: skip

# A page that a client also reaches with such a target.
ANY = f"""
    respond "{PAGE.decode()}"
}}
"""

# A page that clients can reach by many spellings of its path.
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
    """Returns the guide's configuration with the addresses of these servers."""
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
            expect("no client chooses the request that is limited", spoofed, [200] * 3 + [429])
        query = [get(port, "/limited/page?limit=users&key=somebody&from=x-original", x_user="eve")[0] for _ in range(4)]
        expect("no client chooses the limit", query, [200] * 3 + [429])
        before = app.greeted
        shop = [get(port, "/shop", x_user="alice") for _ in range(4)]
        statuses = [status for status, _, _ in shop]
        expect("a fallback lets no request through", (statuses, app.greeted - before), ([200] * 2 + [429] * 2, 2))
        status, headers, body = shop[-1]
        expect("the client gets the body of the fallback", (headers["content-type"], body), ("application/json", b"[]"))
        site = [get(port, "/site", x_original_host="a", x_forwarded_host="free.example.org")[0] for _ in range(3)]
        expect("the host", site, [200, 200, 429])
        server.process.kill()
        expect("the server is down", get(port, "/limited/page", x_user="carol")[0], 502)

# With tokens, the server answers Caddy only if Caddy sends one; a token from the client does not count.
with tidegate(TOKENS + CONFIG) as server, application() as app:
    line = guide("http.md", "text", "Authorization")
    for change, statuses in ({}, [401] * 4), ({"header_up Host": line + "header_up Host"}, [200] * 3 + [429]):
        port = free_port()
        with directory() as path, caddy(path, port, replaced(shown(port, server, app), change)):
            got = [get(port, "/limited/page", x_user="alice", authorization="Bearer guess")[0] for _ in range(4)]
            expect("with a token and without", got, statuses)
# The limit counts the user that a server behind Caddy reads in a query or a cookie.
for on_missing_key in "deny", "shared":
    with tidegate(USERS.replace("ON_MISSING_KEY", on_missing_key)) as server, readers() as app, directory() as path:
        port = free_port()
        with caddy(path, port, shown(port, server, app)):
            expect_each_limited(port, app, on_missing_key)
# The limit of a page counts every path that Caddy routes to the page.
for config, expect_of in (ONCE, expect_limited), (ONCE_EACH, expect_two_keys):
    with tidegate(config) as server, application() as app, directory() as path:
        port, open_port = free_port(), free_port()
        limited = replaced(shown(port, server, app), {f"    reverse_proxy 127.0.0.1:{app.server_port}\n}}\n": LOGIN})
        with caddy(path, port, limited + f"http://127.0.0.1:{open_port} {{" + LOGIN) as process:
            wait_for(open_port, process)
            expect_of(port, names(open_port))
# A target without a path does not bypass a limit on all requests.
with tidegate('[limits.all]\nrule = "1/day"\n') as server, application() as app, directory() as path:
    port = free_port()
    limited = replaced(shown(port, server, app), {f"    reverse_proxy 127.0.0.1:{app.server_port}\n}}\n": ANY})
    with caddy(path, port, replaced(limited, {f"http://127.0.0.1:{port}": f"http://:{port}"})):
        expect("the limit", [reaches(port, b"/"), reaches(port, b"/")], [True, False])
        passed = [target for target in OPAQUE for method in (b"GET", b"POST") if reaches(port, target, method)]
        expect("a target without a path passes no limit", passed, [])
done("Caddy")
