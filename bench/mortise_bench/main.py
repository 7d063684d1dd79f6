"""The command line of mortise-bench."""

import argparse
import os
import sys

from . import figures, run, subjects


def arguments():
    parser = argparse.ArgumentParser(
        prog="mortise-bench",
        description="Measures drivers beside bare floors and rivals on the same servers, in the same rounds. Without -C: "
        "every driver whose server can be started here.",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="few and short rounds: does it run at all")
    how.add_argument("--full", action="store_true", help="what figures to be believed take: some 20 minutes")
    parser.add_argument("-C", dest="configs", metavar="CONFIG|URL", action="append", default=[],
                        help="measure this one (may be repeated) instead of servers of its own")  # fmt: skip
    parser.add_argument("--workload", metavar="NAME,…", action="append", default=[],
                        help=f"of {', '.join(run.WORKLOADS)} (default: all)")  # fmt: skip
    parser.add_argument("--backend", metavar="NAME,…", action="append", default=[],
                        help=f"of {', '.join(subjects.KINDS)} (default: all)")  # fmt: skip
    parser.add_argument("--place", metavar="NAME,…", action="append", default=[],
                        help="one (client and server on one processor), free (not pinned); default: both")  # fmt: skip
    parser.add_argument("--no-rivals", action="store_true", help="drivers and floors alone")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--html", metavar="FILE", help="write the report there")
    return parser, parser.parse_args()


def chosen(parser, option, given, known):
    names = [name for words in given for name in words.split(",")]
    for name in names:
        if name not in known:
            parser.error(f"{option}: there is no {name}; there are: {', '.join(known)}")
    return [name for name in known if not names or name in names]


def figure_text(value):
    digits = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def print_table(result):
    """The main figure of each case, for whoever looks at a terminal."""
    before = None
    for case in result["cases"]:
        head = f"{case['workload']}, {case['backend']}, {case['place']}"
        if head != before:
            print(f"\n{head}")
        before = head
        names = list(case["figures"])
        name = next((name for name in ("requests", "to_grant", "during_p50") if name in names), names[0])
        figure, ratio = case["figures"][name], case["ratios"].get(name)
        _, _, words = figures.KNOWN[name]
        print(
            f"  {case['label'][:34]:34} {case['shape']:18} {figure_text(figure['median']):>11} {figure['unit']:5} {words}"
            + (f"; {ratio['median']:.3g} of the floor" if ratio else "")
        )


def main():
    parser, options = arguments()
    wanted = chosen(parser, "--workload", options.workload, run.WORKLOADS)
    backends = chosen(parser, "--backend", options.backend, list(subjects.KINDS))
    first = min(os.sched_getaffinity(0))
    places = {"one": {first}, "free": None}
    places = {name: places[name] for name in chosen(parser, "--place", options.place, list(places))}
    settings = run.FULL if options.full else run.QUICK
    if not options.quick and not options.full:
        print("mortise-bench: --quick, for figures to be believed say --full", file=sys.stderr)
    everything = run.Run(
        settings, places, wanted, [] if options.configs else backends, options.configs, not options.no_rivals
    )
    try:
        result = everything.everything()
    except KeyboardInterrupt:
        return 130
    print_table(result)
    if options.json:
        figures.write(options.json, result)
    if options.html:
        from . import page

        page.write(options.html, result)
    return 0 if result["cases"] else 1
