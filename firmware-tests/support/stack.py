"""stack.py BUILD: how deep the library's own functions reach below each public call. Frames are the compiler's
(-fstack-usage: *.su beside the objects), calls are read from the source: a call through a table goes to every function
that an initialiser puts under that field's name, a callback to every function that is passed for that parameter: more
ways than there are. One that comes back to a function is cut there. Prints "BYTES CALL PATH", deepest first; fails over
LIMIT bytes and where a frame has no bound. What libc, UCX and CUDA take comes on top: results/stack.md has it."""
import glob
import os
import re
import sys

LIMIT = 8192
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "defined", "_Alignof", "_Static_assert",
            "__attribute__"}
FOLDERS = ("lib", "ops", "drivers")
LEFT_OUT = ("drivers/sim/", "ops/element/cuda/kernels")


def frames(build):
    sizes, loose = {}, []
    for path in glob.glob(build + "/**/*.su", recursive=True):
        if not path[len(build) + 1:].startswith(FOLDERS) or LEFT_OUT[0] in path:
            continue
        for line in open(path):
            where, size, kind = line.rstrip("\n").split("\t")
            name = where.split(":")[0] + " " + where.split(":")[-1].split(".")[0]  # .isra, .part, .cold
            sizes[name] = max(sizes.get(name, 0), int(size))
            if "dynamic" in kind and "bounded" not in kind:
                loose.append(where)
    return sizes, loose


def sources():
    for folder in FOLDERS:
        for path in sorted(glob.glob(folder + "/**/*.[ch]", recursive=True)):
            if not path.startswith(LEFT_OUT):
                text = re.sub(r"/\*.*?\*/", " ", open(path).read(), flags=re.S)
                text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
                yield path, re.sub(r"//[^\n]*", "", text)


HEAD = re.compile(r"^(?:[A-Za-z_][^;{}=\n]*?[ *])?(\w+)\(([^;{}]*?)\)\s*\{", re.M)


def functions(text):
    """(name, parameter names, body) of each definition that begins at the start of a line."""
    for match in HEAD.finditer(text):
        if match.group(1) in KEYWORDS or text[match.start()].isspace():
            continue
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        names = [re.search(r"\(\*(\w+)\)|(\w+)\s*(?:\[[^]]*\])?$", p.strip()) for p in split(match.group(2))]
        yield match.group(1), [(n.group(1) or n.group(2)) if n else "" for n in names], text[match.end():at]


def split(arguments):
    parts, depth, last = [], 0, 0
    for at, letter in enumerate(arguments):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(arguments[last:at])
            last = at + 1
    return parts + [arguments[last:]]


def arguments_at(body, at):
    depth, end = 1, at
    while depth and end < len(body):
        depth += {"(": 1, ")": -1}.get(body[end], 0)
        end += 1
    return split(body[at:end - 1])


def graph():
    """Functions by "file name", the calls of each, and what is passed for a parameter that is called."""
    of_file, known, fields, calls, passed = {}, {}, {}, {}, {}
    texts = list(sources())
    for path, text in texts:
        for name, parameters, body in functions(text):
            node = "%s %s" % (path, name)
            of_file.setdefault(path, {})[name] = node
            known[node] = (name, parameters, body)
    everywhere = {name: node for node, (name, _, _) in known.items()}
    for path, text in texts:
        for field, target in re.findall(r"\.(\w+)\s*=\s*&?(\w+)", text):
            node = of_file.get(path, {}).get(target, everywhere.get(target))
            if node:
                fields.setdefault(field, set()).add(node)
    for node, (_, parameters, body) in known.items():
        edges = calls.setdefault(node, set())
        here = of_file[node.split(" ")[0]]

        def find(word):
            return here.get(word, everywhere.get(word))

        for match in re.finditer(r"(->|\.)?\s*\b(\w+)\s*\)?\(", body):
            how, callee = match.groups()
            target = find(callee)
            if how:  # open() of a link and of a channel are told apart by how much they take
                count = len(arguments_at(body, match.end()))
                edges.update(f for f in fields.get(callee, ()) if len(known[f][1]) == count)
            elif callee in parameters:
                edges.add((node, callee))
            elif target and callee not in KEYWORDS:
                edges.add(target)
                for parameter, argument in zip(known[target][1], arguments_at(body, match.end())):
                    word = argument.strip().lstrip("&")
                    if word in parameters:
                        passed.setdefault((target, parameter), set()).add((node, word))
                    elif find(word):
                        passed.setdefault((target, parameter), set()).add(find(word))
            elif callee not in KEYWORDS:  # a variable that holds a function
                value_of = r"\(\*%s\)\([^;]*?\)\s*=\s*([^;]*);|\b%s\s*=\s*([^;]*);" % (callee, callee)
                for value in re.findall(value_of, body):
                    for word in re.findall(r"\w+", " ".join(value)):
                        edges.update({find(word)} if find(word) else fields.get(word, ()))
    return everywhere, calls, passed


def public_names():
    headers = ("lib/gradientflow", "lib/advanced", "drivers/base/types", "lib/configuration", "lib/schedule")
    text = "".join(open("%s.h" % name).read() for name in headers)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return sorted(set(re.findall(r"\b(gf_\w+)\(", re.sub(r"^\s*#.*$", "", text, flags=re.M))))


def main():
    sizes, loose = frames(sys.argv[1])
    everywhere, calls, passed = graph()
    best, path_of = {}, {}

    def targets(edge, seen=()):
        if not isinstance(edge, tuple):
            return {edge}
        if edge in seen:
            return set()
        return set().union(*(targets(e, seen + (edge,)) for e in passed.get(edge, ())), set())

    def depth(name, above):
        if name in above:
            return 0
        if name in best:
            return best[name]
        below, way = 0, ()
        for edge in sorted(calls.get(name, ()), key=str):
            for callee in sorted(targets(edge)):
                reach = depth(callee, above + (name,))
                if reach > below:
                    below, way = reach, (callee,) + path_of.get(callee, ())
        best[name], path_of[name] = below + sizes.get(name, 0) + 8, way
        return best[name]

    rows = sorted(((depth(everywhere[n], ()), everywhere[n]) for n in public_names() if n in everywhere), reverse=True)
    if not sizes:
        print("skip stack: the objects have no .su files (gcc -fstack-usage)")
        return 0
    for size, name in rows:
        way = [f for f in (name,) + path_of[name] if sizes.get(f, 0) > 0]
        print(size, name.split(" ")[1], " > ".join("%s %d" % (f.split(" ")[1], sizes[f]) for f in way))
    for where in loose:
        print("no bound:", where)
    return int(not rows or rows[0][0] > LIMIT or bool(loose))


sys.exit(main())
