"""schemathesis: asks a server everything that its own /openapi.json allows, and much that it does not."""

import pathlib
import sys

from processes import directory, done, output, tidegate

CONFIG = """
[limits.login]
rule = "5/min"
[limits.jobs]
rule = "concurrency 2 lease 30s"
"""

SCHEMATHESIS = pathlib.Path(sys.executable).with_name("schemathesis")
# A fixed seed: a run that fails here fails everywhere.
OPTIONS = "--max-examples 30 --seed 1 --workers 1 --no-color --generation-database none".split()

with tidegate(CONFIG) as server, directory() as path:
    document = f"http://127.0.0.1:{server.http}/openapi.json"
    # It leaves files where it is started.
    print(output(SCHEMATHESIS, "run", document, *OPTIONS, cwd=path, text=True)[-2_000:])
done("schemathesis")
