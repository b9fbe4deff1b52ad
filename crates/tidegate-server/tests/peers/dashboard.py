"""Chromium: the operator's page, keys that contain markup (T56), and a page of another site that tries to read and to send
commands (T53)."""

import contextlib
import http.server
import json
import re
import socket
import threading

from chromium import browser
from processes import done, expect, get, tidegate

# Each changes a page that does not treat it as text.
MARKUP = [
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    "\"'><svg onload=document.title='owned'>",
    "</td></tr></table><iframe srcdoc=\"<script>top.document.title='owned'</script>\">",
    "javascript:document.title='owned'",
    "\x1b[31mred\n{{7*7}}",
]
NO_TEXT = b"\xff\xfe"


def command(*words):
    words = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def say(port, *words, times=1):
    """Sends a RESP command `times` times and returns the numbers of the last answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stream, stream.makefile("rb") as lines:
        stream.sendall(command(*words) * times)
        for _ in range(times):
            expect("five numbers", lines.readline(), b"*5\r\n")
            numbers = [int(lines.readline()[1:]) for _ in range(5)]
        return numbers


def remaining(server, key):
    return say(server.resp, "TIDE.PEEK", "pages", key, "COST", "0")[2]


def texts(page, id_):
    return page.value(f"[...document.querySelectorAll('#{id_} tr')].map(row => row.cells[0].textContent)")


def shows_limits_and_keys(chromium):
    with tidegate('[limits.pages]\nrule = "1/day"\n[limits.other]\nrule = "5/s"\nmode = "shadow"\n') as server:
        # The server samples the names of keys, so each key is sent often enough to be sampled.
        for key in [*MARKUP, NO_TEXT, ""]:
            say(server.resp, "TIDE.CHECK", "pages", key, times=1_000)
        page = chromium.page()
        page.open(f"http://127.0.0.1:{server.admin}/")
        page.wait_for("the page has the limits", "document.getElementById('status').textContent === 'in force'")
        expect("limits", set(texts(page, "limits")) >= {"pages", "other"}, True)
        choose = "[...document.querySelectorAll('#limits button')].find(it => it.textContent === '{}').click()"
        page.value(choose.format("pages"))
        page.wait_for("keys that were denied", "document.querySelectorAll('#denied tr').length >= 8")
        captions = page.value("[...document.querySelectorAll('caption')].map(it => it.textContent).join('|')")
        shown = re.fullmatch(r"Limits\|most requests, last (\d+) s\|most denials, last (\d+) s", captions)
        expect(f"`{captions}` has the duration", shown is not None and 0 < int(shown[1]) <= 120 and shown[1] == shown[2], True)
        expect("the limit is explained", page.value("document.getElementById('explain').textContent") != "", True)
        for list_ in "hot", "denied":
            shown = texts(page, list_)
            expect(f"keys are text, in {list_}", [key for key in MARKUP if key not in shown], [])
            expect("a key that is not text", "base64://4=" in shown, True)
            expect("an empty key", "(empty)" in shown, True)
        expect("no key has become an element", page.value("document.querySelectorAll('main :is(img, script, svg, iframe)').length"), 0)
        expect("the title is unchanged", page.value("document.title"), "Tidegate")
        say(server.resp, "TIDE.CHECK", "pages", "again", times=1_000)
        page.wait_for("the page updates its counts", "[...document.querySelectorAll('#limits tr')].some(row => parseFloat(row.cells[5].textContent) > 0)")
        page.value(choose.format("other"))
        page.wait_for("the other limit is chosen", "document.getElementById('chosen').textContent === 'other'")
        expect("no errors or warnings", page.complaints, [])


def asks_for_the_token(chromium):
    with tidegate('[server.auth]\nadmin_token = "secret"\n[limits.pages]\nrule = "1/day"\n') as server:
        page = chromium.page()
        page.open(f"http://127.0.0.1:{server.admin}/")
        page.wait_for("the page asks for a token", "document.getElementById('login')?.hidden === false")
        expect("the form is visible", is_visible(page, "login"), True)
        expect("no limit is shown", texts(page, "limits"), [])
        enter = "document.getElementById('token').value = '{}'; document.getElementById('login').requestSubmit()"
        page.value("document.getElementById('status').textContent = ''")
        page.value(enter.format("wrong"))
        page.wait_for("the page reports the wrong token", "document.getElementById('status').textContent === 'this token is wrong'")
        page.wait_for("the page asks for a token again", "document.getElementById('login').hidden === false")
        page.value(enter.format("secret"))
        page.wait_for("the page accepts the token", "document.getElementById('status').textContent === 'in force'")
        expect("the form is gone", page.value("document.getElementById('login').hidden"), True)
        expect("limits", "pages" in texts(page, "limits"), True)
        expect("the token is not in the page", page.value("document.documentElement.outerHTML.includes('secret')"), False)


def fits(page, width):
    """Asserts that the page does not scroll sideways on a screen of this width."""
    page.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    expect(f"the window is {width} wide", page.value("innerWidth"), width)
    expect(f"the page fits into {width}", page.value("document.documentElement.scrollWidth <= innerWidth"), True)


def is_visible(page, id_):
    return page.value(f"getComputedStyle(document.getElementById('{id_}')).display !== 'none'")


def fits_on_a_telephone(chromium):
    limits = "".join(f'[limits.{name}]\nrule = "5/15min sliding-log"\n' for name in ("a-rather-long-name-of-a-limit-" * 2, "b"))
    with tidegate(limits) as server:
        say(server.resp, "TIDE.CHECK", "b", "key-" * 100, times=100)
        page = chromium.page()
        page.open(f"http://127.0.0.1:{server.admin}/")
        page.wait_for("the page has the limits", "document.getElementById('status').textContent === 'in force'")
        expect("a page that needs no token does not ask for one", is_visible(page, "login"), False)
        for width in 375, 1280:
            fits(page, width)


def says_that_the_store_is_down(chromium):
    # No server listens on port 1.
    with tidegate('[store]\nurl = "redis://127.0.0.1:1"\n[limits.pages]\nrule = "1/day"\n[limits.shut]\nrule = "1/s"\non_error = "deny"\n') as server:
        page = chromium.page()
        page.open(f"http://127.0.0.1:{server.admin}/")
        page.wait_for("the page reports the outage", "document.getElementById('status').textContent.startsWith('degraded: the store at 127.0.0.1:1 does not answer')")
        expect("the status is shown as bad", page.value("document.getElementById('status').className"), "bad")
        columns = lambda name: page.value(f"[...[...document.querySelectorAll('#limits tr')].find(row => row.cells[0].textContent === '{name}').cells].map(cell => cell.textContent)")
        expect("the server decides by its share", columns("pages")[2], "enforce: this server's share decides")
        expect("the server denies", columns("shut")[2], "enforce: all requests are denied")
        expect("the server does not count keys", columns("pages")[7], "in Redis")
        page.wait_for("the server does not name keys", "document.getElementById('hot').textContent === 'not known: the keys are in Redis'")
        for width in 375, 1280:
            fits(page, width)


@contextlib.contextmanager
def other_site(html):
    """Serves a page of another site."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = html.encode()
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


