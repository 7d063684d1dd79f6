"""Figures that the tests make up, in the form in which mortise-bench has them."""

from mortise_bench import figures, judging


def case(subject, kind, rates, shape="1 caller", **more):
    return {
        "workload": "cycle", "place": "one", "backend": "redis", "target": "", "shape": shape, "subject": subject, "kind": kind,
        "label": f"<{subject}>", "version": "1", "renews": False, "figures": {"rate": figures.figure("rate", rates)},
        "histograms": {"cycle": [[1000, 90], [2000, 9], [9000, 1]]}, **more,
    }  # fmt: skip


def result():
    cases = [
        case("mortise", "driver", [50, 90, 40, 80, 80]),
        case("mortise", "driver", [300, 300, 300], "4 threads"),
        case("floor", "floor", [100, 100, 50, 100, 100]),
        case("rival", "rival", [10, 20, 30, 20, 16]),
        case("mortise", "driver", [10, 11, 12], workload="fail", timeline=[[0, 1, 2, 0], [0.1, 5, 9, 1]], events=[[0.1, "killed"]]),
    ]
    machine = {
        "processor": "p", "cores": 2, "system": "s", "kernel": "k", "date": "d", "load": [0.5], "programs": {"redis": "7"},
    }  # fmt: skip
    method = {
        "quick": False, "rounds": {"cycle": 5}, "kills": 2, "seconds": {"cycle": 1}, "warm_up_s": 0.1, "places": {"one": [0]},
        "took_s": 60, "compiles": True, "rivals": ["redis"],
    }  # fmt: skip
    return judging.judge({
        "format": figures.FORMAT, "machine": machine, "method": method, "left_out": [], "cases": cases, "floors": [],
        "servers": {"redis": {"version": "7", "settings": "none"}},
    })  # fmt: skip


def sizes(name, values):
    """A curve of the clients' memory or requests, by size."""
    return [
        case("mortise", "driver", [1], f"held in one client: {count}", workload="scale", curve="hold", count=count,
             figures={name: figures.figure(name, [value])})
        for count, value in values.items()
    ]  # fmt: skip


def contended(subject, kind, rates, longest_ms=1, share=1, **more):
    one = case(subject, kind, rates, "8 × 8, empty", **more)
    one["workload"] = "contend"
    one["figures"]["longest_wait"] = figures.figure("longest_wait", [1, longest_ms, 1])
    one["figures"]["overtakes"] = figures.figure("overtakes", [0, 0.02, 0])
    if subject == "mortise":
        one["long"] = {"seconds": 10, "rate": 1, "least_share": share, "longest_wait": 1, "overlaps": 0}
    return one


def program():
    """As bench/report.c writes it."""
    spread = {"median": 1.2, "least": 1, "most": 1.3}
    return {
        "program": "redis", "title": "a title", "rounds": 5, "cpu": 0, "quick": False,
        "series": [{"series": "cycle", "label": "a cycle", "unit": "ns", "median": 1234, "least": 1000, "most": 2000}],
        "checks": [
            {"check": "a", "label": "cycle / bare", "unit": "", **spread, "bound": "at most", "target": 1.1, "verdict": "not decided"},
            {"check": "b", "label": "told", "unit": "", "median": 0.5, "least": 0.4, "most": 0.6, "verdict": "met"},
            {"check": "c", "label": "no system call", "verdict": "met"},
            {"check": "d", "label": "bytes", "unit": "bytes", "median": 7, "least": 7, "most": 7, "once": True, "bound": "at most",
             "target": 9, "verdict": "met"},
            {"check": "e", "label": "longest", "unit": "ms", "median": 2, "least": 1, "most": 8, "once": False, "bound": "never above",
             "target": 50, "verdict": "met"},
        ],
    }  # fmt: skip
