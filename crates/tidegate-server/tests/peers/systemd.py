"""systemd: the unit is valid, and the server sends the notifications that the unit requires."""

import os
import re
import signal
import socket
import time

from processes import ROOT, directory, done, expect, output, tidegate

UNIT = ROOT / "deploy/systemd/tidegate.service"
# Maximum exposure out of 100, as systemd measures it: low for a server that only uses the network.
EXPOSURE_MAX = 20


def unit():
    text = UNIT.read_text()
    expect("the unit's type", "Type=notify-reload" in text, True)
    version = int(re.match(rb"systemd (\d+)", output("systemd-analyze", "--version")).group(1))
    if version < 253:
        text = text.replace("Type=notify-reload", "Type=notify")
    with directory() as path:
        file = path / "tidegate.service"
        # systemd-analyze checks that the program exists, so this names the built one.
        file.write_text(text.replace("/usr/local/bin/tidegate", os.environ["TIDEGATE"]))
        output("systemd-analyze", "verify", "--man=no", file)
        exposure = f"--threshold={EXPOSURE_MAX}"
        output("systemd-analyze", "security", "--offline=yes", "--no-pager", exposure, file)


def notification(manager):
    manager.settimeout(60)
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())


def notifications():
    with directory() as path, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path / "notify"))
        with tidegate(NOTIFY_SOCKET=str(path / "notify"), WATCHDOG_USEC="1000000") as server:
            expect("ready when it listens", notification(manager), {"READY": "1"})
            expect("the server is alive", notification(manager), {"WATCHDOG": "1"})
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
            server.process.send_signal(signal.SIGHUP)
            reloading = skipping_watchdog(manager)
            expect("the server reloads", reloading["RELOADING"], "1")
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
            expect("the notification has the time of the reload", before <= int(reloading["MONOTONIC_USEC"]) <= after, True)
            expect("the server has reloaded", skipping_watchdog(manager), {"READY": "1"})
            server.process.send_signal(signal.SIGTERM)
            expect("the server ends", skipping_watchdog(manager), {"STOPPING": "1"})
            expect("the exit code", server.process.wait(timeout=60), 0)


def skipping_watchdog(manager):
    while (said := notification(manager)) == {"WATCHDOG": "1"}:
        pass
    return said


unit()
notifications()
done("systemd")
