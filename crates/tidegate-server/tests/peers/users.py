"""Spellings of one user in a query or in cookies, by which a client tries to make the limit and the application read different users.

Two applications read them: the strict one takes the first value of exactly that name, the lenient one takes the last value of any
similar name. No user that an application reads gets more requests than the rule admits.
"""

import collections
import contextlib
import http.server
import itertools
import re
import socket
import threading
import urllib.parse

from processes import expect

LIMIT = 3

# One limit for each application and for each of query and cookie.
CONFIG = """
[server]
trusted_proxies = ["127.0.0.1"]
""" + "".join(
    f"""
[limits.{reader}-{place}]
rule = "{LIMIT}/day fixed"
key = "{key}"
when = {{ path = "/{reader}-{place}" }}
on_missing_key = "ON_MISSING_KEY"
"""
    for reader in ("first", "last")
    for place, key in (("query", "query:user"), ("cookie", "cookie:sid"))
)  # fmt: skip

NAMES = ["user", "User", "USER", "us%65r", "%75%73%65%72", "%55ser", "user%00", "user%20", "+user", "%20user", "user[]",
         "user%5B%5D", "user[0]", "user[a]", ".user", "us%2565r", "user%5b", "\tuser"]  # fmt: skip

COOKIE_NAMES = ["sid", "Sid", "SID", "s%69d", "%73id", " sid", "sid ", "\tsid", "sid[]", "sid%00", "sid[0]", '"sid"', "$sid",
                "sid+", "s%2569d"]  # fmt: skip


def queries(a, b):
    """Returns queries without duplicates: single names, names with an empty value, and pairs of names with two values."""
    found = [f"{name}={a}" for name in NAMES]
    found += [f"{name}={end}" for name in NAMES for end in ("", "&", f"&{a}", f"&={a}", f"={a}", f"%26user={b}", f"#&user={b}")]
    found += [f"user={a}{odd}" for odd in ("%00", "%20", "+", "%0a", "%", "%zz", "%ff", "[]", ";", ";x", "#", "#x", ",", f",{b}")]
    separators = ["&", ";", "&;", "&&", "&amp;", "%26", "#", "&x=1&", "?", "&?", ","]
    pairs = [f"user={a}{between}{name}={b}" for between, name in itertools.product(separators, NAMES)]
    pairs += [f"{name}={a}{between}user={b}" for between, name in itertools.product(separators, NAMES)]
    pairs += [f"user={a}&{name}" for name in NAMES] + [f"user&{name}={b}" for name in NAMES]
    return list(dict.fromkeys(found + pairs))


def cookies(a, b):
    """Returns sets of Cookie headers without duplicates, each header as its name and value."""
    one = [f"{name}={a}" for name in COOKIE_NAMES]
    one += [f'sid{text}' for text in ("", "=", f"=\"{a}\"", f"='{a}'", f"= {a}", f" = {a}", f"={a} ", f"=={a}", f"={a};", f"={a},")]
    one += [f"sid={a}{odd}" for odd in ("%00", "%20", "+", "%3b", "%3bsid=" + b, '"', "\\", "%ff", f", {b}", f'"; sid="{b}')]
    one += [f"$Version=1; sid={a}; $Path=/", f"x=1; sid={a}", f"x; sid={a}", f"=; sid={a}", f'x="; sid={a}', f'x="; sid={a}"']
    separators = [";", "; ", " ; ", ";;", ",", ", ", "; x=1; ", "&", ";\t", "; $Path=/; ", "\t", " "]
    one += [f"sid={a}{between}{name}={b}" for between, name in itertools.product(separators, COOKIE_NAMES)]
    one += [f"{name}={a}{between}sid={b}" for between, name in itertools.product(separators, COOKIE_NAMES)]
    lines = [[("Cookie", text)] for text in dict.fromkeys(one)]
    for name, (first, second) in itertools.product(COOKIE_NAMES, [("Cookie", "Cookie"), ("cookie", "COOKIE"), ("Cookie", "cookie")]):
        lines.append([(first, f"sid={a}"), (second, f"{name}={b}")])
        lines.append([(first, f"{name}={a}"), (second, f"sid={b}")])
    lines.append([("Cookie", f"sid={a}"), ("Cookie", ""), ("Cookie", "x=1")])
    lines.append([("Cookie2", f"sid={a}"), ("Cookie", f"sid={b}")])
    return lines


