/* How far two words are apart: for "did you mean". */
#ifndef GF_SLIPS_H
#define GF_SLIPS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Levenshtein's distance: insertions, deletions and replacements; many for words over 48 bytes. */
#define GF_SLIPS_MAX 2u /* more slips than these make another word */
unsigned gf_word_slips(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
#endif
