#pragma once

/* What users of Python, C or PyTorch write by mistake. The scanner reports an operator or number of these languages and
   returns the token that was meant, so that no second error follows. Words such as `and` may be names in a schedule, so
   syntax_error calls the functions about words, and only where a name does not fit. */

#include "grammar/syntax_error.h"

/* Reports the operator `**`, `^`, `//`, `<<`, `<>`, `:=` or the like, unless a syntax error was reported on its line.
   Returns the token that the parser gets instead. */
int foreign_operator(Reader *reader, Span span);
/* Whether the `//` at `span` is a division; otherwise it begins a comment up to the end of the line. */
bool foreign_divides(const Reader *reader, Span span);
void foreign_comment(Reader *reader, Span span);
/* Reports a number such as 12.5 or 1e9. Returns its integer part, or INT64_MAX if it has too many digits for 64 bits.
   */
int64_t foreign_number(Reader *reader, Span span);
/* Whether the `if` at `span` belongs to Python's `a if c else b`. If so, reports it, unless a syntax error was reported
   on its line. */
bool foreign_choice(Reader *reader, Span span);

/* Each of these functions either reports the error and returns true, or returns false because it is an error of another
   kind. */
bool foreign_word(Reader *reader, const SyntaxError *error); /* a word in an expression: and, or, not, mod, 80G ... */
/* a number of repetitions in a wrong place: w*nF, 4 F, 1F1B, F*4, F x 4 */
bool foreign_count(Reader *reader, const SyntaxError *error);
/* chunk or microbatch in wrong brackets: F(c), F(c, m), F[c, m], F{c, m} */
bool foreign_call(Reader *reader, const SyntaxError *error);

/* A help for an item that begins with this word of another language: what to write instead. NULL: the word is
   unknown. */
const char *foreign_item(const char *word);
