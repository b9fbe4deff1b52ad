"""ioredis and node-redis: starts the servers for ioredis.js and node_redis.js, and runs the scripts."""

import pathlib

from processes import done, output, tidegate

for script in "ioredis.js", "node_redis.js":
    with tidegate() as open_, tidegate('[server.auth]\ntokens = ["secret"]\n') as closed:
        output("node", pathlib.Path(__file__).with_name(script), open_.resp, closed.resp)
    done(script)
