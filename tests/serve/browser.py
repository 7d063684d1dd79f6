# browser.py - a headless Chromium, by the devtools protocol over a pipe: no port, no other library.
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="mortise-browser.")
        ours_out, theirs_in = os.pipe()[::-1]
        theirs_out, ours_in = os.pipe()[::-1]
        # it reads requests from descriptor 3 and writes answers to 4
        shell = 'exec 3<&%d 4>&%d; exec "$@"' % (theirs_in, theirs_out)
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", program, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--no-first-run", "--mute-audio",
             "--hide-scrollbars", "--user-data-dir=" + self.folder, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=self.log, stderr=self.log, start_new_session=True,
            env={**os.environ, "HOME": self.folder, "XDG_CONFIG_HOME": self.folder, "XDG_CACHE_HOME": self.folder})
        os.close(theirs_in)
        os.close(theirs_out)
        self.to, self.back = ours_out, os.fdopen(ours_in, "rb")
        self.bytes, self.number, self.session = b"", 0, None
        self.events = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.bytes:
            more = os.read(self.back.fileno(), 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended:\n" + open(self.log.name).read()[-2000:])
            self.bytes += more
        message, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def run(self, expression):
        """The value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError("%s: %s" % (expression, result["exceptionDetails"]))
        return result["result"].get("value")

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def until(self, expression, limit=60):
        """Looks again and again until the expression is true; what it was at last."""
        end = time.monotonic() + limit
        while True:
            try:
                value = self.run(expression)
            except RuntimeError:  # between two pages
                value = None
            if value or time.monotonic() > end:
                return value
            time.sleep(0.05)

    def complaints(self):
        """What the page logged or threw, or the browser refused."""
        return [e for e in self.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded") or
                e.get("method") == "Runtime.consoleAPICalled"]

    def size(self, width, height, dark=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def key(self, key, text=""):
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, ord(key[0].upper()))
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def close(self):
        try:
            os.write(self.to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.to)
        self.back.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
