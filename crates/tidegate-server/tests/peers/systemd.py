"""systemd: the unit is a good one, and the server tells the service manager what the unit says it does."""

import os
import re
import signal
import socket
import time

from processes import ROOT, directory, done, expect, output, tidegate

UNIT = ROOT / "deploy/systemd/tidegate.service"
# Of 100, by systemd's own measure: what a server that only talks to the network can come down to.
EXPOSURE_MAX = 20


def unit():
    text = UNIT.read_text()
    expect("the type", "Type=notify-reload" in text, True)
    version = int(re.match(rb"systemd (\d+)", output("systemd-analyze", "--version")).group(1))
    if version < 253:
        text = text.replace("Type=notify-reload", "Type=notify")
    with directory() as path:
        file = path / "tidegate.service"
        # The program must be there, wherever it was built.
        file.write_text(text.replace("/usr/local/bin/tidegate", os.environ["TIDEGATE"]))
        output("systemd-analyze", "verify", "--man=no", file)
        exposure = f"--threshold={EXPOSURE_MAX}"
        output("systemd-analyze", "security", "--offline=yes", "--no-pager", exposure, file)


def told(manager):
    manager.settimeout(60)
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())


def notifications():
    with directory() as path, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path / "notify"))
        with tidegate(NOTIFY_SOCKET=str(path / "notify"), WATCHDOG_USEC="1000000") as server:
            expect("when it listens", told(manager), {"READY": "1"})
            expect("it is alive", told(manager), {"WATCHDOG": "1"})
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
            server.process.send_signal(signal.SIGHUP)
            reloading = skipping_watchdog(manager)
            expect("it reloads", reloading["RELOADING"], "1")
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
            expect("and says since when", before <= int(reloading["MONOTONIC_USEC"]) <= after, True)
            expect("it has reloaded", skipping_watchdog(manager), {"READY": "1"})
            server.process.send_signal(signal.SIGTERM)
            expect("it ends", skipping_watchdog(manager), {"STOPPING": "1"})
            expect("in order", server.process.wait(timeout=60), 0)


def skipping_watchdog(manager):
    while (said := told(manager)) == {"WATCHDOG": "1"}:
        pass
    return said


unit()
notifications()
done("systemd")
