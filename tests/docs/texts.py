"""texts.py - the string literals of C sources, each with the call and the definition that it is in. Used by errors.py."""
import re

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.]*|\S', re.S)
_DIRECTIVE = re.compile(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*")
_DEFINE = re.compile(r'(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+((?:[^\n]*\\\n)*[^\n]*)')
_CONTROL = {"if", "while", "switch", "for", "return", "sizeof"}


def _tokens(text):
    return [match.group() for match in _TOKEN.finditer(text) if not match.group().startswith(("//", "/*"))]


def defines(text):
    """{macro: text} of those that are a string: their pieces stand in messages."""
    found = {}
    for name, body in _DEFINE.findall(text):
        tokens = _tokens(body.replace("\\\n", " "))
        if tokens and all(token[0] == '"' for token in tokens):
            found[name] = "".join(token[1:-1] for token in tokens)
    return found


def literals(text, macros):
    """Yields (call, definition, text): pieces that the compiler joins are one text, PRI… macros in it are %d, and a macro that is a
    string is itself. call: the function or macro whose argument the text is; definition: the function or table around."""
    tokens = _tokens(_DIRECTIVE.sub("", text))
    stack, definition, depth, last = [], "", 0, ""
    i = 0
    while i < len(tokens):
        token = tokens[i]
        if token == "(":
            before = tokens[i - 1] if i else ""
            stack.append(before if before[0].isalpha() or before[0] == "_" else "")
            if depth == 0 and stack[-1] and len(stack) == 1 and not stack[-1].startswith("__"):
                last = stack[-1]
        elif token == ")":
            if stack:
                stack.pop()
        elif token == "{":
            if depth == 0:
                definition = last
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                definition, last = "", ""
        elif token in ("[", "=") and depth == 0 and not stack:
            if re.match(r"[A-Za-z_]", tokens[i - 1]):
                last = tokens[i - 1]
        elif token[0] == '"':
            said, end = "", i
            while end < len(tokens):
                piece = tokens[end]
                if piece[0] == '"':
                    said += piece[1:-1]
                elif piece.startswith("PRI"):
                    said += "d"
                elif piece in macros:
                    said += macros[piece]
                else:
                    break
                end += 1
            calls = [name for name in stack if name and name not in _CONTROL]
            yield calls[-1] if calls else "", definition or last, said
            i = end
            continue
        i += 1