# Requests that a browser sends to another site without a preflight, and requests that need one.
ATTACK = """<!doctype html><title>another site</title><script>
const { resp, http, admin } = %s;
const to = (port, path) => `http://127.0.0.1:${port}${path}`;
const check = '{"limit": "pages", "key": "victim"}';
const tries = [];
const attempt = (url, init) => tries.push(
  fetch(url, init).then(response => [url, response.type, response.status], error => [url, "refused", 0]));
for (const kind of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
  for (const path of ["/v1/check", "/v1/reset"])
    attempt(to(http, path), { method: "POST", mode: "no-cors", headers: { "content-type": kind }, body: check });
attempt(to(http, "/v1/check"), { method: "POST", headers: { "content-type": "application/json" }, body: check });
attempt(to(http, "/v1/authorize?limit=pages&key=victim"), { mode: "no-cors" });
attempt(to(http, "/v1/authorize?limit=pages&key=victim"), {});
attempt(to(admin, "/v1/reload"), { method: "POST", mode: "no-cors" });
attempt(to(admin, "/v1/limits"), {});
attempt(to(admin, "/v1/limits"), { mode: "no-cors" });
for (const body of ["TIDE.CHECK pages victim\\r\\n", "*3\\r\\n$10\\r\\nTIDE.CHECK\\r\\n$5\\r\\npages\\r\\n$6\\r\\nvictim\\r\\n"])
  attempt(to(resp, "/"), { method: "POST", mode: "no-cors", body });
window.done = Promise.all(tries);
</script>
<img src="http://127.0.0.1:%d/v1/authorize?limit=pages&key=victim">
<iframe name="hidden"></iframe>
<form target="hidden" method="post" enctype="text/plain" action="http://127.0.0.1:%d/v1/reload"><input name="x"></form>
<script>document.forms[0].submit()</script>"""


def is_closed_to_other_sites(chromium):
    with tidegate('[limits.pages]\nrule = "100/day"\n') as server:
        ports = json.dumps({"resp": server.resp, "http": server.http, "admin": server.admin})
        with other_site(ATTACK % (ports, server.http, server.admin)) as port:
            page = chromium.page()
            # First by the server's own host name, which is the same site but another origin, and then by another name.
            for site in "127.0.0.1", "localhost":
                page.open(f"http://{site}:{port}/")
                page.wait_for("the page of the other site", "document.title === 'another site' && document.readyState === 'complete'")
                tried = page.value("done")
                expect("the page has tried all requests", len(tried), 14)
                seen = [(url, kind, status) for url, kind, status in tried if kind not in ("opaque", "refused")]
                expect("the page can read no answer", seen, [])
        expect("the limit was not charged", remaining(server, "victim"), 100)
        metrics = get(server.admin, "/metrics")[2].decode()
        reloads = [line for line in metrics.splitlines() if line.startswith("tidegate_config_reload_total")]
        expect("reloads are counted", bool(reloads), True)
        expect("nothing was reloaded", [line for line in reloads if not line.endswith(" 0")], [])
        say(server.resp, "TIDE.CHECK", "pages", "victim")
        expect("another client is charged", remaining(server, "victim"), 99)


with browser() as chromium:
    shows_limits_and_keys(chromium)
    asks_for_the_token(chromium)
    fits_on_a_telephone(chromium)
    says_that_the_store_is_down(chromium)
    is_closed_to_other_sites(chromium)
    done("chromium")
