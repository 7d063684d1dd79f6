"""What the figures of a run come to: ratios, curves and targets. The file of an earlier run is judged anew, by the rules of this tree, so
that nobody sees verdicts by rules that have changed. The programs of bench/ judge themselves: their verdicts stay as they are."""

from . import figures, floors, scale, targets

NEEDED = (*figures.KEY, "kind", "label", "figures")  # of each case
NEEDED_OF = {"fail": ("renews",), "scale": ("curve", "count")}


def judge(result):
    figures.add_ratios(result["cases"])
    result["curves"] = scale.curves(result["cases"])
    result["targets"] = [*targets.rows(result), *floors.target_rows(result["floors"])]
    return result


def lacking(result):
    """What the rules need and an older mortise-bench has not written."""
    lacks = [] if "rivals" in result["method"] else ["method.rivals"]
    lacks += [] if "floors" in result else ["floors"]
    of_cases = ((case, word) for case in result["cases"] for word in (*NEEDED, *NEEDED_OF.get(case["workload"], ())))
    return [*lacks, *dict.fromkeys(f"{word} of a case" for case, word in of_cases if word not in case)]


def read(path):
    """A run from its file, judged anew; a ValueError if it cannot be."""
    result = figures.read(path)
    try:
        lacks = lacking(result)
        if not lacks:
            return judge(result)
    except (KeyError, TypeError) as error:
        lacks = [str(error)]
    raise ValueError(f"{path}: an older mortise-bench wrote it, without {', '.join(lacks)}: this one cannot judge it by its rules")
