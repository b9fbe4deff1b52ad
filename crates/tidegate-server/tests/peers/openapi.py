"""schemathesis: asks a server everything that its own /openapi.json allows, and much that it does not."""

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
# A fixed seed: a run that fails here fails everywhere. Not checked is that whatever the document allows is accepted:
# it cannot say that a limit must be one of concurrency to be acquired, or that a rule must be a good one.
OPTIONS = "--max-examples 100 --seed 1 --no-color --generation-database none".split()
OPTIONS += ["--exclude-checks", "positive_data_acceptance"]

# A denial of authorize has the status that `deny` asks for, which may be one of a server's error.
AUTHORIZE = """
[[operations]]
include-path = "/v1/authorize"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "5xx"]
"""

with tidegate(CONFIG) as server, directory() as path:
    document = f"http://127.0.0.1:{server.http}/openapi.json"
    (path / "schemathesis.toml").write_text(AUTHORIZE)
    # It leaves files where it is started.
    print(output(SCHEMATHESIS, "run", document, *OPTIONS, cwd=path, text=True)[-2_000:])
done("schemathesis")
