"""The command line of mortise-bench."""

import argparse
import os
import signal
import sys

from . import figures, floors, page, run, subjects
from .tables import shown, target_cells


def arguments():
    parser = argparse.ArgumentParser(
        prog="mortise-bench",
        description="Measures drivers, their floors and their rivals on the same servers, in the same rounds. Without -C: "
        "every driver whose server can be started here.",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="few and short rounds: does everything run (default)")
    how.add_argument("--full", action="store_true", help="enough rounds for figures that you can use: about two hours")
    parser.add_argument("-C", dest="configs", metavar="CONFIG|URL", action="append", default=[],
                        help="measure this backend (may be repeated) instead of private servers")  # fmt: skip
    parser.add_argument("--workload", metavar="NAME,…", action="append", default=[],
                        help=f"only these: {', '.join(run.WORKLOADS)} ({', '.join(run.ASKED_FOR)}: only if named)")  # fmt: skip
    parser.add_argument("--backend", metavar="NAME,…", action="append", default=[],
                        help=f"only these: {', '.join(subjects.KINDS)}")  # fmt: skip
    parser.add_argument("--place", metavar="NAME,…", action="append", default=[],
                        help="only these: one (client and server on one processor), free (not pinned)")  # fmt: skip
    parser.add_argument("--no-rivals", action="store_true", help="measure only drivers and floors")
    parser.add_argument("--check", action="store_true",
                        help="the exit status is 1 unless every target was met, and nothing was left out")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--html", metavar="FILE", help="write the report to FILE")
    options = parser.parse_args()
    given = os.environ.pop("MORTISE_BENCH_CONFIG", None)  # `mortise -C CONFIG bench`; not for what is started here
    options.configs[:0] = [given] if given else []
    return parser, options


def chosen(parser, option, given, known):
    names = [name for words in given for name in words.split(",")]
    for name in names:
        if name not in known:
            parser.error(f"{option}: there is no {name}; there are: {', '.join(known)}")
    return [name for name in known if not names or name in names]


def print_cases(result):
    """The main figure of each case, for whoever looks at a terminal."""
    before = None
    for case in result["cases"]:
        head = f"{case['workload']}, {case['target'] or case['backend']}, {case['place']}"
        if head != before:
            print(f"\n{head}")
        before = head
        name = figures.main_figure(case)
        if name is None:
            print(f"  {case['label'][:34]:34} {case['shape']:18} {'nothing':>11}")
            continue
        figure, ratio, rival = case["figures"][name], case["ratios"].get(name), case["of_rival"].get(name)
        _, _, words = figures.KNOWN[name]
        print(
            f"  {case['label'][:34]:34} {case['shape']:18} {shown(name, figure['median']):>11} {figure['unit']:5} {words}"
            + (f"; {ratio['median']:.3g} of the floor" if ratio else "")
            + (f"; {rival['median']:.3g} × {rival['to']}" if rival else "")
        )


def print_floors(result):
    """As bench/NAME prints it by itself, without its series."""
    for told in result["floors"]:
        print("\n" + ", ".join(floors.title_of(told)))
        for label, median, spread, target, verdict in floors.table_rows(told):
            print(f"  {label[:52]:52} {median:>14} {spread:>22}  {f'({target}) {verdict}' if target else ''}".rstrip())


def print_targets(result):
    print("\ntargets" if result["targets"] else "")
    for row in result["targets"]:
        met, where, what, bound, found = target_cells(row)
        print(f"  {met:12} {where:16} {what:32} {bound}: {found}")
    for entry in result["left_out"]:
        print(f"left out: {entry['what']}: {entry['why']}")
    for entry in result.get("not_reached", ()):
        print(f"not reached: {entry['what']}: {entry['why']}")


def print_curves(result):
    """Totals of the least and the largest size, the slope between them, where it bends, and what 10,000 hosts come to."""
    for curve in result.get("curves", []):
        print(f"\nscale, {curve['backend']}, {curve['words']}: up to {curve['largest']:,}")
        for found in curve["figures"]:
            unit, _, words = figures.KNOWN[found["figure"]]
            (few, less), (many, more) = found["points"][0], found["points"][-1]
            less, more, hosts = (shown(found["figure"], value) for value in (less, more, found["hosts"]))
            bends = "" if found["bends"] is None else f"; more than twice linear from {found['bends']:,} on"
            print(
                f"  {words.removesuffix(' for each').removesuffix(', for each')[:34]:34} {less} at {few:,} to "
                f"{more} {unit} at {many:,}; slope {found['slope']:.2f}{bends}; 10,000: {hosts} {unit}"
            )


def end_by_signals():
    """An exception, so that what was started is ended too. A second one does not disturb that."""

    def end(number, _frame):
        for other in run.ENDING:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt(number)

    for number in run.ENDING:
        signal.signal(number, end)


def outputs(options, result):
    """In the order of worth: one that cannot be written does not keep the others back."""
    if options.json:
        yield "the figures", lambda: figures.write(options.json, result)
    if options.html:
        yield "the report", lambda: page.write(options.html, result)
    yield "the tables", lambda: (print_cases(result), print_curves(result), print_floors(result), print_targets(result))


def write_all(options, result):
    written = True
    for what, write in outputs(options, result):
        try:
            write()
        except Exception as error:  # pylint: disable=broad-exception-caught # told; twenty minutes are not thrown away
            print(f"mortise-bench: {what}: {type(error).__name__}: {error}", file=sys.stderr)
            written = False
    return written


def all_well(result):
    """What was not measured, not judged or not decided is not well."""
    return not result["left_out"] and all(row["met"] for row in result["targets"])


def main():
    parser, options = arguments()
    wanted = chosen(parser, "--workload", options.workload, run.WORKLOADS)
    if not options.workload:
        unwanted = {*run.ASKED_FOR, *([run.FLOORS] if options.backend or options.place or options.configs else [])}
        wanted = [name for name in wanted if name not in unwanted]
    backends = chosen(parser, "--backend", options.backend, list(subjects.KINDS))
    first = min(os.sched_getaffinity(0))
    places = {"one": {first}, "free": None}
    places = {name: places[name] for name in chosen(parser, "--place", options.place, list(places))}
    settings = run.FULL if options.full else run.QUICK
    if not options.quick and not options.full:
        print("mortise-bench: --quick; use --full for figures that you can use", file=sys.stderr)
    end_by_signals()
    everything = run.Run(
        settings, places, wanted, [] if options.configs else backends, options.configs, not options.no_rivals
    )
    try:
        result = everything.everything()
    except KeyboardInterrupt as signalled:
        return 128 + (signalled.args[0] if signalled.args else signal.SIGINT)
    if not write_all(options, result) or not (result["cases"] or result["floors"]):
        return 1
    return 0 if not options.check or all_well(result) else 1
