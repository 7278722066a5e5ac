#ifndef PROVE_LEGAL_H
#define PROVE_LEGAL_H

#include "compiler/schedule/passes.h"

/* Checks that every order is legal as far as one rank can tell, and fills the table: microbatches and stages in range;
   every F, and every B or I and W, exactly once and on the rank of its stage; F before its backward, I before its W;
   the halves of an F&B are an F and a B or I of different microbatches. Every breach is a diagnostic naming rank and
   pass. */
bool legal(const Schedule *schedule, Arena *arena, Diagnostics *diagnostics, PassTable *table);

#endif
