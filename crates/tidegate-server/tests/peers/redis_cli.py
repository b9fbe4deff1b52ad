"""redis-cli: the commands in the README and the guide."""

import re
import shlex

from processes import GUIDE, ROOT, done, expect, expect_near, output, tidegate

CONFIG = """
[limits.login]
rule = "5/day"
[limits.jobs]
rule = "concurrency 2 lease 1h"
"""


def cli(server, *words, **options):
    said = output("redis-cli", "-p", server.resp, *words, text=True, **options)
    return [line.split(") ")[-1].removeprefix("(integer) ") for line in said.splitlines() if line]


def numbers(server, *words):
    return [int(word) for word in cli(server, *words)]


def throttle(server):
    expect("the first command of the README", numbers(server, "CL.THROTTLE", "user:1", 15, 30, 60), [0, 16, 15, -1, 2])
    for remaining in (2, 1, 0):
        expect("slow", numbers(server, "cl.throttle", "slow", 2, 3, 86_400)[:4], [0, 3, remaining, -1])
    denied = numbers(server, "CL.THROTTLE", "slow", 2, 3, 86_400)
    expect("denied", denied[:3], [1, 3, 0])
    expect_near("retry_after", denied[3], 28_800)
    expect_near("reset_after", denied[4], 86_400)
    expect("exact", numbers(server, "CL.THROTTLE", "fast", 6_000, 6_000, 1)[:3], [0, 6_001, 6_000])
    expect("peek", numbers(server, "CL.THROTTLE", "new", 2, 3, 86_400, 0), [0, 3, 3, -1, 0])
    expect("refund", numbers(server, "CL.THROTTLE", "slow", 2, 3, 86_400, -9), [0, 3, 3, -1, 0])
    expect("no number", cli(server, "CL.THROTTLE", "k", 1, 2, "x"), ["Cell error: Store error: Couldn't parse as integer: x"])
    expect("del", cli(server, "DEL", "user:1", "unused"), ["1"])


def tide(server):
    expect("a named limit", numbers(server, "TIDE.CHECK", "login", "alice", "COST", 2)[:4], [1, 5, 3, 0])
    expect("a rule", numbers(server, "TIDE.CHECK", "10/s burst 20", "alice")[:3], [1, 20, 19])
    expect("a denied TIDE.CHECKALL", cli(server, "TIDE.CHECKALL", "login", "alice", 9, "5/day", "bob", 1)[0], "0")
    expect("a denied TIDE.CHECKALL charges nothing", numbers(server, "TIDE.PEEK", "5/day", "bob")[:3], [1, 5, 4])
    expect("refund", cli(server, "TIDE.REFUND", "login", "alice", "COST", 1), ["OK"])
    expect("reset", cli(server, "TIDE.RESET", "login", "alice"), ["OK"])
    lease = cli(server, "TIDE.ACQUIRE", "jobs", "reports")
    expect("a permit", lease[:4], ["1", "2", "1", "3600000"])
    lease = lease[4].strip('"')
    expect("a permit is released once", [cli(server, "TIDE.RELEASE", lease)[0] for _ in "12"], ["1", "0"])


def versions(server):
    for version, sign in ("2", ")"), ("3", "#"):
        hello = output("redis-cli", "--no-raw", "-p", server.resp, "HELLO", version, text=True)
        expect(f"HELLO {version} begins with", hello.strip()[:2].strip("1 "), sign)
    expect("the same in RESP3", numbers(server, "-3", "CL.THROTTLE", "three", 15, 30, 60), [0, 16, 15, -1, 2])


def pipelines(server):
    asked = 5_000
    typed = "CL.THROTTLE piped 9 10 86400\n" * asked
    said = cli(server, input=typed)
    limited = said[0::5]
    expect("typed", (len(said), limited.count("0"), limited.count("1")), (5 * asked, 10, asked - 10))
    words = ["CL.THROTTLE", "mass", "9", "10", "86400"]
    raw = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    said = output("redis-cli", "-p", server.resp, "--pipe", input=(raw * asked).encode()).decode()
    expect("--pipe", f"errors: 0, replies: {asked}" in said, True)


def tokens():
    with tidegate('[server.auth]\ntokens = ["secret"]\n') as server:
        ask = ("CL.THROTTLE", "user:1", 15, 30, 60)
        expect("no token", cli(server, *ask), ["NOAUTH Authentication required."])
        expect("token", numbers(server, "-a", "secret", *ask), [0, 16, 15, -1, 2])
        expect("user and token", numbers(server, "--user", "me", "--pass", "secret", *ask)[0], 0)
        expect("wrong", cli(server, "-a", "guess", *ask)[-1], "NOAUTH Authentication required.")


def shown(server, page, least):
    """Runs every example of a page and compares the output, except for line breaks at its end."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    examples = [example.split("\n", 1) for block in blocks for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    expect(f"examples in {page.name}", len(examples) >= least, True)
    for command, answer in examples:
        here = command.replace("-p 6380", f"--no-raw -p {server.resp}").replace(":8080", f":{server.http}")
        said = re.sub("[0-9a-f]{32}", "…", output(*shlex.split(here), text=True))
        expect(command, said.rstrip("\n"), re.sub("[0-9a-f]{32}", "…", answer).rstrip("\n"))


for page, least in (GUIDE / "resp.md", 4), (ROOT / "README.md", 2):
    with tidegate() as server:
        shown(server, page, least)
with tidegate(CONFIG) as server:
    for conversation in (throttle, tide, versions, pipelines):
        conversation(server)
tokens()
done("redis-cli")
