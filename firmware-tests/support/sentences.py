#!/usr/bin/env python3
# Pages (Markdown) have one sentence a line, and no line that was wrapped by hand.
#     sentences.py PAGE..           writes the pages so
#     sentences.py --check PAGE..   names those that are not so; exit code 1
# Code, tables, headings, comments and HTML stay as they are. A sentence ends with . ! or ? before a
# space and a capital, a digit or a mark such as ` or *, but not inside of code or of **bold** words.
# A title at the start of a paragraph, all of it bold or *italic*, stays with the sentence after it.
import re
import sys

ITEM = re.compile(r'( *)([-*+]|\d+\.)( +)')
VERBATIM = re.compile(r'\s*(\||#|<|!\[|---+$|===+$)')
CODE = re.compile(r'`+[^`]*`+|\*\*[^*]+\*\*|\]\([^)]*\)')
END = re.compile(r'([.!?][)"\'*_\x01]*) +(?=[A-Z0-9`*"(\[_\x00])')
SHORT = re.compile(r'(?:^|[\s(])(?:e\.g|i\.e|vs|cf|etc|Fig|No|\.)\.$')
TITLE = re.compile(r'\*[^*]+\*$')


def sentences(text):
    """The sentences of one paragraph."""
    spans = []

    def hide(match):
        spans.append(match.group(0))
        return f'\x00{len(spans) - 1}\x01'

    hidden = CODE.sub(hide, ' '.join(text.split()))
    found, begin = [], 0
    for match in END.finditer(hidden):
        sentence = hidden[begin : match.end(1)]
        if SHORT.search(sentence) or sentence.endswith('..'):
            continue
        if TITLE.match(sentence) and not found:
            continue
        found.append(sentence)
        begin = match.end()
    found.append(hidden[begin:])
    return [re.sub('\x00(\\d+)\x01', lambda at: spans[int(at.group(1))], line) for line in found]


def paragraph(lines):
    """Lines of a paragraph or of an item of a list, as they should be."""
    item = ITEM.match(lines[0])
    first = item.group(0) if item else re.match(' *', lines[0]).group(0)
    made = sentences(' '.join([lines[0][len(first) :]] + lines[1:]))
    return [first + made[0]] + [' ' * len(first) + line for line in made[1:]]


def page(text):
    made, held, fence, in_list = [], [], None, False

    def flush():
        if held:
            made.extend(paragraph(held))
            held.clear()

    for line in text.split('\n'):
        if fence or re.match(r' *(```|~~~)', line):
            flush()
            made.append(line)
            mark = re.match(r' *(```|~~~)', line)
            fence = None if fence and mark and mark.group(1) == fence else fence or mark.group(1)
        elif not line.strip():
            flush()
            made.append(line.rstrip())
        elif VERBATIM.match(line) or (line.startswith('    ') and not held and not in_list):
            flush()
            made.append(line)
            in_list = in_list and line.startswith(' ')
        elif ITEM.match(line) or not held:
            flush()
            held.append(line)
            in_list = bool(ITEM.match(line)) or (in_list and line.startswith(' '))
        else:
            held.append(line)
    flush()
    return '\n'.join(made)


def main():
    check, code = sys.argv[1:2] == ['--check'], 0
    for name in sys.argv[2 if check else 1 :]:
        with open(name, encoding='utf-8') as file:
            text = file.read()
        made = page(text)
        if made == text:
            continue
        if check:
            code = 1
            for number, (old, new) in enumerate(zip(text.split('\n'), made.split('\n')), 1):
                if old != new:
                    break
            print(f'{name}:{number}')
        else:
            with open(name, 'w', encoding='utf-8') as file:
                file.write(made)
    return code


if __name__ == '__main__':
    sys.exit(main())
