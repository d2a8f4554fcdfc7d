#!/bin/sh
# The scripts behind `make pages` and `make pictures`: what they change, what they leave alone, and that a second run
# changes nothing. That the pages of the tree are so is a rule of test_tidy.sh.
. firmware-tests/support/shell.sh
export PYTHONDONTWRITEBYTECODE=1
command -v python3 >/dev/null || { skip pages "there is no python3"; finish; }
pages() { python3 firmware-tests/support/sentences.py "$@"; }
cat >"$scratch/page.md" <<'END'
# A title. It stays

One sentence that
was wrapped by hand. A second one,
e.g. This word is no sentence. `code. Here` stays whole! And 1.5 ms, too.
**Bold. Title.** Stays with its sentence. *So does this.* No: it came later.

*A title.* Its sentence.
- An item. Its second
  sentence.
  1. Deeper. Still
     deeper.
- ends with .. Not a sentence

| a table. Stays | as it is |
```c
/* Code. Stays
   as it is. */
```
    indented code. Stays
<!-- report: name -->
END
cat >"$scratch/wanted" <<'END'
# A title. It stays

One sentence that was wrapped by hand.
A second one, e.g. This word is no sentence.
`code. Here` stays whole!
And 1.5 ms, too.
**Bold. Title.** Stays with its sentence.
*So does this.*
No: it came later.

*A title.* Its sentence.
- An item.
  Its second sentence.
  1. Deeper.
     Still deeper.
- ends with .. Not a sentence

| a table. Stays | as it is |
```c
/* Code. Stays
   as it is. */
```
    indented code. Stays
<!-- report: name -->
END
check pages_named same "$(pages --check "$scratch/page.md")" "$scratch/page.md:3"
pages --check "$scratch/page.md" >/dev/null; check pages_exit same 1 $?
check pages_write pages "$scratch/page.md"
check pages_lines diff "$scratch/wanted" "$scratch/page.md"
check pages_again pages --check "$scratch/page.md"

# Names of what is not there are found, others are not.
cat >"$scratch/names.md" <<'END'
`lib/README.md`, `lib/core/nothing.c`, `make test`, `make nothing`, `gf-run -n 3 --elastic` and `gf-run --nothing`
`job.elastic`, `job.nothing`, `gf_open()`, `gf_nothing()`, `test_pages.sh`, `test_nothing`
END
names=$(python3 firmware-tests/support/page_names.py "$scratch/names.md" | sed 's/.*there is no //' | paste -sd, -)
check pages_names same "lib/core/nothing.c,make nothing,gf-run --nothing,job.nothing,gf_nothing(),test_nothing" "$names"

# Pictures: XML, described, for light and dark.
cp -r lib/pictures "$scratch/pictures"
check pictures_current python3 "$scratch/pictures/pictures.py" --check
for picture in "$scratch"/pictures/*.svg; do
    shown=${picture##*/}
    check "pictures_xml $shown" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$picture"
    check "pictures_said $shown" grep -q '^<title>..*</title>$' "$picture"
    check "pictures_dark $shown" grep -q 'prefers-color-scheme: dark' "$picture"
    check "pictures_shown $shown" grep -rqF --include="*.md" "$shown" .
done
echo >>"$scratch/pictures/ring.svg"
check pictures_changed same "$(python3 "$scratch/pictures/pictures.py" --check)" "lib/pictures/ring.svg"
check pictures_drawn python3 "$scratch/pictures/pictures.py"
check pictures_again cmp "$scratch/pictures/ring.svg" lib/pictures/ring.svg
finish
