"""Spellings of one path: request targets by which a client may reach a page.

The server under test decides which of them reach the page. Every spelling is bytes, as in the request line.
"""

import itertools
import socket

from processes import expect

# The content of the page that a limit protects.
PAGE = b"protected"

# A limit of one request for the page, by any spelling.
ONCE = """
[limits.login]
rule = "1/day"
key = ["constant:all", "path"]
when = { path = "/login" }
"""

# A limit of one request for each page. Spellings that servers read differently share one key.
ONCE_EACH = """
[limits.pages]
rule = "1/day"
key = "path"
"""

# Bytes that some servers read as one slash.
SLASHES = [
    b"/", b"//", b"///", b"/./", b"/%2e/", b"/.//", b"%2f", b"%2F", b"/%2f", b"%2f/", b"%2f%2F", b"/.%2f", b"%2f./",
    b"\\", b"/\\", b"%5c", b"%5C", b"/%5c", b"%252f", b"/%252f", b"%25252f", b"%255c", b"/;/", b"/;x=1/", b"/.;/",
    b"/.;x/", b"/%3b/", b"/%20/", b"/%09/", b"/%c0%af", b"%c0%af", b"%e0%80%af", b"%u002f", b"%ef%bc%8f", b"/%00/",
]  # fmt: skip

# Segments that go down and up again.
DETOURS = [
    b"/../", b"/x/../", b"/x/%2e%2e/", b"/x/.%2e/", b"/x/%2E./", b"/x/%252e%252e/", b"/x//../", b"/x//../../",
    b"/x/y/../../", b"/x%2f../", b"/x/..%2f", b"/x%2f..%2f", b"%2fx%2f..%2f", b"/x%2F%2e%2e%2F", b"/x%2fy/../",
    b"/x%2fy/../../", b"/x/y%2f..%2f../", b"/x\\..\\", b"/x%5c..%5c", b"/x\\y/../", b"/x/..;/", b"/x/..;x=1/",
    b"/x/;y/../", b"/x;/../", b"/x/..%3b/", b"/x/..%00/", b"/x%00/../", b"/x%3f/../", b"/x%23/../", b"/x/.../../../",
    b"/x/..%20/", b"/x/.../", b"/..../", b"/x%252f..%252f", b"/x%252fy/../", b"/x/../../", b"/./x/.././",
    b"/x/%c0%ae%c0%ae/", b"/x/..%c0%af", b"/x/..%09/", b"/\xff/../", b"/%ff/../",
    b"/x#/../", b"/x#?/../", b"/x#/%2e%2e/", b"/x%0a/../", b"/x/.%0a./",
]  # fmt: skip

# Spellings of the name.
NAMES = [
    b"login", b"%6cogin", b"%6Cogin", b"l%6fgin", b"logi%6e", b"%6c%6f%67%69%6e", b"%6C%6F%67%69%6E", b"%256cogin",
    b"LOGIN", b"Login", b"%4cOGIN", b"logi%4e", b"log%c4%b0n", b"log\xc4\xb0n", b"log%00in", b"log%0ain", b"log%c1%a9n",
    b"log%u0069n", b"log%%69n", b"lo%2567in", b"log%c4%b1n", b"log\xc4\xb1n", b"log%09in",
]  # fmt: skip

# Bytes after the name that some servers ignore.
ENDS = [
    b"", b"/", b"//", b"/.", b"/./", b"/%2e", b"%2f", b"%2F.", b"/x/..", b"/x/../", b"/x/%2e%2e", b"%2fx%2f..", b"/..;",
    b";", b";x", b";x=1", b"%3b", b";/", b";x/../login", b".", b"..", b"%2e", b"%20", b"%20.", b"%20%2e%20", b"%00",
    b"%00x", b"%00.png", b"%3f", b"%3fx", b"%3fx=1", b"%23", b"%23x", b"?", b"?x=1", b"??", b"?/../x", b"?%2f..%2fx", b"#",
    b"#x", b"#?x", b"%", b"%2", b"%zz", b"%25", b"\\", b"%5c", b"%09", b"%0a", b"%0d", b"%ff", b"::$DATA", b"~1", b"%253f",
    b"%2500", b"%2520",
]  # fmt: skip


def spellings(name=b"login"):
    """Returns all spellings with one unusual part, and pairs of two, without duplicates."""
    names = [spelling.replace(b"login", name) for spelling in NAMES]
    starts = SLASHES + DETOURS
    found = [b"/" + name] + [start + name for start in starts]
    found += [b"/" + name for name in names]
    found += [b"/" + name + end for end in ENDS]
    found += [start + name for start, name in itertools.product(starts, names)]
    found += [start + name + end for start, end in itertools.product(starts, ENDS)]
    found += [first + second.lstrip(b"/") + name for first, second in itertools.product(DETOURS, starts)]
    return list(dict.fromkeys(found))


def reaches(port, spelling, method=b"GET"):
    """Returns whether a request for this target reaches the page. http.client would change the target, so this uses a socket."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (method, spelling))
        return peer.makefile("rb").read().endswith(b"\r\n\r\n" + PAGE)


def names(port):
    """Returns the spellings by which the server reaches the page on this port, which has no limit."""
    found = [spelling for spelling in spellings() if reaches(port, spelling)]
    expect("the page has many spellings", len(found) > 200, True)
    expect("the first spelling", found[0], b"/login")
    return found


def expect_limited(port, found):
    passed = [spelling for spelling in found if reaches(port, spelling)]
    expect(f"of {len(found)} spellings of one page {len(passed)} pass, such as", passed[:9], [b"/login"])


def expect_two_keys(port, found):
    passed = [spelling for spelling in found if reaches(port, spelling)]
    expect(f"of {len(found)} spellings of one page {len(passed)} pass, such as {passed[:9]}", len(passed) <= 2, True)
