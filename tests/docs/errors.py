#!/usr/bin/env python3
"""errors.py - docs/troubleshooting.md explains each text that a user can meet, and no text that no source has.

A text is a string in a call of CALLS, or one that a definition of DEFINITIONS makes or returns, of two words or more. A string of
four words or more anywhere else must be in QUIET, so that a new function that reports errors is not overlooked; what looks like
code is left aside. `errors.py --list` prints the texts that the page lacks."""
import ast
import glob
import os
import re
import sys

root = os.environ.get("MORTISE_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import texts  # noqa: E402

# The functions that take the text of an error, a log line or a message.
CALLS = set("""
    PyErr_SetString answer_refused append bad_usage break_by_errno break_text call_fail cannot config_failed each
    each_link errand_log error explain fail fail_op fail_unsure failed fault_error fault_line fault_stored file_failed
    give_up hello_refuse host_log line_failed link_break link_break_later link_refuse link_failed_why link_fault_set link_leave
    link_lose_why load_named log log_line lose must_break_text no_section op_fail op_fail_as primary_reasons
    query_fail refuse refuse_file refuse_text refuse_why refused run_say say say_if_possible sentence settings_explain tell trouble
    url_failed value_failed witness_say wrong wrong_nodes""".split())

# The functions and tables that hold texts, or put them together: the reasons within messages.
DEFINITIONS = set("""
    advice_of ask begin board_on_time bracket_problem calls_lost cannot cannot_without check_parts connection_failed consequence
    count_nodes create_array describe endpoint_next explain_permits fail fail_for_room failed fault_foreign faults
    file_failed file_open find_ways hello_problem host_problem hosts_read is_possible link_await link_tls_problem
    link_tls_reason load_failed locks_record looked meanings metrics_open mortise_status_text mpy_slot_error
    nodes_problem note_sentinels obstacle on_header on_hello on_stream_close op_fail_few op_fail_odd open_client_of open_handle
    path_why plain_read primary_open problem_of process_problem put_dropped read_cluster read_host read_kept read_only
    read_path read_replies read_secret read_seeds readers_admit redirected refuse refused release request_was_read
    request_write row_sound run say_silent schema_sound send_copy sentinel_choose shared_mismatch
    take_layout take_record take_schema take_socket take_variables text_of tls_context_new tls_handshake tls_read
    too_large topology_open unknown_key variable why_busy why_not wrap_tls write_kept""".split())

# What is no error: (call, definition, file) as patterns, with the reason.
QUIET = [
    (r"_Static_assert|static_assert", "", "", "the compiler's"),
    (r"TEXT|DURATION|BOOL|SWITCH|SOME_TIME|OF_1000", "", "", "rows of option tables: docs/configuration.md has them"),
    ("", r"options|core_options|list_core|mortise_module_v1", "", "option tables and summaries: docs/configuration.md has them"),
    ("", r"(\w+_)?help", "", "--help"),
    (r"sqlite3_exec|until_not_busy|link_text|put|FINDING", r"", "", "statements for servers, lines of files"),
    ("", r"sql_\w+|apply_settings|is_internal|\w+_layout_texts", "", "SQL"),
    (r"memmem|strstr|strn?cmp|sscanf|fscanf|strcspn|strspn|is_text|take_line", "", "", "what servers and files say"),
    (r"ping_add|report_line", r"", "", "findings of `mortise doctor`, which explain themselves"),
    ("", r"show_promises|show_speed|show_witness|add_\w+|filesystem_findings|pooler_finding|\w+_finding|take_ping|pinged|say_votes", "",
     "what `mortise doctor` and `check` say of a server"),
    ("", r"read_setting", "core/client/witness", "what `mortise doctor` says of the witness"),
    (r"printf|fprintf|fputs|line|table_row", "", "", "the output of a command"),
    (r"replace|fixed|MHD_add_response_header|write_head|write_gauge|metrics_write_one", "", "", "HTTP and Prometheus"),
    ("", r"http_response|counter_rows|histogram_rows|walk_failures", "", "HTTP and Prometheus"),
    ("", r"one_to_two|two_to_one|two_to_three|three_to_two|migrate_from_may_go|stages", "", "steps of `mortise migrate plan`"),
    ("", r"foreign_fuse|remote|copy_words|set_text|clients_text|whence_text", "", "words within messages that have an entry"),
    ("", r"once|fill", "bindings/python/native", "the documentation of a method"),
    (r"_Pragma|X", "", "", "headers: the texts of statuses are read below"),
    (r"errand_log", r"", "plugins/trace/ring", "")]

# Texts of CALLS and DEFINITIONS that no user meets, or that say nothing alone.
EXCEPTIONS = {
    r"(was restarted|answers again|tried again|another client|the primary|built-in defaults|list holders( of)?|for example)": "words",
    r"(read record|write record|by default|did you mean\W*|gRPC status|opening it|too long|LISTEN_FDS|see `mortise .*)": "words",
    r"(named by \$MORTISE_CONFIG|it belongs in|and \* more|a Unix socket|user (root|\*), state)": "words",
    r"(DB index|without any password)": "what the server says",
    r"(nothing is left to do|now admits|waiting for)": "no error"}

_CONVERSION = re.compile(r"%[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+)?)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]")


def plain(text):
    """One form for a text of a source and of the page: what is put in is *, without its quotes; nothing of it at the ends."""
    text = re.sub(r"\\n|\\t|\n", " ", text).replace('\\"', '"').replace("\\\\", "\\").replace("%%", "%")
    text = _CONVERSION.sub("\0", text).replace("*", " ").replace("\0", "*")
    text = re.sub(r"<[A-Z][A-Z_ ]*>", "*", text)
    text = re.sub(r"[\"'`\[(]*\*[\"'`\])]*", "*", text)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"\*(?:[ :,;]*\*)+", "*", text)
    return text.strip(" *:;,.|()=").strip()


