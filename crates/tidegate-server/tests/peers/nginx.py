"""nginx: the `auth_request` configuration of docs/guide/http.md, in front of an application."""

import socket

from processes import application, directory, done, expect, expect_near, free_port, get, guide, proxy, replaced
from processes import tidegate, wait_for
from spellings import ONCE, ONCE_EACH, PAGE, expect_limited, expect_two_keys, names
from spoofs import SPOOFS
from users import CONFIG as USERS, expect_each_limited, readers

CONFIG = """
[server]
trusted_proxies = ["127.0.0.1"]
[limits.users]
rule = "3/day"
key = "header:x-user"
when = { path = "/limited*" }
[limits.visitors]
rule = "2/day"
key = "ip"
when = { path = "/visit" }
[limits.site]
rule = "2/day"
when = { host = "api.example.org" }
[limits.posts]
rule = "1/day"
when = { method = "POST" }
[limits.shop]
rule = "2/day"
key = "header:x-user"
when = { path = "/shop" }
fallback = { body = "[]" }
"""

TOKENS = """
[server.auth]
tokens = ["secret"]
"""

# One process, with all files in the directory: another nginx may be using Debian's paths.
NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 127.0.0.1:PORT;
        GUIDE
    }
    MORE
}
"""

# A page that clients can reach by many spellings of its path, with a limit on one port and without on the other.
PAGES = """
server {
    listen 127.0.0.1:OPEN;
    location = /login { alias page; }
    location / { return 404; }
}
"""


def status_of(port, request):
    """Sends bytes that http.client does not, and returns the status."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(request)
        return int(peer.makefile("rb").readline().split()[1])


def nginx(path, port, shown, more=""):
    (path / "nginx.conf").write_text(replaced(NGINX, {"PORT": str(port), "GUIDE": shown, "MORE": more}))
    return proxy("nginx", "-p", path, "-c", "nginx.conf", "-e", "stderr", port=port)


with tidegate(CONFIG) as server, application() as app, directory() as path:
    port = free_port()
    places = {"http://app": f"http://127.0.0.1:{app.server_port}", "127.0.0.1:8080": f"127.0.0.1:{server.http}"}
    with nginx(path, port, replaced(guide("http.md", "nginx"), places)):
        for _ in range(3):
            status, _, body = get(port, "/limited/page?q=1", x_user="alice")
            expect("passes", (status, body), (200, b"hello"))
        status, headers, _ = get(port, "/limited/other", x_user="alice")
        expect("denied", status, 429)
        expect_near("Retry-After", int(headers["retry-after"]), 28_800)
        expect("the application did not see it", app.greeted, 3)
        expect("another user", get(port, "/limited/page", x_user="bob")[0], 200)
        expect("another path", [get(port, "/free", x_user="alice")[0] for _ in range(5)], [200] * 5)
        for spoof in SPOOFS:
            spoofed = [get(port, "/limited/page", x_user=str(spoof), **spoof)[0] for _ in range(4)]
            expect("no client chooses the request that is limited", spoofed, [200] * 3 + [429])
        query = [get(port, "/limited/page?limit=users&key=somebody&from=x-forwarded", x_user="eve")[0] for _ in range(4)]
        expect("no client chooses the limit", query, [200] * 3 + [429])
        odd = [status_of(port, b"GET /limited/\xe9 HTTP/1.0\r\nx-user: zoe\r\n\r\n") for _ in range(4)]
        expect("bytes that are not UTF-8 do not bypass the limit", odd, [200] * 3 + [429])
        elsewhere = {"x_original_host": "free.example.org", "x_forwarded_host": "free.example.org"}
        before = app.greeted
        shop = [get(port, "/shop", x_user="alice")[0] for _ in range(4)]
        expect("a fallback lets no request through", (shop, app.greeted - before), ([200] * 2 + [429] * 2, 2))
        site = [get(port, "/free", host="api.example.org", **elsewhere)[0] for _ in range(3)]
        expect("the host", site, [200, 200, 429])
        expect("another host", get(port, "/free", x_forwarded_host="api.example.org")[0], 200)
        visits = [get(port, "/visit", "127.0.0.2", x_forwarded_for=f"203.0.113.{i}")[0] for i in range(3)]
        expect("no client chooses its address", visits, [200, 200, 429])
        server.process.kill()
        expect("the server is down", get(port, "/limited/page", x_user="carol")[0], 500)

# With tokens, the server answers nginx only if nginx sends one; a token from the client does not count.
with tidegate(TOKENS + CONFIG) as server, application() as app:
    places = {"http://app": f"http://127.0.0.1:{app.server_port}", "127.0.0.1:8080": f"127.0.0.1:{server.http}"}
    shown = replaced(guide("http.md", "nginx"), places)
    token = replaced(shown, {"internal;": "internal;\n" + guide("http.md", "nginx", "Authorization")})
    for config, statuses in (shown, [401] * 4), (token, [200] * 3 + [429]):
        port = free_port()
        with directory() as path, nginx(path, port, config):
            got = [get(port, "/limited/page", x_user="alice", authorization="Bearer guess")[0] for _ in range(4)]
            expect("with a token and without", got, statuses)
# The limit counts the user that a server behind nginx reads in a query or a cookie.
for on_missing_key in "deny", "shared":
    with tidegate(USERS.replace("ON_MISSING_KEY", on_missing_key)) as server, readers() as app, directory() as path:
        port = free_port()
        places = {"http://app": f"http://127.0.0.1:{app.server_port}", "127.0.0.1:8080": f"127.0.0.1:{server.http}"}
        with nginx(path, port, replaced(guide("http.md", "nginx"), places)):
            expect_each_limited(port, app, on_missing_key)
# The limit of a page counts every path that nginx routes to the page, also with `escaped_slash = "decode"`, as nginx decodes `%2F`.
DECODE = '[server]\nescaped_slash = "decode"\n'
for config, expect_of in (ONCE, expect_limited), (ONCE_EACH, expect_two_keys), (DECODE + ONCE, expect_limited):
    with tidegate(config) as server, directory() as path:
        (path / "page").write_bytes(PAGE)
        port, open_port = free_port(), free_port()
        asked = replaced(guide("http.md", "nginx"), {"127.0.0.1:8080": f"127.0.0.1:{server.http}"})
        limited = replaced(asked, {"location / {": "location = /login {", "proxy_pass http://app": "alias page"})
        both = replaced(PAGES, {"OPEN": str(open_port)})
        with nginx(path, port, limited, both) as process:
            wait_for(open_port, process)
            expect_of(port, names(open_port))
done("nginx")
