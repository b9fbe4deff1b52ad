"""Processes that the scripts start: each ends with its `with` block, also if the script fails."""

import contextlib
import http.client
import http.server
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parents[4]
GUIDE = ROOT / "docs/guide"

# A script takes seconds. A script that hangs is ended, together with the processes that it has started.
SECONDS_MAX = 180


def give_up(number, _frame):
    raise SystemExit(f"ended by {signal.Signals(number).name}: the script took too long, or got a signal")


signal.signal(signal.SIGALRM, give_up)
signal.signal(signal.SIGTERM, give_up)
signal.alarm(SECONDS_MAX)


@contextlib.contextmanager
def directory():
    with tempfile.TemporaryDirectory(prefix="tidegate-") as path:
        yield pathlib.Path(path)


@contextlib.contextmanager
def started(*command, **options):
    """Runs a program until the block ends."""
    process = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Tidegate:
    """`tidegate serve` on free ports: `resp`, `http`, `grpc` and `admin` are their numbers."""

    def __init__(self, process):
        self.process = process
        banner = []
        while not (banner and banner[-1].startswith("  admin")):
            line = process.stdout.readline()
            expect("the banner is complete", bool(line), True)
            banner.append(line)
        self.version = banner[0].split()[1]
        for line in banner[1:]:
            name, address = line.split()
            setattr(self, name.lower(), int(address.rsplit(":", 1)[1]))


@contextlib.contextmanager
def proxy(*command, port, **options):
    """Runs a proxy until the block ends. Its output is printed only if the script fails, because some errors are intended."""
    with tempfile.TemporaryFile("w+") as said:
        try:
            with started(*command, stdout=said, stderr=said, **options) as process:
                wait_for(port, process)
                yield process
        except BaseException:
            said.seek(0)
            print(said.read())
            raise


@contextlib.contextmanager
def tidegate(config="", **environment):
    with directory() as path:
        file = path / "tidegate.toml"
        file.write_text(config)
        places = [word for wire in ("resp", "http", "grpc", "admin") for word in (f"--{wire}", "127.0.0.1:0")]
        command = [os.environ["TIDEGATE"], "serve", "--config", file, *places]
        environment = {**os.environ, "TIDEGATE_LOG": "warn", **environment}
        with started(*command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            yield Tidegate(process)


@contextlib.contextmanager
def application():
    """Runs an application behind a proxy, which answers `hello` and counts its answers."""

    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.greeted += 1
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        server.greeted = 0
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def free_port():
    """Returns a free port, for programs that cannot choose one themselves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"{process.args[0]} ended with {process.returncode} instead of listening")


def get(port, path, caller="127.0.0.1", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(caller, 0))
    try:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def guide(page, language, word=""):
    """Returns the guide's first code block in this language that contains this word."""
    text = (GUIDE / page).read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return next(block for block in blocks if word in block)


def replaced(text, changes):
    for old, new in changes.items():
        expect(f"`{old}` is in the guide", old in text, True)
        text = text.replace(old, new)
    return text


def output(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=60, **options)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def expect(what, got, wanted):
    if got != wanted:
        raise SystemExit(f"{what}: got {got!r}, expected {wanted!r}")


def expect_near(what, got, wanted):
    """Compares times that may be lower than expected on a busy machine."""
    if not wanted - SECONDS_MAX <= got <= wanted:
        raise SystemExit(f"{what}: got {got!r}, expected {wanted!r} or a little less")


def done(what):
    print(f"{what}: ok")
    sys.stdout.flush()