def words(text):
    return len(re.findall(r"[A-Za-z]{2,}|'.'", text))


def is_sentence(text):
    return words(plain(text)) > 3 and plain(text).count(" ") > 2 and not re.search(r"[{}=|@]", text)


def is_quiet(call, definition, file):
    return any((not one or re.fullmatch(one, call)) and (not two or re.fullmatch(two, definition)) and three in file
               for one, two, three, _ in QUIET)


def files(folder, kinds):
    return [path for kind in kinds for path in sorted(glob.glob(os.path.join(root, folder, "**", "*." + kind), recursive=True))]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def from_c(found, problems):
    paths = [path for folder in ("core", "drivers", "plugins", "tools", "include/mortise", "bindings/python/native")
             for path in files(folder, ["c", "h", "hpp"])]
    sources = {path: read(path) for path in paths}
    macros = {name: text for source in sources.values() for name, text in texts.defines(source).items()}
    used = set()
    for path, source in sources.items():
        for call, definition, text in texts.literals(source, macros):
            here = os.path.relpath(path, root)
            spoken = plain(text)
            if call in CALLS or (definition in DEFINITIONS and call in ("", "snprintf")):
                used.update({call, definition})
                if not is_quiet("", definition, here) and words(spoken) > 1:
                    found.setdefault(spoken, (here, text))
            elif is_sentence(text) and not is_quiet(call, definition, here):
                problems.append(f"{here}: {call or 'no call'} in {definition}: is this a text that a user meets? Then name the "
                                f"function in CALLS or DEFINITIONS of errors.py, else in QUIET: \"{text[:80]}\"")
    for name in sorted((CALLS | DEFINITIONS) - used):
        problems.append(f"errors.py: no source has a text in {name}")
    for name, text in re.findall(r'X\((\w+), -?\d+, "([^"]*)"\)', read(os.path.join(root, "include", "mortise", "mortise.h"))):
        if name != "OK":
            found.setdefault(plain(text), ("include/mortise/mortise.h", text))


def spoken_of(node):
    """The text of a string in Python; what an f-string puts in is %s. None: another expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("%", "%%")
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value.replace("%", "%%") if isinstance(part, ast.Constant) else "%s" for part in node.values)
    return None


def from_python(found):
    for path in files("bindings/python/mortise", ["py"]):
        for node in ast.walk(ast.parse(read(path))):
            name = getattr(getattr(node, "func", None), "attr", getattr(getattr(node, "func", None), "id", ""))
            if isinstance(node, ast.Call) and (name in ("make", "_invalid") or name.endswith("Error")):
                for argument in node.args:
                    text = spoken_of(argument)
                    if text and words(plain(text)) > 1:
                        found.setdefault(plain(text), (os.path.relpath(path, root), text))


def entries(page):
    """Yields (texts, explanation) of each entry: a block of texts, whose long lines go on indented, and what stands below it."""
    for block, rest in re.findall(r"(?ms)^```text\n(.*?)^```\n(.*?)(?=^```|^#|\Z)", page):
        yield re.sub(r"\n +", " ", block).splitlines(), rest


def main():
    found, problems = {}, []
    from_c(found, problems)
    from_python(found)
    for pattern in EXCEPTIONS:
        found = {spoken: where for spoken, where in found.items() if not re.fullmatch(pattern, spoken)}
    page = read(os.path.join(root, "docs", "troubleshooting.md"))
    explained = {}
    for heads, rest in entries(page):
        if not re.fullmatch(r"(?s)\s*\S.*\*\*Do:\*\*\s+\S.*", rest):
            problems.append(f"troubleshooting.md: the entry of \"{heads[0]}\" lacks its meaning, or **Do:**")
        for text in heads:
            if plain(text) in explained:
                problems.append(f"troubleshooting.md: \"{text}\" has two entries")
            explained[plain(text)] = text
    missing = {spoken: where for spoken, where in found.items() if spoken not in explained}
    if "--list" in sys.argv:
        for spoken, (here, text) in missing.items():
            print(f"{here}\t{spoken}\t{text}")
        return 0
    for spoken, (here, text) in missing.items():
        problems.append(f"{here}: docs/troubleshooting.md does not explain \"{text}\"")
    for spoken in explained.keys() - found.keys():
        problems.append(f"troubleshooting.md: no source says \"{explained[spoken]}\"")
    print("\n".join(problems) or f"{len(found)} texts, each is explained")
    return 1 if problems else 0


sys.exit(main())
