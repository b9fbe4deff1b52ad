"""redis-py: both protocols, pipelines, transactions, a pool shared by threads, any bytes as a key."""

import concurrent.futures

import redis
import redis.backoff
import redis.retry
from processes import done, expect, expect_near, tidegate

ONE_OF_THREE = (2, 3, 86_400)


def throttle(client, key, *numbers):
    return client.execute_command("CL.THROTTLE", key, *numbers)


def refused(what, kind, text, ask):
    try:
        answer = ask()
    except redis.RedisError as error:
        expect(what, (type(error), text in str(error)), (kind, True))
    else:
        raise SystemExit(f"{what}: got {answer!r}, expected {kind.__name__}")


def decides(client):
    expect("ping", client.ping(), True)
    expect("allowed", throttle(client, "user:1", 15, 30, 60), [0, 16, 15, -1, 2])
    expect("all", throttle(client, "all", *ONE_OF_THREE, 3)[:4], [0, 3, 0, -1])
    denied = throttle(client, "all", *ONE_OF_THREE)
    expect("denied", denied[:3], [1, 3, 0])
    expect_near("retry_after", denied[3], 28_800)
    expect("by rule", client.execute_command("TIDE.CHECK", "5/day", "bob")[:4], [1, 5, 4, 0])
    both = client.execute_command("TIDE.CHECKALL", "5/day", "bob", 1, "7/day", "bob", 1)
    expect("both", [both[0][0], both[1][0][:3], both[1][1][:3]], [1, [1, 5, 3], [1, 7, 6]])
    refused("a usage error", redis.ResponseError, "Usage: cl.throttle", lambda: throttle(client, "k", 1))
    refused("an unknown command", redis.ResponseError, "unknown command", lambda: client.set("a", "b"))
    expect("the connection is usable after an error", client.echo("still"), b"still")
    expect("del", client.delete("user:1", "all"), 2)


def any_bytes(client):
    keys = [bytes(range(256)), b"\xff\xfe", b"", b"\r\n$5\r\n", "naïve".encode()]
    expect("each key has its own limit", [throttle(client, key, 0, 1, 86_400)[0] for key in keys * 2], [0] * 5 + [1] * 5)
    refused("bytes for a rule", redis.ResponseError, "UTF-8", lambda: client.execute_command("TIDE.CHECK", b"\xff", "k"))


def pipelines(client):
    for transaction in (False, True):
        with client.pipeline(transaction=transaction) as pipe:
            for _ in range(1_000):
                throttle(pipe, f"pipe:{transaction}", 9, 10, 86_400)
            limited = [answer[0] for answer in pipe.execute()]
        expect(f"in order, {transaction=}", limited, [0] * 10 + [1] * 990)
    with client.pipeline(transaction=False) as pipe:
        throttle(pipe, "p", 9, 10, 86_400)
        pipe.execute_command("NONSENSE")
        throttle(pipe, "p", 9, 10, 86_400)
        first, error, last = pipe.execute(raise_on_error=False)
    expect("an error does not affect the other answers", (first[2], type(error), last[2]), (9, redis.ResponseError, 8))
    with client.pipeline(transaction=True) as pipe:
        throttle(pipe, "broken", 9, 10, 86_400)
        pipe.execute_command("NONSENSE")
        refused("a broken transaction", redis.ResponseError, "unknown command", pipe.execute)
    expect("charges nothing", throttle(client, "broken", 9, 10, 86_400, 0)[2], 10)


def introspection(client, server):
    info = client.info()
    expect("info", (info["redis_version"], info["tidegate_version"], info["role"]), ("7.0.0", server.version, "master"))
    client.client_setname("tests")
    expect("client", (client.client_getname(), client.client_id() > 0), ("tests", True))
    expect("time", client.time()[0] > 1_700_000_000, True)
    expect("command", client.command_count() > 20, True)
    refused("another database", redis.ResponseError, "only 0", lambda: client.select(1))


def pool(server, protocol):
    client = redis.Redis(port=server.resp, protocol=protocol, max_connections=8)
    with client, concurrent.futures.ThreadPoolExecutor(8) as threads:
        key = f"pool:{protocol}"
        limited = list(threads.map(lambda _: throttle(client, key, 99, 100, 86_400)[0], range(400)))
    expect("exactly 100 of the requests of eight threads are allowed", limited.count(0), 100)


def tokens(protocol):
    with tidegate('[server.auth]\ntokens = ["secret"]\n') as server:
        place = {"port": server.resp, "protocol": protocol, "decode_responses": True}
        with redis.Redis(password="secret", **place) as client:
            expect("token", throttle(client, "k", 15, 30, 60)[0], 0)
            expect("text", (client.echo("text"), client.info()["loading"]), ("text", 0))
        with redis.Redis(username="me", password="secret", **place) as client:
            expect("user and token", client.ping(), True)
        # By default, redis-py retries: it treats a wrong token as a failed connection.
        place["retry"] = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
        with redis.Redis(password="guess", **place) as client:
            refused("a wrong token", redis.AuthenticationError, "invalid username-password", client.ping)
        with redis.Redis(**place) as client:
            refused("no token", redis.AuthenticationError, "", client.ping)


for protocol in (2, 3):
    with tidegate() as server:
        with redis.Redis(port=server.resp, protocol=protocol) as client:
            for conversation in (decides, any_bytes, pipelines):
                conversation(client)
            introspection(redis.Redis(port=server.resp, protocol=protocol, decode_responses=True), server)
        pool(server, protocol)
    tokens(protocol)
done(f"redis-py {redis.__version__}")
