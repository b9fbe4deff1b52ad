"""A new browser, controlled over a pipe (Chrome's DevTools protocol)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

# Maximum time until a page shows what a test waits for.
PATIENCE_S = 30


class Refused(Exception):
    """The browser answers a command with an error."""


class Page:
    """A tab."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.complaints = []

    def open(self, url):
        self.command("Page.navigate", url=url)

    def command(self, method, **parameters):
        return self.browser.command(method, self, **parameters)

    def value(self, expression):
        """Evaluates an expression in the page and returns its value; waits for promises."""
        result = self.evaluate(expression)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def evaluate(self, expression):
        return self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)

    def wait_for(self, what, expression):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            # A page that is loading or closing cannot evaluate expressions.
            with contextlib.suppress(Refused):
                if self.evaluate(expression)["result"].get("value") is True:
                    return
            time.sleep(0.05)
        raise SystemExit(f"{what}: not in time, the page is {self.value('document.documentElement.outerHTML')}")


class Browser:
    def __init__(self, commands, answers):
        self.commands, self.answers = commands, answers
        self.rest, self.number, self.pages = b"", 0, {}

    def page(self):
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in "Page", "Runtime", "Log":
            page.command(f"{domain}.enable")
        return page

    def command(self, method, page=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if page:
            message["sessionId"] = page.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            said = self.read()
            if said.get("id") == self.number:
                if "error" in said:
                    raise Refused(f"{method}: {said['error']}")
                return said["result"]
            self.note(said)

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.answers, 65_536)
            if not piece:
                raise SystemExit("the browser has ended")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        """Records a page's errors and warnings: exceptions, violations of the policy, failed requests."""
        page = self.pages.get(event.get("sessionId"))
        if not page:
            return
        entry = event["params"].get("entry", {})
        if event["method"] == "Runtime.exceptionThrown" or entry.get("level") in ("warning", "error"):
            page.complaints.append(event["params"])


@contextlib.contextmanager
def browser():
    """Chromium without a window. It ends when the pipe is closed, also if this program is killed."""
    with tempfile.TemporaryDirectory(prefix="tidegate-", ignore_cleanup_errors=True) as profile, tempfile.TemporaryFile("w+") as said:
        (its_commands, commands), (answers, its_answers) = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4. It keeps its files in the directory.
        wrapper = f"import os, sys; os.dup2({its_commands}, 100); os.dup2({its_answers}, 4); os.dup2(100, 3); os.execvp(sys.argv[1], sys.argv[1:])"
        homes = {name: profile for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")}
        flags = [
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-gpu", "--no-first-run",
            "--disable-breakpad", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
        ]
        # Chromium's sandbox does not run as root. The browser opens only pages of this program.
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        process = subprocess.Popen(
            [sys.executable, "-c", wrapper, "chromium", *flags],
            pass_fds=(its_commands, its_answers), stdout=said, stderr=said, start_new_session=True,
            env={**os.environ, **homes},
        )
        os.close(its_commands)
        os.close(its_answers)
        try:
            yield Browser(commands, answers)
        except BaseException:
            said.seek(0)
            print(said.read())
            raise
        finally:
            os.close(commands)
            os.close(answers)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            # Chromium has many processes, and some of them end later.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
