"""nginx: `auth_request` as docs/guide/http.md shows it, in front of an application."""

from processes import application, directory, done, expect, expect_near, free_port, get, guide, proxy, replaced
from processes import tidegate

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
"""

# One process and nothing outside the directory: Debian's paths belong to the nginx that may be running.
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
}
"""

with tidegate(CONFIG) as server, application() as app, directory() as path:
    port = free_port()
    places = {"http://app": f"http://127.0.0.1:{app.server_port}", "127.0.0.1:8080": f"127.0.0.1:{server.http}"}
    shown = replaced(guide("http.md", "nginx"), places)
    (path / "nginx.conf").write_text(replaced(NGINX, {"PORT": str(port), "GUIDE": shown}))
    with proxy("nginx", "-p", path, "-c", "nginx.conf", "-e", "stderr", port=port):
        for _ in range(3):
            status, _, body = get(port, "/limited/page?q=1", x_user="alice")
            expect("passes", (status, body), (200, b"hello"))
        status, headers, _ = get(port, "/limited/other", x_user="alice")
        expect("denied", status, 429)
        expect_near("Retry-After", int(headers["retry-after"]), 28_800)
        expect("the application did not see it", app.greeted, 3)
        expect("another user", get(port, "/limited/page", x_user="bob")[0], 200)
        expect("another path", [get(port, "/free", x_user="alice")[0] for _ in range(5)], [200] * 5)
        visits = [get(port, "/visit", "127.0.0.2", x_forwarded_for=f"203.0.113.{i}")[0] for i in range(3)]
        expect("nobody makes up an address", visits, [200, 200, 429])
        server.process.kill()
        expect("nobody to ask", get(port, "/limited/page", x_user="carol")[0], 500)
done("nginx")
