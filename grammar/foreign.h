#ifndef GRAMMAR_FOREIGN_H
#define GRAMMAR_FOREIGN_H

/* What people write who come from Python, C or PyTorch. The scanner reports an operator or number of these languages
   and returns the token that was meant, so that no second error follows. Words such as `and` may be names here:
   syntax_error asks about them where a name does not fit. */

#include "grammar/syntax_error.h"

/* Reports `**`, `^`, `//`, `<<`, `<>`, `:=` and the like. Returns the token to read it as. */
int foreign_operator(Reader *reader, Span span);
/* Whether the `//` at `span` divides; otherwise it begins a comment up to the end of the line. */
bool foreign_divides(const Reader *reader, Span span);
void foreign_comment(Reader *reader, Span span);
/* Reports 12.5 or 1e9. Returns its whole part. */
int64_t foreign_number(Reader *reader, Span span);
/* Whether the `if` at `span` is Python's `a if c else b`, which is then reported. */
bool foreign_choice(Reader *reader, Span span);

/* Report what is wrong and return true, or return false: the error is none of these. */
bool foreign_word(Reader *reader, const SyntaxError *error);  /* and, or, not, mod, ... in an expression; 80G */
bool foreign_count(Reader *reader, const SyntaxError *error); /* w*nF, 4 F, 1F1B, F*4 */
bool foreign_call(Reader *reader, const SyntaxError *error);  /* F(c), F(c, m), F[c, m] */

/* What an item that begins with this word should be instead; NULL: not known. */
const char *foreign_item(const char *word);

#endif
