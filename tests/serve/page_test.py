"""page_test.py - the page of `mortise serve` in a headless Chromium: what a person sees is what `mortise list --json` says. In
contention, after a loss, with names that try to be HTML, with 2,000 locks (at night 5,000), and while the backend is down."""
import os
import re
import shutil
import sys

from browser import Browser
from rig import Holder, Redis, Serve, listed, main, skip, until

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
if not PROGRAM:
    skip("no chromium")
browser = None

# what a cell may not show as it is, as in page.js
HIDDEN = re.compile("[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
EVIL = ["<img src=x onerror=document.title='hacked'>", "<script>document.title='hacked'</script>", "</td></tr></table><h1>x</h1>", "&lt;b&gt;",
        "'\"><svg onload=document.title='hacked'>", "javascript:alert(1)", "a\u202egnp.exe", "line\nbreak\ttab\x1b[31m", "__proto__", "${1}", "{{1}}",
        "x" * 500]


def sqlite(folder):
    return "sqlite:" + os.path.join(folder, "locks.db")


def show(text):
    return HIDDEN.sub(lambda c: "\\u%04x" % ord(c[0]), text)


def open_page(serve):
    until("an answer", lambda: serve.json()["state"] != "starting")
    browser.open("about:blank")  # the page before stops asking its server
    browser.until("location.href == 'about:blank'")
    browser.events.clear()
    browser.open("http://127.0.0.1:%d/" % serve.port)
    assert browser.until("document.body && document.body.dataset.at")


def rows():
    return browser.run("[...document.querySelectorAll('#rows tr')].map(r => Object.fromEntries([...r.children].map(c => [c.dataset.label, c.textContent])))")


def text(identity):
    return browser.run("document.getElementById('%s').textContent" % identity)


def wanted(lock):
    mode = "exclusive" if lock["mode"] != "shared" else "shared, %d of %d" % (lock["holders"], lock["permits"])
    return {"Name": show(lock["name"]), "Holder": "%s, %s, pid %d" % (lock["program"], lock["host"], lock["pid"]), "Waiting": "%d" % lock["waiters"],
            "Mode": mode, "Token": lock["token"]}


def ours(row):
    return {k: v for k, v in row.items() if k not in ("Held for", "Ends in")}


def as_listed(where, sort):
    """All rows, in the order of the page, are what the command says."""
    locks = sorted(listed(where), key=sort)
    shown = rows()
    assert [ours(row) for row in shown] == [wanted(lock) for lock in locks], (shown, locks)
    assert all(re.fullmatch(r"[\d.]+ (s|min|h|d)( \d+ (s|min|h))?", row["Held for"]) and row["Ends in"] != "–" for row in shown), shown


def most_waited(lock):
    return -lock["waiters"], -lock["held_ms"]


def contention_and_a_loss(folder):
    where, holder, other = sqlite(folder), Holder(sqlite(folder)), Holder(sqlite(folder))
    other.acquire("quiet")
    holder.acquire("busy", 8000), other.acquire("pool", more="shared permits=5")
    waiters = [Holder(where) for _ in range(3)]
    for waiter in waiters:
        waiter.say("acquire busy -1 30000")
    until("three wait", lambda: any(lock["waiters"] == 3 for lock in listed(where)))
    serve = Serve(folder, where, "--interval", "1s")
    open_page(serve)
    assert browser.until("document.getElementById('waiting').textContent == '3'")
    as_listed(where, most_waited)
    assert (text("held"), text("expired"), text("state")) == ("3", "0", "Live"), text("state")
    assert browser.run("document.title") == "3 held, 3 waiting – Mortise"
    holder.kill()  # its ttl ends, and the first waiter has the lock
    assert browser.until("document.getElementById('expired').textContent == '1'")
    assert browser.until("document.getElementById('waiting').textContent == '2'")
    as_listed(where, most_waited)
    assert rows()[0]["Name"] == "busy" and any("pid %d" % w.process.pid in rows()[0]["Holder"] for w in waiters), rows()
    for waiter in waiters:
        waiter.kill()
    other.say("release")
    until("pool is free", lambda: len(listed(where)) < 3)
    other.kill()
    assert serve.end() == 0
    # the page outlives the server, and says so
    assert browser.until("document.getElementById('state').textContent == 'No connection'")
    assert "has not answered this page" in text("trouble")


def names_that_try_to_be_html(folder):
    where, holder = sqlite(folder), Holder(sqlite(folder))
    for name in EVIL + [b"\xff\xfe<b>"]:
        holder.acquire(name)
    serve = Serve(folder, where)
    browser.size(360, 700)
    open_page(serve)
    browser.run("document.getElementById('order').value = 'name'; document.getElementById('order').dispatchEvent(new Event('change'))")
    # JavaScript compares UTF-16, so the bytes decide only beyond what is here
    as_listed(where, lambda lock: lock["name"])
    assert browser.run("document.querySelectorAll('main img, main script, main h1, #rows svg, #rows b').length") == 0
    assert "hacked" not in browser.run("document.title")
    assert browser.run("document.documentElement.scrollWidth") == 360  # not even 500 bytes make it wider
    assert browser.complaints() == [], browser.complaints()  # the policy had nothing to refuse
    holder.kill()
    assert serve.end() == 0


def by_keyboard(folder):
    where, holder = sqlite(folder), Holder(sqlite(folder))
    for name in ("one", "two", "three"):
        holder.acquire(name)
    serve = Serve(folder, where)
    browser.size(1600, 900)
    open_page(serve)
    seen = []
    for _ in range(10):
        browser.key("Tab")
        seen.append(browser.run("document.activeElement.id || document.activeElement.textContent"))
        assert browser.run("document.activeElement.matches(':focus-visible')"), seen
    assert seen[:3] == ["To the locks", "pause", "filter"] and seen[3:10] == ["Name", "Holder", "Held for", "Waiting", "Ends in", "Mode", "Token"], seen
    browser.key("/", "/")
    assert browser.run("document.activeElement.id") == "filter"
    browser.ask("Input.insertText", text="t")
    assert browser.until("document.querySelectorAll('#rows tr').length == 3")  # "taker" holds them all
    browser.ask("Input.insertText", text="hree")
    assert browser.until("document.querySelectorAll('#rows tr').length == 1") and rows()[0]["Name"] == "three"
    browser.key("Escape")
    assert browser.until("document.querySelectorAll('#rows tr').length == 3")
    browser.key("Tab")
    browser.key("Enter", "\r")  # sorts by the name
    assert [row["Name"] for row in rows()] == ["one", "three", "two"]
    browser.key("Enter", "\r")
    assert [row["Name"] for row in rows()] == ["two", "three", "one"]
    assert browser.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    holder.kill()
    assert serve.end() == 0


def thousands_of_locks(folder):
    where, holder = sqlite(folder), Holder(sqlite(folder))
    count = 5000 if os.environ.get("MORTISE_NIGHTLY") == "1" else 2000
    for i in range(count):
        holder.acquire("many/%04d" % i, 600000)
    serve = Serve(folder, where, "--interval", "5s")
    open_page(serve)
    assert browser.until("document.getElementById('held').textContent == '%s'" % f"{count:,}")
    assert len(rows()) == 200 and text("all") == f"Show all {count:,}"
    browser.run("document.getElementById('all').click()")
    assert browser.until("document.querySelectorAll('#rows tr').length == %d" % count)
    as_listed(where, most_waited)
    browser.run("document.getElementById('filter').value = '/19'; document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert len(rows()) == 100 and text("shown") == f"100 of {count:,} match"
    holder.kill()
    assert serve.end() == 0


def the_backend_goes(folder):
    redis, where = Redis(folder), os.path.join(folder, "mortise.conf")
    with open(where, "w") as file:
        file.write("[mortise]\ndriver = redis\nunreachable_timeout = 300ms\nclose_timeout = 300ms\n[redis]\nservers = 127.0.0.1:%s\n" % redis.port)
    holder = Holder(where)
    holder.acquire("kept")
    serve = Serve(folder, where, "--interval", "1s")
    open_page(serve)
    redis.do("kill")
    assert browser.until("document.getElementById('state').textContent == 'Backend down'")
    assert re.match(r"The backend has not answered since .*\. The list is of .*\d:\d\d", text("trouble")), text("trouble")
    assert [row["Name"] for row in rows()] == ["kept"]
    redis.do("start")
    assert browser.until("document.getElementById('state').textContent == 'Live' && document.getElementById('trouble').hidden")
    holder.kill()
    assert serve.end() == 0


if __name__ == "__main__":
    browser = Browser(PROGRAM)
    try:
        main([contention_and_a_loss, names_that_try_to_be_html, by_keyboard, thousands_of_locks, the_backend_goes])
    finally:
        browser.close()
