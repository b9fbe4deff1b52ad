"""schemathesis: sends a server requests that its /openapi.json allows, and requests that it does not."""

import pathlib
import sys

from processes import directory, done, output, tidegate

CONFIG = """
[limits.login]
rule = "5/min"
[limits.jobs]
rule = "concurrency 2 lease 30s"
[limits.endless]
rule = "concurrency 3"
"""

SCHEMATHESIS = pathlib.Path(sys.executable).with_name("schemathesis")
# A fixed seed: a run that fails here fails everywhere. The server need not accept every request that the document allows, because
# the document cannot say that only a concurrency limit can be acquired, or which rules are valid.
OPTIONS = "--max-examples 100 --seed 1 --no-color --generation-database none".split()
OPTIONS += ["--exclude-checks", "positive_data_acceptance"]

# A denial by /v1/authorize has the status in `deny`, which may be one of server errors.
AUTHORIZE = """
[[operations]]
include-path = "/v1/authorize"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "5xx"]
"""

with tidegate(CONFIG) as server, directory() as path:
    document = f"http://127.0.0.1:{server.http}/openapi.json"
    (path / "schemathesis.toml").write_text(AUTHORIZE)
    # schemathesis writes files to its working directory.
    print(output(SCHEMATHESIS, "run", document, *OPTIONS, cwd=path, text=True)[-2_000:])
done("schemathesis")