def strict(texts, separator, name):
    """Returns the first value of exactly this name."""
    pairs = [pair.partition("=") for text in texts for pair in text.split(separator)]
    return next((value for found, _, value in pairs if urllib.parse.unquote_plus(found) == name), None)


def lenient(texts, separators, name):
    """Returns the last value of any similar name, with any of the separators, like PHP and ASP.NET together."""
    value = None
    for text in texts:
        for pair in re.split(separators, text):
            found, _, after = pair.partition("=")
            found = urllib.parse.unquote_plus(found).strip(" \t").partition("\0")[0].partition("[")[0].lower()
            value = after if found == name else value
    return value


def unquoted(value):
    """Returns a cookie's value without blanks and quotes around it."""
    value = value.strip(" \t")
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def cut(value):
    """Returns the value up to the first blank, unless the value has quotes."""
    value = value.strip(" \t")
    return value if value.startswith('"') else re.split("[ \t]", value)[0]


def user_of(path, headers):
    """Returns the user that the application at this path reads, or None."""
    path, _, query = path.partition("?")
    reader, _, place = path.strip("/").partition("-")
    if place == "query":
        first = reader == "first"
        value = strict([query.partition("#")[0]], "&", "user") if first else lenient([query], "[&;#]", "user")
        return None if value is None else urllib.parse.unquote_plus(value)
    found = [text for name, text in headers if name.lower() == "cookie"]
    if reader == "last":
        value = lenient(found, "[;,]", "sid")
        return None if value is None else urllib.parse.unquote_plus(unquoted(cut(value)))
    pairs = [pair.strip(" \t").partition("=") for text in found for pair in text.split(";")]
    return next((unquoted(value) for name, equals, value in pairs if equals and name == "sid"), None)


@contextlib.contextmanager
def readers():
    """Runs an application that counts the requests of each user that it reads, by path."""

    class Reader(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            place = self.path.partition("?")[0]
            self.server.seen[place][user_of(self.path, self.headers.items())] += 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reader) as server:
        server.seen = collections.defaultdict(collections.Counter)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def passes(port, target, headers=()):
    """Returns whether this request passes. http.client would change the request, so this uses a socket."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}Connection: close\r\n\r\n"
        peer.sendall(request.encode("latin-1"))
        return peer.makefile("rb").readline().split()[1] == b"200"


def expect_each_limited(port, app, on_missing_key):
    """Sends all spellings to both applications, and checks how often each of them has read each user."""
    # With `shared`, requests without a clear user share a key, and an application may have read the same user in all of them.
    most = LIMIT if on_missing_key == "deny" else 2 * LIMIT
    for place, spell in ("query", queries), ("cookie", cookies):
        forms = spell("ann", "bob") + spell("bob", "ann")
        sent = {}
        for reader in "first", "last":
            path = f"/{reader}-{place}"
            asked = [(f"{path}?{form}", ()) if place == "query" else (path, form) for form in forms]
            sent[reader] = [user_of(target, headers) for target, headers in asked]
            for target, headers in asked:
                passes(port, target, headers)
            read = {user: count for user, count in app.seen[path].items() if user is not None}
            beyond = {user: count for user, count in read.items() if count > most}
            expect(f"{path}, of {len(asked)} requests: users with more than {most} requests", beyond, {})
            got = [read.get(user, 0) >= LIMIT for user in ("ann", "bob")]
            expect(f"{path}: ann and bob get what the rule admits", got, [True, True])
        disagreed = sum(first != last for first, last in zip(sent["first"], sent["last"]))
        expect(f"the applications often read different users of a {place}", disagreed >= 200, True)
