"""ioredis: starts the servers that ioredis.js talks to."""

import pathlib

from processes import done, output, tidegate

script = pathlib.Path(__file__).with_suffix(".js")
with tidegate() as open_, tidegate('[server.auth]\ntokens = ["secret"]\n') as closed:
    output("node", script, open_.resp, closed.resp)
done("ioredis")
