/* What is wrong with a text that libconfig refuses with two words and a line. */
#ifndef GF_CONFIG_SYNTAX_H
#define GF_CONFIG_SYNTAX_H

#include <stddef.h>

#define GF_SYNTAX_BYTES 240

/* Where the text first breaks the grammar, for a person: what stands there, and which of the usual
 * mistakes it may be. line: libconfig's, of a name that is there twice. An empty line where this
 * finds nothing; returns text_out[GF_SYNTAX_BYTES]. */
char *gf_syntax_explain(const char *text, int line, char *text_out);

#endif
