#!/bin/sh
# report.sh FIGURES PAGE - writes the tables of docs/performance.md anew from the JSON files in the folder
# FIGURES, between the page's two marker lines. So no figure there is typed by hand. Reads the form in which
# report.c writes them: one object per line.
set -eu
[ $# -eq 2 ] || {
    echo 'usage: report.sh FIGURES PAGE' >&2
    exit 64
}
figures=$1 page=$2
first='<!-- figures: written by bench/report.sh -->' last='<!-- end of figures -->'
programs='state cycle handover leases command redis redis_renew redis_queue redis_kinds redis_cluster redis_cluster_renew witness redlock postgres mysql etcd etcd_counts'
perhaps='zookeeper zookeeper_unforced zookeeper_one' # left out where there is no server

for program in $programs $perhaps; do
    case " $perhaps " in
    *" $program "*) [ -f "$figures/$program.json" ] || continue ;;
    esac
    [ -f "$figures/$program.json" ] || {
        echo "report.sh: $figures/$program.json is missing; run bench/run.sh" >&2
        exit 1
    }
    if grep -q '"quick": true' "$figures/$program.json"; then
        echo "report.sh: $program was run with --quick: too short for the page" >&2
        exit 1
    fi
done
for marker in "$first" "$last"; do
    grep -q -x -F -- "$marker" "$page" || {
        echo "report.sh: $page lacks the line \"$marker\"" >&2
        exit 1
    }
done

# One program's figures as a Markdown table.
table() {
    awk '
    # The value of a key on this line: text without its quotes, or a number.
    function value(key,    at, rest) {
        at = index($0, "\"" key "\": ")
        if (at == 0) return ""
        rest = substr($0, at + length(key) + 4)
        if (substr(rest, 1, 1) == "\"") {
            rest = substr(rest, 2)
            return substr(rest, 1, index(rest, "\"") - 1)
        }
        match(rest, /^[^,}]*/)
        return substr(rest, 1, RLENGTH)
    }
    # Three digits that mean something, thousands apart.
    function figure(number,    text, digits) {
        number += 0
        digits = (number >= 100 || number == 0) ? 0 : (number >= 10) ? 1 : (number >= 1) ? 2 : 3
        text = sprintf("%." digits "f", number)
        while (digits == 0 && match(text, /[0-9][0-9][0-9][0-9]($|,)/))
            text = substr(text, 1, RSTART) "," substr(text, RSTART + 1)
        return text
    }
    function spread() { return figure(value("least")) " to " figure(value("most")) }
    /"program": / { program = value("program") }
    /"title": / { title = value("title") }
    /"machine": / {
        machine = value("processor") ", " value("cores") " cores, " value("system") " " \
            value("release") ", " value("date")
    }
    /"rounds": / { rounds = value("rounds"); cpu = value("cpu") }
    /"series": \[/ {
        pinned = (cpu + 0 >= 0) ? ", all on processor " cpu : ""
        printf "**`bench/%s`**: %s. %s; median of %d rounds%s.\n\n", program, title, machine, rounds, pinned
        print "| | median | least to most | target | |\n|---|---|---|---|---|"
    }
    /^  \{"series": / {
        printf "| %s | %s %s | %s | | |\n", value("label"), figure(value("median")), value("unit"), spread()
    }
    /^  \{"check": / {
        met = (value("met") == "true") ? "met" : "**missed**"
        unit = (value("unit") == "") ? "" : " " value("unit")
        if (value("median") == "")
            printf "| **%s** | | | must hold | %s |\n", value("label"), met
        else if (value("bound") == "") # told, without a target
            printf "| %s | %s%s | %s | | |\n", value("label"), figure(value("median")), unit, spread()
        else
            printf "| **%s** | **%s%s** | %s | %s %s%s | %s |\n", value("label"),
                figure(value("median")), unit, spread(), value("bound"), value("target"), unit, met
    }
    END { print "" }
    ' "$1"
}

new=$(mktemp -d "${TMPDIR:-/tmp}/mortise-report.XXXXXX")
trap 'rm -rf -- "$new"' EXIT
for program in $programs $perhaps; do
    if [ -f "$figures/$program.json" ]; then
        table "$figures/$program.json"
    else
        printf '**`bench/%s`**: not measured, there was no server.\n\n' "$program"
    fi
done >"$new/tables"
awk -v first="$first" -v last="$last" -v tables="$new/tables" '
    $0 == last { between = 0 }
    !between { print }
    $0 == first {
        between = 1
        print ""
        while ((getline line < tables) > 0)
            print line
    }
' "$page" >"$new/page"
cat -- "$new/page" >"$page" # keeps the page as the file that it is
